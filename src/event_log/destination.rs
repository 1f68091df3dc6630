//! Where events go, and as what: `eve:events.json`, `unix:/run/collector.sock`, `syslog:/dev/log`, `-`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What a line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// flowpeel's own lines, as JSON.
    Ndjson,
    /// Lines of Suricata's EVE.
    Eve,
    /// A message of syslog (RFC 5424) with the line of [`LineFormat::Ndjson`] as its text.
    Syslog,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Standard output.
    Stdout,
    /// A file, which is appended to.
    File(PathBuf),
    /// A Unix socket that takes a stream.
    Stream(PathBuf),
    /// A Unix socket that takes a datagram for each line.
    Datagrams(PathBuf),
}

/// One of the destinations of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// What lines look like.
    pub format: LineFormat,
    /// Where they go.
    pub place: Place,
}

impl FromStr for Destination {
    type Err = String;

    /// Reads `[ndjson:|eve:|syslog:]PLACE`, where a place is a file, `-`, `unix:PATH` or `unixgram:PATH`. What syslog
    /// names is the socket that takes its datagrams.
    fn from_str(text: &str) -> Result<Self, String> {
        let formats = [("ndjson:", LineFormat::Ndjson), ("eve:", LineFormat::Eve), ("syslog:", LineFormat::Syslog)];
        let named = formats.iter().find_map(|(prefix, format)| Some((*format, text.strip_prefix(prefix)?)));
        let (format, place) = named.unwrap_or((LineFormat::Ndjson, text));
        let place = if let Some(path) = place.strip_prefix("unix:") {
            Place::Stream(path.into())
        } else if let Some(path) = place.strip_prefix("unixgram:") {
            Place::Datagrams(path.into())
        } else if format == LineFormat::Syslog {
            Place::Datagrams(place.into())
        } else if place == "-" {
            Place::Stdout
        } else {
            Place::File(place.into())
        };
        let destination = Destination { format, place };
        if destination.path().is_some_and(|path| path.as_os_str().is_empty()) {
            return Err("name a file, a socket (unix:PATH, unixgram:PATH) or - for standard output".to_owned());
        }
        Ok(destination)
    }
}

impl Destination {
    /// The file or socket.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Stdout => None,
            Place::File(path) | Place::Stream(path) | Place::Datagrams(path) => Some(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read() {
        for (text, format, place) in [
            ("events.ndjson", LineFormat::Ndjson, Place::File("events.ndjson".into())),
            ("eve:eve.json", LineFormat::Eve, Place::File("eve.json".into())),
            ("-", LineFormat::Ndjson, Place::Stdout),
            ("eve:-", LineFormat::Eve, Place::Stdout),
            ("unix:/run/a.sock", LineFormat::Ndjson, Place::Stream("/run/a.sock".into())),
            ("eve:unixgram:/run/a", LineFormat::Eve, Place::Datagrams("/run/a".into())),
            ("syslog:/dev/log", LineFormat::Syslog, Place::Datagrams("/dev/log".into())),
            ("syslog:unix:/dev/log", LineFormat::Syslog, Place::Stream("/dev/log".into())),
            ("ndjson:eve:x", LineFormat::Ndjson, Place::File("eve:x".into())),
        ] {
            assert_eq!(text.parse(), Ok(Destination { format, place }), "{text}");
        }
        for wrong in ["", "eve:", "unix:", "syslog:unixgram:"] {
            assert!(wrong.parse::<Destination>().unwrap_err().contains("name a file"), "{wrong}");
        }
    }
}
