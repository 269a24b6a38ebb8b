//! The columns that kernels use, as declarations. A pipeline that runs a kernel declares columns of these
//! names and types among its own; self-tests and tests use the declarations as they are.

chunk::columns! {
    /// Columns of `lpm4` and `lpm6`.
    pub struct LpmColumns / LpmView {
        /// IPv4 destination, host order.
        pub dst4: u32,
        /// IPv6 destination, `[high, low]`.
        pub dst6: [u64; 2],
        /// Next hop's number, 0 for none.
        pub result: u32,
    }
}

chunk::columns! {
    /// Columns of `exact8` and `exact16`.
    pub struct ExactColumns / ExactView {
        /// A key of 8 bytes.
        pub key8: u64,
        /// A key of 16 bytes.
        pub key16: [u64; 2],
        /// Its value; all ones for a miss.
        pub value8: u64,
        /// The value of the other one.
        pub value16: u32,
    }
}

chunk::columns! {
    /// Columns of `bridge`.
    pub struct BridgeColumns / BridgeView {
        /// Bits of [`bridge`](crate::bridge).
        pub flags: u16,
        /// VLAN and source address.
        pub source_key: u64,
        /// VLAN and destination address.
        pub destination_key: u64,
        /// What the station table says of the source; all ones for a miss.
        pub source: u64,
        /// The same of the destination.
        pub destination: u64,
    }
}

chunk::columns! {
    /// Columns of `route` and `rpf`.
    pub struct RouteColumns / RouteView {
        /// Family and what is odd: bits of [`flags`](crate::flags).
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
        /// What `route` decided: a value of [`decision`](crate::decision).
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
        /// Family: a plain packet has exactly one of [`flags`](crate::flags).
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

chunk::columns! {
    /// Columns of the kernels of `sort` and `select`.
    pub struct ScheduleColumns / ScheduleView {
        /// Bytes of the frame.
        pub payload_len: u32,
        /// Upper-layer protocol.
        pub protocol: u8,
    }
}

chunk::columns! {
    /// Columns of the kernels of `hash`.
    pub struct HashColumns / HashView {
        /// Source address; the key of `hash_words`.
        pub src: [u64; 2],
        /// Destination address.
        pub dst: [u64; 2],
        /// Ports, the source's in the upper half.
        pub ports: u32,
        /// Upper-layer protocol.
        pub protocol: u8,
        /// Names a member of each family.
        pub seed: u64,
        /// Where the frame starts in the payload, bytes.
        pub payload_at: u32,
        /// Bytes of it.
        pub payload_len: u32,
        /// Symmetric flow hash.
        pub flow: u32,
        /// Murmur3.
        pub murmur: u32,
        /// Multiply-shift.
        pub shift: u32,
        /// Polynomial modulo 2^61 - 1.
        pub prime: u64,
        /// Finaliser of Murmur3, 32 bits.
        pub fmix32: u32,
        /// Finaliser of Murmur3, 64 bits.
        pub fmix64: u64,
    }
}

chunk::columns! {
    /// Columns of the kernels of `payload`.
    pub struct PayloadColumns / PayloadView {
        /// Where the frame starts in the payload, bytes.
        pub payload_at: u32,
        /// Bytes of it.
        pub payload_len: u32,
        /// The low byte changes the packet's bytes.
        pub key: u32,
        /// Sum of the packet's bytes.
        pub sum: u32,
        /// The flow's place in the state.
        pub slot: u32,
    }
}

chunk::columns! {
    /// Columns of `name_lookup`.
    pub struct NameLookupColumns / NameLookupView {
        /// Where the frame starts in the payload, bytes.
        pub payload_at: u32,
        /// Bytes of it.
        pub payload_len: u32,
        /// Where the name's components begin, bytes from the frame's start.
        pub name_at: u16,
        /// Bytes of them; 0: nothing is looked up.
        pub name_len: u16,
        /// Next hop, 0 for no route.
        pub next_hop: u32,
    }
}

chunk::columns! {
    /// Columns of the kernel `names`.
    pub struct NameColumns / NameView {
        /// Where the name's components start in the payload, bytes.
        pub payload_at: u32,
        /// Bytes of them.
        pub payload_len: u32,
        /// Next hop, 0 for no route.
        pub result: u32,
    }
}

chunk::columns! {
    /// Columns of `linear4`, `tuple2`, `tuple4`, `rfc` and `tic`: headers of up to four words.
    pub struct Classify4Columns / Classify4View {
        /// The best rule: priority above id; all ones for none.
        pub found: u64,
        /// Words 0 to 3 of the header, lowest first.
        pub head0: [u64; 2],
    }
}

chunk::columns! {
    /// Columns of `linear12`, `tuple9` and `tuple10`: headers of up to twelve words.
    pub struct Classify12Columns / Classify12View {
        /// The best rule: priority above id; all ones for none.
        pub found: u64,
        /// Words 0 to 3 of the header, lowest first.
        pub head0: [u64; 2],
        /// Words 4 to 7 of the header, lowest first.
        pub head1: [u64; 2],
        /// Words 8 to 11 of the header, lowest first.
        pub head2: [u64; 2],
    }
}

chunk::columns! {
    /// Columns of `linear32`, `tuple16` and `tuple32`: headers of up to 32 words.
    pub struct Classify32Columns / Classify32View {
        /// The best rule: priority above id; all ones for none.
        pub found: u64,
        /// Words 0 to 3 of the header, lowest first.
        pub head0: [u64; 2],
        /// Words 4 to 7 of the header, lowest first.
        pub head1: [u64; 2],
        /// Words 8 to 11 of the header, lowest first.
        pub head2: [u64; 2],
        /// Words 12 to 15 of the header, lowest first.
        pub head3: [u64; 2],
        /// Words 16 to 19 of the header, lowest first.
        pub head4: [u64; 2],
        /// Words 20 to 23 of the header, lowest first.
        pub head5: [u64; 2],
        /// Words 24 to 27 of the header, lowest first.
        pub head6: [u64; 2],
        /// Words 28 to 31 of the header, lowest first.
        pub head7: [u64; 2],
    }
}

chunk::columns! {
    /// Columns of `filter4` and `filter6`, which the firewall's stage adds to those of its pipeline.
    pub struct FilterColumns / FilterView {
        /// Of the header: 4, 6, or 0 where no rules are asked; [`filter::SHORT`](crate::filter::SHORT) and
        /// [`filter::MALFORMED`](crate::filter::MALFORMED) where the packet is dropped unseen.
        pub filter_family: u8,
        /// Words 0 to 3 of the header, lowest first: all of IPv4.
        pub filter_head0: [u64; 2],
        /// Words 4 to 7 of a header of IPv6.
        pub filter_head1: [u64; 2],
        /// Words 8 and 9 of it, and zero.
        pub filter_head2: [u64; 2],
        /// Id of the best rule, 0 for the default; [`filter::NOT_JUDGED`](crate::filter::NOT_JUDGED) for a row that no
        /// rule judged. Written for every row.
        pub filter_rule: u32,
    }
}
