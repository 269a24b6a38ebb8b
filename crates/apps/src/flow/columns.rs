//! What the tracker found of each packet, as columns: for rules, modules and kernels behind it.
//!
//! ```text
//!  flow_state      7 … 5 │    4    │  3  │ 2 … 0         flow_slot    place in the table of the worker,
//!                    0   │ refused │reply│ state                      [`NO_SLOT`] for no flow
//! ```

use stream::table::{Handle, Slot};
use stream::tracker::{PacketState, Tracked};

chunk::columns! {
    /// What the stage `flow` writes in its `pre_shade`, for every row. Zero without such a stage: not tracked.
    pub struct FlowColumns / FlowView {
        /// [`PacketState`] in the low three bits, [`REPLY`] and [`REFUSED`].
        pub flow_state: u8,
        /// Place of the flow in the table of the worker; [`NO_SLOT`] for none. Written where the state is not zero.
        pub flow_slot: u32,
        /// The packet opens the flow in this place, or announces another one for it: its generation and one. Zero for all
        /// others.
        pub flow_opens: u32,
        /// What rules see of the datagram that the packet is a fragment of, where all of it was inspected:
        /// [`Whole`](crate::firewall::header::Whole). Zero for all others, where fragments are held back, and undefined where they
        /// are not.
        pub flow_whole: u64,
        /// The number of the call of `pre_shade` that looked at the chunk, by which stages find what followers left for them
        /// ([`calls`](super::calls)): the same in all rows. Zero where nobody follows.
        pub flow_call: u32,
        /// [`Tracked::number`], where packets that rules drop are events; undefined elsewhere.
        pub flow_id: u64,
    }
}

chunk::columns! {
    /// The number of the call alone, for stages that need nothing else and come without a stage `flow`, too.
    pub struct CallColumns / CallView {
        /// See [`FlowColumns`].
        pub flow_call: u32,
    }
}

/// Set in `flow_state` where the sender is not the end that opened the flow.
pub const REPLY: u8 = 1 << 3;

/// Set in `flow_state` where the table has no place for the flow.
pub const REFUSED: u8 = 1 << 4;

/// The bits of the state itself.
pub const STATE: u8 = 0b111;

/// The place of no flow.
pub const NO_SLOT: u32 = u32::MAX;

/// The values of the columns.
pub fn encode(tracked: Tracked) -> (u8, u32, u32) {
    let reply = if tracked.is_reply { REPLY } else { 0 };
    let refused = if tracked.is_refused { REFUSED } else { 0 };
    let opens = tracked.opens.map_or(0, |flow| flow.generation + 1);
    (tracked.state as u8 | reply | refused, tracked.slot.map_or(NO_SLOT, |slot| slot.0), opens)
}

/// The call that looked at a chunk, by the column of its rows.
pub fn call(flow_call: &[u32]) -> u32 {
    flow_call.first().copied().unwrap_or(0)
}

/// The flow that the packet of a row opens, by its columns.
pub fn opened(flow_slot: u32, flow_opens: u32) -> Option<Handle> {
    let generation = flow_opens.checked_sub(1)?;
    Some(Handle { slot: Slot(flow_slot), generation })
}

/// The state of a packet, as the column has it.
pub fn state(column: u8) -> PacketState {
    PacketState::of_bits(column & STATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_say_what_was_tracked() {
        for state in PacketState::ALL {
            for is_reply in [false, true] {
                let flow = Handle { slot: Slot(7), generation: 3 };
                let slot = Some(Slot(7));
                let tracked =
                    Tracked { is_reply, slot, opens: Some(flow), number: 9, ..Tracked::of(state) };
                let (bits, slot, opens) = encode(tracked);
                assert_eq!((super::state(bits), bits & REPLY != 0, slot), (state, is_reply, 7));
                assert_eq!(opened(slot, opens), Some(flow));
            }
        }
        assert_eq!(encode(Tracked::default()), (0, NO_SLOT, 0));
        let (bits, slot, opens) = encode(Tracked::REFUSED);
        assert_eq!((super::state(bits), slot, opens), (PacketState::Invalid, NO_SLOT, 0));
        assert_eq!(bits & (REFUSED | REPLY), REFUSED);
        assert_eq!(opened(7, 0), None);
    }
}
