//! What a dashboard shows of two snapshots that follow each other: tables, with rates, ready to be sorted and drawn.
//!
//! Counters come as totals. A rate is what was added from one snapshot to the next, by the instance's own clock; after
//! `clear counters` totals are smaller than before, and the rate is zero once.

use std::collections::{HashMap, VecDeque};

use control::api::table::{bytes_text, rate, thousands, time};
use control::api::{
    DropRow, HotRow, HotTable, InterfaceRow, MasterRow, Runtime, StageRow, WorkerRow,
};
use control::metrics::Snapshot;

/// Values of a line that is drawn beside a rate.
const HISTORY: usize = 60;

/// Columns of such a line.
const LINE: usize = 12;

/// A table of the dashboard.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Table {
    /// Its title; no other table has the same one.
    pub(super) title: String,
    /// What follows the title.
    pub(super) note: String,
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Vec<Cell>>,
    /// The text for no rows.
    pub(super) empty: &'static str,
    /// The column that it is sorted by at first, the largest value first.
    pub(super) hottest_by: Option<usize>,
}

/// A column of a [`Table`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Numbers align right.
    pub(super) is_number: bool,
    /// Where there is no room, columns with the highest rank go first. Those of rank 0 stay.
    pub(super) rank: u8,
}

pub(super) const fn text(title: &'static str, rank: u8) -> Column {
    Column { title, is_number: false, rank }
}

pub(super) const fn number(title: &'static str, rank: u8) -> Column {
    Column { title, is_number: true, rank }
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) key: Key,
    pub(super) look: Look,
}

/// What a column is sorted by.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub(super) enum Key {
    Number(f64),
    Text(String),
}

/// How a value is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    /// The name of the row.
    Name,
    /// A drawn line or bar.
    Drawing,
    /// Something is lost or broken.
    Warning,
}

impl Cell {
    pub(super) fn of(text: impl Into<String>, key: f64) -> Self {
        Self { text: text.into(), key: Key::Number(key), look: Look::Plain }
    }

    pub(super) fn word(text: &str) -> Self {
        Self { text: text.to_owned(), key: Key::Text(text.to_owned()), look: Look::Plain }
    }

    pub(super) fn name(text: &str) -> Self {
        Self { look: Look::Name, ..Self::word(text) }
    }

    pub(super) fn seconds(seconds: f64) -> Self {
        Self::of(time(seconds), seconds)
    }

    pub(super) fn count(count: u64) -> Self {
        Self::of(thousands(count), count as f64)
    }

    pub(super) fn rate(per_second: Option<f64>) -> Self {
        Self::of(per_second.map_or("-".to_owned(), rate), per_second.unwrap_or(-1.0))
    }

    pub(super) fn bits(bytes_per_second: Option<f64>) -> Self {
        let bits = bytes_per_second.map(|bytes| 8.0 * bytes);
        Self::of(bits.map_or("-".to_owned(), bits_text), bits.unwrap_or(-1.0))
    }

    /// One that is bad unless it is zero.
    fn or_bad(self) -> Self {
        let is_bad = matches!(self.key, Key::Number(n) if n > 0.0);
        Self { look: if is_bad { Look::Warning } else { Look::Plain }, ..self }
    }

    fn bad_if(self, is_bad: bool) -> Self {
        Self { look: if is_bad { Look::Warning } else { self.look }, ..self }
    }

    /// A part of a whole.
    fn share(part: f64) -> Self {
        Self { look: Look::Drawing, ..Self::of(bar(part), part) }
    }
}

/// What the lines beside rates are drawn of, by port and direction.
#[derive(Debug, Default)]
pub(super) struct History(HashMap<String, VecDeque<f64>>);

impl History {
    /// The rates of one more snapshot.
    pub(super) fn add(&mut self, now: &Snapshot, before: Option<&Snapshot>) {
        let seconds = seconds(now, before);
        for row in &now.interfaces {
            let old = before.and_then(|b| b.interfaces.iter().find(|old| old.name == row.name));
            for (way, rate) in
                [("rx", received(row, old, seconds)), ("tx", sent(row, old, seconds))]
            {
                let values = self.0.entry(format!("{way} {}", row.name)).or_default();
                values.push_back(rate);
                if values.len() > HISTORY {
                    values.pop_front();
                }
            }
        }
    }

