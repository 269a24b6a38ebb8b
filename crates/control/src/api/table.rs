//! Tables for people: columns as wide as they must be, numbers right-aligned with thousands.
//!
//! A table of an application is rows of a type that is a [`Row`]. The texts of more than one table are made here.

use super::rows::*;
use crate::metrics::Snapshot;

/// A row that can be printed.
pub trait Row {
    /// Titles; columns of numbers start with `>` and align right.
    const COLUMNS: &'static [&'static str];

    /// The text for no rows at all, such as `no stations`; empty: the titles alone.
    const EMPTY: &'static str = "";

    /// One text per column.
    fn cells(&self) -> Vec<String>;
}

/// Rows under their titles, or the text for no rows; a newline at each line's end.
pub fn table<R: Row>(rows: &[R]) -> String {
    if rows.is_empty() && !R::EMPTY.is_empty() {
        return format!("{}\n", R::EMPTY);
    }
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    print(R::COLUMNS, &cells)
}

/// What interfaces are, and below what they did: in one table no terminal would hold it.
pub fn interfaces(rows: &[InterfaceRow]) -> String {
    let traffic: Vec<Vec<String>> = rows.iter().map(InterfaceRow::traffic).collect();
    format!("{}\n{}", table(rows), print(InterfaceRow::TRAFFIC, &traffic))
}

/// What was dropped and why, and below what to do about it.
pub fn drops(rows: &[DropRow]) -> String {
    if rows.is_empty() {
        return table(rows);
    }
    let remedy = |row: &DropRow| vec![row.reason.clone(), row.remedy.clone()];
    let remedies: Vec<Vec<String>> = rows.iter().map(remedy).collect();
    format!("{}\n{}", table(rows), print(&["reason", "what to do"], &remedies))
}

