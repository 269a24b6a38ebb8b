//! A rule.

use crate::list::{AddressItem, List, PortRange};
use crate::{Buffer, Check, Compare, Condition, Transform};

/// A rule: where it looks, what for, and what comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What is done with what matches.
    pub action: Action,
    /// Which packets or messages.
    pub protocol: Protocol,
    /// On the left of the arrow.
    pub source: List<AddressItem>,
    /// Ports of it.
    pub source_ports: List<PortRange>,
    /// The arrow.
    pub direction: Direction,
    /// On the right of the arrow.
    pub destination: List<AddressItem>,
    /// Ports of it.
    pub destination_ports: List<PortRange>,
    /// `msg`
    pub msg: Option<String>,
    /// Conditions on the whole, in the order of the rule.
    pub conditions: Vec<Condition>,
    /// Looks into buffers, in the order in which they first occur.
    pub inspections: Vec<Inspection>,
    /// `threshold`: how many of the matches are alerts.
    pub threshold: Option<Threshold>,
    /// `detection_filter`: from which match on there are alerts.
    pub detection_filter: Option<DetectionFilter>,
    /// `tag`
    pub tags: Vec<Tag>,
    /// `noalert`, `flowbits:noalert`: a match is no alert.
    pub noalert: bool,
    /// `prefilter`: an engine may try this rule by its first condition; a hint that changes no result.
    pub prefilter: bool,
    /// `bypass`: after a match the flow is not looked at any more.
    pub bypass: bool,
    /// `target`: the end that is attacked.
    pub target: Option<TargetSide>,
    /// `reference`: system and identifier.
    pub references: Vec<(String, String)>,
    /// `classtype`
    pub classtype: Option<String>,
    /// `priority`, 1 (most urgent) to 255.
    pub priority: Option<u8>,
    /// `metadata`: key and value, which may be empty.
    pub metadata: Vec<(String, String)>,
    /// Options that the language has and nothing here evaluates.
    pub unsupported: Vec<Unsupported>,
    /// `gid`, 1 where the rule has none.
    pub gid: u32,
    /// `sid`, at least 1.
    pub sid: u32,
    /// `rev`, 0 where the rule has none.
    pub rev: u32,
}

impl Rule {
    /// Names of what it asks for that nothing here evaluates: options and buffers. A rule with none can be loaded.
    pub fn unsupported_names(&self) -> impl Iterator<Item = &'static str> {
        let options = self.unsupported.iter().map(|option| option.keyword);
        let buffers = self.inspections.iter().map(|inspection| inspection.buffer);
        let buffers = buffers.filter(|buffer| !buffer.is_supported());
        options.chain(buffers.map(Buffer::name))
    }
}

/// What is done with a packet or flow that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// An alert.
    Alert,
    /// An alert; the packet is dropped, and the flow after it.
    Drop,
    /// As drop, and an error (TCP reset, ICMP unreachable) goes to the source.
    RejectSource,
    /// To the destination.
    RejectDestination,
    /// To both.
    RejectBoth,
    /// No alert, and no other rule is tried.
    Pass,
    /// A record without an alert.
    Log,
    /// Dropped without an alert.
    SilentDrop,
}

impl Action {
    /// The word in a rule.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alert => "alert",
            Self::Drop => "drop",
            Self::RejectSource => "reject",
            Self::RejectDestination => "rejectdst",
            Self::RejectBoth => "rejectboth",
            Self::Pass => "pass",
            Self::Log => "log",
            Self::SilentDrop => "sdrop",
        }
    }

    /// By the word in a rule; `rejectsrc` is `reject`.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "alert" => Self::Alert,
            "drop" => Self::Drop,
            "reject" | "rejectsrc" => Self::RejectSource,
            "rejectdst" => Self::RejectDestination,
            "rejectboth" => Self::RejectBoth,
            "pass" => Self::Pass,
            "log" => Self::Log,
            "sdrop" => Self::SilentDrop,
            _ => return None,
        })
    }
}

/// The arrow of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `->`
    Forward,
    /// `<>`: either way.
    Both,
}

