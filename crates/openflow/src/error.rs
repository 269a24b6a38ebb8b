//! Errors of the protocol: one name each, with type and code of both versions.

use std::fmt;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Version {
    /// OpenFlow 1.0.
    V10 = 1,
    /// OpenFlow 1.3.
    V13 = 4,
}

impl Version {
    /// The version of a number on the wire.
    pub const fn from_wire(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::V10),
            4 => Some(Self::V13),
            _ => None,
        }
    }

    /// Its number on the wire.
    pub const fn wire(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V10 => "OpenFlow 1.0",
            Self::V13 => "OpenFlow 1.3",
        })
    }
}

/// Type of the errors of an experimenter in 1.3; the codes of ONF extension 230 (bundles) are of this type.
pub(crate) const EXPERIMENTER: u16 = 0xffff;

/// Type of the errors of a vendor in 1.0. Those of Nicira have a type of their own, [`vendor_type`].
pub(crate) const VENDOR: u16 = 0xb0c2;

/// Code of Nicira's error for a field that is not known.
const UNKNOWN_FIELD: u16 = 263;

/// The type behind Nicira's number: all errors that there are here are bad requests, but for one.
pub(crate) const fn vendor_type(code: u16) -> u16 {
    if code == UNKNOWN_FIELD { 0 } else { 1 }
}

macro_rules! errors {
    ($($name:ident, $text:literal, $v10:expr, $v13:expr;)*) => {
        /// Why a message was refused. Names follow the specification's without their prefix `OFP`.
        #[allow(missing_docs)] // each is the specification's error of that name
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ErrorCode {
            $(#[doc = concat!("`", $text, "`")] $name,)*
            /// A type and code that this crate has no name for.
            Other {
                /// The type.
                kind: u16,
                /// The code.
                code: u16,
            },
        }

        impl ErrorCode {
            /// All that have a name.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The specification's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Other { .. } => "OFPET_OTHER",
                }
            }

            const fn wires(self) -> [Option<(u16, u16)>; 2] {
                match self {
                    $(Self::$name => [$v10, $v13],)*
                    Self::Other { kind, code } => [Some((kind, code)), Some((kind, code))],
                }
            }
        }
    };
}

const fn w(kind: u16, code: u16) -> Option<(u16, u16)> {
    Some((kind, code))
}

const NONE: Option<(u16, u16)> = None;

