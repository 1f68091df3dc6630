//! Columns for people: cells in, aligned lines out.

/// The side of its column at which a cell stands.
#[derive(Clone, Copy)]
pub(super) enum Align {
    Left,
    Right,
}

/// A line for each row, with every column as wide as its widest cell and two spaces between columns. Lines do not end
/// in spaces.
pub(super) fn lines<const N: usize>(rows: &[[String; N]], aligns: [Align; N]) -> impl Iterator<Item = String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    rows.iter().map(move |row| {
        let mut line = String::new();
        for ((cell, width), align) in row.iter().zip(widths).zip(aligns) {
            line += &match align {
                Align::Left => format!("{cell:<width$}  "),
                Align::Right => format!("{cell:>width$}  "),
            };
        }
        line.truncate(line.trim_end().len());
        line
    })
}

/// All [`lines`] as one text.
pub(super) fn text<const N: usize>(rows: &[[String; N]], aligns: [Align; N]) -> String {
    lines(rows, aligns).map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["név", "1", "a note"], ["a", "1,000", ""], ["", "", ""]].map(|row| row.map(str::to_owned));
        let text = text(&rows, [Align::Left, Align::Right, Align::Left]);
        assert_eq!(text, "név      1  a note\na    1,000\n\n");
    }
}
