//! What the agent needs of a switch.

use std::time::Duration;

use super::monitors::{FlowChange, StampedFlow};
use crate::error::{ErrorCode, Version};
use crate::flow::{ALL_TABLES, AggregateStats, FlowFilter, FlowMod, FlowStats, PacketOut};
use crate::group::{
    GroupDesc, GroupFeatures, GroupMod, GroupStats, MeterConfig, MeterFeatures, MeterMod,
    MeterStats,
};
use crate::port::{PortDesc, PortMod, PortNo, PortStats, QueueDesc, QueueStats};
use crate::table::{Description, Features, TableFeatures, TableStats};

/// A request that changes the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// FLOW_MOD.
    Flow(FlowMod),
    /// GROUP_MOD.
    Group(GroupMod),
    /// METER_MOD.
    Meter(MeterMod),
    /// PORT_MOD.
    Port(PortMod),
}

/// Why changes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which of them, from 0 on.
    pub index: usize,
    /// Why.
    pub code: ErrorCode,
}

/// Some flows of a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowPage {
    /// The flows.
    pub flows: Vec<FlowStats>,
    /// Where the next page begins; `None`: this is the last.
    pub next: Option<u64>,
}

/// Some flows that have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedPage {
    /// The flows, in order of their places.
    pub flows: Vec<StampedFlow>,
    /// The place where the next page begins; `None`: this is the last.
    pub next: Option<u64>,
}

/// A switch: the tables and ports that an agent speaks for.
///
/// Every method is called by the thread that has the agent. A method with `Result` answers with the error that the
/// controller gets.
pub trait Switch {
    /// What the switch can do. The agent adds the ports (1.0) and the number of its buffers.
    fn features(&self) -> Features;

    /// Text about the switch.
    fn description(&self) -> Description;

    /// Its ports.
    fn ports(&self) -> Vec<PortDesc>;

    /// Carries out changes in order, all or none; a packet sees all of them or none. `now` is the agent's time.
    ///
    /// A FLOW_MOD's buffer is the agent's business.
    ///
    /// # Errors
    /// The first change that is refused; the switch is as it was.
    fn apply(&mut self, version: Version, changes: &[Change], now: Duration)
    -> Result<(), Refused>;

    /// Sends a packet; it is in `data`, and `buffer_id` is `None`.
    ///
    /// # Errors
    /// Wrong ports or actions.
    fn packet_out(&mut self, version: Version, packet: &PacketOut) -> Result<(), ErrorCode>;

    /// At most `limit` flows of a filter (at least one where there is one), beginning at `from`: 0, or [`FlowPage::next`]
    /// of the page before. A flow that is there from the first to the last page is in exactly one of them.
    ///
    /// # Errors
    /// A match that no flow can have, an unknown table.
    fn flows(
        &self,
        version: Version,
        filter: &FlowFilter,
        from: u64,
        limit: usize,
        now: Duration,
    ) -> Result<FlowPage, ErrorCode>;

    /// The flows of a filter together.
    ///
    /// # Errors
    /// As [`Switch::flows`].
    fn aggregate(&self, version: Version, filter: &FlowFilter)
    -> Result<AggregateStats, ErrorCode>;

    /// Whether changes of flows are kept for [`Switch::flow_changes`]. A switch that has none of these four methods has nothing for
    /// flow monitors.
    fn watch_flows(&mut self, is_wanted: bool) {
        let _ = is_wanted;
    }

    /// The number of the last change of a flow; it grows with each of them, and is not zero where there is a flow.
    fn flow_sequence(&self) -> u64 {
        0
    }

    /// The changes that were kept since the last call, in order. Those of requests that were undone are none.
    fn flow_changes(&mut self, each: &mut dyn FnMut(FlowChange)) {
        let _ = each;
    }

    /// At most `limit` flows whose last change has a number above `since`, at places from `from` on.
    fn changed_flows(&self, since: u64, from: u64, limit: usize) -> ChangedPage {
        let _ = (since, from, limit);
        ChangedPage::default()
    }

    /// Statistics of all tables.
    fn tables(&self) -> Vec<TableStats>;

    /// What the tables can do.
    fn table_features(&self) -> Vec<TableFeatures>;

    /// TABLE_MOD of 1.3.
    ///
    /// # Errors
    /// An unknown table or bits other than zero.
    fn table_mod(&mut self, table: u8, config: u32) -> Result<(), ErrorCode> {
        if table != ALL_TABLES && self.tables().iter().all(|own| own.table != table) {
            return Err(ErrorCode::TableModTable);
        }
        if config == 0 { Ok(()) } else { Err(ErrorCode::TableModConfig) }
    }

    /// Counters of a port, of all for [`PortNo::ANY`].
    ///
    /// # Errors
    /// An unknown port.
    fn port_stats(&self, port: PortNo, now: Duration) -> Result<Vec<PortStats>, ErrorCode>;

    /// Counters of queues: of a port or [`PortNo::ANY`], of a queue or `u32::MAX`.
    ///
    /// # Errors
    /// An unknown port or queue.
    fn queue_stats(
        &self,
        port: PortNo,
        queue: u32,
        now: Duration,
    ) -> Result<Vec<QueueStats>, ErrorCode>;

    /// The queues of a port, or of all for [`PortNo::ANY`].
    ///
    /// # Errors
    /// An unknown port.
    fn queues(&self, port: PortNo) -> Result<Vec<QueueDesc>, ErrorCode>;

    /// Counters of a group, of all for [`crate::group::ALL_GROUPS`]; of an unknown one nothing.
    fn group_stats(&self, group: u32, now: Duration) -> Vec<GroupStats>;

    /// All groups.
    fn groups(&self) -> Vec<GroupDesc>;

    /// What groups can do.
    fn group_features(&self) -> GroupFeatures;

    /// Counters of a meter, of all for [`crate::group::ALL_METERS`].
    ///
    /// # Errors
    /// An unknown meter.
    fn meter_stats(&self, meter: u32, now: Duration) -> Result<Vec<MeterStats>, ErrorCode>;

    /// A meter, all for [`crate::group::ALL_METERS`].
    ///
    /// # Errors
    /// An unknown meter.
    fn meters(&self, meter: u32) -> Result<Vec<MeterConfig>, ErrorCode>;

    /// What meters can do.
    fn meter_features(&self) -> MeterFeatures;
}
