//! What conversations do, at random.

use proptest::prelude::*;
use proptest::sample::select;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const DAY: u64 = 86_400 * SECOND;

/// Something that a conversation does.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Time since the step before.
    pub pause_ns: u64,
    pub conversation: u8,
    pub by_server: bool,
    /// What it is, by protocol.
    pub what: u8,
    pub len: u16,
    /// What happens to its last packet.
    pub fate: Fate,
}

/// What happens to a packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Good,
    /// Its fragments come between packets of others.
    Fragmented,
    /// Likewise, without the last of them.
    FragmentLost,
    /// TCP: its checksum is wrong.
    Checksum,
    /// TCP: its header is longer than the packet.
    Header,
    /// Its IP header is wrong.
    Ip,
    /// It ends in its IP header.
    Cut,
    /// It becomes one of ARP.
    NotIp,
}

pub(super) fn steps(conversations: u8) -> impl Strategy<Value = Vec<Step>> {
    let pauses = vec![
        0,
        0,
        1_000,
        1_000,
        300_000,
        700_000,
        MS,
        1_300_000,
        250 * MS,
        5 * SECOND,
        29 * SECOND,
        60 * SECOND,
        60 * SECOND + 1,
        60 * SECOND + MS,
        61 * SECOND,
        600 * SECOND,
        601 * SECOND,
    ];
    let pause_ns = prop_oneof![
        30 => select(pauses),
        1 => select(vec![25 * DAY, 50 * DAY]),
    ];
    let fate = prop_oneof![
        16 => Just(Fate::Good),
        3 => Just(Fate::Fragmented),
        1 => Just(Fate::FragmentLost),
        1 => select(vec![Fate::Checksum, Fate::Header, Fate::Ip, Fate::Cut, Fate::NotIp]),
    ];
    let step = (pause_ns, 0..conversations, any::<bool>(), 0u8..14, 0u16..300, fate);
    let step = step.prop_map(|(pause_ns, conversation, by_server, what, len, fate)| Step {
        pause_ns,
        conversation,
        by_server,
        what,
        len,
        fate,
    });
    prop::collection::vec(step, 1..150)
}
