//! Packets that wait for the verdict on an earlier one of their batch, and those that must not overtake them.
//!
//! ```text
//!  batch    a  b  A  c  B  d        A is of the flow that a opens, B of that of b
//!  taken    a  b     c     d        waiting: A B
//! ```
//!
//! Who overtakes one that waits need not meet it, and might be at another worker: a packet between other hosts, or of another
//! flow ([`Overtaking`]). Between its hosts none overtakes a packet of a control flow, which may announce others, or one without a
//! flow, and none without a flow overtakes any. Flows and hosts are known by a bit of their hash. Two with one bit wait for each other,
//! which changes nothing but the work.

use packet::IpProtocol;

use super::Tracker;
use super::input::Input;
use super::module::Module;

/// Bits of flows, and of pairs of hosts.
const BITS: usize = 1 << 12;

/// Which packets of a batch may overtake those that wait for the verdict on an earlier one, if they are no fragments and come at about
/// the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overtaking {
    /// None.
    #[default]
    None,
    /// Those between other hosts.
    OtherHosts,
    /// Those of other flows.
    OtherFlows,
}

/// A set of hashes, which may have more than were inserted.
#[derive(Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn insert(&mut self, hash: u64) {
        self.0.resize(BITS / 64, 0);
        self.0[hash as usize % BITS / 64] |= 1 << (hash % 64);
    }

    fn contains(&self, hash: u64) -> bool {
        self.0.get(hash as usize % BITS / 64).is_some_and(|word| word >> (hash % 64) & 1 != 0)
    }
}

/// Packets of a batch that were not taken.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    overtaking: Overtaking,
    /// Their rows, in ascending order.
    rows: Vec<u32>,
    /// Their flows, their hosts, and the hosts of those that are of control flows or of none.
    flows: Bits,
    hosts: Bits,
    apart: Bits,
}

impl Waiting {
    pub(super) fn begin(&mut self) {
        if !self.rows.is_empty() {
            self.rows.clear();
            for own in [&mut self.flows, &mut self.hosts, &mut self.apart] {
                own.0.fill(0);
            }
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    #[inline]
    pub(super) fn may_be_overtaken(&self) -> bool {
        self.overtaking != Overtaking::None
    }
}

impl<M: Module> Tracker<M> {
    /// Which packets of the next batches may overtake those that wait.
    pub fn let_overtake(&mut self, overtaking: Overtaking) {
        self.waiting.overtaking = overtaking;
    }

    /// Rows of the last batch, in ascending order, before the one at which it stopped, that were not taken: they come first in the next
    /// batch, before those from there on.
    pub fn waiting(&self) -> &[u32] {
        &self.waiting.rows
    }

    /// Whether a packet must not overtake one that waits.
    #[inline(always)]
    pub(super) fn waits_with_others(&self, at: usize, input: &Input<'_>) -> bool {
        !self.waiting.is_empty() && self.meets_waiting(at, input)
    }

    fn meets_waiting(&self, at: usize, input: &Input<'_>) -> bool {
        let own = &self.waiting;
        let hosts = self.hosts_of(at, input);
        match own.overtaking {
            Overtaking::OtherFlows if self.is_of_flow(at) => {
                own.flows.contains(self.flow_of(at)) || own.apart.contains(hosts)
            }
            _ => own.hosts.contains(hosts),
        }
    }

    /// Leaves a row to the next batch, with all behind it that must not overtake it.
    #[inline(never)]
    pub(super) fn leave(&mut self, row: usize, at: usize, input: &Input<'_>) {
        let (flow, hosts) = (self.flow_of(at), self.hosts_of(at, input));
        let is_of_flow = self.is_of_flow(at);
        let own = &mut self.waiting;
        own.flows.insert(flow);
        own.hosts.insert(hosts);
        if !is_of_flow {
            own.apart.insert(hosts);
        }
        own.rows.push(row as u32);
        // Nobody has begun its flow; all other packets that the search found it for wait, too.
        self.undo(at);
    }

    /// Whether a row has a flow, and one that announces no others.
    fn is_of_flow(&self, at: usize) -> bool {
        self.keys[at].family != 0 && !self.rest.helpers.reads(&self.keys[at])
    }

    /// Hash of the flow of a row. ICMP has no ports: all its messages between two hosts meet.
    fn flow_of(&self, at: usize) -> u64 {
        let key = &self.keys[at];
        let ports = match IpProtocol(key.protocol) {
            IpProtocol::ICMP | IpProtocol::ICMPV6 => 0,
            _ => u64::from(key.ports[0]) << 32 | u64::from(key.ports[1]),
        };
        self.hash_of(&[key.addresses[0], key.addresses[1], [ports, key.protocol.into()]])
    }

    /// Hash of the hosts of a row: those of its flow, of an ICMP error those that it is about.
    fn hosts_of(&self, at: usize, input: &Input<'_>) -> u64 {
        let (src, dst) = (input.decoded.src, input.decoded.dst);
        match self.keys[at].family {
            0 => self.hash_of(&[src.min(dst), src.max(dst)]),
            _ => self.hash_of(&self.keys[at].addresses),
        }
    }

    fn hash_of(&self, words: &[[u64; 2]]) -> u64 {
        let words = words.as_flattened().iter();
        words.fold(self.options.seed, |hash, word| chunk::hash::key64(*word, hash))
    }
}
