//! Why an operation on whole tables was refused. A refused operation changes nothing.

/// Why an operation on whole tables was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The tables have different layouts, or have lost different subtables.
    Layout,
    /// There is no such subtable, or it is the last one left.
    Subtable,
    /// The encoding does not have the length of a table of this layout. Both lengths are in bytes.
    Length {
        /// The length that the layout and the cells need.
        expected: usize,
        /// The length that was found.
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
