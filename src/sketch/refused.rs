//! Why an operation on whole tables was refused. Nothing has changed then.

/// The reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The tables are laid out differently, or have lost different subtables.
    Layout,
    /// There is no such subtable, or it is the last one.
    Subtable,
    /// The encoding has another length than that of a table of this layout, both in bytes.
    Length {
        /// What the layout and the cells need.
        expected: usize,
        /// What there is.
        found: usize,
    },
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Layout => {
                f.write_str("the tables have different layouts: make both with the same placement and cells")
            }
            Refused::Subtable => f.write_str("the table has no such subtable, or none but it"),
            Refused::Length { expected, found } => {
                write!(f, "{found} bytes, where a table of this layout has {expected}: use the layout of who wrote it")
            }
        }
    }
}

impl std::error::Error for Refused {}
