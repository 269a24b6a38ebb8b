//! Rows of the tables that every pipeline has: what `show` prints, `--json` writes and the metrics count.
//!
//! Rows of applications are in their own folders; each is a [`Row`](super::table::Row) too.
//!
//! Counters are totals since the start or the last `clear counters`; rates are per second over the
//! last interval that the program measured.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One port.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceRow {
    /// As in the configuration.
    pub name: String,
    /// Of the port in this process.
    pub index: u32,
    /// Back end as it runs: `af_packet`, `af_xdp zero-copy`, `tap`, `vlan 100 on lan`.
    pub kind: String,
    /// `aa:bb:cc:dd:ee:ff`.
    pub mac: String,
    /// Bytes of layer 3.
    pub mtu: u32,
    /// `up`, `down`, or `gone` (the interface vanished).
    pub state: String,
    /// With their subnets' lengths.
    pub addresses: Vec<IpNet>,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received, from the Ethernet header on.
    pub rx_bytes: u64,
    /// Frames that the interface or back end refused.
    pub rx_errors: u64,
    /// Frames lost because a ring or pool was full.
    pub rx_drops: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames that the interface or back end refused.
    pub tx_errors: u64,
    /// Frames lost because a ring was full.
    pub tx_drops: u64,
    /// Packets received per second.
    pub rx_rate_pps: f64,
    /// Packets sent per second.
    pub tx_rate_pps: f64,
}

/// One queue of a port.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueRow {
    /// Port's name.
    pub port: String,
    /// From 0.
    pub queue: u32,
    /// Worker that owns it.
    pub worker: u32,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames lost because a ring or pool was full.
    pub rx_drops: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames lost because a ring was full.
    pub tx_drops: u64,
}

/// One stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageRow {
    /// Its name.
    pub name: String,
    /// Calls, one per chunk.
    pub calls: u64,
    /// Rows of these calls.
    pub packets: u64,
    /// Mean rows of a call.
    pub packets_per_call: f64,
    /// Mean time of a row.
    pub ns_per_packet: f64,
}

/// One drop reason that occurred.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DropRow {
    /// Its counter's name.
    pub reason: String,
    /// Its number, block and place in the block; it keeps its meaning from version to version.
    pub code: u16,
    /// What it means.
    pub text: String,
    /// What to do about it.
    pub remedy: String,
    /// Packets.
    pub packets: u64,
}

/// What had the most packets in a table of an application, such as the rules of a firewall.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotTable {
    /// The table's name, as a title: `rules`, or with its stage where there are several, `rules of edge`.
    pub title: String,
    /// The rows with the most packets, the hottest first.
    pub rows: Vec<HotRow>,
    /// Rows of the whole table.
    pub total: u64,
}

/// A row of a [`HotTable`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotRow {
    /// Its name.
    pub name: String,
    /// What it stands for, such as the conditions and the action of a rule; may be empty.
    pub text: String,
    /// Packets.
    pub packets: u64,
    /// Their bytes; 0 where the table does not count them.
    pub bytes: u64,
}

impl HotTable {
    /// The table of these rows: the `most` rows with the most packets, and none without any. Rows with the same number
    /// keep their order.
    pub fn of<R>(
        title: String,
        most: usize,
        rows: impl Iterator<Item = (u64, R)>,
        row: impl Fn(R) -> HotRow,
    ) -> Self {
        let mut total = 0;
        let mut hot: Vec<(u64, R)> =
            rows.inspect(|_| total += 1).filter(|(packets, _)| *packets > 0).collect();
        hot.sort_by_key(|(packets, _)| std::cmp::Reverse(*packets));
        let rows = hot.into_iter().take(most).map(|(_, of)| row(of)).collect();
        Self { title, rows, total }
    }
}

