//! The flows that send the most now, as tables of the dashboard.
//!
//! The instance is asked for the flows with packets since a little before the last answer. What a flow sent since then
//! is the difference to the answer before; of a flow that was idle at that time nothing is known for one interval.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use apps::flow::commands::ShowFlows;
use apps::flow::rows::{FlowRow, SummaryRow};
use control::api::{Client, Request, Response, answer, fields_of};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::model::{Cell, Column, Table, number, text};
use crate::failure::Failure;

/// Rows that are shown.
const MOST: usize = 200;

/// Asks for flows, and remembers what they had sent.
pub(super) struct Flows {
    interval: Duration,
    asked: Option<Instant>,
    /// By number: bytes and packets of both ends.
    before: HashMap<u64, [u64; 2]>,
}

impl Flows {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, asked: None, before: HashMap::new() }
    }

    /// The tables of now.
    pub(super) fn ask(&mut self, client: &mut Client) -> Result<Vec<Table>, Failure> {
        let now = Instant::now();
        let since = self.asked.map(|asked| now - asked);
        let within = since.unwrap_or(self.interval) + self.interval;
        let wanted = ShowFlows { within_s: Some(within.as_secs_f64()), ..ShowFlows::default() };
        let rows: Vec<FlowRow> = rows(client, &wanted)?;
        let summary = ShowFlows { summary: true, ..ShowFlows::default() };
        let states: Vec<SummaryRow> = self::rows(client, &summary)?;
        let flows = self.table(&rows, since.map(|since| since.as_secs_f64()));
        self.before = rows.iter().map(|row| (row.id, sent(row))).collect();
        self.asked = Some(now);
        Ok(vec![flows, self::states(&states)])
    }

    fn table(&self, rows: &[FlowRow], seconds: Option<f64>) -> Table {
        const COLUMNS: &[Column] = &[
            text("client", 0),
            text("server", 0),
            text("proto", 2),
            number("bits", 0),
            number("packets", 1),
            number("bytes", 3),
            text("state", 4),
            number("age", 5),
        ];
        // One that has begun since the last answer had sent nothing then.
        let before = |row: &FlowRow, seconds: f64| {
            let is_new = row.age_s <= seconds;
            self.before.get(&row.id).copied().or(is_new.then_some([0; 2]))
        };
        let rate = |row: &FlowRow, at: usize| {
            let seconds = seconds?;
            Some(sent(row)[at].saturating_sub(before(row, seconds)?[at]) as f64 / seconds)
        };
        let mut rated: Vec<_> = rows.iter().map(|row| (rate(row, 0), rate(row, 1), row)).collect();
        rated.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(std::cmp::Ordering::Equal));
        let total = rated.len();
        rated.truncate(MOST);
        let row = |(bytes, packets, row): &(Option<f64>, Option<f64>, &FlowRow)| {
            vec![
                Cell::name(&row.client),
                Cell::word(&row.server),
                Cell::word(&row.proto),
                Cell::bits(*bytes),
                Cell::rate(*packets),
                Cell::count(sent(row)[0]),
                Cell::word(&row.state),
                Cell::seconds(row.age_s),
            ]
        };
        let shown = control::api::table::thousands(total as u64);
        Table {
            title: "Flows".to_owned(),
            note: format!("{shown} with packets in this time"),
            columns: COLUMNS,
            rows: rated.iter().map(row).collect(),
            empty: "no flows",
            hottest_by: Some(3),
        }
    }
}

fn sent(row: &FlowRow) -> [u64; 2] {
    [row.client_bytes + row.server_bytes, row.client_packets + row.server_packets]
}

fn states(rows: &[SummaryRow]) -> Table {
    const COLUMNS: &[Column] = &[
        text("proto", 0),
        text("state", 0),
        number("flows", 0),
        number("packets", 1),
        number("bytes", 2),
    ];
    let row = |row: &SummaryRow| {
        vec![
            Cell::name(&row.proto),
            Cell::word(&row.state),
            Cell::count(row.flows),
            Cell::count(row.packets),
            Cell::count(row.bytes),
        ]
    };
    Table {
        title: "States".to_owned(),
        note: String::new(),
        columns: COLUMNS,
        rows: rows.iter().map(row).collect(),
        empty: "no flows",
        hottest_by: Some(2),
    }
}

/// The rows of `show flows`.
fn rows<R: DeserializeOwned>(client: &mut Client, wanted: &ShowFlows) -> Result<Vec<R>, Failure> {
    let arguments = fields_of(wanted).map_err(Failure::other)?;
    let request = Request::Show { what: "flows".to_owned(), arguments };
    let responses = client.call(&request.asked(false)).map_err(Failure::other)?;
    if let Some(Response::Error { message, .. }) =
        responses.iter().find(|response| matches!(response, Response::Error { .. }))
    {
        return Err(Failure::other(message));
    }
    let mut whole = answer::json(responses).unwrap_or_else(|| Value::Array(Vec::new()));
    super::make_shown(&mut whole);
    serde_json::from_value(whole).map_err(|error| {
        Failure::other(format!(
            "unexpected answer ({error}): does the instance have another version?"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64, bytes: u64, packets: u64, age_s: f64) -> FlowRow {
        FlowRow {
            id,
            proto: "tcp".to_owned(),
            client: format!("192.0.2.1:{id}"),
            server: "198.51.100.1:443".to_owned(),
            tunnels: String::new(),
            state: "established".to_owned(),
            client_packets: packets,
            server_packets: 0,
            client_bytes: bytes,
            server_bytes: 0,
            age_s,
            idle_s: 0.0,
        }
    }

    #[test]
    fn rates_are_what_was_sent_since_the_last_answer() {
        let mut flows = Flows::new(Duration::from_secs(1));
        let first = flows.table(&[row(1, 1000, 10, 5.0)], None);
        assert_eq!(first.rows[0][3].text, "-");
        flows.before = HashMap::from([(1, [1000, 10])]);
        // A flow that goes on, one that has begun, and one that was idle.
        let rows = [row(1, 3000, 14, 7.0), row(2, 8000, 3, 1.0), row(3, 90_000, 9, 60.0)];
        let table = flows.table(&rows, Some(2.0));
        let shown: Vec<_> =
            table.rows.iter().map(|row| [0, 3, 4].map(|at| row[at].text.clone())).collect();
        assert_eq!(
            shown,
            [
                ["192.0.2.1:2", "32.0 kbit/s", "2 /s"],
                ["192.0.2.1:1", "8.0 kbit/s", "2 /s"],
                ["192.0.2.1:3", "-", "-"],
            ]
        );
        assert_eq!(table.note, "3 with packets in this time");
    }
}
