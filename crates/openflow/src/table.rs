//! The switch and its tables: features, descriptions, statistics.

use crate::action::ActionKind;
use crate::bits::bits;
use crate::field::Field;
use crate::port::PortDesc;

bits! {
    /// What a switch can do.
    Capabilities: u32 {
        /// FLOW statistics.
        FLOW_STATS = 1 => "FLOW_STATS",
        /// TABLE statistics.
        TABLE_STATS = 1 << 1 => "TABLE_STATS",
        /// PORT statistics.
        PORT_STATS = 1 << 2 => "PORT_STATS",
        /// 1.3: GROUP statistics. 1.0: spanning tree.
        GROUP_STATS = 1 << 3 => "GROUP_STATS",
        /// IP fragments can be reassembled.
        IP_REASM = 1 << 5 => "IP_REASM",
        /// QUEUE statistics.
        QUEUE_STATS = 1 << 6 => "QUEUE_STATS",
        /// 1.0: addresses of ARP are matched.
        ARP_MATCH_IP = 1 << 7 => "ARP_MATCH_IP",
        /// 1.3: ports that loop are blocked.
        PORT_BLOCKED = 1 << 8 => "PORT_BLOCKED",
    }
}

/// FEATURES_REPLY.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The switch: 16 bits of its implementer, 48 of a hardware address.
    pub datapath_id: u64,
    /// Packets that can be kept for the controller.
    pub buffers: u32,
    /// Tables.
    pub tables: u8,
    /// 1.3: which connection of a controller; 0: the main one.
    pub auxiliary_id: u8,
    /// What it can do.
    pub capabilities: Capabilities,
    /// 1.0: a bit for each action of 1.0; 1.3: reserved.
    pub actions: u32,
    /// 1.0: its ports. 1.3 has them in PORT_DESC.
    pub ports: Vec<PortDesc>,
}

/// What becomes of IP fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fragments {
    /// No special handling.
    #[default]
    Normal,
    /// Dropped.
    Drop,
    /// Reassembled.
    Reassemble,
}

/// SET_CONFIG and GET_CONFIG_REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// What becomes of IP fragments.
    pub fragments: Fragments,
    /// Bytes of a packet that no flow took in PACKET_IN (1.3: from OUTPUT instead).
    pub miss_send_len: u16,
}

impl Default for SwitchConfig {
    /// 128 bytes, as the specification has it.
    fn default() -> Self {
        Self { fragments: Fragments::Normal, miss_send_len: 128 }
    }
}

/// DESC: text about the switch. The wire takes 255 bytes of each (`serial` 31).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Manufacturer.
    pub manufacturer: String,
    /// Hardware.
    pub hardware: String,
    /// Software.
    pub software: String,
    /// Serial number.
    pub serial: String,
    /// What an administrator calls it.
    pub datapath: String,
}

/// TABLE statistics of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// The table.
    pub table: u8,
    /// 1.0: its name; at most 31 bytes.
    pub name: String,
    /// 1.0: the bits of `ofp_flow_wildcards` that it takes.
    pub wildcards: u32,
    /// 1.0: flows at most.
    pub max_flows: u32,
    /// Flows.
    pub active: u32,
    /// Packets looked up.
    pub lookups: u64,
    /// Packets that a flow took.
    pub matched: u64,
}

/// An OXM header without length in TABLE_FEATURES: `class << 16 | field << 9 | has_mask << 8 | length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OxmId(pub u32);

impl OxmId {
    /// The id of a field.
    pub const fn new(field: Field, has_mask: bool) -> Self {
        let length = field.bytes() as u32 * if has_mask { 2 } else { 1 };
        Self(0x8000_0000 | (field.oxm() as u32) << 9 | (has_mask as u32) << 8 | length)
    }

    /// Its field, where it is one of the basic class.
    pub fn field(self) -> Option<Field> {
        (self.0 >> 16 == 0x8000).then(|| Field::from_oxm((self.0 >> 9 & 0x7f) as u8)).flatten()
    }

