//! `flowpeel interfaces`: the interfaces that can be captured, as a table for people or lines of JSON.

use crate::capture::live::{Interface, InterfaceLink, interfaces};
use crate::cli::table::{self, Align};
use crate::cli::{Outcome, Status, print};
use crate::error::Error;
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

/// List the network interfaces
#[derive(Args)]
#[command(display_name = "flowpeel interfaces")]
pub(super) struct Arguments {
    /// Write one JSON object a line
    #[arg(long)]
    json: bool,
}

/// An interface as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    index: u32,
    up: bool,
    link_type: Option<&'static str>,
    supported: bool,
    mac: Option<String>,
    addresses: Vec<String>,
    mtu: Option<u32>,
}

fn mac(interface: &Interface) -> Option<String> {
    let pairs = interface.mac?.map(|byte| format!("{byte:02x}"));
    Some(pairs.join(":"))
}

fn addresses(interface: &Interface) -> Vec<String> {
    interface.addresses.iter().map(|(address, prefix)| format!("{address}/{prefix}")).collect()
}

fn line(interface: &Interface) -> Line<'_> {
    let (link_type, supported) = match interface.link {
        InterfaceLink::Supported(link) => (link.name(), true),
        InterfaceLink::Unsupported(name, _) => (Some(name), false),
        InterfaceLink::Unknown => (None, true),
    };
    Line {
        name: &interface.name,
        index: interface.index,
        up: interface.is_up,
        link_type,
        supported,
        mac: mac(interface),
        addresses: addresses(interface),
        mtu: interface.mtu,
    }
}

fn row(interface: &Interface) -> [String; 7] {
    let link = match interface.link {
        InterfaceLink::Supported(link) => link.name().unwrap_or_default().to_owned(),
        InterfaceLink::Unsupported(name, number) => format!("{name} ({number}), not supported"),
        InterfaceLink::Unknown => "-".to_owned(),
    };
    let or_dash = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned());
    [
        interface.index.to_string(),
        interface.name.escape_debug().to_string(),
        if interface.is_up { "up" } else { "down" }.to_owned(),
        link,
        or_dash(interface.mtu.map(|mtu| mtu.to_string())),
        or_dash(mac(interface)),
        or_dash(Some(addresses(interface).join(" "))),
    ]
}

fn write_table(interfaces: &[Interface], out: &mut impl Write) -> io::Result<()> {
    let head = ["INDEX", "NAME", "STATE", "LINK TYPE", "MTU", "MAC", "ADDRESSES"].map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(interfaces.iter().map(row)).collect();
    out.write_all(table::text(&rows, [Align::Left; 7]).as_bytes())
}

fn write_lines(interfaces: &[Interface], out: &mut impl Write) -> io::Result<()> {
    for interface in interfaces {
        serde_json::to_writer(&mut *out, &line(interface))?;
        writeln!(out)?;
    }
    Ok(())
}

/// Lists the interfaces.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    let interfaces = interfaces()?;
    let mut text = Vec::new();
    let made = if arguments.json { write_lines(&interfaces, &mut text) } else { write_table(&interfaces, &mut text) };
    made.map_err(|error| Error::new("cannot write the interfaces").because(error))?;
    print(&text)?;
    Ok(Status::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::LinkType;

    fn two() -> [Interface; 2] {
        let ethernet = Interface {
            name: "eth0".to_owned(),
            index: 2,
            is_up: true,
            link: InterfaceLink::Supported(LinkType::ETHERNET),
            mac: Some([2, 0, 0, 0, 0, 0xa]),
            addresses: vec![("10.0.0.1".parse().unwrap(), 24), ("fe80::1".parse().unwrap(), 64)],
            mtu: Some(1500),
        };
        let wireless = Interface {
            name: "mon\x1b0".to_owned(),
            index: 13,
            is_up: false,
            link: InterfaceLink::Unsupported("IEEE 802.11", 801),
            mac: None,
            addresses: Vec::new(),
            mtu: None,
        };
        [ethernet, wireless]
    }

    #[test]
    fn people_get_columns_without_control_characters() {
        let mut out = Vec::new();
        write_table(&two(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "INDEX  NAME        STATE  LINK TYPE                         MTU   MAC                ADDRESSES\n\
             2      eth0        up     EN10MB                            1500  02:00:00:00:00:0a  10.0.0.1/24 fe80::1/64\n\
             13     mon\\u{1b}0  down   IEEE 802.11 (801), not supported  -     -                  -\n"
        );
    }

    #[test]
    fn machines_get_one_object_a_line() {
        let mut out = Vec::new();
        write_lines(&two(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["addresses"], serde_json::json!(["10.0.0.1/24", "fe80::1/64"]));
        assert_eq!((&lines[0]["mac"], &lines[0]["up"]), (&"02:00:00:00:00:0a".into(), &true.into()));
        assert_eq!((&lines[1]["name"], &lines[1]["supported"]), (&"mon\x1b0".into(), &false.into()));
        assert!(lines[1]["mac"].is_null() && lines[1]["mtu"].is_null());
        assert!(!text.contains('\x1b'));
    }
}
