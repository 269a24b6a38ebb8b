//! The walk of what passed the filter.

use super::WINDOW;
use crate::interleaved::{Found, Segment, report};
use crate::layout::{ENDS, Machine};

/// Walks over a segment from place to place of `masks`, and gives the state behind it.
///
/// A state's longest suffix began `reach` bytes before. Patterns that began at places that did not pass the filter can
/// not match; so when neither that place nor one behind it has passed, nothing is in hand, and the next place is as good
/// as the next byte. What began before the segment is always followed.
#[inline]
pub(super) fn walk(
    machine: Machine<'_>,
    mut state: u32,
    number: u32,
    segment: &Segment<'_>,
    masks: &[u64],
    found: &mut Vec<Found>,
) -> u32 {
    let bytes = segment.bytes;
    let mut at = 0;
    let mut row = machine.row_of(state);
    if state == 0 && bytes.len() >= WINDOW {
        // Nearly always only the last places have passed: then they are all that is walked.
        let Some(place) = next(masks, 0) else { return 0 };
        at = place;
        if place > 0 {
            row = machine.row(machine.classes[usize::from(bytes[place - 1])]);
        }
        if place == bytes.len() - (WINDOW - 1) {
            for byte in &bytes[place..] {
                let class = machine.classes[usize::from(*byte)];
                state = machine.step(state, row, class);
                row = machine.row(class);
                at += 1;
                if state & ENDS != 0 {
                    report(machine, state, number, segment.offset.wrapping_add(at as u64), found);
                }
            }
            return state;
        }
    }
    // The place behind the last one that passed.
    let mut passed = 0;
    while at < bytes.len() {
        let reach = machine.reach(state);
        if reach <= at && passed <= at - reach {
            let Some(place) = next(masks, at) else { return 0 };
            if place > at {
                state = 0;
                row = machine.row(machine.classes[usize::from(bytes[place - 1])]);
                at = place;
            }
        }
        if masks[at / 64] >> (at % 64) & 1 != 0 {
            passed = at + 1;
        }
        let class = machine.classes[usize::from(bytes[at])];
        state = machine.step(state, row, class);
        row = machine.row(class);
        at += 1;
        if state & ENDS != 0 {
            report(machine, state, number, segment.offset.wrapping_add(at as u64), found);
        }
    }
    state
}

/// The first place that passed, from one on.
#[inline]
fn next(masks: &[u64], from: usize) -> Option<usize> {
    let mut word = from / 64;
    let mut bits = masks.get(word)? & u64::MAX << (from % 64);
    while bits == 0 {
        word += 1;
        bits = *masks.get(word)?;
    }
    Some(word * 64 + bits.trailing_zeros() as usize)
}
