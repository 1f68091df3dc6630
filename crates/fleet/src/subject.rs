//! Where the frames of a router go: a subject of the broker for each of its partitions, and a folder for its lists.
//!
//! A name of a router may be any text. In a subject and as a folder it must neither mean something nor be the same as
//! another's, so what could is written as `%` and two hexadecimal digits.

use flowpeel::signal::PARTITION_COUNT;
use flowpeel::snapshot::is_name;
use std::fmt::Write;

/// What the subjects of all frames begin with: the version of their layout is in it.
const ROOT: &str = "flowpeel.v1";

/// The subjects of all frames.
pub const ALL: &str = "flowpeel.v1.>";

/// The subject of a router's frames of one partition.
#[must_use]
pub fn of(router: &str, partition: usize) -> String {
    format!("{ROOT}.{}.{partition}", token(router))
}

/// The subjects of the frames that all routers have of one partition.
#[must_use]
pub fn of_partition(partition: usize) -> String {
    format!("{ROOT}.*.{partition}")
}

/// The router and the partition of a subject, if it is one of ours.
///
/// ```
/// use flowpeel_fleet::subject;
/// assert_eq!(subject::of("edge.example", 3), "flowpeel.v1.edge%2Eexample.3");
/// assert_eq!(subject::parse("flowpeel.v1.edge%2Eexample.3"), Some(("edge.example".to_owned(), 3)));
/// assert_eq!(subject::parse("flowpeel.v1.a.b.3"), None);
/// ```
#[must_use]
pub fn parse(subject: &str) -> Option<(String, usize)> {
    let (token, partition) = subject.strip_prefix(ROOT)?.strip_prefix('.')?.rsplit_once('.')?;
    let partition = partition.parse().ok().filter(|partition| *partition < PARTITION_COUNT)?;
    let router = router_of_token(token)?;
    // One subject has one form.
    (of(&router, partition) == subject).then_some((router, partition))
}

/// The name of a router as a part of a subject.
#[must_use]
pub fn token(router: &str) -> String {
    escaped(router, |byte, _| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The router of a part of a subject.
#[must_use]
pub fn router_of_token(text: &str) -> Option<String> {
    unescaped(text).filter(|router| is_name(router) && token(router) == text)
}

/// The name of the folder for a router's lists.
///
/// ```
/// use flowpeel_fleet::subject;
/// assert_eq!(subject::folder("edge.example"), "edge.example");
/// assert_eq!(subject::folder("../a b"), "%2E.%2Fa%20b");
/// ```
#[must_use]
pub fn folder(router: &str) -> String {
    escaped(router, |byte, at| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && at > 0))
}

/// The router of a folder.
#[must_use]
pub fn router_of_folder(name: &str) -> Option<String> {
    unescaped(name).filter(|router| is_name(router) && !router.is_empty() && folder(router) == name)
}

/// The text with `%` and two digits for every byte that `is_plain`, given the byte and its place, does not let pass.
fn escaped(text: &str, is_plain: impl Fn(u8, usize) -> bool) -> String {
    let mut escaped = String::new();
    for (at, byte) in text.bytes().enumerate() {
        if is_plain(byte, at) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(if byte == b'%' { (digit()? << 4 | digit()?) as u8 } else { byte });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_subject_of_ours_is_refused() {
        for other in
            ["", "flowpeel.v1", "flowpeel.v1..0x", "flowpeel.v2.a.0", "flowpeel.v1.a.8", "flowpeel.v1.a.+1", "x.a.0"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
        for other in
            ["flowpeel.v1.%61.0", "flowpeel.v1.%2e.0", "flowpeel.v1.%FF.0", "flowpeel.v1.%2.0", "flowpeel.v1.a.00"]
        {
            assert_eq!(parse(other), None, "{other} has another form");
        }
    }

    proptest! {
        #[test]
        fn every_name_is_a_subject_and_a_folder_of_its_own(router in "\\PC{1,12}", partition in 0..PARTITION_COUNT) {
            prop_assume!(is_name(&router));
            let subject = of(&router, partition);
            prop_assert!(!subject.contains([' ', '*', '>', '/']) && subject.split('.').count() == 4);
            prop_assert_eq!(parse(&subject), Some((router.clone(), partition)));
            let folder = folder(&router);
            prop_assert!(!folder.starts_with('.') && !folder.contains('/'));
            prop_assert_eq!(router_of_folder(&folder), Some(router));
        }
    }
}
