//! Groups and meters of OpenFlow 1.3.

use std::time::Duration;

use crate::action::Action;
use crate::bits::bits;
use crate::port::PortNo;

/// Highest number of a group.
pub const GROUP_MAX: u32 = 0xffff_ff00;
/// All groups: in delete and in statistics.
pub const ALL_GROUPS: u32 = 0xffff_fffc;
/// Highest number of a meter.
pub const METER_MAX: u32 = 0xffff_0000;
/// The meter of packets to the slow path.
pub const METER_SLOWPATH: u32 = 0xffff_fffd;
/// The meter of packets to the controller.
pub const METER_CONTROLLER: u32 = 0xffff_fffe;
/// All meters: in delete and in statistics.
pub const ALL_METERS: u32 = 0xffff_ffff;

/// What GROUP_MOD and METER_MOD do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableCommand {
    /// A new one.
    Add,
    /// Another content for one that is there.
    Modify,
    /// Removes it.
    Delete,
}

/// Which buckets of a group a packet goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupType {
    /// All: multicast.
    All,
    /// One, chosen by weight.
    Select,
    /// The only one.
    Indirect,
    /// The first that is live.
    FastFailover,
}

/// A bucket of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Its share (select).
    pub weight: u16,
    /// Live as long as this port is (fast failover); [`PortNo::ANY`]: not watched.
    pub watch_port: PortNo,
    /// Live as long as this group is (fast failover); [`crate::flow::ANY_GROUP`]: not watched.
    pub watch_group: u32,
    /// An action set.
    pub actions: Vec<Action>,
}

/// GROUP_MOD: a change to the groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    /// What to do.
    pub command: TableCommand,
    /// Its type.
    pub kind: GroupType,
    /// Its number; [`ALL_GROUPS`] in delete.
    pub group: u32,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
}

/// Counters of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketCounters {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// GROUP statistics of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// Its number.
    pub group: u32,
    /// Flows and groups that lead to it.
    pub references: u32,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// For how long it has been there.
    pub duration: Duration,
    /// Of each bucket.
    pub buckets: Vec<BucketCounters>,
}

/// GROUP_DESC of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDesc {
    /// Its type.
    pub kind: GroupType,
    /// Its number.
    pub group: u32,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
}

bits! {
    /// What groups can do beyond their types.
    GroupCapabilities: u32 {
        /// Select uses weights.
        SELECT_WEIGHT = 1 => "select_weight",
        /// Select leaves out buckets that are not live.
        SELECT_LIVENESS = 1 << 1 => "select_liveness",
        /// Groups lead to groups.
        CHAINING = 1 << 2 => "chaining",
        /// Loops of groups are refused.
        CHAINING_CHECKS = 1 << 3 => "chaining_checks",
    }
}

/// GROUP_FEATURES. Arrays are by [`GroupType`]: all, select, indirect, fast failover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFeatures {
    /// One bit for each type (bit 0: all).
    pub types: u32,
    /// What else.
    pub capabilities: GroupCapabilities,
    /// How many groups of each type.
    pub max_groups: [u32; 4],
    /// Actions of each type: a bit for each number of an action.
    pub actions: [u32; 4],
}

bits! {
    /// How a meter measures.
    MeterFlags: u16 {
        /// Rates are kilobits a second.
        KBPS = 1 => "kbps",
        /// Rates are packets a second.
        PKTPS = 1 << 1 => "pktps",
        /// Burst sizes are given.
        BURST = 1 << 2 => "burst",
        /// Statistics are kept.
        STATS = 1 << 3 => "stats",
    }
}

/// What a band does with packets above its rate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BandKind {
    /// Drops them.
    Drop,
    /// Raises the drop precedence of their DSCP (RFC 2597).
    DscpRemark {
        /// By so many levels.
        prec_level: u8,
    },
    /// Of an experimenter.
    Experimenter {
        /// Who.
        id: u32,
    },
}

/// A band of a meter: of the bands below the measured rate, the highest is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Band {
    /// What it does.
    pub kind: BandKind,
    /// Above this rate, kilobits or packets a second.
    pub rate: u32,
    /// Burst, kilobits or packets; counts with [`MeterFlags::BURST`].
    pub burst: u32,
}

/// METER_MOD: a change to the meters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// What to do.
    pub command: TableCommand,
    /// How it measures.
    pub flags: MeterFlags,
    /// Its number; [`ALL_METERS`] in delete.
    pub meter: u32,
    /// Its bands.
    pub bands: Vec<Band>,
}

/// METER statistics of one meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStats {
    /// Its number.
    pub meter: u32,
    /// Flows that use it.
    pub flows: u32,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// For how long it has been there.
    pub duration: Duration,
    /// Of each band: what it was carried out on.
    pub bands: Vec<BucketCounters>,
}

/// METER_CONFIG of one meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// How it measures.
    pub flags: MeterFlags,
    /// Its number.
    pub meter: u32,
    /// Its bands.
    pub bands: Vec<Band>,
}

/// METER_FEATURES.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterFeatures {
    /// How many meters.
    pub max_meters: u32,
    /// Kinds of bands: bit 1 drop, bit 2 DSCP remark.
    pub band_types: u32,
    /// Bits of [`MeterFlags`].
    pub capabilities: u32,
    /// Bands of a meter.
    pub max_bands: u8,
    /// Colour values.
    pub max_color: u8,
}
