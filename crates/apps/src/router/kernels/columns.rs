//! The columns that the router's kernels use, for self-tests and tests: a pipeline has columns of these names among its own.

chunk::columns! {
    /// Columns of `route` and `rpf`.
    pub struct RouteColumns / RouteView {
        /// Family and what is odd: bits of [`flags`](super::flags).
        pub flags: u16,
        /// The interface that the packet came in by.
        pub interface: u16,
        /// Symmetric flow hash.
        pub flow_hash: u32,
        /// IPv4 destination, host order.
        pub dst4: u32,
        /// IPv4 source.
        pub src4: u32,
        /// IPv6 destination, `[high, low]`.
        pub dst6: [u64; 2],
        /// IPv6 source.
        pub src6: [u64; 2],
        /// What `route` decided: a value of [`decision`](super::decision).
        pub decision: u32,
    }
}

chunk::columns! {
    /// Columns of `decode`: where the frame is, and the fields of `packet::Decoded`.
    pub struct HeaderColumns / HeaderView {
        /// Where the frame starts in the payload, bytes.
        pub payload_at: u32,
        /// Bytes of it that are there.
        pub payload_len: u32,
        /// Bytes of the whole frame.
        pub frame_len: u32,
        /// Source address: IPv6 as `[high, low]`, IPv4 as `[0, address]`.
        pub src: [u64; 2],
        /// Destination address, likewise.
        pub dst: [u64; 2],
        /// IPv4 total length; IPv6 payload length + 40.
        pub ip_total_len: u32,
        /// First four bytes of the upper layer.
        pub l4_word: u32,
        /// Tags: the outer one in the lower half, the inner one in the upper.
        pub vlan_tci: u32,
        /// Symmetric flow hash; 0 where it is not IP.
        pub flow_hash: u32,
        /// EtherType behind the tags.
        pub ethertype: u16,
        /// Where the IP or ARP header starts.
        pub l3_offset: u16,
        /// Where the upper layer starts.
        pub l4_offset: u16,
        /// Bytes of the IP header, options or extension headers included.
        pub ip_header_len: u16,
        /// Fragment offset in bytes.
        pub fragment_offset: u16,
        /// Bits as in `packet::Decoded::flags`.
        pub header_flags: u16,
        /// Number of `packet::Kind`.
        pub kind: u8,
        /// Upper-layer protocol.
        pub protocol: u8,
        /// TTL or hop limit.
        pub ttl: u8,
        /// DSCP and ECN.
        pub traffic_class: u8,
        /// Number of `packet::Anomaly`.
        pub anomaly: u8,
        /// Tags (2 bits), class of the destination MAC (2 bits), extension headers (4 bits), lowest first.
        pub counts: u8,
    }
}

chunk::columns! {
    /// Columns of `rewrite`.
    pub struct RewriteColumns / RewriteView {
        /// Where the frame starts in the payload, bytes.
        pub payload_at: u32,
        /// Bytes of it that are there.
        pub payload_len: u32,
        /// Bytes of the whole frame.
        pub frame_len: u32,
        /// Family: a plain packet has exactly one of [`flags`](super::flags).
        pub flags: u16,
        /// Where the IP header starts.
        pub l3: u8,
        /// Largest IP packet of the link that it leaves by; 0: the neighbour is not known.
        pub mtu: u16,
        /// The port that it leaves by.
        pub tx_port: u16,
        /// Destination and source MAC: bytes 0 to 7 in the first number, lowest first, 8 to 11 in the
        /// second.
        pub macs: [u64; 2],
    }
}
