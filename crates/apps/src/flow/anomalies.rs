//! What is odd in packets and streams, for events: what the tracker says, by kind.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlog::eve::{Anomaly, AnomalyKind};
use packet::{Decoded, IpProtocol, Kind};
use stream::defrag::Reason;
use stream::tcp::Event;
use stream::tracker::{Fragments, Input, Reject, Unseen};

/// What an event of a connection is; `None` where nothing is wrong, or a gap says the same.
pub(crate) const fn of_event(event: Event) -> Option<AnomalyKind> {
    Some(match event {
        Event::Conflict => AnomalyKind::Conflict,
        Event::GivenUp => AnomalyKind::NotKept,
        Event::OutOfWindow | Event::BeyondWindow => AnomalyKind::OutOfWindow,
        Event::AckInvalid => AnomalyKind::AckInvalid,
        Event::AckUnseen => AnomalyKind::AckUnseen,
        Event::SynConflict => AnomalyKind::SynConflict,
        Event::FinConflict => AnomalyKind::FinConflict,
        Event::DataAfterFin => AnomalyKind::DataAfterFin,
        Event::DataOnSyn => AnomalyKind::DataOnSyn,
        Event::ResetInWindow => AnomalyKind::ResetInWindow,
        Event::ResetOutOfWindow => AnomalyKind::ResetOutOfWindow,
        Event::NoFlags => AnomalyKind::NoFlags,
        Event::JoinedMidstream
        | Event::FastOpen
        | Event::SimultaneousOpen
        | Event::AcknowledgedLost
        | Event::Resynchronised
        | Event::Urgent
        | Event::Retransmission
        | Event::AfterReset => return None,
    })
}

/// The name that rules have for an event of a connection (`stream-event`): one of [`detect::STREAM_EVENTS`].
pub(crate) fn stream_event(event: Event) -> Option<&'static str> {
    match event {
        Event::Retransmission => Some("pkt_retransmission"),
        event => of_event(event).and_then(stream_name),
    }
}

/// The same of something odd in a stream; `None` for what events alone are about.
pub(crate) fn stream_name(kind: AnomalyKind) -> Option<&'static str> {
    if kind == AnomalyKind::OldTimestamp {
        return None;
    }
    kind.name(false, IpProtocol::TCP.0).strip_prefix("stream.")
}

/// The same of a stream whose depth is reached.
pub(crate) const DEPTH_REACHED: &str = "reassembly_depth_reached";

/// What is wrong with a packet that belongs to no flow; `None` if it is not IP.
pub(crate) fn of_packet(input: &Input<'_>, why: Reject) -> Option<Anomaly> {
    let kind = match why {
        Reject::NotIp | Reject::Untracked => return None,
        Reject::Checksum => AnomalyKind::Checksum,
        Reject::Malformed => malformed(input.decoded),
    };
    Some(of_packet_alone(input, kind))
}

/// What of a packet is not looked into.
pub(crate) fn of_tunnel(input: &Input<'_>, why: Unseen) -> Anomaly {
    let kind = match why {
        Unseen::TooDeep => AnomalyKind::TunnelTooDeep,
        Unseen::InFragments => AnomalyKind::TunnelInFragments,
    };
    of_packet_alone(input, kind)
}

fn of_packet_alone(input: &Input<'_>, kind: AnomalyKind) -> Anomaly {
    let d = input.decoded;
    let ports = d.ports().unwrap_or_default();
    let vlan = |n: usize| if usize::from(d.vlan_count) > n { d.vlan_tci[n] & 0xfff } else { 0 };
    let none: IpAddr = match d.kind {
        Kind::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    Anomaly {
        kind,
        flow_id: None,
        protocol: d.protocol.0,
        src: (d.src_ip().unwrap_or(none), ports.0),
        dst: (d.dst_ip().unwrap_or(none), ports.1),
        vlans: [vlan(0), vlan(1)],
        range: None,
    }
}

fn malformed(d: &Decoded) -> AnomalyKind {
    use packet::Anomaly as Wrong;
    match d.anomaly {
        Wrong::Truncated => AnomalyKind::Truncated,
        Wrong::BadVersion => AnomalyKind::WrongVersion,
        Wrong::BadHeaderLength => AnomalyKind::HeaderLength,
        Wrong::BadTotalLength => AnomalyKind::TotalLength,
        Wrong::BadChecksum => AnomalyKind::HeaderChecksum,
        Wrong::BadExtensionHeader | Wrong::ExtensionHeaderLoop | Wrong::TooManyExtensionHeaders => {
            AnomalyKind::ExtensionHeaders
        }
        Wrong::ZeroLengthFragment => AnomalyKind::FragmentLength,
        Wrong::OverlongFragment => AnomalyKind::FragmentTooLarge,
        _ if d.has(Decoded::FRAGMENT) => AnomalyKind::FragmentIgnored,
        _ => AnomalyKind::UpperLayer,
    }
}

/// What is wrong with fragments; `None` if nothing is.
pub(crate) fn of_fragments(fragments: &Fragments) -> Option<Anomaly> {
    let kind = match fragments.failed {
        Some(Reason::Overlap) => AnomalyKind::FragmentOverlap,
        Some(Reason::TooLong) => AnomalyKind::FragmentTooLarge,
        Some(Reason::Misaligned | Reason::ZeroLength | Reason::TwoEnds | Reason::BeyondEnd) => {
            AnomalyKind::FragmentLength
        }
        Some(
            Reason::BadHeader
            | Reason::Malformed
            | Reason::TooMany
            | Reason::TinyFirst
            | Reason::Evicted,
        ) => AnomalyKind::FragmentIgnored,
        Some(Reason::Timeout | Reason::Shutdown) => AnomalyKind::FragmentsMissing,
        None if fragments.notes.overlaps > 0 => AnomalyKind::FragmentOverlap,
        None => return None,
    };
    let key = &fragments.key;
    let address = |[high, low]: [u64; 2]| -> IpAddr {
        match key.family {
            4 => Ipv4Addr::from_bits(low as u32).into(),
            _ => Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into(),
        }
    };
    let protocol = if key.family == 4 { key.protocol } else { IpProtocol::IPV6_FRAGMENT.0 };
    Some(Anomaly {
        kind,
        flow_id: None,
        protocol,
        src: (address(key.src), 0),
        dst: (address(key.dst), 0),
        vlans: [0; 2],
        range: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules may name all that is wrong with packets, and nothing else.
    #[test]
    fn rules_may_name_all_events_of_packets() {
        let mut names = std::collections::BTreeSet::new();
        for kind in AnomalyKind::ALL {
            for is_ipv6 in [false, true] {
                for protocol in 0..=255 {
                    names.extend(kind.name(is_ipv6, protocol).strip_prefix("decoder."));
                }
            }
        }
        assert_eq!(names.into_iter().collect::<Vec<_>>(), detect::EVENTS);
    }

    /// The same of streams.
    #[test]
    fn rules_may_name_all_events_of_streams() {
        let kinds = AnomalyKind::ALL.into_iter().filter_map(stream_name);
        let others = [stream_event(Event::Retransmission), Some(DEPTH_REACHED)];
        let names: std::collections::BTreeSet<_> =
            kinds.chain(others.into_iter().flatten()).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), detect::STREAM_EVENTS);
    }
}
