//! What a benchmark found, for people and for programs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One figure.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// Unit of the figures.
    pub unit: String,
    /// One figure a round.
    pub rounds: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// What the issue of the work asks for, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// The same as an upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// What one should know to read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Where it is in a chart of curves, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
}

/// A row's place in a chart of curves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The panel: rows that are compared with each other share one.
    pub panel: String,
    /// The line.
    pub line: String,
    /// Rows of a batch, or what [`Curve::over`] says; none where the figure is the same for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// What the chart goes over.
    #[serde(default = "rows_of_a_batch")]
    pub over: String,
}

fn rows_of_a_batch() -> String {
    "rows of a batch".to_owned()
}

impl Row {
    /// A row of the figures of all rounds.
    pub fn new(name: impl Into<String>, unit: &str, rounds: Vec<f64>) -> Self {
        let median = median(&rounds);
        Self { name: name.into(), unit: unit.into(), rounds, median, ..Self::default() }
    }

    /// Sets the aim.
    #[must_use]
    pub fn at_least(mut self, aim: f64) -> Self {
        self.at_least = Some(aim);
        self
    }

    /// Sets the bound.
    #[must_use]
    pub fn at_most(mut self, bound: f64) -> Self {
        self.at_most = Some(bound);
        self
    }

    /// Sets the note.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Puts the row into a chart of curves.
    #[must_use]
    pub fn curve(mut self, panel: &str, line: &str, batch: Option<usize>) -> Self {
        self.curve =
            Some(Curve { panel: panel.into(), line: line.into(), batch, over: rows_of_a_batch() });
        self
    }

    /// Says what the row's chart goes over, where that is not rows of a batch.
    #[must_use]
    pub fn over(mut self, over: &str) -> Self {
        if let Some(curve) = &mut self.curve {
            curve.over = over.to_owned();
        }
        self
    }

    fn verdict(&self) -> &'static str {
        match (self.at_least, self.at_most) {
            (Some(aim), _) if self.median < aim => "short",
            (_, Some(bound)) if self.median > bound => "over",
            (None, None) => "",
            _ => "met",
        }
    }
}

/// The machine that figures were measured on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Its cores that this process may use.
    pub cores: usize,
    /// The system.
    pub kernel: String,
    /// Memory, GiB.
    pub memory_gib: u64,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| {
            let line = text.lines().find(|l| l.starts_with(key));
            line.and_then(|l| l.split_once(':')).map(|(_, v)| v.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kib = memory.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_gib: (kib + (1 << 19)) >> 20,
        }
    }
}

/// All figures of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// The benchmark.
    pub bench: String,
    /// Where it ran.
    pub machine: Machine,
    /// What it ran on.
    pub data: String,
    /// The figures.
    pub rows: Vec<Row>,
    /// Answers that were wrong: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrong: Vec<String>,
}

impl Report {
    /// An empty report.
    pub fn new(bench: &str, data: impl Into<String>) -> Self {
        let machine = Machine::here();
        Self { bench: bench.into(), machine, data: data.into(), ..Self::default() }
    }

    /// Fails if an answer was wrong. A figure that falls short is not a failure: machines differ.
    ///
    /// # Errors
    /// The wrong answers.
    pub fn check(&self) -> Result<(), String> {
        if self.wrong.is_empty() { Ok(()) } else { Err(self.wrong.join("\n")) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.machine;
        writeln!(f, "bench {}: {}", self.bench, self.data)?;
        writeln!(f, "{}, {} cores, {} GiB, Linux {}", m.cpu, m.cores, m.memory_gib, m.kernel)?;
        let width = self.rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0);
        writeln!(f, "{:width$} {:>12} {:>12} {:>12}  unit      aim", "", "median", "min", "max")?;
        for row in &self.rows {
            let min = row.rounds.iter().copied().fold(f64::INFINITY, f64::min);
            let max = row.rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let aim = match (row.at_least, row.at_most) {
                (Some(aim), _) => format!("≥ {aim} {}", row.verdict()),
                (_, Some(bound)) => format!("≤ {bound} {}", row.verdict()),
                _ => String::new(),
            };
            // What was not measured has a note instead.
            let figures = [row.median, min, max];
            let figures =
                figures.map(|f| if row.rounds.is_empty() { "-".to_owned() } else { figure(f) });
            let [median, min, max] = figures;
            let text = format!(
                "{:width$} {median:>12} {min:>12} {max:>12}  {:<9} {aim} {}",
                row.name, row.unit, row.note
            );
            writeln!(f, "{}", text.trim_end())?;
        }
        for wrong in &self.wrong {
            writeln!(f, "WRONG: {wrong}")?;
        }
        Ok(())
    }
}

/// The middle one; the mean of the two middle ones of an even number; 0 of none.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.01 || v == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.6}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_short_figure_is_reported_and_a_wrong_answer_fails() {
        let mut report = Report::new("toy", "data");
        report.rows.push(Row::new("x", "Mpps", vec![1.0, 2.0, 3.0]).at_least(2.5));
        assert!(report.to_string().contains("≥ 2.5 short"));
        assert!(report.check().is_ok());
        report.wrong.push("an overtake".into());
        assert!(report.check().is_err());
    }
}