errors! {
    HelloFailedIncompatible, "OFPHFC_INCOMPATIBLE", w(0, 0), w(0, 0);
    HelloFailedEperm, "OFPHFC_EPERM", w(0, 1), w(0, 1);
    BadRequestVersion, "OFPBRC_BAD_VERSION", w(1, 0), w(1, 0);
    BadRequestType, "OFPBRC_BAD_TYPE", w(1, 1), w(1, 1);
    BadRequestMultipart, "OFPBRC_BAD_STAT", w(1, 2), w(1, 2);
    BadRequestExperimenter, "OFPBRC_BAD_VENDOR", w(1, 3), w(1, 3);
    BadRequestExperimenterType, "OFPBRC_BAD_SUBTYPE", w(1, 4), w(1, 4);
    BadRequestEperm, "OFPBRC_EPERM", w(1, 5), w(1, 5);
    BadRequestLen, "OFPBRC_BAD_LEN", w(1, 6), w(1, 6);
    BadRequestBufferEmpty, "OFPBRC_BUFFER_EMPTY", w(1, 7), w(1, 7);
    BadRequestBufferUnknown, "OFPBRC_BUFFER_UNKNOWN", w(1, 8), w(1, 8);
    BadRequestTableId, "OFPBRC_BAD_TABLE_ID", w(VENDOR, 512), w(1, 9);
    BadRequestIsSlave, "OFPBRC_IS_SLAVE", NONE, w(1, 10);
    BadRequestPort, "OFPBRC_BAD_PORT", w(VENDOR, 514), w(1, 11);
    BadRequestPacket, "OFPBRC_BAD_PACKET", NONE, w(1, 12);
    BadRequestMultipartOverflow, "OFPBRC_MULTIPART_BUFFER_OVERFLOW", NONE, w(1, 13);
    BadActionType, "OFPBAC_BAD_TYPE", w(2, 0), w(2, 0);
    BadActionLen, "OFPBAC_BAD_LEN", w(2, 1), w(2, 1);
    BadActionExperimenter, "OFPBAC_BAD_VENDOR", w(2, 2), w(2, 2);
    BadActionExperimenterType, "OFPBAC_BAD_VENDOR_TYPE", w(2, 3), w(2, 3);
    BadActionOutPort, "OFPBAC_BAD_OUT_PORT", w(2, 4), w(2, 4);
    BadActionArgument, "OFPBAC_BAD_ARGUMENT", w(2, 5), w(2, 5);
    BadActionEperm, "OFPBAC_EPERM", w(2, 6), w(2, 6);
    BadActionTooMany, "OFPBAC_TOO_MANY", w(2, 7), w(2, 7);
    BadActionQueue, "OFPBAC_BAD_QUEUE", w(2, 8), w(2, 8);
    BadActionOutGroup, "OFPBAC_BAD_OUT_GROUP", NONE, w(2, 9);
    BadActionMatchInconsistent, "OFPBAC_MATCH_INCONSISTENT", w(VENDOR, 522), w(2, 10);
    BadActionUnsupportedOrder, "OFPBAC_UNSUPPORTED_ORDER", NONE, w(2, 11);
    BadActionTag, "OFPBAC_BAD_TAG", NONE, w(2, 12);
    BadActionSetType, "OFPBAC_BAD_SET_TYPE", w(VENDOR, 523), w(2, 13);
    BadActionSetLen, "OFPBAC_BAD_SET_LEN", w(VENDOR, 524), w(2, 14);
    BadActionSetArgument, "OFPBAC_BAD_SET_ARGUMENT", w(VENDOR, 525), w(2, 15);
    BadInstructionUnknown, "OFPBIC_UNKNOWN_INST", NONE, w(3, 0);
    BadInstructionUnsupported, "OFPBIC_UNSUP_INST", NONE, w(3, 1);
    BadInstructionTableId, "OFPBIC_BAD_TABLE_ID", NONE, w(3, 2);
    BadInstructionMetadata, "OFPBIC_UNSUP_METADATA", NONE, w(3, 3);
    BadInstructionMetadataMask, "OFPBIC_UNSUP_METADATA_MASK", NONE, w(3, 4);
    BadInstructionExperimenter, "OFPBIC_BAD_EXPERIMENTER", NONE, w(3, 5);
    BadInstructionExperimenterType, "OFPBIC_BAD_EXP_TYPE", NONE, w(3, 6);
    BadInstructionLen, "OFPBIC_BAD_LEN", NONE, w(3, 7);
    BadInstructionEperm, "OFPBIC_EPERM", NONE, w(3, 8);
    BadInstructionDup, "OFPBIC_DUP_INST", NONE, w(3, 9);
    BadMatchType, "OFPBMC_BAD_TYPE", NONE, w(4, 0);
    BadMatchLen, "OFPBMC_BAD_LEN", NONE, w(4, 1);
    BadMatchTag, "OFPBMC_BAD_TAG", NONE, w(4, 2);
    BadMatchDlAddrMask, "OFPBMC_BAD_DL_ADDR_MASK", NONE, w(4, 3);
    BadMatchNwAddrMask, "OFPBMC_BAD_NW_ADDR_MASK", NONE, w(4, 4);
    BadMatchWildcards, "OFPBMC_BAD_WILDCARDS", w(VENDOR, 262), w(4, 5);
    BadMatchField, "OFPBMC_BAD_FIELD", w(VENDOR, UNKNOWN_FIELD), w(4, 6);
    BadMatchValue, "OFPBMC_BAD_VALUE", w(VENDOR, 258), w(4, 7);
    BadMatchMask, "OFPBMC_BAD_MASK", w(VENDOR, 259), w(4, 8);
    BadMatchPrereq, "OFPBMC_BAD_PREREQ", w(VENDOR, 260), w(4, 9);
    BadMatchDupField, "OFPBMC_DUP_FIELD", w(VENDOR, 261), w(4, 10);
    BadMatchEperm, "OFPBMC_EPERM", NONE, w(4, 11);
    FlowModUnknown, "OFPFMFC_UNKNOWN", NONE, w(5, 0);
    FlowModTableFull, "OFPFMFC_TABLE_FULL", w(3, 0), w(5, 1);
    FlowModTableId, "OFPFMFC_BAD_TABLE_ID", NONE, w(5, 2);
    FlowModOverlap, "OFPFMFC_OVERLAP", w(3, 1), w(5, 3);
    FlowModEperm, "OFPFMFC_EPERM", w(3, 2), w(5, 4);
    FlowModTimeout, "OFPFMFC_BAD_TIMEOUT", NONE, w(5, 5);
    FlowModEmergTimeout, "OFPFMFC_BAD_EMERG_TIMEOUT", w(3, 3), NONE;
    FlowModCommand, "OFPFMFC_BAD_COMMAND", w(3, 4), w(5, 6);
    FlowModUnsupported, "OFPFMFC_UNSUPPORTED", w(3, 5), NONE;
    FlowModFlags, "OFPFMFC_BAD_FLAGS", NONE, w(5, 7);
    GroupModExists, "OFPGMFC_GROUP_EXISTS", NONE, w(6, 0);
    GroupModInvalid, "OFPGMFC_INVALID_GROUP", NONE, w(6, 1);
    GroupModWeight, "OFPGMFC_WEIGHT_UNSUPPORTED", NONE, w(6, 2);
    GroupModOutOfGroups, "OFPGMFC_OUT_OF_GROUPS", NONE, w(6, 3);
    GroupModOutOfBuckets, "OFPGMFC_OUT_OF_BUCKETS", NONE, w(6, 4);
    GroupModChaining, "OFPGMFC_CHAINING_UNSUPPORTED", NONE, w(6, 5);
    GroupModWatch, "OFPGMFC_WATCH_UNSUPPORTED", NONE, w(6, 6);
    GroupModLoop, "OFPGMFC_LOOP", NONE, w(6, 7);
    GroupModUnknown, "OFPGMFC_UNKNOWN_GROUP", NONE, w(6, 8);
    GroupModChained, "OFPGMFC_CHAINED_GROUP", NONE, w(6, 9);
    GroupModType, "OFPGMFC_BAD_TYPE", NONE, w(6, 10);
    GroupModCommand, "OFPGMFC_BAD_COMMAND", NONE, w(6, 11);
    GroupModBucket, "OFPGMFC_BAD_BUCKET", NONE, w(6, 12);
    GroupModBadWatch, "OFPGMFC_BAD_WATCH", NONE, w(6, 13);
    GroupModEperm, "OFPGMFC_EPERM", NONE, w(6, 14);
    PortModPort, "OFPPMFC_BAD_PORT", w(4, 0), w(7, 0);
    PortModHwAddr, "OFPPMFC_BAD_HW_ADDR", w(4, 1), w(7, 1);
    PortModConfig, "OFPPMFC_BAD_CONFIG", NONE, w(7, 2);
    PortModAdvertise, "OFPPMFC_BAD_ADVERTISE", NONE, w(7, 3);
    PortModEperm, "OFPPMFC_EPERM", NONE, w(7, 4);
    TableModTable, "OFPTMFC_BAD_TABLE", NONE, w(8, 0);
    TableModConfig, "OFPTMFC_BAD_CONFIG", NONE, w(8, 1);
    TableModEperm, "OFPTMFC_EPERM", NONE, w(8, 2);
    QueueOpPort, "OFPQOFC_BAD_PORT", w(5, 0), w(9, 0);
    QueueOpQueue, "OFPQOFC_BAD_QUEUE", w(5, 1), w(9, 1);
    QueueOpEperm, "OFPQOFC_EPERM", w(5, 2), w(9, 2);
    SwitchConfigFlags, "OFPSCFC_BAD_FLAGS", NONE, w(10, 0);
    SwitchConfigLen, "OFPSCFC_BAD_LEN", NONE, w(10, 1);
    SwitchConfigEperm, "OFPSCFC_EPERM", NONE, w(10, 2);
    RoleStale, "OFPRRFC_STALE", NONE, w(11, 0);
    RoleUnsupported, "OFPRRFC_UNSUP", NONE, w(11, 1);
    RoleBad, "OFPRRFC_BAD_ROLE", w(VENDOR, 513), w(11, 2);
    MeterModUnknown, "OFPMMFC_UNKNOWN", NONE, w(12, 0);
    MeterModExists, "OFPMMFC_METER_EXISTS", NONE, w(12, 1);
    MeterModInvalid, "OFPMMFC_INVALID_METER", NONE, w(12, 2);
    MeterModUnknownMeter, "OFPMMFC_UNKNOWN_METER", NONE, w(12, 3);
    MeterModCommand, "OFPMMFC_BAD_COMMAND", NONE, w(12, 4);
    MeterModFlags, "OFPMMFC_BAD_FLAGS", NONE, w(12, 5);
    MeterModRate, "OFPMMFC_BAD_RATE", NONE, w(12, 6);
    MeterModBurst, "OFPMMFC_BAD_BURST", NONE, w(12, 7);
    MeterModBand, "OFPMMFC_BAD_BAND", NONE, w(12, 8);
    MeterModBandValue, "OFPMMFC_BAD_BAND_VALUE", NONE, w(12, 9);
    MeterModOutOfMeters, "OFPMMFC_OUT_OF_METERS", NONE, w(12, 10);
    MeterModOutOfBands, "OFPMMFC_OUT_OF_BANDS", NONE, w(12, 11);
    TableFeaturesTable, "OFPTFFC_BAD_TABLE", NONE, w(13, 0);
    TableFeaturesMetadata, "OFPTFFC_BAD_METADATA", NONE, w(13, 1);
    TableFeaturesType, "OFPTFFC_BAD_TYPE", NONE, w(13, 2);
    TableFeaturesLen, "OFPTFFC_BAD_LEN", NONE, w(13, 3);
    TableFeaturesArgument, "OFPTFFC_BAD_ARGUMENT", NONE, w(13, 4);
    TableFeaturesEperm, "OFPTFFC_EPERM", NONE, w(13, 5);
    NxmInvalid, "NXBRC_NXM_INVALID", w(VENDOR, 256), NONE;
    MonitorExists, "OFPMOFC_MONITOR_EXISTS", w(VENDOR, 517), w(EXPERIMENTER, 6);
    MonitorFlags, "OFPMOFC_BAD_FLAGS", w(VENDOR, 518), w(EXPERIMENTER, 7);
    MonitorUnknown, "OFPMOFC_UNKNOWN_MONITOR", w(VENDOR, 519), w(EXPERIMENTER, 8);
    BundleUnknown, "OFPBFC_UNKNOWN", NONE, w(EXPERIMENTER, 2300);
    BundleEperm, "OFPBFC_EPERM", NONE, w(EXPERIMENTER, 2301);
    BundleId, "OFPBFC_BAD_ID", NONE, w(EXPERIMENTER, 2302);
    BundleExists, "OFPBFC_BUNDLE_EXIST", NONE, w(EXPERIMENTER, 2303);
    BundleClosed, "OFPBFC_BUNDLE_CLOSED", NONE, w(EXPERIMENTER, 2304);
    BundleOutOf, "OFPBFC_OUT_OF_BUNDLES", NONE, w(EXPERIMENTER, 2305);
    BundleType, "OFPBFC_BAD_TYPE", NONE, w(EXPERIMENTER, 2306);
    BundleFlags, "OFPBFC_BAD_FLAGS", NONE, w(EXPERIMENTER, 2307);
    BundleMsgLen, "OFPBFC_MSG_BAD_LEN", NONE, w(EXPERIMENTER, 2308);
    BundleMsgXid, "OFPBFC_MSG_BAD_XID", NONE, w(EXPERIMENTER, 2309);
    BundleMsgUnsupported, "OFPBFC_MSG_UNSUP", NONE, w(EXPERIMENTER, 2310);
    BundleMsgConflict, "OFPBFC_MSG_CONFLICT", NONE, w(EXPERIMENTER, 2311);
    BundleMsgTooMany, "OFPBFC_MSG_TOO_MANY", NONE, w(EXPERIMENTER, 2312);
    BundleMsgFailed, "OFPBFC_MSG_FAILED", NONE, w(EXPERIMENTER, 2313);
    BundleTimeout, "OFPBFC_TIMEOUT", NONE, w(EXPERIMENTER, 2314);
    BundleInProgress, "OFPBFC_BUNDLE_IN_PROGRESS", NONE, w(EXPERIMENTER, 2315);
}

