//! The newest lists that are here, for peers: which there are, and each as it is in its file.

use super::{Shared, in_turn, refused};
use crate::newest::{self, Place};
use axum::body::Body;
use axum::extract::{Path as UrlPath, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flowpeel::export::ListName;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

/// How much of a list is read at once, in bytes: who takes it slowly holds no more.
const PIECE_SIZE: usize = 256 << 10;

/// The newest list of a router.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct ListedFile {
    /// Its number among those that are here.
    pub(super) number: usize,
    /// The router.
    pub(super) router: String,
    /// The name of the file.
    pub(super) name: String,
}

/// The path of a list.
pub(super) fn name_of_file(file: &ListedFile) -> String {
    format!("/api/v1/lists/{}/{}", file.number, file.name)
}

/// The newest lists in full of these places, and where they are.
fn newest(places: &[Place]) -> Vec<(ListedFile, PathBuf)> {
    let newest = |place: &Place| -> Option<ListName> {
        newest::names(&place.directory).ok()?.into_iter().rfind(|name| !name.is_changes())
    };
    let found = places.iter().filter_map(|place| Some((newest(place)?, place))).enumerate();
    found
        .map(|(number, (name, place))| {
            let path = place.directory.join(name.path());
            (ListedFile { number, router: place.router.clone(), name: name.to_string() }, path)
        })
        .collect()
}

/// Which lists there are.
pub(super) async fn lists(State(shared): State<Arc<Shared>>) -> Response {
    let view = shared.view();
    let work = move || {
        let files: Vec<ListedFile> = newest(&view.own_places).into_iter().map(|(file, _)| file).collect();
        serde_json::to_vec(&files).unwrap_or_default()
    };
    in_turn(&shared.questions, work).await
}

/// One of them. A list that has been followed by another is not here any more.
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    UrlPath((number, name)): UrlPath<(usize, String)>,
) -> Response {
    let view = shared.view();
    let found = tokio::task::spawn_blocking(move || -> Option<(File, u64)> {
        let newest = newest(&view.own_places);
        let (_, path) = newest.get(number).filter(|(file, _)| file.name == name)?;
        let file = File::open(path).ok()?;
        let size = file.metadata().ok()?.len();
        Some((file, size))
    });
    let Ok(Some((file, size))) = found.await else { return refused(StatusCode::NOT_FOUND, "this list is not here") };
    let pieces = futures_util::stream::try_unfold(file, |mut file| async move {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::with_capacity(PIECE_SIZE);
            (&mut file).take(PIECE_SIZE as u64).read_to_end(&mut piece).map(|_| (Bytes::from(piece), file))
        });
        let (piece, file) = read.await.map_err(io::Error::other)??;
        Ok::<_, io::Error>((!piece.is_empty()).then_some((piece, file)))
    });
    let headers = [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_LENGTH, size.to_string())];
    (headers, Body::from_stream(pieces)).into_response()
}
