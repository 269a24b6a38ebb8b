//! The tables of a layer-2 switch, seen as one version, and the station table that control keeps.
//!
//! ```text
//!  (port, tag) ─▶ ingress: VLAN, or why not
//!  (VLAN, source), (VLAN, destination) ─▶ cuckoo table ─▶ Station (port, static, record)
//!  VLAN ─▶ ports that frames of it may leave by, tagged or not
//!  record ─▶ when the station was seen last: written by workers, read by control
//! ```
//!
//! Control ([`MacTable`]) learns what workers tell ([`StationEvent`], over a bounded channel), forgets what was
//! not seen for a while, and makes patches in batches; workers look up and never wait
//! ([`versions`](crate::versions)). A lookup's answer is checked against the ports' VLANs anew at each frame, so
//! that an entry that is out of date can misdirect nothing.
//!
//! Threads: the data side reads a pinned version; [`MacTable`] belongs to control. Two things are shared by all
//! versions and written by workers with relaxed atomics: the times of stations, and the storm buckets.

mod mac;
mod ports;
mod shares;
mod storm;
mod tables;

pub use mac::{
    Learned, MacEntry, MacLimits, MacStats, MacTable, Seen, Station, split_key, station_key,
};
pub use ports::{BridgePort, PortMode, Refused, VLAN_MAX, VlanSet};
pub use storm::{FloodKind, StormLimits, StormRate};
pub use tables::{Egress, StationEvent, SwitchOptions, SwitchPatch, SwitchTables};
