//! Every table, figure, theorem and numbered claim of the three papers, and where it is held against what is here; or
//! why it is not.

use crate::Section;

/// A claim of a paper.
struct Claim {
    /// Where the paper makes it.
    place: &'static str,
    /// What it says.
    what: &'static str,
    held: Held,
}

/// What became of a claim.
enum Held {
    /// The rows of the tables whose captions begin so, in the section whose title begins so.
    Rows(&'static str, &'static [&'static str]),
    /// It has no row, for this reason.
    Not(&'static str),
}
use Held::{Not, Rows};

const fn claim(place: &'static str, what: &'static str, held: Held) -> Claim {
    Claim { place, what, held }
}

/// A test of a crate holds it, in every run of the tests.
const LAWS: &str = "a law that tests hold (crates/iblt/src/tests)";

const TABLES: &[Claim] = &[
    claim("2.1, 2.2", "INSERT and DELETE in O(k); they never fail", Not(LAWS)),
    claim("2.3", "GET of a key that is there fails with (1 - e^(-kn/m))^k", Rows("GET", &["Keys that are there"])),
    claim("2.3", "GET of a key that is not there, without checks", Rows("GET", &["Keys that are not there"])),
    claim("2.4", "LISTENTRIES in O(m)", Not("a time: benches/peel.rs, docs/performance.md")),
    claim("2.4, Table 1", "thresholds c_k for k = 3 to 7", Rows("Table 1", &[""])),
    claim("2.4, Theorem 1", "listing fails with O(t^(2-k))", Rows("Theorems", &["Theorem 1"])),
    claim("2.4, footnote 5", "irregular tables take less space", Rows("Beyond the paper: cells a key", &[""])),
    claim("2.4, footnote 5", "some keys with more cells are found more often", Rows("Footnote 5", &[""])),
    claim(
        "3, Figure 3",
        "extraneous deletions; GET with checks, (1 - e^(-kn/m))^k",
        Rows("GET", &["Keys that are not"]),
    ),
    claim("3", "a valid key is left with (1 - e^(-k gamma n/m))^k: 8.16 in 10 million", Rows("Figure 2", &["Formula"])),
    claim("3, Theorem 2", "n^(1-b) invalid keys, k = ceil(1/b) + 4", Rows("Theorems", &["Theorem 2"])),
    claim("3", "duplicates, listed with their counts", Rows("Duplicates", &[""])),
    claim(
        "3",
        "a mirror's changed values are found by inserting again",
        Not("a law that tests hold (crates/iblt/src/tests/changed.rs)"),
    ),
    claim("3", "a table lists on without a subtable that is lost, and GET finds less", Rows("Lost memory", &[""])),
    claim(
        "1, 1.3",
        "pairs may exceed the threshold by far; when they are deleted all works again",
        Rows("Section 1.3: spikes", &[""]),
    ),
    claim(
        "1.3",
        "reconciliation, tracking of connections, oblivious selection",
        Not("uses: tests of flowpeel, and crates/iblt/examples"),
    ),
    claim("4", "exclusive ors instead of sums", Not(LAWS)),
    claim(
        "4",
        "compressed zeros and counts",
        Not("snapshots are compressed whole; docs/performance.md has their sizes"),
    ),
    claim("4", "quotienting takes less space", Rows("Section 4: quotienting", &[""])),
    claim("4", "fewer cells where GET is given up", Rows("Beyond the paper: cells a key", &[""])),
    claim(
        "5, Figure 1 (a)",
        "10,000 keys, five hashes, 20,000 trials; 200,000 with 14,600 cells",
        Rows("Figure 1", &["(a)", "The paper's second"]),
    ),
    claim(
        "5, Figure 1 (b)",
        "100,000 keys; 200,000 trials with 144,000 cells",
        Rows("Figure 1", &["(b)", "The paper's second"]),
    ),
    claim("5", "duplicates and deletions: 20,000 complete listings, GET 97.83 %", Rows("Duplicates", &[""])),
    claim("5", "500 and 1,000 damaged keys: GET of valid ones stays 97.83 %", Rows("GET", &["Keys that are there"])),
    claim("5, Figure 2 (a)", "10,000 keys, up to 2,000 damaged", Rows("Figure 2", &["Figure 2 (a)"])),
    claim("5, Figure 2 (b)", "100,000 keys, up to 20,000 damaged", Rows("Figure 2", &["Figure 2 (b)"])),
    claim("5, Table 2", "keys left, three experiments", Rows("Table 2", &["Experiment"])),
    claim(
        "5",
        "values that overflow",
        Not("left out by the paper; sums wrap here, and tests hold that they come back"),
    ),
    claim("6", "several values as a natural condition", Rows("Table 2", &["Beyond the paper"])),
];

const COUNTERS: &[Claim] = &[
    claim(
        "II",
        "a query is never too small, and right where a cell holds the key alone",
        Rows("Invertible Bloom counters: Table III", &["Queries"]),
    ),
    claim(
        "III, Table I",
        "thresholds of 2-cores, h = 3 to 7",
        Rows("Invertible Bloom counters: Table III", &["Tables I and II"]),
    ),
    claim(
        "III-C",
        "a wrong key with less than m (m + 1) / 2S",
        Rows("Invertible Bloom counters: Table III", &["Queries"]),
    ),
    claim(
        "IV-C, both tables",
        "thresholds of 3-cores and of even-odd counters, h = 2 to 7",
        Rows("Invertible Bloom counters: Table III", &["Tables I and II"]),
    ),
    claim(
        "IV-C",
        "these overstate the threshold by about 0.1",
        Rows("Invertible Bloom counters: Table III", &["Highest loads"]),
    ),
    claim(
        "IV-D, V-D",
        "a listing fails with at most 1/2, or 1/3, for S above count^2, or N^3",
        Not("checks have 64 bits: no wrong key was ever listed, see III-C"),
    ),
    claim(
        "V-A",
        "the first, the last or a random key is kept",
        Rows("Invertible Bloom counters: Table III", &["Table III: keys"]),
    ),
    claim(
        "V-B",
        "queues of three levels",
        Not("a check of 64 bits is as certain in each: keys alone first, then two, then three in a cell"),
    ),
    claim(
        "V-B",
        "two kept keys and one other; three and one other",
        Rows("Invertible Bloom counters: Table III", &["Table III: keys"]),
    ),
    claim(
        "V-C, Table II",
        "thresholds of one-key counters, h = 3 to 7",
        Rows("Invertible Bloom counters: Table III", &["Tables I and II"]),
    ),
    claim(
        "VI, Table III",
        "highest loads of four kinds, h = 3 to 7",
        Rows("Invertible Bloom counters: Table III", &["Table III: keys"]),
    ),
    claim(
        "VI, Table III",
        "improvement for the same space",
        Rows("Invertible Bloom counters: Table III", &["Table III: improvement"]),
    ),
    claim("VI, Figure 1", "success around the thresholds", Rows("Invertible Bloom counters: Table III", &["Figure 1"])),
    claim(
        "VI, appendix",
        "even-odd counters decline at h = 6 and 7",
        Rows("Invertible Bloom counters: the hash", &[""]),
    ),
    claim("VII", "both changes in one counter; more hash functions", Not("future work there, and not done here")),
];

const B_FIELD: &[Claim] = &[
    claim("1, Figure 1", "ENCODE and DECODE", Rows("The B-field", &["Figure 1"])),
    claim("2 to 4, Figures 2, 3", "INSERT and LOOKUP", Not("drawings of one example; tests hold it (crates/bfield)")),
    claim("2", "m and k from n and p; nu and kappa from the values", Rows("The B-field", &["1,000,000,000 keys"])),
    claim("2", "hash functions in equal steps are as good", Rows("The B-field", &["Alpha of an array"])),
    claim("5", "alpha of keys that are not in", Rows("The B-field", &["Alpha: keys"])),
    claim("5", "beta of keys that are in", Rows("The B-field", &["Beta"])),
    claim(
        "5",
        "the cascade takes 1 / (1 - beta) of the space; nothing is retrieved wrongly",
        Rows("The B-field", &["1,000,000,000 keys"]),
    ),
    claim(
        "Mutability",
        "a log and a second pass make fields grow: beta is 0, nothing is lost",
        Rows("Options of the B-field", &["Fields that grow"]),
    ),
    claim("Key metrics", "a billion URLs in 7.1 GB", Rows("The B-field", &["1,000,000,000 keys"])),
    claim(
        "Extensions",
        "blocks of cache lines; an array split over machines",
        Rows("Options of the B-field", &["Blocks"]),
    ),
    claim(
        "Extensions",
        "fields in fields by range of values, other codes",
        Not("options without a figure of the paper, for values that are not all as frequent; segments are"),
    ),
];

const PAPERS: [(&str, &[Claim]); 3] = [
    ("Goodrich and Mitzenmacher, *Invertible Bloom Lookup Tables*", TABLES),
    ("Ding and Rauen, *Improving Retrieval Performance for Invertible Bloom Counters*", COUNTERS),
    ("Greenfield, the B-field", B_FIELD),
];

impl Claim {
    /// The tables of these sections that hold it: each as its section, with whether its rows are inside.
    fn verdict(&self, sections: &[Section]) -> String {
        let Rows(title, captions) = self.held else {
            let Not(reason) = self.held else { return String::new() };
            return format!("no row: {reason}");
        };
        let Some(section) = sections.iter().find(|section| section.title.starts_with(title)) else {
            return "not run".to_owned();
        };
        let is_meant = |caption: &str| captions.iter().any(|start| caption.starts_with(start));
        let rows = section.tables.iter().filter(|table| is_meant(&table.caption)).flat_map(|table| &table.rows);
        let (inside, outside): (Vec<_>, Vec<_>) = rows.partition(|row| row.is_expected());
        let count = inside.len() + outside.len();
        format!("*{}*: {count} rows, {} outside", section.title, outside.len())
    }
}

/// The claims as tables, each with its verdict by these sections.
pub(super) fn markdown(sections: &[Section]) -> String {
    let mut text = "\n## The papers, claim by claim\n".to_owned();
    for (paper, claims) in PAPERS {
        text += &format!("\n**{paper}**\n\n| place | claim | here |\n|---|---|---|\n");
        for claim in claims {
            text += &format!("| {} | {} | {} |\n", claim.place, claim.what, claim.verdict(sections));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EXPERIMENTS, RowTable};

    #[test]
    fn every_claim_with_rows_names_a_section() {
        let titles = EXPERIMENTS.map(|experiment| experiment.title());
        for claim in PAPERS.iter().flat_map(|(_, claims)| *claims) {
            if let Rows(title, _) = claim.held {
                assert_eq!(titles.iter().filter(|other| other.starts_with(title)).count(), 1, "{title}");
            }
        }
    }

    #[test]
    fn a_claim_counts_the_rows_of_its_tables() {
        let row = |name: &str| crate::Row::always(name, (9, 10));
        let table = |caption: &str| RowTable { caption: caption.to_owned(), rows: vec![row("one"), row("other")] };
        let tables = vec![table("Theorem 1, k = 3"), table("Theorem 1, k = 4"), table("Theorem 2")];
        let sections = [Section { title: "Theorems 1 and 2", text: "", tables, plots: Vec::new() }];
        let text = markdown(&sections);
        assert!(text.contains("| listing fails with O(t^(2-k)) | *Theorems 1 and 2*: 4 rows, 4 outside |"), "{text}");
        assert!(text.contains("not run") && text.contains("no row: future work"));
    }
}