    /// The line of a port, the newest value last; each place is the highest of some values.
    fn line(&self, way: &str, port: &str) -> Cell {
        const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let none = VecDeque::new();
        let values = self.0.get(&format!("{way} {port}")).unwrap_or(&none);
        let most = values.iter().copied().fold(1.0, f64::max);
        let mut line = String::new();
        for at in 0..LINE {
            let from = HISTORY * at / LINE;
            let to = HISTORY * (at + 1) / LINE;
            let lacking = HISTORY - values.len();
            let part = (from.max(lacking)..to).map(|i| values[i - lacking]);
            match part.reduce(f64::max) {
                None => line.push(' '),
                Some(value) => line.push(STEPS[((value / most * 7.0).round() as usize).min(7)]),
            }
        }
        Cell {
            text: line,
            key: Key::Number(values.back().copied().unwrap_or(-1.0)),
            look: Look::Drawing,
        }
    }
}

/// What is said of the instance as a whole: titles and values.
pub(super) fn facts(runtime: &Runtime) -> Vec<[String; 2]> {
    let r = runtime;
    vec![
        ["up".to_owned(), time(r.uptime_s)],
        ["tables".to_owned(), bytes_text(r.table_bytes)],
        ["resident".to_owned(), bytes_text(r.resident_bytes)],
    ]
}

/// All tables, in the order in which they are shown. Without a history there are no lines.
pub(super) fn tables(
    now: &Snapshot,
    before: Option<&Snapshot>,
    history: Option<&History>,
) -> Vec<Table> {
    let seconds = seconds(now, before);
    let mut all = vec![
        ports(now, before, seconds, history),
        stages(now, before, seconds),
        drops(now, before, seconds),
    ];
    for hot in &now.hottest {
        let old = before.and_then(|b| b.hottest.iter().find(|old| old.title == hot.title));
        all.push(hottest(hot, old, seconds));
    }
    all.push(workers(now, before, seconds));
    all.push(devices(now, before, seconds));
    all
}

/// The rows of a table in an order: by a column, the largest first or the smallest, or as they are.
pub(super) fn in_order(table: &Table, by: Option<(usize, bool)>) -> Vec<&[Cell]> {
    let mut rows: Vec<&[Cell]> = table.rows.iter().map(Vec::as_slice).collect();
    if let Some((column, is_descending)) = by {
        rows.sort_by(|a, b| {
            let order = match (a.get(column), b.get(column)) {
                (Some(a), Some(b)) => a.key.partial_cmp(&b.key),
                _ => None,
            };
            let order = order.unwrap_or(std::cmp::Ordering::Equal);
            if is_descending { order.reverse() } else { order }
        });
    }
    rows
}

/// The time between the snapshots; `None` where there is only one, or the instance is another one.
fn seconds(now: &Snapshot, before: Option<&Snapshot>) -> Option<f64> {
    let seconds = now.runtime.uptime_s - before?.runtime.uptime_s;
    (seconds > 0.0).then_some(seconds)
}

/// What a counter gained in a second.
fn per_second<R>(
    row: &R,
    old: Option<&R>,
    seconds: Option<f64>,
    of: impl Fn(&R) -> u64,
) -> Option<f64> {
    Some(of(row).saturating_sub(of(old?)) as f64 / seconds?)
}

/// Without an earlier snapshot the instance's own rates must do.
fn received(row: &InterfaceRow, old: Option<&InterfaceRow>, seconds: Option<f64>) -> f64 {
    per_second(row, old, seconds, |r| r.rx_packets).unwrap_or(row.rx_rate_pps)
}

fn sent(row: &InterfaceRow, old: Option<&InterfaceRow>, seconds: Option<f64>) -> f64 {
    per_second(row, old, seconds, |r| r.tx_packets).unwrap_or(row.tx_rate_pps)
}

