//! Rows of the tables that `show` prints, `--json` writes and the metrics count.
//!
//! Counters are totals since the start or the last `clear counters`; rates are per second over the
//! last interval that the program measured.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::NextHop;
use crate::firewall::{Action, Conditions};

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

/// Who told of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteSource {
    /// A port's own address or subnet.
    Connected,
    /// `[[route]]`.
    Static,
    /// `[[routes]]`.
    File,
    /// The kernel's tables.
    Kernel,
    /// The control socket.
    Api,
}

/// One route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteRow {
    /// Destinations.
    pub prefix: IpNet,
    /// Where to, as its source says.
    pub next_hop: NextHop,
    /// Ports that it resolves to, one per member of the next hop; empty: does not resolve.
    pub ports: Vec<String>,
    /// Who told.
    pub source: RouteSource,
    /// Smaller wins.
    pub metric: u32,
    /// It is the one in use among those of its prefix.
    pub active: bool,
}

/// One neighbour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NeighbourRow {
    /// Its address.
    pub address: IpAddr,
    /// Port's name.
    pub port: String,
    /// `None` while unresolved.
    pub mac: Option<String>,
    /// RFC 4861's words (`incomplete`, `reachable`, `stale`, `probe`), `failed`, or `static`.
    pub state: String,
    /// Since it was last confirmed; `None`: never, or static.
    pub age_s: Option<f64>,
}

/// One station of a switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MacRow {
    /// Its VLAN.
    pub vlan: u16,
    /// `aa:bb:cc:dd:ee:ff`.
    pub mac: String,
    /// Port's name.
    pub port: String,
    /// Whether it is configured; else it was learned.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// Since it was last seen, to the second; `None`: static.
    pub age_s: Option<u32>,
}

/// One face of a named-data forwarder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaceRow {
    /// As in the configuration.
    pub name: String,
    /// `ethernet`, `group` (of all forwarders on the link) or `udp`.
    pub kind: String,
    /// Port's name.
    pub port: String,
    /// UDP: our end and the neighbour's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<[SocketAddr; 2]>,
    /// Where its frames go; `None` while it is not known.
    pub mac: Option<String>,
    /// `up`, `down` (the port is), or `unresolved` (the MAC is not known).
    pub state: String,
    /// Interests that came in.
    pub in_interests: u64,
    /// Data that came in.
    pub in_data: u64,
    /// Interests that went out.
    pub out_interests: u64,
    /// Data that went out.
    pub out_data: u64,
}

/// One route for names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NameRow {
    /// What names begin with.
    pub prefix: String,
    /// Names of faces, best first.
    pub faces: Vec<String>,
    /// Who told.
    pub source: RouteSource,
    /// It is the one in use among those of its prefix.
    pub active: bool,
}

/// One rule of the firewall, or what becomes of packets that no rule matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleRow {
    /// In the order, from 1.
    pub place: u64,
    /// Its name; `default` behind all rules.
    pub name: String,
    /// What it asks of a packet.
    pub conditions: Conditions,
    /// What it does.
    pub action: Action,
    /// Packets that it matched, and no rule before it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the last one came, since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_hit_s: Option<f64>,
    /// How long ago that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
}

/// One stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageRow {
    /// Its name.
    pub name: String,
    /// Calls, one a batch.
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
    /// What the router made itself.
    pub router: RouterTotals,
    /// What a switch knows and did; `None` in others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchTotals>,
    /// What a named-data forwarder knows and did; `None` in others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ndn: Option<NdnTotals>,
    /// What a firewall has and did; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall: Option<FirewallTotals>,
    /// Version of the tables that new packets see.
    pub table_version: u64,
    /// Routes in the forwarding tables.
    pub routes_v4: u64,
    /// Routes in the forwarding tables.
    pub routes_v6: u64,
    /// Neighbours known.
    pub neighbours: u64,
    /// Bytes of the forwarding tables, both copies.
    pub table_bytes: u64,
    /// Bytes of cells and arenas.
    pub pool_bytes: u64,
    /// Resident memory of the process.
    pub resident_bytes: u64,
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
    /// Returns from waiting.
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

/// What the router made beside the packets that it was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouterTotals {
    /// ICMP and ICMPv6 errors sent.
    pub icmp_errors_sent: u64,
    /// ICMP and ICMPv6 errors withheld by the rate limit.
    pub icmp_errors_withheld: u64,
    /// Answers for its own addresses where there is no twin: ARP, neighbour discovery, echo.
    pub answers_sent: u64,
    /// IPv4 packets that were fragmented.
    pub fragmented: u64,
    /// Fragments made of them.
    pub fragments_made: u64,
}

/// What a firewall has, and what it did beside the fates of the packets that it was given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FirewallTotals {
    /// Rules.
    pub rules: u64,
    /// Structure that finds the rule of a packet.
    pub algorithm: String,
    /// Bytes of its tables, one copy.
    pub rule_bytes: u64,
    /// Copies sent by `mirror`.
    pub copies: u64,
    /// Copies for which no cell was free.
    pub copies_lost: u64,
    /// Answers of a switch for packets that were rejected; a router counts its own.
    pub answers: u64,
    /// Those that the rate limit withheld.
    pub answers_withheld: u64,
}

/// What a switch knows, and what it did beside the fates of the frames that it was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchTotals {
    /// Stations known, static ones among them.
    pub stations: u64,
    /// Room for stations.
    pub stations_max: u64,
    /// Stations learned.
    pub learned: u64,
    /// Stations that changed their port.
    pub moved: u64,
    /// Stations forgotten because they were not seen.
    pub aged: u64,
    /// Stations forgotten by command, or because their port went down.
    pub flushed: u64,
    /// Stations that found the table full.
    pub refused: u64,
    /// Frames of unknown stations that came while the table was full.
    pub table_full: u64,
    /// Events of stations that found the way to control full; the next frame tells again.
    pub events_lost: u64,
    /// Frames that were flooded.
    pub flooded: u64,
    /// Copies made of them, beside the frame itself.
    pub copies: u64,
    /// Copies for which no cell was free.
    pub copies_lost: u64,
}

/// What a named-data forwarder knows, and what it did beside the fates of the packets that it was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NdnTotals {
    /// Prefixes in the table.
    pub names: u64,
    /// Room for prefixes.
    pub names_max: u64,
    /// Faces.
    pub faces: u64,
    /// Interests that are pending now, over all workers.
    pub pending: u64,
    /// Room for them.
    pub pending_max: u64,
    /// Interests whose time ended without Data.
    pub expired: u64,
    /// Interests that went out.
    pub interests: u64,
    /// Data that went out, copies among them.
    pub data: u64,
    /// Nacks sent.
    pub nacks: u64,
    /// Copies of Data and Nacks for which no cell was free.
    pub copies_lost: u64,
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
    /// Bytes that went up: columns, payload, tables.
    pub up_bytes: u64,
    /// Bytes that came down.
    pub down_bytes: u64,
}
