//! Ports of a switch: numbers, descriptions, counters, queues.

use std::fmt;
use std::time::Duration;

use crate::bits::bits;
use crate::{ErrorCode, Version};

/// The number of a port; 32 bits as in OpenFlow 1.3. The 16-bit numbers of 1.0 from 0xff00 are the same reserved ports
/// at the end of the 32-bit space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortNo(pub u32);

impl PortNo {
    /// Highest number of a physical or logical port.
    pub const MAX: Self = Self(0xffff_ff00);
    /// No such port in any version; `OFPP_UNSET` of 1.5 and the limit of what 1.0 can carry.
    pub const UNSET: Self = Self(0xffff_fff7);
    /// The port that the packet came in by; the only way to send it back.
    pub const IN_PORT: Self = Self(0xffff_fff8);
    /// The tables, from the first on; only in PACKET_OUT.
    pub const TABLE: Self = Self(0xffff_fff9);
    /// The learning switch beside the tables.
    pub const NORMAL: Self = Self(0xffff_fffa);
    /// All ports but the one of entry and those with NO_FLOOD.
    pub const FLOOD: Self = Self(0xffff_fffb);
    /// All ports but the one of entry.
    pub const ALL: Self = Self(0xffff_fffc);
    /// The controllers, as PACKET_IN.
    pub const CONTROLLER: Self = Self(0xffff_fffd);
    /// The switch's own network stack.
    pub const LOCAL: Self = Self(0xffff_fffe);
    /// Any port (a filter), no port (1.0's `OFPP_NONE`).
    pub const ANY: Self = Self(0xffff_ffff);

    /// The reserved ports with the names that ovs-ofctl prints.
    pub const NAMES: &'static [(Self, &'static str)] = &[
        (Self::IN_PORT, "IN_PORT"),
        (Self::TABLE, "TABLE"),
        (Self::NORMAL, "NORMAL"),
        (Self::FLOOD, "FLOOD"),
        (Self::ALL, "ALL"),
        (Self::CONTROLLER, "CONTROLLER"),
        (Self::LOCAL, "LOCAL"),
        (Self::ANY, "ANY"),
    ];

    /// The port of a 16-bit number of OpenFlow 1.0.
    pub const fn from_v10(number: u16) -> Self {
        if number >= 0xff00 { Self(number as u32 | 0xffff_0000) } else { Self(number as u32) }
    }

    /// The 16-bit number of OpenFlow 1.0, where there is one.
    pub const fn to_v10(self) -> Option<u16> {
        if self.0 < 0xff00 || self.0 >= 0xffff_ff00 { Some(self.0 as u16) } else { None }
    }

    /// A port that can exist: not one of the reserved.
    #[inline]
    pub const fn is_ordinary(self) -> bool {
        self.0 > 0 && self.0 <= Self::MAX.0
    }

    /// The name of a reserved port.
    pub fn name(self) -> Option<&'static str> {
        Self::NAMES.iter().find(|(port, _)| *port == self).map(|(_, name)| *name)
    }
}

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

bits! {
    /// What an administrator or a controller set on a port. Bits of 1.3, and those that only 1.0 has.
    PortConfig: u32 {
        /// The port is down.
        PORT_DOWN = 1 => "PORT_DOWN",
        /// 1.0: no spanning tree on this port.
        NO_STP = 1 << 1 => "NO_STP",
        /// Received packets are dropped.
        NO_RECV = 1 << 2 => "NO_RECV",
        /// 1.0: received spanning-tree packets are dropped.
        NO_RECV_STP = 1 << 3 => "NO_RECV_STP",
        /// 1.0: FLOOD leaves this port out.
        NO_FLOOD = 1 << 4 => "NO_FLOOD",
        /// Packets forwarded to the port are dropped.
        NO_FWD = 1 << 5 => "NO_FWD",
        /// Packets of this port that no flow matches make no PACKET_IN.
        NO_PACKET_IN = 1 << 6 => "NO_PACKET_IN",
    }
}

bits! {
    /// The state of a port. Bits of 1.3; 1.0's spanning-tree states (bits 8 and 9) are kept as they are.
    PortState: u32 {
        /// No physical link.
        LINK_DOWN = 1 => "LINK_DOWN",
        /// Blocked by a protocol outside of OpenFlow.
        BLOCKED = 1 << 1 => "BLOCKED",
        /// Live for fast-failover groups.
        LIVE = 1 << 2 => "LIVE",
    }
}