    /// With a mask.
    pub const fn has_mask(self) -> bool {
        self.0 & 0x100 != 0
    }
}

/// A property of a table in TABLE_FEATURES. `miss`: of the table-miss flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableProperty {
    /// Numbers of instructions.
    Instructions {
        /// Of the table-miss flow.
        miss: bool,
        /// The numbers.
        ids: Vec<u16>,
    },
    /// Tables that can follow.
    NextTables {
        /// Of the table-miss flow.
        miss: bool,
        /// The tables.
        tables: Vec<u8>,
    },
    /// Numbers of actions in the action set.
    WriteActions {
        /// Of the table-miss flow.
        miss: bool,
        /// The numbers.
        ids: Vec<u16>,
    },
    /// Numbers of actions carried out at once.
    ApplyActions {
        /// Of the table-miss flow.
        miss: bool,
        /// The numbers.
        ids: Vec<u16>,
    },
    /// Fields that flows match.
    Match(Vec<OxmId>),
    /// Fields that flows may leave out.
    Wildcards(Vec<OxmId>),
    /// Fields that the action set can set.
    WriteSetField {
        /// Of the table-miss flow.
        miss: bool,
        /// The fields.
        ids: Vec<OxmId>,
    },
    /// Fields that can be set at once.
    ApplySetField {
        /// Of the table-miss flow.
        miss: bool,
        /// The fields.
        ids: Vec<OxmId>,
    },
    /// Of an experimenter (or a type that 1.3 does not have).
    Other {
        /// The type on the wire.
        kind: u16,
        /// What follows, whole.
        data: Vec<u8>,
    },
}

/// TABLE_FEATURES of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFeatures {
    /// The table.
    pub table: u8,
    /// Its name; at most 31 bytes.
    pub name: String,
    /// Bits of the metadata that it matches.
    pub metadata_match: u64,
    /// Bits of the metadata that it writes.
    pub metadata_write: u64,
    /// 1.3: deprecated bits.
    pub config: u32,
    /// Flows at most.
    pub max_flows: u32,
    /// Its properties.
    pub properties: Vec<TableProperty>,
}

impl TableFeatures {
    /// The features of a table that can do all that [`crate::Action`] and [`crate::Instruction`] can, over `fields`: table
    /// `table` of `tables`. The eight properties that every reply must have; the table-miss flow can do the same.
    pub fn full(table: u8, tables: u8, max_flows: u32, fields: &[Field]) -> Self {
        let settable: Vec<OxmId> =
            fields.iter().filter(|f| f.is_settable()).map(|f| OxmId::new(*f, false)).collect();
        let matched = fields.iter().map(|f| OxmId::new(*f, f.is_maskable())).collect();
        let open = fields.iter().map(|f| OxmId::new(*f, false)).collect();
        let actions: Vec<u16> = ActionKind::ALL.iter().map(|(kind, _)| kind.0).collect();
        let later: Vec<u8> = (table.saturating_add(1)..tables).collect();
        // GOTO_TABLE is of no use in the last one.
        let instructions = (1..=6).filter(|id| *id != 1 || !later.is_empty()).collect();
        Self {
            table,
            name: format!("table{table}"),
            metadata_match: u64::MAX,
            metadata_write: u64::MAX,
            config: 0,
            max_flows,
            properties: vec![
                TableProperty::Instructions { miss: false, ids: instructions },
                TableProperty::NextTables { miss: false, tables: later },
                TableProperty::WriteActions { miss: false, ids: actions.clone() },
                TableProperty::ApplyActions { miss: false, ids: actions },
                TableProperty::Match(matched),
                TableProperty::Wildcards(open),
                TableProperty::WriteSetField { miss: false, ids: settable.clone() },
                TableProperty::ApplySetField { miss: false, ids: settable },
            ],
        }
    }
}
