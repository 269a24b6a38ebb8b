//! The records of the forwarding tables: plain, of fixed size, without pointers.

/// What a next hop's number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum NextHopKind {
    /// No route: unreachable. Number 0 is always this.
    #[default]
    NoRoute = 0,
    /// One adjacency: `first` is its number.
    Adjacency = 1,
    /// An equal-cost group: members `first .. first + count` of the group table, each the number of
    /// an adjacency, chosen by flow hash. A weight is how often a member is there.
    Group = 2,
    /// On the link of interface `first`, the neighbour not known: to be found, or made up offline.
    Connected = 3,
    /// An address of interface `first` itself.
    Local = 4,
    /// Dropped in silence.
    Blackhole = 5,
    /// Dropped with an ICMP destination unreachable.
    Unreachable = 6,
    /// The directed broadcast of interface `first`: for the host, never forwarded (RFC 2644).
    Broadcast = 7,
}

/// A next hop, 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct NextHop {
    /// Which of the cases.
    pub kind: NextHopKind,
    /// Zero.
    pub pad: u8,
    /// Members of a group; 1 otherwise.
    pub count: u16,
    /// Adjacency, first member or interface.
    pub first: u32,
}

const _: () = assert!(size_of::<NextHop>() == 8);

/// How to reach a neighbour: 64 bytes, one cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Adjacency {
    /// The bytes to put before the IP header: Ethernet and up to two VLAN tags, EtherType included.
    pub rewrite: [u8; 22],
    /// How many of them are used: 14, 18 or 22.
    pub rewrite_len: u8,
    /// 1 when the neighbour's MAC is known, 0 when it is to be found first.
    pub resolved: u8,
    /// The interface it is on.
    pub interface: u16,
    /// The physical port to send by.
    pub tx_port: u16,
    /// Largest IP packet of the link, bytes.
    pub mtu: u16,
    /// 4 or 6: the family of `address`. 0: no neighbour of its own, the packet's destination is
    /// the neighbour (a port as a member of a group).
    pub family: u16,
    /// The neighbour's address: IPv6 as `[high, low]`, IPv4 as `[0, address]`.
    pub address: [u64; 2],
}

const _: () = assert!(size_of::<Adjacency>() == 64);

impl Default for Adjacency {
    /// A hole in the table: on no interface that exists.
    fn default() -> Self {
        Self {
            rewrite: [0; 22],
            rewrite_len: 14,
            resolved: 0,
            interface: u16::MAX,
            tx_port: u16::MAX,
            mtu: 0,
            family: 0,
            address: [0; 2],
        }
    }
}

/// Reverse-path check of an interface (RFC 3704).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum ReversePath {
    /// None.
    #[default]
    Off,
    /// The route back must lead out of the interface that the packet came in by.
    Strict,
    /// There must be some route back.
    Loose,
}

/// A port or VLAN subinterface. Ports come first, so that an untagged packet's interface is its port.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Interface {
    /// Its name in the configuration.
    pub name: String,
    /// Whether it exists, is up and may be used.
    pub up: bool,
    /// The physical port that carries it.
    pub port: u16,
    /// Tags, outer first: (TPID, VLAN identifier). Empty for a port itself.
    pub tags: Vec<(u16, u16)>,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Own IPv4 addresses with prefix lengths, the primary first (source of ICMP errors).
    pub addresses4: Vec<(u32, u8)>,
    /// Own IPv6 addresses with prefix lengths, global ones first.
    pub addresses6: Vec<([u64; 2], u8)>,
    /// Reverse-path check.
    pub reverse_path: ReversePath,
    /// Whether packets are taken whatever unicast MAC they are for: captures that were recorded
    /// elsewhere, or a port that is configured `promiscuous`.
    pub any_mac: bool,
    /// Whether a Linux twin takes what is for the host. Without one the router answers ARP,
    /// neighbour discovery and echo requests itself.
    pub twin: bool,
    /// Of a tunnel interface: the number by which associations of IPsec are its own; 0: none.
    pub if_id: u32,
}

/// What of the configuration the data path needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Offline: a neighbour that is not known gets the MAC that is derived from its address, and
    /// no packet ever waits for one.
    pub derive_neighbours: bool,
    /// TTL and hop limit of packets that the router makes.
    pub ttl: u8,
    /// Fragment IPv4 packets that are too long and may be fragmented.
    pub fragment: bool,
    /// ICMP and ICMPv6 errors per second, over all interfaces; 0: none.
    pub icmp_rate: u32,
    /// ICMP errors that may leave at once.
    pub icmp_burst: u32,
    /// Packets that wait for one neighbour.
    pub neighbour_queue_packets: u32,
    /// Packets that wait for neighbours in all, per worker.
    pub neighbour_queue_total_packets: u32,
    /// How long a packet waits for a neighbour, nanoseconds.
    pub neighbour_wait_ns: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            derive_neighbours: false,
            ttl: 64,
            fragment: true,
            icmp_rate: 100,
            icmp_burst: 20,
            neighbour_queue_packets: 32,
            neighbour_queue_total_packets: 4096,
            neighbour_wait_ns: 3_000_000_000,
        }
    }
}

/// Events from the data path to the neighbour resolver in control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NeighbourEvent {
    /// Packets wait for this neighbour, or one that is in use should be confirmed.
    Wanted {
        /// The interface it is on.
        interface: u16,
        /// Its address.
        address: std::net::IpAddr,
    },
    /// An ARP or neighbour discovery packet said where an address is.
    Seen {
        /// The interface it came in by.
        interface: u16,
        /// The address.
        address: std::net::IpAddr,
        /// Its MAC address.
        mac: [u8; 6],
        /// Whether it answers a question: an ARP reply to us, a solicited advertisement.
        solicited: bool,
        /// Whether it may replace another MAC address: the override flag of an advertisement
        /// (RFC 4861 section 4.4); always so for ARP and for the sender of a solicitation.
        overrides: bool,
        /// Whether it asks for an address of ours: such a sender expects an answer, so it is kept
        /// even if it was not requested (RFC 826 "merge"; RFC 4861 section 7.2.3).
        asks_us: bool,
    },
}
