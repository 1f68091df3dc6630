//! A list as comma-separated values: a row for each connection, with the columns named in the first.
//!
//! There is no header line about the list, so each row has the list's end and whether it is complete, and a list
//! without connections is a row in which nothing else is set. No value ever needs quotes.

use crate::export::community_id;
use crate::export::decimal::{number, seconds};
use crate::export::flow_line::{ArchivedFlow, address};
use crate::export::lines::BUFFER_SIZE;
use crate::export::timestamp::{Text, TimeFormatter};
use crate::flow::VlanTags;
use crate::handover::SidesSeen;
use crate::list::{List, Nat, Row};
use crate::select::{Group, Selection};
use std::io::{self, Write};
use std::net::SocketAddr;

/// The columns of a list.
const COLUMNS: &str = "list_end,complete,src_ip,src_port,dest_ip,dest_port,vlan,community_id,start,age,state,midstream,\
                       unsettled,start_is_bound,sides,nat_name,nat_src_ip,nat_src_port,nat_dest_ip,nat_dest_port\n";

/// Columns of a list that only a connection has.
const CONNECTION_COLUMN_COUNT: usize = 13 + NAT_COLUMN_COUNT;

/// Those of them that only a translated connection has.
const NAT_COLUMN_COUNT: usize = 5;

/// The columns of groups.
const GROUP_COLUMNS: &str = "list_end,complete,group_by,value,flows,half_open,oldest_age\n";

/// Columns of groups that only a group has.
const GROUP_COLUMN_COUNT: usize = 5;

/// The columns of connections of an archive.
const ARCHIVED_COLUMNS: &str =
    "src_ip,src_port,dest_ip,dest_port,vlan,community_id,start,end,age,state,reason,midstream,start_is_bound\n";

/// Connections of an archive as comma-separated values, with the names of the columns in a first row if they begin a
/// file.
#[must_use]
pub fn archived(flows: impl Iterator<Item = ArchivedFlow>, begins: bool) -> Vec<u8> {
    let names = if begins { ARCHIVED_COLUMNS } else { "" };
    let (mut rows, mut times) = (names.as_bytes().to_vec(), TimeFormatter::default());
    for flow in flows {
        ends(&mut rows, flow.client, flow.server, flow.vlan);
        rows.push(b',');
        rows.extend_from_slice(times.rfc3339(flow.start_ns).as_bytes());
        rows.push(b',');
        if flow.reason.is_some() {
            rows.extend_from_slice(times.rfc3339(flow.end_ns).as_bytes());
        }
        rows.push(b',');
        seconds(&mut rows, flow.age_ns);
        rows.extend_from_slice(if flow.reason.is_some() { b",closed," } else { b",established," });
        rows.extend_from_slice(flow.reason.unwrap_or_default().as_bytes());
        flags(&mut rows, [flow.midstream, flow.start_is_bound]);
        rows.push(b'\n');
    }
    rows
}

/// Appends the columns that identify a connection.
fn ends(row: &mut Vec<u8>, client: SocketAddr, server: SocketAddr, vlan: VlanTags) {
    addresses(row, client, server);
    row.push(b',');
    for (place, tag) in vlan.iter().enumerate() {
        if place > 0 {
            row.push(b' ');
        }
        number(row, u64::from(tag));
    }
    row.push(b',');
    row.extend_from_slice(community_id(client, server).as_bytes());
}

fn addresses(row: &mut Vec<u8>, client: SocketAddr, server: SocketAddr) {
    for (at, end) in [client, server].into_iter().enumerate() {
        if at > 0 {
            row.push(b',');
        }
        address(row, end.ip());
        row.push(b',');
        number(row, u64::from(end.port()));
    }
}

/// Appends the other name of a connection, if it is translated.
fn other_name(row: &mut Vec<u8>, nat: Option<&Nat>) {
    match nat {
        Some(nat) => {
            row.extend_from_slice(format!(",{},", nat.name()).as_bytes());
            addresses(row, nat.client, nat.server);
        }
        None => row.extend(std::iter::repeat_n(b',', NAT_COLUMN_COUNT)),
    }
}