fn ports(
    now: &Snapshot,
    before: Option<&Snapshot>,
    seconds: Option<f64>,
    history: Option<&History>,
) -> Table {
    const PLAIN: &[Column] = &[
        text("port", 0),
        text("state", 3),
        number("received", 0),
        number("bits", 2),
        number("sent", 0),
        number("bits", 2),
        number("lost", 1),
        number("total lost", 4),
        number("errors", 5),
        text("kind", 6),
    ];
    const DRAWN: &[Column] = &[
        text("port", 0),
        text("state", 3),
        number("received", 0),
        number("bits", 2),
        text("last minute", 7),
        number("sent", 0),
        number("bits", 2),
        text("last minute", 7),
        number("lost", 1),
        number("total lost", 4),
        number("errors", 5),
        text("kind", 6),
    ];
    let lost = |r: &InterfaceRow| r.rx_drops + r.tx_drops;
    let row = |row: &InterfaceRow| {
        let old = before.and_then(|b| b.interfaces.iter().find(|old| old.name == row.name));
        let per_second = |of: fn(&InterfaceRow) -> u64| per_second(row, old, seconds, of);
        let mut cells = vec![
            Cell::name(&row.name),
            Cell::word(&row.state).bad_if(row.state != "up"),
            Cell::rate(Some(received(row, old, seconds))),
            Cell::bits(per_second(|r| r.rx_bytes)),
        ];
        cells.extend(history.map(|history| history.line("rx", &row.name)));
        cells.push(Cell::rate(Some(sent(row, old, seconds))));
        cells.push(Cell::bits(per_second(|r| r.tx_bytes)));
        cells.extend(history.map(|history| history.line("tx", &row.name)));
        cells.extend([
            Cell::rate(per_second(|r| r.rx_drops + r.tx_drops)).or_bad(),
            Cell::count(lost(row)).or_bad(),
            Cell::count(row.rx_errors + row.tx_errors).or_bad(),
            Cell::word(&row.kind),
        ]);
        cells
    };
    Table {
        title: "Ports".to_owned(),
        note: String::new(),
        columns: if history.is_some() { DRAWN } else { PLAIN },
        rows: now.interfaces.iter().map(row).collect(),
        empty: "no ports",
        hottest_by: None,
    }
}

/// Packets and nanoseconds of a stage.
fn spent(row: &StageRow) -> (u64, f64) {
    (row.packets, row.packets as f64 * row.ns_per_packet)
}

fn stages(now: &Snapshot, before: Option<&Snapshot>, seconds: Option<f64>) -> Table {
    const COLUMNS: &[Column] = &[
        text("stage", 0),
        number("packets", 1),
        number("ns/packet", 0),
        text("time", 2),
        number("total", 3),
    ];
    let old = |row: &StageRow| before.and_then(|b| b.stages.iter().find(|o| o.name == row.name));
    // Of the packets between the snapshots; where there were none, of all.
    let since: Vec<Option<(u64, f64)>> = now
        .stages
        .iter()
        .map(|row| {
            let ((packets, ns), (packets_0, ns_0)) = (spent(row), spent(old(row)?));
            (packets > packets_0).then(|| (packets - packets_0, (ns - ns_0).max(0.0)))
        })
        .collect();
    let is_moving = since.iter().any(Option::is_some);
    let share_of = |at: usize| match is_moving {
        true => since[at].map_or(0.0, |(_, ns)| ns),
        false => spent(&now.stages[at]).1,
    };
    let all: f64 = (0..now.stages.len()).map(share_of).sum();
    let row = |(at, row): (usize, &StageRow)| {
        let (packets, ns) = since[at].unwrap_or_else(|| spent(row));
        let cost = if packets == 0 { 0.0 } else { ns / packets as f64 };
        vec![
            Cell::name(&row.name),
            Cell::rate(per_second(row, old(row), seconds, |r| r.packets)),
            Cell::of(format!("{cost:.1}"), cost),
            Cell::share(if all > 0.0 { share_of(at) / all } else { 0.0 }),
            Cell::count(row.packets),
        ]
    };
    Table {
        title: "Stages".to_owned(),
        note: String::new(),
        columns: COLUMNS,
        rows: now.stages.iter().enumerate().map(row).collect(),
        empty: "no stages",
        hottest_by: None,
    }
}

fn drops(now: &Snapshot, before: Option<&Snapshot>, seconds: Option<f64>) -> Table {
    const COLUMNS: &[Column] =
        &[text("reason", 0), number("now", 1), number("packets", 0), text("what to do", 2)];
    // A reason without drops has no row.
    let none = DropRow::default();
    let row = |row: &DropRow| {
        let old = before.map(|b| b.drops.iter().find(|old| old.reason == row.reason));
        let old = old.map(|old| old.unwrap_or(&none));
        vec![
            Cell::name(&row.reason),
            Cell::rate(per_second(row, old, seconds, |r| r.packets)).or_bad(),
            Cell::count(row.packets).or_bad(),
            Cell::word(&row.remedy),
        ]
    };
    Table {
        title: "Drops".to_owned(),
        note: String::new(),
        columns: COLUMNS,
        rows: now.drops.iter().map(row).collect(),
        empty: "no drops",
        hottest_by: Some(2),
    }
}

