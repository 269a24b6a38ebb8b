//! What is odd in a packet or in a stream, by the names of Suricata's events.

use std::net::IpAddr;

/// Something odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// What it is.
    pub kind: AnomalyKind,
    /// [`FlowRecord::id`](stream::FlowRecord::id) of its flow; `None` of a packet that belongs to none.
    pub flow_id: Option<u64>,
    /// Upper-layer protocol (IANA), as far as it is known.
    pub protocol: u8,
    /// Address and port of the sender; port 0 is none.
    pub src: (IpAddr, u16),
    /// Address and port of the other end.
    pub dst: (IpAddr, u16),
    /// VLAN identifiers, outer first; 0 for none.
    pub vlans: [u16; 2],
    /// Where it is in the stream of the sender, where that is known.
    pub range: Option<Range>,
}

/// A range of bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Place of its first byte, from the first one of the stream.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// What may be odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnomalyKind {
    /// TCP: a segment has other bytes than those that wait for the same place.
    Conflict,
    /// TCP: bytes never came.
    Gap,
    /// TCP: bytes that came before others were not kept, as there was no memory for them.
    NotKept,
    /// TCP: a segment is outside of the window.
    OutOfWindow,
    /// TCP: an acknowledgment of data that cannot have been sent.
    AckInvalid,
    /// TCP: an acknowledgment of data that was not captured, or never sent.
    AckUnseen,
    /// TCP: SYN of a connection that is open, with another number.
    SynConflict,
    /// TCP: FIN at another place than the one before, or before bytes that were seen.
    FinConflict,
    /// TCP: data behind FIN.
    DataAfterFin,
    /// TCP: SYN carries data and does not ask for fast open.
    DataOnSyn,
    /// TCP: a reset in the window, but not with the expected number.
    ResetInWindow,
    /// TCP: a reset outside of the window.
    ResetOutOfWindow,
    /// TCP: neither SYN, ACK nor RST.
    NoFlags,
    /// TCP: a timestamp that is older than one before it (RFC 7323 §5.3).
    OldTimestamp,
    /// IP: the packet is shorter than its length field says.
    Truncated,
    /// IP: the version is not that of the EtherType.
    WrongVersion,
    /// IPv4: the header length is below 20 bytes.
    HeaderLength,
    /// IPv4: the total length is below the header length.
    TotalLength,
    /// IPv4: the checksum of the header is wrong.
    HeaderChecksum,
    /// IPv6: extension headers are wrong.
    ExtensionHeaders,
    /// The header of the upper layer is missing or wrong.
    UpperLayer,
    /// TCP: the checksum is wrong.
    Checksum,
    /// Fragments make a packet of more than 65,535 bytes.
    FragmentTooLarge,
    /// Fragments overlap.
    FragmentOverlap,
    /// The length of a fragment is wrong, or the ends of two differ.
    FragmentLength,
    /// A fragment is ignored for another reason, or its memory was needed.
    FragmentIgnored,
    /// Other fragments of the packet did not come in time, or not before the run ended.
    FragmentsMissing,
    /// The packet of a tunnel came in fragments: what is inside is not looked into.
    TunnelInFragments,
    /// A tunnel in more others than are looked into.
    TunnelTooDeep,
}

