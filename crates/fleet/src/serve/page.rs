//! The page: files that are in the program, and no others.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

/// A file of the page.
struct File {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: [File; 9] = [
    File { path: "/", content_type: HTML, text: include_str!("page/index.html") },
    File { path: "/page.css", content_type: "text/css; charset=utf-8", text: include_str!("page/page.css") },
    File { path: "/page.js", content_type: SCRIPT, text: include_str!("page/page.js") },
    File { path: "/words.js", content_type: SCRIPT, text: include_str!("page/words.js") },
    File { path: "/elements.js", content_type: SCRIPT, text: include_str!("page/elements.js") },
    File { path: "/charts.js", content_type: SCRIPT, text: include_str!("page/charts.js") },
    File { path: "/timeline.js", content_type: SCRIPT, text: include_str!("page/timeline.js") },
    File { path: "/show.js", content_type: SCRIPT, text: include_str!("page/show.js") },
    File { path: "/icon.svg", content_type: "image/svg+xml", text: include_str!("page/icon.svg") },
];

/// The paths of the files.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|file| file.path)
}

/// The file at a path.
pub(super) fn file(path: &str) -> Option<Response> {
    let file = FILES.iter().find(|file| file.path == path)?;
    Some(([(CONTENT_TYPE, file.content_type), (CACHE_CONTROL, "no-cache")], file.text).into_response())
}