fn hottest(hot: &HotTable, before: Option<&HotTable>, seconds: Option<f64>) -> Table {
    const COLUMNS: &[Column] = &[
        text("name", 0),
        number("now", 1),
        number("packets", 0),
        text("share", 3),
        text("what", 2),
    ];
    let most = hot.rows.iter().map(|row| row.packets).max().unwrap_or(0).max(1) as f64;
    let row = |row: &HotRow| {
        let old = before.and_then(|b| b.rows.iter().find(|old| old.name == row.name));
        vec![
            Cell::name(&row.name),
            Cell::rate(per_second(row, old, seconds, |r| r.packets)),
            Cell::count(row.packets),
            Cell::share(row.packets as f64 / most),
            Cell::word(&row.text),
        ]
    };
    Table {
        title: format!("Hottest {}", hot.title),
        note: format!("{} in all", thousands(hot.total)),
        columns: COLUMNS,
        rows: hot.rows.iter().map(row).collect(),
        empty: "no packets",
        hottest_by: Some(2),
    }
}

fn workers(now: &Snapshot, before: Option<&Snapshot>, seconds: Option<f64>) -> Table {
    const COLUMNS: &[Column] = &[
        number("worker", 0),
        number("cpu", 3),
        number("busy", 0),
        text("", 4),
        number("packets", 1),
        text("side", 1),
        number("held", 5),
        number("cells free", 2),
        number("panics", 6),
    ];
    let row = |row: &WorkerRow| {
        let old = before.and_then(|b| b.runtime.workers.iter().find(|old| old.id == row.id));
        let cpu = row.cpu.map_or("-".to_owned(), |cpu| cpu.to_string());
        let side = if row.gave_up { "given up" } else { &row.side };
        vec![
            Cell::of(row.id.to_string(), row.id.into()),
            Cell::of(cpu, row.cpu.map_or(-1.0, f64::from)),
            Cell::of(format!("{:.0} %", row.busy_percent), row.busy_percent),
            Cell::share(row.busy_percent / 100.0),
            Cell::rate(per_second(row, old, seconds, |r| r.packets)),
            Cell::word(side).bad_if(row.gave_up),
            Cell::count(row.packets_held),
            Cell::count(row.cells_free).bad_if(row.cells > 0 && row.cells_free == 0),
            Cell::count(row.panics).or_bad(),
        ]
    };
    Table {
        title: "Workers".to_owned(),
        note: String::new(),
        columns: COLUMNS,
        rows: now.runtime.workers.iter().map(row).collect(),
        empty: "no workers",
        hottest_by: None,
    }
}

fn devices(now: &Snapshot, before: Option<&Snapshot>, seconds: Option<f64>) -> Table {
    const COLUMNS: &[Column] = &[
        text("device", 0),
        text("state", 1),
        number("packets", 0),
        number("ns/packet", 2),
        number("jobs", 3),
        number("in flight", 4),
        number("failed", 5),
    ];
    let runtime = &now.runtime;
    let row = |row: &MasterRow| {
        let old = before.and_then(|b| b.runtime.masters.iter().find(|o| o.number == row.number));
        vec![
            Cell::name(&row.device),
            Cell::word(if row.is_lost { "lost" } else { "up" }).bad_if(row.is_lost),
            Cell::rate(per_second(row, old, seconds, |r| r.packets)),
            Cell::of(format!("{:.1}", row.ns_per_packet), row.ns_per_packet),
            Cell::rate(per_second(row, old, seconds, |r| r.jobs)),
            Cell::count(row.jobs_in_flight),
            Cell::count(row.jobs_failed).or_bad(),
        ]
    };
    let balance = || {
        let there = runtime.workers.iter().filter(|worker| worker.side == "device").count();
        format!("{there} of {} workers use a device", runtime.workers.len())
    };
    Table {
        title: "Devices".to_owned(),
        note: if runtime.masters.is_empty() { String::new() } else { balance() },
        columns: COLUMNS,
        rows: runtime.masters.iter().map(row).collect(),
        empty: "no device: the CPU processes all packets",
        hottest_by: None,
    }
}

fn bits_text(bits: f64) -> String {
    match bits {
        b if b >= 1e9 => format!("{:.2} Gbit/s", b / 1e9),
        b if b >= 1e6 => format!("{:.1} Mbit/s", b / 1e6),
        b if b >= 1e3 => format!("{:.1} kbit/s", b / 1e3),
        b => format!("{b:.0} bit/s"),
    }
}