bits! {
    /// What a port can do. Bits of 1.3; those of 1.0 are mapped onto them.
    PortFeatures: u32 {
        /// 10 Mb/s, half duplex.
        MB10_HD = 1 => "10MB-HD",
        /// 10 Mb/s, full duplex.
        MB10_FD = 1 << 1 => "10MB-FD",
        /// 100 Mb/s, half duplex.
        MB100_HD = 1 << 2 => "100MB-HD",
        /// 100 Mb/s, full duplex.
        MB100_FD = 1 << 3 => "100MB-FD",
        /// 1 Gb/s, half duplex.
        GB1_HD = 1 << 4 => "1GB-HD",
        /// 1 Gb/s, full duplex.
        GB1_FD = 1 << 5 => "1GB-FD",
        /// 10 Gb/s, full duplex.
        GB10_FD = 1 << 6 => "10GB-FD",
        /// 40 Gb/s, full duplex.
        GB40_FD = 1 << 7 => "40GB-FD",
        /// 100 Gb/s, full duplex.
        GB100_FD = 1 << 8 => "100GB-FD",
        /// 1 Tb/s, full duplex.
        TB1_FD = 1 << 9 => "1TB-FD",
        /// Another rate.
        OTHER = 1 << 10 => "OTHER",
        /// Copper medium.
        COPPER = 1 << 11 => "COPPER",
        /// Fibre medium.
        FIBER = 1 << 12 => "FIBER",
        /// The rate is negotiated.
        AUTONEG = 1 << 13 => "AUTO_NEG",
        /// Pause frames.
        PAUSE = 1 << 14 => "AUTO_PAUSE",
        /// Pause frames in one direction.
        PAUSE_ASYM = 1 << 15 => "AUTO_PAUSE_ASYM",
    }
}

/// A port as FEATURES_REPLY (1.0), PORT_DESC (1.3) and PORT_STATUS show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDesc {
    /// Its number.
    pub port: PortNo,
    /// Its hardware address.
    pub hw_addr: [u8; 6],
    /// Its name; at most 15 bytes go onto the wire.
    pub name: String,
    /// What was set on it.
    pub config: PortConfig,
    /// Its state.
    pub state: PortState,
    /// Features in use.
    pub current: PortFeatures,
    /// Features that it advertises.
    pub advertised: PortFeatures,
    /// Features that it has.
    pub supported: PortFeatures,
    /// Features that its peer advertises.
    pub peer: PortFeatures,
    /// Rate now, in kilobits a second (1.3).
    pub current_kbps: u32,
    /// Highest rate, in kilobits a second (1.3).
    pub max_kbps: u32,
}

/// A change to a port's configuration: `config` where `mask` has a bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// The port.
    pub port: PortNo,
    /// Its hardware address, which has to be the port's.
    pub hw_addr: [u8; 6],
    /// New values.
    pub config: PortConfig,
    /// The bits that change.
    pub mask: PortConfig,
    /// What to advertise; none: no change.
    pub advertise: PortFeatures,
}

impl PortMod {
    /// What 1.3 can change (§7.2.1).
    const CONFIG_13: u32 = PortConfig::PORT_DOWN.0
        | PortConfig::NO_RECV.0
        | PortConfig::NO_FWD.0
        | PortConfig::NO_PACKET_IN.0;

    /// It changes only what there is; no port here has features to advertise. 1.0 has no codes for other bits; there they mean
    /// nothing.
    ///
    /// # Errors
    /// `PortModConfig`, `PortModAdvertise`.
    pub const fn check(&self, version: Version) -> Result<(), ErrorCode> {
        match version {
            Version::V13 if self.mask.0 & !Self::CONFIG_13 != 0 => Err(ErrorCode::PortModConfig),
            Version::V13 if self.advertise.0 != 0 => Err(ErrorCode::PortModAdvertise),
            _ => Ok(()),
        }
    }
}

/// Why PORT_STATUS is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortReason {
    /// The port is new.
    Add,
    /// The port is gone.
    Delete,
    /// Its configuration or its state changed.
    Modify,
}

/// Counters of a port since it came up. `u64::MAX`: not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets dropped on receive.
    pub rx_dropped: u64,
    /// Packets dropped on transmit.
    pub tx_dropped: u64,
    /// Receive errors, the next three among them.
    pub rx_errors: u64,
    /// Transmit errors.
    pub tx_errors: u64,
    /// Frames with an alignment error.
    pub rx_frame_errors: u64,
    /// Overruns on receive.
    pub rx_over_errors: u64,
    /// Frames with a wrong checksum.
    pub rx_crc_errors: u64,
    /// Collisions.
    pub collisions: u64,
}

/// PORT_STATS of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStats {
    /// The port.
    pub port: PortNo,
    /// Its counters.
    pub counters: PortCounters,
    /// For how long it has been there (1.3).
    pub duration: Duration,
}

/// QUEUE statistics of one queue of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// The port.
    pub port: PortNo,
    /// The queue of that port.
    pub queue: u32,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped (queue full).
    pub tx_errors: u64,
    /// For how long it has been there (1.3).
    pub duration: Duration,
}

/// A queue of a port and its rates, in tenths of a percent of the port's rate; above 1000: not limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDesc {
    /// The port.
    pub port: PortNo,
    /// The queue of that port.
    pub queue: u32,
    /// Rate that it gets at least.
    pub min_rate: Option<u16>,
    /// Rate that it gets at most.
    pub max_rate: Option<u16>,
    /// Properties of other types: type, and what follows its padding.
    pub others: Vec<(u16, Vec<u8>)>,
}
