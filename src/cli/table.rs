//! Tables: columns as wide as their widest cell, the last one cut on a terminal, nothing cut in a pipe.

use std::io::IsTerminal;

use super::escape::one_line;

/// Columns narrower than this are not cut further.
const LAST_MIN: usize = 12;

/// Rows under a header.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    has_header: bool,
}

impl Table {
    /// A table with these columns.
    pub(super) fn new(header: &[&str], has_header: bool) -> Self {
        Self { rows: vec![header.iter().map(|&name| name.to_owned()).collect()], has_header }
    }

    /// Adds a row.
    pub(super) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// The text, for stdout as it is.
    pub(super) fn text(&self) -> String {
        let columns =
            rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
        let width = columns.filter(|columns| *columns > 0 && std::io::stdout().is_terminal());
        self.render(width)
    }

    fn render(&self, width: Option<usize>) -> String {
        let columns = self.rows[0].len();
        let widest = |column: usize| {
            let shown = &self.rows[usize::from(!self.has_header)..];
            shown.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns - 1).map(widest).collect();
        let before = widths.iter().sum::<usize>() + 2 * widths.len();
        let room = width.map(|width| width.saturating_sub(before).max(LAST_MIN));
        let mut text = String::new();
        for row in &self.rows[usize::from(!self.has_header)..] {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
            }
            let last = &row[columns - 1];
            match room {
                Some(room) => line.push_str(&one_line(last, room)),
                None => line.push_str(last),
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(has_header: bool) -> Table {
        let mut table = Table::new(&["ID", "TITLE"], has_header);
        table.push(vec!["a".to_owned(), "a title that is rather long".to_owned()]);
        table.push(vec!["bcd".to_owned(), String::new()]);
        table
    }

    #[test]
    fn a_pipe_gets_everything_in_stable_columns() {
        assert_eq!(table(true).render(None), "ID   TITLE\na    a title that is rather long\nbcd\n");
        assert_eq!(table(false).render(None), "a    a title that is rather long\nbcd\n");
    }

    #[test]
    fn a_terminal_cuts_the_last_column_and_no_id() {
        assert_eq!(table(true).render(Some(20)), "ID   TITLE\na    a title that i…\nbcd\n");
        assert_eq!(table(true).render(Some(3)), "ID   TITLE\na    a title tha…\nbcd\n");
    }
}