/// A part of a whole as a bar, by eighths of a character.
fn bar(part: f64) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (part.clamp(0.0, 1.0) * 64.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if eighths < 64 {
        bar.push(EIGHTHS[eighths % 8]);
    }
    format!("{bar}{}", " ".repeat(8usize.saturating_sub(bar.chars().count())))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A router with two ports, the second time a second later.
    pub(in crate::top) fn snapshots() -> (Snapshot, Snapshot) {
        let port = |name: &str, index, rx: u64, tx: u64, lost| InterfaceRow {
            name: name.to_owned(),
            index,
            kind: "af_packet".to_owned(),
            state: if lost > 10 { "down" } else { "up" }.to_owned(),
            rx_packets: rx,
            rx_bytes: rx * 1000,
            tx_packets: tx,
            tx_bytes: tx * 1000,
            rx_drops: lost,
            ..InterfaceRow::default()
        };
        let stage = |name: &str, packets, ns_per_packet| StageRow {
            name: name.to_owned(),
            calls: packets / 32,
            packets,
            packets_per_call: 32.0,
            ns_per_packet,
        };
        let dropped = |reason: &str, remedy: &str, packets| DropRow {
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
            packets,
            ..DropRow::default()
        };
        let rule = |name: &str, text: &str, packets| HotRow {
            name: name.to_owned(),
            text: text.to_owned(),
            packets,
            bytes: packets * 100,
        };
        let worker = |id, busy_percent, side: &str, packets| WorkerRow {
            id,
            cpu: Some(id),
            packets,
            busy_percent,
            side: side.to_owned(),
            cells_free: 60_000,
            cells: 65_536,
            ..WorkerRow::default()
        };
        let at = |uptime_s: f64, k: u64| Snapshot {
            interfaces: vec![
                port("lan", 0, 1_000_000 * k, 20_000 * k, 3 * (k - 1)),
                port("wan", 1, 20_000 * k, 990_000 * k, 0),
            ],
            queues: Vec::new(),
            stages: vec![
                stage("decode", 1_020_000 * k, 20.0),
                stage("route", 1_020_000 * k, 60.0),
                stage("rewrite", 1_010_000 * k, 40.0),
            ],
            drops: vec![
                dropped(
                    "no_route",
                    "Add a route (`ctl show routes`), or find out why the routing daemon withdrew it.",
                    7 * k,
                ),
                dropped(
                    "ttl_expired",
                    "Normal for traceroute. Otherwise look for a routing loop.",
                    100 * (k - 1),
                ),
            ],
            hottest: vec![HotTable {
                title: "rules".to_owned(),
                rows: vec![
                    rule("web", "proto tcp dport 80: accept", 900_000 * k),
                    rule("default", "what no rule matches: drop", 5_000 * k),
                ],
                total: 3,
            }],
            runtime: Runtime {
                version: "0.1.0".to_owned(),
                mode: "router".to_owned(),
                uptime_s,
                workers: vec![
                    worker(0, 75.0, "cpu", 800_000 * k),
                    worker(1, 25.0, "device", 220_000 * k),
                ],
                masters: vec![MasterRow {
                    device: "sim".to_owned(),
                    jobs: 100 * k,
                    packets: 200_000 * k,
                    ns_per_packet: 30.5,
                    ..MasterRow::default()
                }],
                table_version: 12,
                table_bytes: 34 << 20,
                resident_bytes: 300 << 20,
                ..Runtime::default()
            },
        };
        (at(122.0, 1), at(123.0, 2))
    }

    fn texts(table: &Table) -> Vec<Vec<&str>> {
        let rows = table.rows.iter();
        rows.map(|row| row.iter().map(|cell| cell.text.trim_end()).collect()).collect()
    }

    fn texts_of<'a>(tables: &'a [Table], title: &str) -> Vec<Vec<&'a str>> {
        texts(tables.iter().find(|table| table.title == title).expect(title))
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let (before, now) = snapshots();
        let all = tables(&now, Some(&before), None);
        let titles: Vec<_> = all.iter().map(|table| table.title.as_str()).collect();
        assert_eq!(titles, ["Ports", "Stages", "Drops", "Hottest rules", "Workers", "Devices"]);
        for table in &all {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{table:?}");
        }
        assert_eq!(
            texts_of(&all, "Ports")[0],
            [
                "lan",
                "up",
                "1.00 M/s",
                "8.00 Gbit/s",
                "20.0 k/s",
                "160.0 Mbit/s",
                "3 /s",
                "3",
                "0",
                "af_packet"
            ]
        );
        assert_eq!(texts_of(&all, "Stages")[1], ["route", "1.02 M/s", "60.0", "████", "2,040,000"]);
        // A reason that is there for the first time began at zero.
        assert_eq!(texts_of(&all, "Drops")[1][..3], ["ttl_expired", "100 /s", "100"]);
        assert_eq!(texts_of(&all, "Hottest rules")[0][1], "900.0 k/s");
        assert_eq!(texts_of(&all, "Workers")[1][4], "220.0 k/s");
        assert_eq!(texts_of(&all, "Devices")[0][..4], ["sim", "up", "200.0 k/s", "30.5"]);
        assert_eq!(all[5].note, "1 of 2 workers use a device");
        let lost = &all[0].rows[0][6];
        assert_eq!((lost.look, all[0].rows[1][6].look), (Look::Warning, Look::Plain));
    }

    #[test]
    fn the_cost_of_a_stage_is_that_of_the_last_packets() {
        let (before, mut now) = snapshots();
        now.stages[1].ns_per_packet = 80.0;
        // 1,020,000 packets at 60 ns and as many at 100 ns are 80 ns on average.
        assert_eq!(texts(&stages(&now, Some(&before), Some(1.0)))[1][2], "100.0");
        assert_eq!(texts(&stages(&now, Some(&now), Some(1.0)))[1][2], "80.0");
    }

    #[test]
    fn without_an_earlier_snapshot_there_are_totals() {
        let (mut now, later) = snapshots();
        now.interfaces[0].rx_rate_pps = 5.0;
        let all = tables(&now, None, None);
        assert_eq!(texts_of(&all, "Ports")[0][2..4], ["5 /s", "-"]);
        assert_eq!(texts_of(&all, "Drops")[0][1..3], ["-", "7"]);
        assert_eq!(texts_of(&all, "Stages")[1][1..3], ["-", "60.0"]);
        // An instance that has started anew, or whose counters were cleared, has less than before.
        let all = tables(&now, Some(&later), None);
        assert_eq!(texts_of(&all, "Ports")[0][2..4], ["5 /s", "-"]);
        let cleared = Snapshot { runtime: later.runtime.clone(), ..now.clone() };
        let all = tables(&cleared, Some(&now), None);
        assert_eq!(texts_of(&all, "Ports")[0][2..4], ["0 /s", "0 bit/s"]);
        let none = tables(&Snapshot::default(), Some(&Snapshot::default()), None);
        assert!(none.iter().all(|table| table.rows.is_empty()));
    }

    #[test]
    fn rows_are_sorted_by_any_column() {
        let (before, now) = snapshots();
        let table = ports(&now, Some(&before), Some(1.0), None);
        let names = |by| in_order(&table, by).iter().map(|r| r[0].text.clone()).collect::<Vec<_>>();
        assert_eq!(names(None), ["lan", "wan"]);
        assert_eq!(names(Some((0, true))), ["wan", "lan"]);
        assert_eq!(names(Some((2, true))), ["lan", "wan"]);
        assert_eq!(names(Some((2, false))), ["wan", "lan"]);
        assert_eq!(names(Some((99, true))), ["lan", "wan"], "a column that is not there");
    }

    #[test]
    fn lines_show_the_last_minute() {
        let (before, now) = snapshots();
        let mut history = History::default();
        let line = |history: &History| history.line("rx", "lan").text;
        assert_eq!(line(&history), "            ");
        history.add(&now, Some(&before));
        assert_eq!(line(&history), "           █");
        for _ in 0..70 {
            history.add(&now, Some(&now));
        }
        assert_eq!(line(&history), "▁▁▁▁▁▁▁▁▁▁▁▁");
        assert_eq!(history.0["rx lan"].len(), HISTORY);
        let table = ports(&now, Some(&before), Some(1.0), Some(&history));
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    }

    #[test]
    fn bars_are_eight_wide() {
        for (part, expected) in [
            (0.0, "        "),
            (0.5, "████    "),
            (1.0, "████████"),
            (1.7, "████████"),
            (-1.0, "        "),
        ] {
            assert_eq!(bar(part), expected, "{part}");
        }
        assert_eq!(bar(0.51).chars().count(), 8);
    }
}
