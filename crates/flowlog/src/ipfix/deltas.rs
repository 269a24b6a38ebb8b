//! What came of a flow since it was exported last.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use stream::FlowRecord;
use stream::record::Reason;

/// Packets and bytes of IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// What one export has of a flow: the client's and the server's packets, and from when on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) counts: [Count; 2],
    pub(super) start_ns: u64,
}

impl Delta {
    /// Sides with a record of their own: those that sent packets. An end after which nothing came has none: collectors count
    /// records as flows.
    pub(super) fn sides(&self) -> impl Iterator<Item = usize> + use<> {
        let sent = self.counts.map(|count| count.packets > 0);
        sent.into_iter().enumerate().filter(|(_, is_there)| *is_there).map(|(i, _)| i)
    }
}

/// Totals of the long flows that were exported and go on.
pub(super) struct Deltas {
    exported: HashMap<u64, ([Count; 2], u64)>,
    flows_max: usize,
}

impl Deltas {
    /// For at most `flows_max` flows.
    pub(super) fn new(flows_max: usize) -> Self {
        Self { exported: HashMap::new(), flows_max }
    }

    /// Takes a record with totals. None if the flow goes on and cannot be remembered: nothing of it is exported now, so
    /// that nothing is exported twice.
    pub(super) fn step(&mut self, record: &FlowRecord) -> Option<Delta> {
        let totals = record.sides.map(|s| Count { packets: s.packets, bytes: s.ip_bytes });
        let is_end = record.reason != Reason::Active;
        let before = if is_end {
            self.exported.remove(&record.id)
        } else {
            let has_room = self.exported.len() < self.flows_max;
            let now = (totals, record.end_ns);
            match self.exported.entry(record.id) {
                Entry::Occupied(mut entry) => Some(entry.insert(now)),
                Entry::Vacant(entry) if has_room => {
                    entry.insert(now);
                    None
                }
                Entry::Vacant(_) => return None,
            }
        };
        let (exported, start_ns) = before.unwrap_or(([Count::default(); 2], record.start_ns));
        let since = |side: usize| Count {
            packets: totals[side].packets.saturating_sub(exported[side].packets),
            bytes: totals[side].bytes.saturating_sub(exported[side].bytes),
        };
        Some(Delta { counts: [since(0), since(1)], start_ns })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use stream::SideRecord;
    use stream::record::FlowState;

    use super::*;

    fn record(id: u64, packets: [u64; 2], end_ns: u64, reason: Reason) -> FlowRecord {
        let side = |packets| SideRecord { packets, ip_bytes: packets * 100, ..Default::default() };
        FlowRecord {
            id,
            client: IpAddr::from([10, 0, 0, 1]),
            server: IpAddr::from([10, 0, 0, 2]),
            client_port: 0,
            server_port: 0,
            protocol: 17,
            icmp: None,
            vlans: [0; 2],
            tunnels: packet::tunnel::Path::NONE,
            port: 0,
            start_ns: 1000,
            end_ns,
            sides: packets.map(side),
            state: FlowState::Established,
            reason,
            tcp: None,
            handshake_rtt_ns: None,
            application: None,
            is_alerted: false,
        }
    }

    fn sides(delta: &Delta) -> Vec<usize> {
        delta.sides().collect()
    }

    #[test]
    fn records_of_a_long_flow_add_up() {
        let mut deltas = Deltas::new(8);
        let first = deltas.step(&record(1, [5, 3], 2000, Reason::Active)).unwrap();
        assert_eq!(
            (first.start_ns, first.counts[0].packets, first.counts[1].bytes),
            (1000, 5, 300)
        );
        let idle = deltas.step(&record(1, [5, 3], 2000, Reason::Active)).unwrap();
        assert!(sides(&idle).is_empty());
        let second = deltas.step(&record(1, [5, 7], 3000, Reason::Active)).unwrap();
        assert_eq!((second.start_ns, second.counts[1].packets), (2000, 4));
        assert_eq!(sides(&second), [1]);
        let last = deltas.step(&record(1, [5, 7], 3000, Reason::Timeout)).unwrap();
        assert!(sides(&last).is_empty(), "nothing came since");
        assert!(deltas.exported.is_empty());
    }

    #[test]
    fn a_flow_that_cannot_be_remembered_is_exported_at_its_end() {
        let mut deltas = Deltas::new(1);
        assert!(deltas.step(&record(1, [1, 0], 2000, Reason::Active)).is_some());
        assert!(deltas.step(&record(2, [4, 0], 2000, Reason::Active)).is_none());
        let end = deltas.step(&record(2, [9, 0], 4000, Reason::Closed)).unwrap();
        assert_eq!((end.start_ns, end.counts[0].packets, sides(&end)), (1000, 9, vec![0]));
    }
}
