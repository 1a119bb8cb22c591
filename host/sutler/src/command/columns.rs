//! Rows of text on a terminal.

use sutler_ledger::Millis;
use sutler_model::Application;

/// Each column as wide as its widest text.
pub(super) fn columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |i: usize| rows.iter().filter_map(|r| r.get(i)).map(|t| t.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(text, width)| format!("{text:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A time as RFC 3339.
pub(super) fn time(at: Millis) -> String {
    let time = chrono::DateTime::from_timestamp_millis(at.0).unwrap_or_default();
    time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// An application with all that it is in.
pub(super) fn place(a: &Application) -> String {
    let parts = [a.instance.as_ref(), a.tenant.as_ref(), Some(&a.environment), Some(&a.id)];
    parts.into_iter().flatten().map(|i| i.as_str()).collect::<Vec<_>>().join("/")
}

/// A plugin's or caller's text on a terminal: nothing in it moves the cursor.
pub(super) fn plain(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}