fn flags<const N: usize>(row: &mut Vec<u8>, flags: [bool; N]) {
    for is_set in flags {
        row.extend_from_slice(if is_set { b",true" } else { b",false" });
    }
}

/// Writes lists as comma-separated values.
#[derive(Default)]
pub(super) struct Csv {
    times: TimeFormatter,
    /// Rows that have not been written yet.
    rows: Vec<u8>,
}

impl Csv {
    /// Writes what is selected of a list, with the names of the columns before it if `is_first`.
    pub(super) fn list(
        &mut self,
        out: &mut dyn Write,
        list: &List,
        selection: &Selection,
        is_first: bool,
    ) -> io::Result<()> {
        self.rows.clear();
        let end = self.times.rfc3339(list.header.figures.end_ns);
        let groups = selection.groups(list.rows());
        if is_first {
            self.rows.extend_from_slice(if groups.is_some() { GROUP_COLUMNS } else { COLUMNS }.as_bytes());
        }
        let mut has_rows = false;
        let empty_count = match groups {
            Some((groups, _)) => {
                for group in groups {
                    has_rows = true;
                    self.group(&group, list, selection, &end);
                    self.flush_if_long(out)?;
                }
                GROUP_COLUMN_COUNT
            }
            None => {
                for row in selection.rows(list.rows()) {
                    has_rows = true;
                    self.connection(&row, list, &end);
                    self.flush_if_long(out)?;
                }
                CONNECTION_COLUMN_COUNT
            }
        };
        if !has_rows {
            self.begin(list, &end);
            self.rows.extend(std::iter::repeat_n(b',', empty_count));
            self.rows.push(b'\n');
        }
        self.flush(out)
    }

    /// Appends what every row begins with.
    fn begin(&mut self, list: &List, end: &Text) {
        self.rows.extend_from_slice(end.as_bytes());
        self.rows.extend_from_slice(if list.header.complete { b",true" } else { b",false" });
    }

    fn connection(&mut self, row: &Row, list: &List, end: &Text) {
        self.begin(list, end);
        let line = &mut self.rows;
        line.push(b',');
        ends(line, row.client, row.server, row.vlan);
        line.push(b',');
        line.extend_from_slice(self.times.rfc3339(row.start_ns).as_bytes());
        line.push(b',');
        seconds(line, row.age_ns);
        line.push(b',');
        line.extend_from_slice(row.state.name().as_bytes());
        flags(line, [row.midstream, row.unsettled, row.start_is_bound]);
        line.push(b',');
        if row.sides != SidesSeen::Both {
            line.extend_from_slice(row.sides.name().as_bytes());
        }
        other_name(line, row.nat.as_ref());
        line.push(b'\n');
    }

    fn group(&mut self, group: &Group, list: &List, selection: &Selection, end: &Text) {
        self.begin(list, end);
        let name = selection.group_by.map_or("", |group_by| group_by.name());
        self.rows.extend_from_slice(format!(",{name},{},{},{},", group.key, group.flows, group.half_open).as_bytes());
        seconds(&mut self.rows, group.oldest_ns);
        self.rows.push(b'\n');
    }

    fn flush_if_long(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.rows.len() >= BUFFER_SIZE { self.flush(out) } else { Ok(()) }
    }

    fn flush(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.rows)?;
        self.rows.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_as_many_columns_with_another_name_as_without() {
        let (client, server) = ("198.51.100.1:40000".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap());
        let row = |nat: Option<Nat>| {
            let mut row = Vec::new();
            other_name(&mut row, nat.as_ref());
            String::from_utf8(row).unwrap()
        };
        assert_eq!(row(None), ",,,,,");
        assert_eq!(
            row(Some(Nat { client, server, is_original: true })),
            ",original,198.51.100.1,40000,2001:db8::1,443"
        );
        assert_eq!(COLUMNS.matches(',').count(), 1 + CONNECTION_COLUMN_COUNT);
        assert_eq!(GROUP_COLUMNS.matches(',').count(), 1 + GROUP_COLUMN_COUNT);
    }
}