/// The process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Runtime {
    /// Of the program.
    pub version: String,
    /// Pipeline's name.
    pub mode: String,
    /// Since start.
    pub uptime_s: f64,
    /// Worker threads.
    pub workers: Vec<WorkerRow>,
    /// Masters of devices.
    pub masters: Vec<MasterRow>,
    /// What applications say of themselves, each under names of its own.
    #[serde(flatten)]
    pub applications: Map<String, Value>,
    /// The same for people: pairs of title and text; an empty title continues the line before.
    #[serde(skip)]
    pub lines: Vec<[String; 2]>,
    /// Version of the tables that new packets see.
    pub table_version: u64,
    /// Bytes of the forwarding tables, both copies.
    pub table_bytes: u64,
    /// Bytes of cells and arenas.
    pub pool_bytes: u64,
    /// Resident memory of the process.
    pub resident_bytes: u64,
    /// Lines of the log that were lost because nobody read them in time.
    pub log_lines_lost: u64,
}

/// One worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerRow {
    /// From 0.
    pub id: u32,
    /// CPU that it is pinned to.
    pub cpu: Option<u32>,
    /// Packets received.
    pub packets: u64,
    /// Share of its time with packets in hand, 0 to 100, over the last interval.
    pub busy_percent: f64,
    /// Polls of its queues that found nothing.
    pub empty_polls: u64,
    /// Wake-ups.
    pub wakeups: u64,
    /// Where its chunks are shaded now: `cpu` or `device`.
    pub side: String,
    /// Chunks that were handed to a device.
    pub chunks_to_device: u64,
    /// How full its bursts are, 0 to 100; only with a device.
    pub burst_fill_percent: u64,
    /// What shading a packet costs on its core; only with a device, 0 before it is known.
    pub shade_ns_per_packet: u64,
    /// Packets that its stages hold now: those that wait for a neighbour.
    pub packets_held: u64,
    /// Times that a packet entered the pipeline again.
    pub packets_again: u64,
    /// Packets that its stages gave to the worker of another flow.
    pub packets_handed_over: u64,
    /// Packets that were given to captures and went nowhere else.
    pub packets_dumped: u64,
    /// Packets that were under way for longer than `max_delay`; only with a device.
    pub packets_late: u64,
    /// Panics of its stages; each one dropped a chunk.
    pub panics: u64,
    /// Whether its stages panicked too often: it runs none of them any more, and other workers do its work.
    pub gave_up: bool,
    /// Cells free in its pool.
    pub cells_free: u64,
    /// Cells of its pool.
    pub cells: u64,
}

/// One master.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MasterRow {
    /// Of its device in the order in which the devices were named, from 0.
    pub number: u32,
    /// The device's name; where several have the same one, with the number behind it.
    pub device: String,
    /// Jobs retired.
    pub jobs: u64,
    /// Rows of these jobs.
    pub packets: u64,
    /// Jobs in flight now.
    pub jobs_in_flight: u64,
    /// Jobs that failed and were done again on a worker.
    pub jobs_failed: u64,
    /// Whether it is used no more.
    pub is_lost: bool,
    /// What a packet of a large job costs; 0 before it is known.
    pub ns_per_packet: f64,
    /// How long a chunk is away.
    pub away_us: f64,
    /// Copies to the device for its jobs: columns and payload.
    pub uploads: u64,
    /// The same, for each job.
    pub uploads_per_job: f64,
    /// Kernels launched for its jobs.
    pub launches: u64,
    /// The same, for each job.
    pub launches_per_job: f64,
    /// Jobs whose rows were sorted before the kernels.
    pub jobs_sorted: u64,
    /// Jobs whose packets the kernels read in place.
    pub jobs_in_place: u64,
    /// Jobs whose packets the device copied.
    pub jobs_gathered: u64,
    /// Jobs whose packets the workers packed.
    pub jobs_packed: u64,
    /// Bytes that went up: columns, payload, tables.
    pub up_bytes: u64,
    /// Bytes that came down.
    pub down_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_rows_are_first() {
        let hot = |most| {
            let rows = [("a", 3), ("b", 0), ("c", 9), ("d", 3)];
            let rows = rows.into_iter().map(|(name, packets)| (packets, name));
            let table = HotTable::of("rules".to_owned(), most, rows, |name| HotRow {
                name: name.to_owned(),
                ..HotRow::default()
            });
            let names: Vec<_> = table.rows.into_iter().map(|row| row.name).collect();
            (names.join(" "), table.total)
        };
        assert_eq!(hot(9), ("c a d".to_owned(), 4));
        assert_eq!(hot(2), ("c a".to_owned(), 4));
        assert_eq!(hot(0), (String::new(), 4));
    }
}
