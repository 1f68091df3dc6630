//! A strict reader of Prometheus' text format, made from its description alone: it takes nothing that a scraper might
//! not.

use std::collections::{BTreeMap, BTreeSet};

/// One family.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    /// By name and labels as they stand.
    pub(crate) samples: BTreeMap<String, f64>,
}

fn is_name(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    text.starts_with(is_letter) && text.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit())
}

/// The text behind the labels, if they are well-formed; the labels' names are added to `names`.
fn after_labels<'a>(text: &'a str, names: &mut BTreeSet<String>) -> Option<&'a str> {
    let Some(mut rest) = text.strip_prefix('{') else { return Some(text) };
    loop {
        let (name, value) = rest.split_once("=\"")?;
        if !is_name(name) || !names.insert(name.to_owned()) {
            return None;
        }
        let mut letters = value.char_indices();
        let end = loop {
            match letters.next()? {
                (_, '\\') if !matches!(letters.next()?.1, '\\' | '"' | 'n') => return None,
                (at, '"') => break at,
                _ => {}
            }
        };
        rest = &value[end + 1..];
        match rest.split_at_checked(1)? {
            (",", more) => rest = more,
            ("}", more) => return Some(more),
            _ => return None,
        }
    }
}

/// Every family by name.
///
/// # Panics
///
/// The text breaks a rule of the format.
pub(crate) fn parse(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n'), "the last line has no end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut present = String::new();
    let mut label_names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(is_name(name) && !help.is_empty() && !help.contains('\\'), "{line}");
            let earlier = families.insert(name.to_owned(), Family::default());
            assert!(earlier.is_none(), "{name} comes twice");
            present = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let family = families.get_mut(name).unwrap();
            assert!(name == present && family.kind.is_empty() && family.samples.is_empty(), "{line}");
            assert!(["counter", "gauge", "summary"].contains(&kind), "{line}");
            family.kind = kind.to_owned();
        } else {
            let at = line.find(['{', ' ']).unwrap();
            let mut names = BTreeSet::new();
            let rest = after_labels(&line[at..], &mut names).unwrap_or_else(|| panic!("{line}"));
            let value = rest.strip_prefix(' ').unwrap();
            let family = families.get_mut(&present).unwrap();
            let suffix = line[..at].strip_prefix(&present).unwrap_or_else(|| panic!("{line} in {present}"));
            let is_summary = family.kind == "summary";
            assert!(suffix.is_empty() || (is_summary && ["_sum", "_count"].contains(&suffix)), "{line}");
            assert_eq!(is_summary && suffix.is_empty(), names.contains("quantile"), "{line}");
            let same_names = label_names.entry(line[..at].to_owned()).or_insert(names.clone());
            assert_eq!(*same_names, names, "labels change: {line}");
            let number: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(!value.contains(['e', 'E', '+']) && (number >= 0.0 || (number.is_nan() && is_summary)), "{line}");
            let series = line[..line.len() - rest.len()].to_owned();
            assert!(family.samples.insert(series, number).is_none(), "twice: {line}");
        }
    }
    for (name, family) in &families {
        assert!(!family.kind.is_empty() && !family.samples.is_empty(), "{name} has no type or no sample");
        assert_eq!(name.ends_with("_total"), family.kind == "counter", "{name} is a {}", family.kind);
    }
    families
}

#[test]
fn what_is_not_as_it_has_to_be_is_refused() {
    let head = "# HELP a_total A.\n# TYPE a_total counter\n";
    assert_eq!(parse(&format!("{head}a_total{{b=\"\\\"c\\n,}}\"}} 1\n"))["a_total"].samples.len(), 1);
    for samples in [
        "a_total 1",
        "a_total one\n",
        "a_total -1\n",
        "a_total NaN\n",
        "a_total 1e5\n",
        "a_total  1\n",
        "a_total 1\na_total 1\n",
        "a_total 1\na_total{b=\"c\"} 1\n",
        "a_total{b=\"c\" 1\n",
        "a_total{b=\"c\\d\"} 1\n",
        "a_total{b=\"c\",b=\"d\"} 1\n",
        "a_total{B=\"c\"} 1\n",
        "b_total 1\n",
        "a_total_sum 1\n",
        "# HELP a_total A.\n",
        "",
    ] {
        let text = format!("{head}{samples}");
        assert!(std::panic::catch_unwind(|| parse(&text)).is_err(), "{samples:?}");
    }
}