impl AnomalyKind {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::Conflict,
        Self::Gap,
        Self::NotKept,
        Self::OutOfWindow,
        Self::AckInvalid,
        Self::AckUnseen,
        Self::SynConflict,
        Self::FinConflict,
        Self::DataAfterFin,
        Self::DataOnSyn,
        Self::ResetInWindow,
        Self::ResetOutOfWindow,
        Self::NoFlags,
        Self::OldTimestamp,
        Self::Truncated,
        Self::WrongVersion,
        Self::HeaderLength,
        Self::TotalLength,
        Self::HeaderChecksum,
        Self::ExtensionHeaders,
        Self::UpperLayer,
        Self::Checksum,
        Self::FragmentTooLarge,
        Self::FragmentOverlap,
        Self::FragmentLength,
        Self::FragmentIgnored,
        Self::FragmentsMissing,
        Self::TunnelInFragments,
        Self::TunnelTooDeep,
    ];

    /// The value of `anomaly.type`: `stream`, or `decode` for what is seen in a packet alone.
    pub const fn layer(self) -> &'static str {
        match self {
            AnomalyKind::Conflict
            | AnomalyKind::Gap
            | AnomalyKind::NotKept
            | AnomalyKind::OutOfWindow
            | AnomalyKind::AckInvalid
            | AnomalyKind::AckUnseen
            | AnomalyKind::SynConflict
            | AnomalyKind::FinConflict
            | AnomalyKind::DataAfterFin
            | AnomalyKind::DataOnSyn
            | AnomalyKind::ResetInWindow
            | AnomalyKind::ResetOutOfWindow
            | AnomalyKind::NoFlags
            | AnomalyKind::OldTimestamp => "stream",
            _ => "decode",
        }
    }

    /// The value of `anomaly.event`, of a packet of IPv6 or IPv4. Where Suricata has an event (its file
    /// `src/detect-engine-event.h`), it is that one; the names of the others are formed
    /// like them.
    pub const fn name(self, is_ipv6: bool, protocol: u8) -> &'static str {
        match (self, is_ipv6) {
            (AnomalyKind::Conflict, _) => "stream.reassembly_overlap_different_data",
            (AnomalyKind::Gap, _) => "stream.reassembly_seq_gap",
            (AnomalyKind::NotKept, _) => "stream.reassembly_insert_memcap",
            (AnomalyKind::OutOfWindow, _) => "stream.est_packet_out_of_window",
            (AnomalyKind::AckInvalid, _) => "stream.pkt_invalid_ack",
            (AnomalyKind::AckUnseen, _) => "stream.ack_unseen_data",
            (AnomalyKind::SynConflict, _) => "stream.est_syn_resend_diff_seq",
            (AnomalyKind::FinConflict, _) => "stream.fin_out_of_window",
            (AnomalyKind::DataAfterFin, _) => "stream.data_after_fin",
            (AnomalyKind::DataOnSyn, _) => "stream.data_on_syn",
            (AnomalyKind::ResetInWindow, _) => "stream.rst_in_window",
            (AnomalyKind::ResetOutOfWindow, _) => "stream.rst_out_of_window",
            (AnomalyKind::NoFlags, _) => "stream.no_flags",
            (AnomalyKind::OldTimestamp, _) => "stream.pkt_invalid_timestamp",
            (AnomalyKind::Truncated, false) => "decoder.ipv4.trunc_pkt",
            (AnomalyKind::Truncated, true) => "decoder.ipv6.trunc_pkt",
            (AnomalyKind::WrongVersion, false) => "decoder.ipv4.wrong_ip_version",
            (AnomalyKind::WrongVersion, true) => "decoder.ipv6.wrong_ip_version",
            (AnomalyKind::HeaderLength, _) => "decoder.ipv4.hlen_too_small",
            (AnomalyKind::TotalLength, _) => "decoder.ipv4.iplen_smaller_than_hlen",
            (AnomalyKind::HeaderChecksum, _) => "decoder.ipv4.invalid_checksum",
            (AnomalyKind::ExtensionHeaders, _) => "decoder.ipv6.trunc_exthdr",
            (AnomalyKind::UpperLayer, _) => match protocol {
                crate::protocol::TCP => "decoder.tcp.pkt_too_small",
                crate::protocol::UDP => "decoder.udp.pkt_too_small",
                crate::protocol::ICMP => "decoder.icmpv4.pkt_too_small",
                crate::protocol::ICMPV6 => "decoder.icmpv6.pkt_too_small",
                _ => "decoder.ip.pkt_too_small",
            },
            (AnomalyKind::Checksum, _) => "decoder.tcp.invalid_checksum",
            (AnomalyKind::FragmentTooLarge, false) => "decoder.ipv4.frag_pkt_too_large",
            (AnomalyKind::FragmentTooLarge, true) => "decoder.ipv6.frag_pkt_too_large",
            (AnomalyKind::FragmentOverlap, false) => "decoder.ipv4.frag_overlap",
            (AnomalyKind::FragmentOverlap, true) => "decoder.ipv6.frag_overlap",
            (AnomalyKind::FragmentLength, false) => "decoder.ipv4.frag_invalid_length",
            (AnomalyKind::FragmentLength, true) => "decoder.ipv6.frag_invalid_length",
            (AnomalyKind::FragmentIgnored, false) => "decoder.ipv4.frag_ignored",
            (AnomalyKind::FragmentIgnored, true) => "decoder.ipv6.frag_ignored",
            (AnomalyKind::FragmentsMissing, false) => "decoder.ipv4.frag_missing",
            (AnomalyKind::FragmentsMissing, true) => "decoder.ipv6.frag_missing",
            (AnomalyKind::TunnelInFragments, _) => "decoder.ip.tunnel_in_fragments",
            (AnomalyKind::TunnelTooDeep, _) => "decoder.too_many_layers",
        }
    }
}