macro_rules! protocols {
    ($($variant:ident $name:literal $($also:literal)*;)*) => {
        /// The protocol of a rule's header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Protocol {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        /// For "did you mean".
        pub(crate) const PROTOCOL_WORDS: &[&str] = &[$($name,)*];

        impl Protocol {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word in a rule.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// By the word in a rule, in either case.
            pub fn from_name(name: &str) -> Option<Self> {
                match name.to_ascii_lowercase().as_str() {
                    $($name $(| $also)* => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

protocols! {
    Ip "ip" "any";
    Ipv4 "ipv4" "ip4";
    Ipv6 "ipv6" "ip6";
    Tcp "tcp";
    TcpPacket "tcp-pkt";
    TcpStream "tcp-stream";
    Udp "udp";
    Icmp "icmp";
    Icmpv4 "icmpv4";
    Icmpv6 "icmpv6";
    Sctp "sctp";
    Ether "ether";
    Arp "arp";
    Packet "pkthdr";
    Http "http";
    Http1 "http1";
    Http2 "http2";
    Tls "tls" "ssl";
    Dns "dns";
    DoH2 "doh2";
    Ssh "ssh";
    Smtp "smtp";
    Ftp "ftp";
    FtpData "ftp-data";
    Smb "smb";
    Imap "imap";
    Pop3 "pop3";
    Dcerpc "dcerpc";
    Dhcp "dhcp";
    Dnp3 "dnp3";
    Modbus "modbus";
    Enip "enip";
    Nfs "nfs";
    Ntp "ntp";
    Tftp "tftp";
    Ike "ike" "ikev2";
    Krb5 "krb5";
    Snmp "snmp";
    Sip "sip";
    Rfb "rfb";
    Rdp "rdp";
    Mqtt "mqtt";
    Quic "quic";
    Telnet "telnet";
    Pgsql "pgsql";
    Ldap "ldap";
    Websocket "websocket";
    BitTorrentDht "bittorrent-dht";
}

/// Checks of one buffer, in order: places that are relative follow the match before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// What they look into.
    pub buffer: Buffer,
    /// What is made of it before.
    pub transforms: Vec<Transform>,
    /// At least one.
    pub checks: Vec<Check>,
}

/// What is counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Track {
    /// `by_src`
    Source,
    /// `by_dst`
    Destination,
    /// `by_both`: by pair of addresses.
    Pair,
    /// `by_rule`
    Rule,
    /// `by_flow`
    Flow,
}

/// `threshold` of a rule or of a threshold file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// What it does.
    pub kind: ThresholdKind,
    /// What is counted together.
    pub track: Track,
    /// Matches.
    pub count: u32,
    /// The window.
    pub seconds: u32,
}

/// What a threshold does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThresholdKind {
    /// At most `count` alerts in a window.
    Limit,
    /// An alert each `count` matches.
    Threshold,
    /// One alert a window, from the match number `count`.
    Both,
}

/// `detection_filter`: matches are alerts once there were more than `count` in `seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectionFilter {
    /// What is counted together.
    pub track: Track,
    /// Matches.
    pub count: u32,
    /// The window.
    pub seconds: u32,
    /// Matches count once for each different port.
    pub unique_on: Option<UniqueOn>,
}

/// Which port makes matches different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UniqueOn {
    /// `src_port`
    SourcePort,
    /// `dst_port`
    DestinationPort,
}

/// `tag`: what is recorded after a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Of the session or of a host.
    pub scope: TagScope,
    /// How much; Suricata takes 256 packets where there is none.
    pub amount: Option<(u32, TagUnit)>,
}

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagScope {
    /// `session`
    Session,
    /// `host`, its source
    Source,
    /// `host`, its destination
    Destination,
}

/// What a tag's amount counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagUnit {
    /// `packets`
    Packets,
    /// `seconds`
    Seconds,
    /// `bytes`
    Bytes,
}

/// An end that is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetSide {
    /// `src_ip`
    Source,
    /// `dest_ip`
    Destination,
}

/// An option that is known and not evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Its name.
    pub keyword: &'static str,
    /// Its value as it is written.
    pub value: Option<String>,
}

impl Compare {
    /// The least and the greatest number that fulfil it; none where none does. Of `!n` these are the ends of all.
    pub fn bounds(self) -> Option<(u64, u64)> {
        let (low, high) = match self {
            Self::Equal(n) => (n, n),
            Self::NotEqual(_) => (0, u64::MAX),
            Self::Less(n) => (0, n.checked_sub(1)?),
            Self::LessOrEqual(n) => (0, n),
            Self::Greater(n) => (n.checked_add(1)?, u64::MAX),
            Self::GreaterOrEqual(n) => (n, u64::MAX),
            Self::Between(a, b) => (a.checked_add(1)?, b.checked_sub(1)?),
        };
        (low <= high).then_some((low, high))
    }
}