/// The process in a few lines, then its workers and masters.
pub fn runtime(runtime: &Runtime) -> String {
    let r = runtime;
    let mut pairs = vec![
        ["version".to_owned(), r.version.clone()],
        ["mode".to_owned(), r.mode.clone()],
        ["uptime".to_owned(), time(r.uptime_s)],
        ["table version".to_owned(), thousands(r.table_version)],
    ];
    pairs.extend(r.lines.iter().cloned());
    for (name, bytes) in
        [("tables", r.table_bytes), ("pools", r.pool_bytes), ("resident", r.resident_bytes)]
    {
        pairs.push([name.to_owned(), bytes_text(bytes)]);
    }
    let width = pairs.iter().map(|[name, _]| name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for [name, value] in &pairs {
        out.push_str(&format!("{name:width$}  {value}\n"));
    }
    if !r.workers.is_empty() {
        out.push('\n');
        out.push_str(&table(&r.workers));
    }
    let rare: Vec<_> = r.workers.iter().filter_map(WorkerRow::rare).collect();
    if !rare.is_empty() {
        out.push('\n');
        out.push_str(&print(WorkerRow::RARE, &rare));
    }
    if !r.masters.is_empty() {
        out.push('\n');
        out.push_str(&table(&r.masters));
    }
    out
}

/// Everything that every pipeline shows, and the hottest rows of applications.
pub fn snapshot(snapshot: &Snapshot) -> String {
    let s = snapshot;
    let mut parts =
        vec![interfaces(&s.interfaces), table(&s.queues), table(&s.stages), drops(&s.drops)];
    for hot in &s.hottest {
        parts.push(format!("hottest {}\n{}", hot.title, table(&hot.rows)));
    }
    parts.push(runtime(&s.runtime));
    parts.join("\n")
}

/// Counts in one line: `3 learned, 1,200 moved`.
pub fn counts(counts: &[(u64, &str)]) -> String {
    let counts = counts.iter().map(|(count, what)| format!("{} {what}", thousands(*count)));
    counts.collect::<Vec<_>>().join(", ")
}

/// `1234567` as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Cells beyond this many characters make their own line longer, not the column wider: one name of kilobytes must not
/// pad all others to as many.
const WIDTH_MAX: usize = 120;

/// Texts under titles as in [`Row::COLUMNS`]: `-` for an empty cell, a newline at each line's end. Cells beyond the columns
/// are left out.
pub fn print(columns: &[impl AsRef<str>], rows: &[Vec<String>]) -> String {
    let titles: Vec<String> =
        columns.iter().map(|column| column.as_ref().trim_start_matches('>').to_owned()).collect();
    let width = |i: usize| {
        let cells = rows.iter().map(|row| row.get(i).map_or(0, |cell| cell.chars().count()));
        let cells = cells.filter(|width| *width <= WIDTH_MAX);
        cells.chain([titles[i].chars().count(), 1]).max().unwrap_or(1)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut out = String::new();
    for (n, row) in std::iter::once(&titles).chain(rows).enumerate() {
        let mut line = String::new();
        for (i, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let cell = if cell.is_empty() && n > 0 { "-" } else { cell };
            if i > 0 {
                line.push_str("  ");
            }
            if columns[i].as_ref().starts_with('>') {
                line.push_str(&format!("{cell:>width$}"));
            } else {
                line.push_str(&format!("{cell:width$}"));
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Several in one cell, joined by `,`.
pub fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// A rate: `12 /s`, `3.4 k/s`, `5.67 M/s`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e6 => format!("{:.2} M/s", r / 1e6),
        r if r >= 1e3 => format!("{:.1} k/s", r / 1e3),
        r => format!("{r:.0} /s"),
    }
}

/// A time: `1.5 s`, `2 min 3 s`, `1,000 h 5 min`.
pub fn time(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, _) => format!("{seconds:.1} s"),
        (0, minutes, s) => format!("{minutes} min {s} s"),
        (hours, minutes, _) => format!("{} h {minutes} min", thousands(hours)),
    }
}

/// Bytes in powers of 1,024: `12 B`, `3.4 KiB`, `5.6 MiB`, `7.89 GiB`.
pub fn bytes_text(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{:.2} GiB", b as f64 / (1u64 << 30) as f64),
        b if b >= 1 << 20 => format!("{:.1} MiB", b as f64 / (1u64 << 20) as f64),
        b if b >= 1 << 10 => format!("{:.1} KiB", b as f64 / 1024.0),
        b => format!("{b} B"),
    }
}

impl Row for InterfaceRow {
    const COLUMNS: &'static [&'static str] =
        &[">#", "name", "kind", "state", "mac", ">mtu", "addresses"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.index.to_string(),
            self.name.clone(),
            self.kind.clone(),
            self.state.clone(),
            self.mac.clone(),
            self.mtu.to_string(),
            list(&self.addresses),
        ]
    }
}

impl InterfaceRow {
    /// Titles of [`InterfaceRow::traffic`].
    const TRAFFIC: &'static [&'static str] = &[
        "name",
        ">rx packets",
        ">bytes",
        ">errors",
        ">drops",
        ">rate",
        ">tx packets",
        ">bytes",
        ">errors",
        ">drops",
        ">rate",
    ];

    fn traffic(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            thousands(self.rx_packets),
            thousands(self.rx_bytes),
            thousands(self.rx_errors),
            thousands(self.rx_drops),
            rate(self.rx_rate_pps),
            thousands(self.tx_packets),
            thousands(self.tx_bytes),
            thousands(self.tx_errors),
            thousands(self.tx_drops),
            rate(self.tx_rate_pps),
        ]
    }
}

impl Row for QueueRow {
    const COLUMNS: &'static [&'static str] = &[
        "port",
        ">queue",
        ">worker",
        ">rx packets",
        ">rx bytes",
        ">rx drops",
        ">tx packets",
        ">tx bytes",
        ">tx drops",
    ];

    fn cells(&self) -> Vec<String> {
        let counters = [
            self.rx_packets,
            self.rx_bytes,
            self.rx_drops,
            self.tx_packets,
            self.tx_bytes,
            self.tx_drops,
        ];
        let mut cells = vec![self.port.clone(), self.queue.to_string(), self.worker.to_string()];
        cells.extend(counters.map(thousands));
        cells
    }
}

