//! A report as curves: a panel for each set of rows that are compared, a line for each way, a rate over the
//! rows of a batch or something else, both by orders of magnitude. A figure that knows no batch is a level line.

use crate::plot::{FAINT, FONT, INK, MARGIN, WIDTH, head, head_height};
use crate::report::{Curve, figure};
use crate::svg::{Colour, Picture, Side};
use crate::{Report, Row};

const PANEL: i32 = 260;
const LEFT: i32 = MARGIN + 60;
/// Beside it is room for names of 38 letters.
const RIGHT: i32 = WIDTH - 270;

const COLORS: [Colour; 6] = [
    Colour(140, 148, 158),
    Colour(38, 110, 170),
    Colour(190, 130, 60),
    Colour(190, 50, 60),
    Colour(70, 140, 90),
    Colour(120, 80, 160),
];

/// A line: its name and its points.
type Line<'a> = (&'a str, Vec<(Option<usize>, f64)>);

/// What is compared: its name, what the axes are, the lines.
#[derive(Debug)]
struct Panel<'a> {
    name: &'a str,
    axes: String,
    lines: Vec<Line<'a>>,
}

/// The chart of all rows that are in curves.
pub(crate) fn svg(report: &Report) -> String {
    let panels = panels(&report.rows);
    let top = head_height(report);
    let mut root = Picture::new(WIDTH, top + panels.len() as i32 * PANEL + MARGIN);
    head(&mut root, report);
    for (number, of) in panels.iter().enumerate() {
        panel(&mut root, of, top + number as i32 * PANEL);
    }
    root.finish()
}

/// Lines by panel, in the order in which they come up.
fn panels(rows: &[Row]) -> Vec<Panel<'_>> {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for row in rows {
        let Some(Curve { panel, line, batch, over }) = &row.curve else { continue };
        let at = panels.iter().position(|known| known.name == panel).unwrap_or_else(|| {
            let axes = format!("{} over {over}", row.unit);
            panels.push(Panel { name: panel, axes, lines: Vec::new() });
            panels.len() - 1
        });
        let lines = &mut panels[at].lines;
        let at = lines.iter().position(|(name, _)| name == line).unwrap_or_else(|| {
            lines.push((line, Vec::new()));
            lines.len() - 1
        });
        // What was not measured, or is nothing, has no place among orders of magnitude.
        if row.median > 0.0 {
            lines[at].1.push((*batch, row.median));
        }
    }
    panels
}

fn panel(root: &mut Picture, Panel { name, axes, lines }: &Panel<'_>, top: i32) {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let mut batches: Vec<usize> = points().filter_map(|(batch, _)| *batch).collect();
    batches.sort_unstable();
    batches.dedup();
    let least = points().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
    let most = points().map(|(_, rate)| *rate).fold(0.0, f64::max);
    if most == 0.0 {
        return root.write(name, (LEFT, top + 14), (FONT, INK), Side::Left);
    }
    let (low, high) = (least / 1.3, most * 1.3);
    let (ceiling, floor) = (top + 30, top + PANEL - 40);
    let y = |rate: f64| {
        floor - ((rate / low).ln() / (high / low).ln() * f64::from(floor - ceiling)) as i32
    };
    let (first, last) = match (batches.first(), batches.last()) {
        (Some(first), Some(last)) if first < last => (*first as f64, *last as f64),
        _ => (1.0, 2.0),
    };
    let x = |batch: usize| {
        let share = (batch as f64 / first).ln() / (last / first).ln();
        LEFT + (share.clamp(0.0, 1.0) * f64::from(RIGHT - LEFT)) as i32
    };
    root.write(name, (LEFT, top + 14), (FONT, INK), Side::Left);
    for rate in ticks(low, high) {
        root.line(&[(LEFT, y(rate)), (RIGHT, y(rate))], FAINT, 0.2, 1);
        root.write(&tick(rate), (LEFT - 8, y(rate)), (11, FAINT), Side::Right);
    }
    for batch in &batches {
        root.line(&[(x(*batch), ceiling), (x(*batch), floor)], FAINT, 0.2, 1);
        root.write(&batch.to_string(), (x(*batch), floor + 12), (11, FAINT), Side::Centre);
    }
    root.write(axes, (RIGHT, floor + 28), (11, FAINT), Side::Right);
    // Names are at the ends of their lines, one below the other where these lie close together.
    let mut ends = Vec::new();
    for (number, (line, points)) in lines.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        let mut path: Vec<(i32, i32)> = Vec::new();
        for (batch, rate) in points {
            match batch {
                Some(batch) => path.push((x(*batch), y(*rate))),
                None => path.extend([(LEFT, y(*rate)), (RIGHT, y(*rate))]),
            }
        }
        let Some(end) = path.last().copied() else { continue };
        root.line(&path, color, 1.0, 2);
        if points.iter().any(|(batch, _)| batch.is_some()) {
            for place in path {
                root.dot(place, 3, color);
            }
        }
        ends.push((end.1, line, color));
    }
    ends.sort_by_key(|(y, _, _)| *y);
    let mut free = ceiling;
    for (y, line, color) in ends {
        let y = y.max(free);
        root.write(line, (RIGHT + 10, y), (FONT, color), Side::Left);
        free = y + FONT + 3;
    }
}

/// A tick as people write it.
fn tick(rate: f64) -> String {
    if (0.001..1000.0).contains(&rate) { rate.to_string() } else { figure(rate) }
}

/// 1, 2 and 5 of each order of magnitude between two rates; where these are fewer than three, all of 1 to 9.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let of = |digits: &[f64]| {
        let orders = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let ticks = orders.flat_map(|order| digits.iter().map(move |n| n * 10f64.powi(order)));
        ticks.filter(|tick| (low..=high).contains(tick)).collect::<Vec<f64>>()
    };
    let few = of(&[1.0, 2.0, 5.0]);
    if few.len() < 3 { of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]) } else { few }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_a_line_and_each_batch_a_point() {
        let mut report = Report::new("toy", "keys");
        for (panel, factor) in [("IPv4", 1.0), ("a < b", 3.0)] {
            let flat = Row::new("cpu", "M/s", vec![20.0 * factor]);
            report.rows.push(flat.curve(panel, "CPU & core", None));
            for (batch, rate) in [(256, 2.0), (1024, 15.0), (4096, 200.0)] {
                let row = Row::new("device", "M/s", vec![rate * factor]);
                report.rows.push(row.curve(panel, "device", Some(batch)));
            }
        }
        report.rows.push(Row::new("in no chart", "ratio", vec![1.0]));
        report.rows.push(Row::new("nothing", "M/s", vec![]).curve("IPv4", "absent", None));
        let svg = svg(&report);
        for text in ["IPv4", "a &lt; b", "CPU &amp; core", "device", "4096", "100", "500"] {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
        assert_eq!(svg.matches("<circle").count(), 6);
        assert!(!svg.contains("in no chart") && !svg.contains("absent"));
        assert_eq!(svg.matches(r#"stroke-width="2""#).count(), 4);
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(1.5, 60.0), [2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(ticks(10.0, 10.0), [10.0]);
        assert_eq!([0.05, 0.2, 5.0, 200.0].map(tick), ["0.05", "0.2", "5", "200"]);
        assert_eq!(ticks(45.0, 105.0), [50.0, 60.0, 70.0, 80.0, 90.0, 100.0]);
    }
}
