//! Where events go, and as what: `eve:events.json`, `unix:/run/collector.sock`, `ipfix:udp:10.0.0.9:4739`,
//! `parquet:events/`, `-`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What an event looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFormat {
    /// flowpeel's own lines, as JSON.
    Ndjson,
    /// Lines of Suricata's EVE.
    Eve,
    /// A message of syslog (RFC 5424) with the line of [`EventFormat::Ndjson`] as its text.
    Syslog,
    /// A record of IPFIX.
    Ipfix,
    /// A row of Parquet.
    Parquet,
}

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Standard output.
    Stdout,
    /// A file, which is appended to.
    File(PathBuf),
    /// A directory of files by the hour.
    Directory(PathBuf),
    /// A Unix socket that takes a stream.
    Stream(PathBuf),
    /// A Unix socket that takes a datagram for each line.
    Datagrams(PathBuf),
    /// A collector that takes a stream over TCP: its host and port.
    Tcp(String),
    /// A collector that takes datagrams over UDP: its host and port.
    Udp(String),
}

impl Place {
    /// The file or socket of this system.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Place::File(path) | Place::Directory(path) | Place::Stream(path) | Place::Datagrams(path) => Some(path),
            Place::Stdout | Place::Tcp(_) | Place::Udp(_) => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Place::Stdout => f.write_str("standard output"),
            Place::File(path) | Place::Directory(path) | Place::Stream(path) | Place::Datagrams(path) => {
                write!(f, "{}", path.display())
            }
            Place::Tcp(host) | Place::Udp(host) => f.write_str(host),
        }
    }
}

/// One of the destinations of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// What events look like.
    pub format: EventFormat,
    /// Where they go.
    pub place: Place,
}

/// The names of formats, as they stand before a place.
const FORMATS: [(&str, EventFormat); 5] = [
    ("ndjson:", EventFormat::Ndjson),
    ("eve:", EventFormat::Eve),
    ("syslog:", EventFormat::Syslog),
    ("ipfix:", EventFormat::Ipfix),
    ("parquet:", EventFormat::Parquet),
];

impl FromStr for Destination {
    type Err = String;

    /// Reads `[ndjson:|eve:|syslog:]PLACE`, where a place is a file, `-`, `unix:PATH` or `unixgram:PATH`, or
    /// `ipfix:udp:HOST:PORT` or `ipfix:tcp:HOST:PORT`, or `parquet:DIRECTORY`. What syslog names is the socket that
    /// takes its datagrams.
    fn from_str(text: &str) -> Result<Self, String> {
        let named = FORMATS.iter().find_map(|(prefix, format)| Some((*format, text.strip_prefix(prefix)?)));
        let (format, place) = named.unwrap_or((EventFormat::Ndjson, text));
        if format == EventFormat::Ipfix {
            let host = |name: &str| place.strip_prefix(name).filter(|host| has_port(host)).map(str::to_owned);
            let place = host("udp:").map(Place::Udp).or_else(|| host("tcp:").map(Place::Tcp));
            let place = place.ok_or("a collector is ipfix:udp:HOST:PORT or ipfix:tcp:HOST:PORT")?;
            return Ok(Destination { format, place });
        }
        let place = if format == EventFormat::Parquet {
            Place::Directory(place.into())
        } else if let Some(path) = place.strip_prefix("unix:") {
            Place::Stream(path.into())
        } else if let Some(path) = place.strip_prefix("unixgram:") {
            Place::Datagrams(path.into())
        } else if format == EventFormat::Syslog {
            Place::Datagrams(place.into())
        } else if place == "-" {
            Place::Stdout
        } else {
            Place::File(place.into())
        };
        if place.path().is_some_and(|path| path.as_os_str().is_empty()) {
            return Err(match format {
                EventFormat::Parquet => "name a directory for files of Parquet".to_owned(),
                _ => "name a file, a socket (unix:PATH, unixgram:PATH) or - for standard output".to_owned(),
            });
        }
        Ok(Destination { format, place })
    }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read() {
        for (text, format, place) in [
            ("events.ndjson", EventFormat::Ndjson, Place::File("events.ndjson".into())),
            ("eve:eve.json", EventFormat::Eve, Place::File("eve.json".into())),
            ("-", EventFormat::Ndjson, Place::Stdout),
            ("eve:-", EventFormat::Eve, Place::Stdout),
            ("unix:/run/a.sock", EventFormat::Ndjson, Place::Stream("/run/a.sock".into())),
            ("eve:unixgram:/run/a", EventFormat::Eve, Place::Datagrams("/run/a".into())),
            ("syslog:/dev/log", EventFormat::Syslog, Place::Datagrams("/dev/log".into())),
            ("syslog:unix:/dev/log", EventFormat::Syslog, Place::Stream("/dev/log".into())),
            ("ndjson:eve:x", EventFormat::Ndjson, Place::File("eve:x".into())),
            ("parquet:events/", EventFormat::Parquet, Place::Directory("events/".into())),
            ("ipfix:udp:[::1]:4739", EventFormat::Ipfix, Place::Udp("[::1]:4739".into())),
            ("ipfix:tcp:collector:4739", EventFormat::Ipfix, Place::Tcp("collector:4739".into())),
        ] {
            assert_eq!(text.parse(), Ok(Destination { format, place }), "{text}");
        }
        for wrong in ["", "eve:", "unix:", "syslog:unixgram:"] {
            assert!(wrong.parse::<Destination>().unwrap_err().contains("name a file"), "{wrong}");
        }
        assert!("parquet:".parse::<Destination>().unwrap_err().contains("name a directory"));
        for wrong in
            ["ipfix:", "ipfix:a.file", "ipfix:udp:", "ipfix:udp:host", "ipfix:tcp::4739", "ipfix:udp:host:99999"]
        {
            assert!(wrong.parse::<Destination>().unwrap_err().contains("a collector is"), "{wrong}");
        }
    }
}