impl Row for StageRow {
    const COLUMNS: &'static [&'static str] =
        &["stage", ">calls", ">packets", ">packets/call", ">ns/packet"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            thousands(self.calls),
            thousands(self.packets),
            format!("{:.1}", self.packets_per_call),
            format!("{:.1}", self.ns_per_packet),
        ]
    }
}

impl Row for DropRow {
    const COLUMNS: &'static [&'static str] = &["reason", ">packets", "meaning"];
    const EMPTY: &'static str = "no drops";

    fn cells(&self) -> Vec<String> {
        vec![self.reason.clone(), thousands(self.packets), self.text.clone()]
    }
}

impl Row for HotRow {
    const COLUMNS: &'static [&'static str] = &["name", ">packets", ">bytes", "what"];
    const EMPTY: &'static str = "no packets";

    fn cells(&self) -> Vec<String> {
        vec![self.name.clone(), thousands(self.packets), thousands(self.bytes), self.text.clone()]
    }
}

impl Row for WorkerRow {
    const COLUMNS: &'static [&'static str] = &[
        ">worker",
        ">cpu",
        ">packets",
        ">busy %",
        ">empty polls",
        ">wakeups",
        ">fill %",
        ">shade ns/packet",
        "side",
        ">chunks to device",
        ">held",
        ">cells free",
        ">cells",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.cpu.map(|cpu| cpu.to_string()).unwrap_or_default(),
            thousands(self.packets),
            format!("{:.1}", self.busy_percent),
            thousands(self.empty_polls),
            thousands(self.wakeups),
            self.burst_fill_percent.to_string(),
            format!("{:.1}", self.shade_ns_per_packet),
            self.side.clone(),
            thousands(self.chunks_to_device),
            thousands(self.packets_held),
            thousands(self.cells_free),
            thousands(self.cells),
        ]
    }
}

impl WorkerRow {
    /// What most workers have nothing of, in a table of its own: one of all columns would not fit into a terminal.
    const RARE: &'static [&'static str] =
        &[">worker", ">again", ">handed over", ">dumped", ">late", ">panics", "stages"];

    /// The cells of [`WorkerRow::RARE`]; `None` for a worker that has nothing of all that.
    fn rare(&self) -> Option<Vec<String>> {
        let counters = [
            self.packets_again,
            self.packets_handed_over,
            self.packets_dumped,
            self.packets_late,
            self.panics,
        ];
        (counters != [0; 5] || self.gave_up).then(|| {
            let mut cells = vec![self.id.to_string()];
            cells.extend(counters.map(thousands));
            cells.push(if self.gave_up { "given up" } else { "run" }.to_owned());
            cells
        })
    }
}

impl Row for MasterRow {
    const COLUMNS: &'static [&'static str] = &[
        ">#",
        "device",
        "state",
        ">jobs",
        ">packets",
        ">in flight",
        ">failed",
        ">ns/packet",
        ">away",
        ">uploads/job",
        ">launches/job",
        ">up",
        ">down",
    ];

    fn cells(&self) -> Vec<String> {
        let counters = [self.jobs, self.packets, self.jobs_in_flight, self.jobs_failed];
        let state = if self.is_lost { "lost" } else { "up" };
        let mut cells = vec![self.number.to_string(), self.device.clone(), state.to_owned()];
        cells.extend(counters.map(thousands));
        cells.push(format!("{:.1}", self.ns_per_packet));
        cells.push(format!("{:.1} us", self.away_us));
        cells.extend([self.uploads_per_job, self.launches_per_job].map(|n| format!("{n:.1}")));
        cells.extend([self.up_bytes, self.down_bytes].map(bytes_text));
        cells
    }
}
