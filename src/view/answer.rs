//! A request in, its answer out: the rows of the board filtered, sorted or grouped, as far as the window needs it.

use crate::list::Row;
use crate::select::{Arrangement, Filter, Selection};
use crate::view::board::{Board, CopiedRows};
use crate::view::protocol::{
    Answer, Connection, Ends, GroupObject, PROTOCOL_VERSION, Page, Request, RequestError, RowObject, WINDOW_COUNT_MAX,
};

/// What answers requests. It keeps the arrangement of the last one, so that scrolling filters nothing again.
#[derive(Default)]
pub(super) struct Answerer {
    arrangement: Arrangement,
    /// The list and the selection that it is of.
    arranged: Option<(u64, Selection)>,
}

impl Answerer {
    /// The answer to a request.
    ///
    /// Complexity: a few passes over the copied rows where the client does not have them, otherwise none.
    pub(super) fn answer(&mut self, request: &Request, board: &Board) -> Answer {
        if request.version != PROTOCOL_VERSION {
            let (version, asked) = (PROTOCOL_VERSION, request.version);
            return refusal(format!("this flowpeel speaks version {version} of the protocol, not {asked}"), None);
        }
        let filter = match request.filter.trim() {
            "" => None,
            text => match text.parse::<Filter>() {
                Ok(filter) => Some(filter),
                Err(error) => return refusal(error.reason().to_owned(), Some(error.position())),
            },
        };
        let selection = Selection { filter, sort: request.sort, limit: None, group_by: request.group_by };
        let mut answer = Answer { version: PROTOCOL_VERSION, ..Answer::default() };
        {
            let latest = board.latest();
            answer.overview = latest.overview;
            answer.samples = latest.samples.iter().filter(|sample| sample.list > request.known_list).copied().collect();
        }
        let rows = board.rows();
        answer.rows_of = rows.list;
        if rows.list == 0 {
            return answer;
        }
        if rows.list != request.known_rows {
            answer.page = Some(self.page(request, selection, &rows));
        }
        answer.connection = request.connection.as_ref().map(|ends| connection(ends, &rows, board));
        answer
    }

    fn page(&mut self, request: &Request, selection: Selection, rows: &CopiedRows) -> Page {
        let CopiedRows { list, copy, .. } = rows;
        let is_arranged = self.arranged.as_ref().is_some_and(|(of, same)| of == list && *same == selection);
        if !is_arranged {
            self.arrangement.arrange(&selection, copy);
        }
        let arrangement = &mut self.arrangement;
        let line_count = match selection.group_by {
            Some(_) => arrangement.group_count(),
            None => arrangement.row_count(),
        };
        let count = usize::try_from(request.count.min(WINDOW_COUNT_MAX)).unwrap_or(0);
        // Behind the end there is the last window.
        let offset = usize::try_from(request.offset).unwrap_or(usize::MAX).min(line_count.saturating_sub(count));
        let window = offset..offset + count;
        let mut page = Page {
            listed: copy.len() as u64,
            selected: arrangement.row_count() as u64,
            group_count: arrangement.group_count() as u64,
            offset: offset as u64,
            end_ns: copy.end_ns(),
            ..Page::default()
        };
        match selection.group_by {
            Some(group_by) => {
                page.groups = arrangement.groups(group_by, window, copy).iter().map(GroupObject::from).collect();
            }
            None => page.rows = arrangement.rows(selection.sort, window, copy).iter().map(RowObject::from).collect(),
        }
        self.arranged = Some((*list, selection));
        page
    }
}

/// An answer that says only why.
pub(super) fn refusal(reason: String, position: Option<usize>) -> Answer {
    let error = Some(RequestError { reason, position });
    Answer { version: PROTOCOL_VERSION, error, ..Answer::default() }
}

/// What the rows say of a connection, and its other name.
fn connection(ends: &Ends, rows: &CopiedRows, board: &Board) -> Connection {
    let nat = ends.key().and_then(|key| board.nat_of(&key));
    let mut found = Connection { ends: ends.clone(), row: None, nat, of_client: 0, of_server: 0, of_both: 0 };
    let is_asked = |row: &Row| row.client == ends.client && row.server == ends.server && Ends::of(row) == *ends;
    for row in rows.copy.rows() {
        let is_of_client = row.client.ip() == ends.client.ip();
        found.of_client += u64::from(is_of_client);
        found.of_server += u64::from(row.server.ip() == ends.server.ip());
        found.of_both += u64::from(is_of_client && row.server == ends.server);
        if is_asked(&row) {
            found.row = Some(RowObject::from(&row));
        }
    }
    found
}