impl ErrorCode {
    /// Type and code on the wire. What 1.0 has no error for goes out as Nicira's, where it has one, else as the nearest of 1.0: a
    /// bad match as a bad request's `EPERM`, others as the first error of their kind.
    pub fn wire(self, version: Version) -> (u16, u16) {
        let [v10, v13] = self.wires();
        match version {
            Version::V10 => v10.unwrap_or_else(|| match v13.map(|(kind, _)| kind) {
                Some(1) => (1, 5),
                Some(2) => (2, 5),
                Some(5) => (3, 5),
                Some(7) => (4, 0),
                Some(9) => (5, 0),
                _ if matches!(self, Self::BadMatchLen) => (1, 6),
                _ => (1, 5),
            }),
            Version::V13 => v13.unwrap_or((5, 0)),
        }
    }

    /// The error of a type and code on the wire.
    pub fn from_wire(version: Version, kind: u16, code: u16) -> Self {
        let at = usize::from(version == Version::V13);
        let named = Self::ALL.iter().find(|e| e.wires()[at] == Some((kind, code)));
        named.copied().unwrap_or(Self::Other { kind, code })
    }
}

impl ErrorCode {
    /// What is wrong with a flow, a group or a meter that is refused with this error, in words for people; others have their
    /// name alone.
    pub const fn meaning(self) -> Option<&'static str> {
        Some(match self {
            Self::BadActionOutPort => "the port does not exist, or packets cannot be sent to it",
            Self::BadActionOutGroup => "there is no such group",
            Self::BadActionQueue => "the port has no such queue",
            Self::BadActionArgument => "the action does not accept this value",
            Self::BadActionTooMany => "there are too many actions",
            Self::BadActionMatchInconsistent => {
                "the match does not require the header that the action changes"
            }
            Self::BadActionUnsupportedOrder => "the actions cannot be carried out in this order",
            Self::BadActionTag => "the tag cannot be pushed here",
            Self::BadActionType | Self::BadActionExperimenter | Self::BadActionExperimenterType => {
                "unknown action"
            }
            Self::BadActionSetType => "the field cannot be set",
            Self::BadActionSetLen => "the value does not fit into the field",
            Self::BadActionSetArgument => "the field cannot be set to this value",
            Self::BadInstructionTableId => "the next table must exist and have a higher number",
            Self::BadInstructionDup => "the instruction is given twice",
            Self::BadInstructionUnknown
            | Self::BadInstructionUnsupported
            | Self::BadInstructionExperimenter => "unknown instruction",
            Self::BadMatchField => "unknown field",
            Self::BadMatchMask => "the field accepts no mask, or not this one",
            Self::BadMatchValue => "the field cannot have this value",
            Self::BadMatchPrereq => "a field needs another field in the match that is missing",
            Self::BadMatchDupField => "the match has a field twice",
            Self::BadMatchWildcards => "the match omits a field that is required",
            Self::FlowModTableFull => "the switch has no room for more flows",
            Self::FlowModTableId | Self::BadRequestTableId => "there is no such table",
            Self::FlowModOverlap => "a flow of the same priority matches some of the same packets",
            Self::FlowModTimeout => "invalid time-out",
            Self::FlowModFlags => "invalid flags",
            Self::GroupModExists => "the group exists already",
            Self::GroupModInvalid => "invalid group: its number, its buckets or their weights",
            Self::GroupModOutOfGroups => "the switch has no room for more groups",
            Self::GroupModOutOfBuckets => "the group has too many buckets",
            Self::GroupModChaining => "groups lead to too many groups in a row",
            Self::GroupModLoop => "the group leads to itself",
            Self::GroupModUnknown => "there is no such group",
            Self::GroupModBadWatch => "a bucket watches a port or group that does not exist",
            Self::MeterModExists => "the meter exists already",
            Self::MeterModInvalid => "invalid meter number",
            Self::MeterModUnknownMeter => "there is no such meter",
            Self::MeterModFlags => "kbps and pktps exclude each other",
            Self::MeterModRate => "a band has the rate 0",
            Self::MeterModBand => "unknown type of band",
            Self::MeterModOutOfMeters => "the switch has no room for more meters",
            Self::MonitorExists => "a flow monitor with this number exists already",
            Self::MonitorUnknown => "there is no such flow monitor",
            Self::MeterModOutOfBands => "the meter has too many bands",
            _ => return None,
        })
    }

    /// The meaning, and the specification's name in parentheses.
    pub fn in_words(self) -> String {
        match self.meaning() {
            Some(meaning) => format!("{meaning} ({self})"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { kind, code } => write!(f, "error of type {kind}, code {code}"),
            named => f.write_str(named.name()),
        }
    }
}

impl std::error::Error for ErrorCode {}
