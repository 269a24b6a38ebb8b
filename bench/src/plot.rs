//! A report as a picture: a panel for each unit, a bar for each row, as long as the median, with a whisker
//! from the least to the greatest round and a mark where the aim is. Rows that are in curves are drawn as such,
//! and then nothing else is: see `curves.rs`.

use std::path::Path;

use crate::svg::{Colour, Picture, Side};
use crate::{Report, Row, curves};

pub(crate) const WIDTH: i32 = 1000;
const ROW: i32 = 20;
pub(crate) const MARGIN: i32 = 16;
const HEADER: i32 = 56;
/// Letters of a line of the head, and its height.
const HEAD_LETTERS: usize = 160;
const HEAD_LINE: i32 = 15;
const PANEL_HEADER: i32 = 34;
pub(crate) const FONT: i32 = 13;

/// Mean width of a letter of [`FONT`], for columns of text.
const LETTER: f64 = 6.6;

pub(crate) const INK: Colour = Colour(30, 34, 40);
pub(crate) const FAINT: Colour = Colour(110, 118, 129);
const OURS: Colour = Colour(38, 110, 170);
const PEER: Colour = Colour(190, 130, 60);
const AIM: Colour = Colour(190, 50, 60);

/// Whether a chart can be written there, found out before anything is measured.
///
/// # Errors
/// It is not a name of an SVG file, or the file cannot be written.
pub(crate) fn may_draw(path: &Path) -> Result<(), String> {
    let is_svg = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg"));
    if !is_svg {
        return Err(format!("--plot {}: expected a file name that ends in .svg", path.display()));
    }
    let is_new = !path.exists();
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| format!("--plot {}: {error}", path.display()))?;
    if is_new {
        // Nothing stays of a run that fails.
        std::fs::remove_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Draws `report` into an SVG file.
pub(crate) fn draw(report: &Report, path: &Path) -> Result<(), String> {
    let has_curves = report.rows.iter().any(|row| row.curve.is_some());
    let text = if has_curves { curves::svg(report) } else { svg(report) };
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn svg(report: &Report) -> String {
    let panels = panels(&report.rows);
    let rows: i32 = panels.iter().map(|(_, rows)| rows.len() as i32 * ROW + PANEL_HEADER).sum();
    let mut root = Picture::new(WIDTH, head_height(report) + rows + MARGIN);
    paint(&mut root, report, &panels);
    root.finish()
}

/// Rows by unit, in the order in which units come first.
fn panels(rows: &[Row]) -> Vec<(&str, Vec<&Row>)> {
    let mut panels: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows {
        match panels.iter_mut().find(|(unit, _)| *unit == row.unit) {
            Some((_, rows)) => rows.push(row),
            None => panels.push((&row.unit, vec![row])),
        }
    }
    panels
}

/// What was measured, on what, and where: lines that fit into the picture.
fn head_lines(report: &Report) -> Vec<String> {
    let m = &report.machine;
    let text = format!("{}; {}, {} cores, Linux {}", report.data, m.cpu, m.cores, m.kernel);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.len() - 1;
        match lines[line].len() + word.len() < HEAD_LETTERS {
            true if lines[line].is_empty() => lines[line] += word,
            true => lines[line] += &format!(" {word}"),
            false => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The height of what [`head`] writes.
pub(crate) fn head_height(report: &Report) -> i32 {
    HEADER + (head_lines(report).len() as i32 - 1) * HEAD_LINE
}

/// What was measured, on what, and where.
pub(crate) fn head(root: &mut Picture, report: &Report) {
    let title = format!("bench {}", report.bench);
    root.write(&title, (MARGIN, 20), (18, INK), Side::Left);
    for (at, line) in head_lines(report).iter().enumerate() {
        root.write(line, (MARGIN, 42 + at as i32 * HEAD_LINE), (11, FAINT), Side::Left);
    }
}

fn paint(root: &mut Picture, report: &Report, panels: &[(&str, Vec<&Row>)]) {
    head(root, report);

    let letters = report.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let left = MARGIN + (letters as f64 * LETTER) as i32 + 8;
    let right = WIDTH - MARGIN - 70;
    let mut y = head_height(report);
    for (unit, rows) in panels {
        let greatest = |row: &&Row| row.rounds.iter().copied().fold(row.median, f64::max);
        let most = rows.iter().map(greatest).fold(f64::MIN_POSITIVE, f64::max);
        let most = rows.iter().filter_map(|row| row.at_least.or(row.at_most)).fold(most, f64::max);
        let x = |value: f64| left + (value.max(0.0) / most * f64::from(right - left)) as i32;
        root.write(unit, (left, y + PANEL_HEADER / 2), (FONT, FAINT), Side::Left);
        y += PANEL_HEADER;
        for row in rows {
            let middle = y + ROW / 2;
            let color =
                if ["rte_", "libnids", "Vectorscan"].iter().any(|peer| row.name.contains(peer)) {
                    PEER
                } else {
                    OURS
                };
            root.write(&row.name, (left - 8, middle), (FONT, INK), Side::Right);
            let bar = [(left, y + 3), (x(row.median), y + ROW - 3)];
            root.bar(bar, color, 0.75);
            let least = row.rounds.iter().copied().fold(row.median, f64::min);
            root.line(&[(x(least), middle), (x(greatest(row)), middle)], INK, 0.6, 1);
            if let Some(aim) = row.at_least.or(row.at_most) {
                root.line(&[(x(aim), y + 1), (x(aim), y + ROW - 1)], AIM, 1.0, 2);
            }
            let value = crate::report::figure(row.median);
            root.write(&value, (x(greatest(row)) + 6, middle), (FONT, FAINT), Side::Left);
            y += ROW;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_bar_and_names_are_escaped() {
        let mut report = Report::new("toy", "keys < 2 & more");
        report.rows.push(Row::new("plain", "M/s", vec![1.0, 2.0, 3.0]));
        report.rows.push(Row::new("a < b", "M/s", vec![4.0]).at_least(5.0));
        report.rows.push(Row::new("a over b", "ratio", vec![2.0]));
        let svg = svg(&report);
        for text in ["plain", "a &lt; b", "a over b", "ratio", "keys &lt; 2 &amp; more"] {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
        // The paper, three bars.
        assert_eq!(svg.matches("<rect").count(), 4);
    }

    #[test]
    fn a_long_head_goes_on_in_the_next_line() {
        let report = Report::new("toy", "words ".repeat(80));
        let lines = head_lines(&report);
        assert!(
            lines.len() > 2 && lines.iter().all(|line| line.len() <= HEAD_LETTERS),
            "{lines:?}"
        );
        let texts = |report| svg(report).matches("<text").count();
        let short = Report::new("toy", "words".to_owned());
        assert_eq!(texts(&report) - texts(&short), lines.len() - head_lines(&short).len());
    }
}
