//! The walk over many streams at a time.
//!
//! A step of a walk waits for the record of its state, and nothing of the same stream can go on before it. The other
//! streams can: sixteen walks take their steps in turns (the element switching of G-Opt: Kalia, Zhou, Kaminsky,
//! Andersen: Raising the Bar for Using GPUs in Software Packet Processing, NSDI 2015), and the processor overlaps what
//! they wait for. A turn is so short that its out-of-order window holds a whole round of them, so nothing is prefetched
//! or put aside: the states of the lanes are an array.
//!
//! ```text
//!  lanes        0 ▓▓▓▓▓▓▓▓▓▓▓│▒▒▒▒▒▒        all lanes take as many steps as the shortest has bytes left;
//!               1 ▓▓▓▓▓▓▓▓▓▓▓│▓▓▓▓▓▓        a lane whose segment has ended takes the next one
//!               2 ▓▓▓▓▓▓▓▓▓▓▓│▓▓▓▓▓▓
//! ```

use crate::layout::{ENDS, Machine};
use crate::{Automaton, Match, State};

/// Walks in turns.
const LANES: usize = 16;

/// A part of a stream, and where the walk over it is. The segments of a batch are of different streams.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// The state before the bytes; after the call, that behind them.
    pub state: State,
    /// The place of the bytes in the stream.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// A match in a segment of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Found {
    /// The segment's place in the batch.
    pub segment: u32,
    /// The offset of the byte behind its last one, in the stream.
    pub end: u64,
    /// The number of the pattern in its set.
    pub pattern: u32,
}

impl Found {
    /// Without the segment.
    pub fn as_match(&self) -> Match {
        Match { pattern: self.pattern, end: self.end }
    }
}

impl Automaton {
    /// [`Automaton::scan`] of each segment, interleaved: `found` gets the same matches after what it holds, by segment,
    /// end and pattern. Allocates only where `found` has to grow.
    ///
    /// # Panics
    /// With 2^32 segments or more.
    pub fn walk_many(&self, segments: &mut [Segment<'_>], found: &mut Vec<Found>) {
        assert!(u32::try_from(segments.len()).is_ok(), "segments are numbered by 32 bits");
        let begin = found.len();
        for (number, machine) in self.machines().into_iter().enumerate() {
            let Some(machine) = machine else { continue };
            let mut walk = Walk { automaton: self, machine, number, found };
            walk.run(segments);
        }
        found[begin..].sort_unstable();
    }
}

struct Walk<'a, 'f> {
    automaton: &'a Automaton,
    machine: Machine<'a>,
    number: usize,
    found: &'f mut Vec<Found>,
}

/// Walks under way, each with what is left of its segment.
struct Lanes<'s> {
    bytes: [&'s [u8]; LANES],
    state: [u32; LANES],
    row: [usize; LANES],
    segment: [u32; LANES],
    /// The place of its bytes in its stream.
    offset: [u64; LANES],
}

impl Walk<'_, '_> {
    fn run(&mut self, segments: &mut [Segment<'_>]) {
        let mut lanes = Lanes {
            bytes: [&[]; LANES],
            state: [0; LANES],
            row: [0; LANES],
            segment: [0; LANES],
            offset: [0; LANES],
        };
        let mut next = 0;
        let mut live = 0;
        while live < LANES && self.fill(&mut lanes, live, segments, &mut next) {
            live += 1;
        }
        while live == LANES {
            let steps = lanes.bytes.iter().map(|bytes| bytes.len()).min().unwrap_or(0);
            self.turns(&mut lanes, steps);
            for lane in 0..LANES {
                if lanes.bytes[lane].is_empty() {
                    self.end(&lanes, lane, segments);
                    if !self.fill(&mut lanes, lane, segments, &mut next) {
                        live -= 1;
                    }
                }
            }
        }
        // Fewer than all are left; lanes that got no other segment are empty.
        for lane in 0..LANES {
            if !lanes.bytes[lane].is_empty() {
                self.rest(&mut lanes, lane);
                self.end(&lanes, lane, segments);
            }
        }
    }

    /// Puts the next segment that has bytes into a lane.
    fn fill<'s>(
        &self,
        lanes: &mut Lanes<'s>,
        lane: usize,
        segments: &[Segment<'s>],
        next: &mut usize,
    ) -> bool {
        while let Some(segment) = segments.get(*next) {
            *next += 1;
            if !segment.bytes.is_empty() {
                lanes.bytes[lane] = segment.bytes;
                lanes.state[lane] = self.automaton.states(segment.state)[self.number];
                lanes.row[lane] = self.machine.row_of(lanes.state[lane]);
                lanes.segment[lane] = *next as u32 - 1;
                lanes.offset[lane] = segment.offset;
                return true;
            }
        }
        false
    }

    /// Steps of all lanes in turns; each has as many bytes.
    #[inline]
    fn turns(&mut self, lanes: &mut Lanes<'_>, steps: usize) {
        let machine = self.machine;
        let now: [&[u8]; LANES] = lanes.bytes.map(|bytes| &bytes[..steps]);
        let (mut state, mut row) = (lanes.state, lanes.row);
        #[expect(clippy::needless_range_loop)] // of all lanes at once
        for at in 0..steps {
            for lane in 0..LANES {
                let class = machine.classes[usize::from(now[lane][at])];
                state[lane] = machine.step(state[lane], row[lane], class);
                row[lane] = machine.row(class);
                if state[lane] & ENDS != 0 {
                    let end = lanes.offset[lane].wrapping_add(at as u64 + 1);
                    report(machine, state[lane], lanes.segment[lane], end, self.found);
                }
            }
        }
        (lanes.state, lanes.row) = (state, row);
        for (bytes, offset) in lanes.bytes.iter_mut().zip(&mut lanes.offset) {
            *bytes = &bytes[steps..];
            *offset = offset.wrapping_add(steps as u64);
        }
    }

    /// All that is left of one lane.
    fn rest(&mut self, lanes: &mut Lanes<'_>, lane: usize) {
        let (mut state, mut row) = (lanes.state[lane], lanes.row[lane]);
        for (at, byte) in lanes.bytes[lane].iter().enumerate() {
            let class = self.machine.classes[usize::from(*byte)];
            state = self.machine.step(state, row, class);
            row = self.machine.row(class);
            if state & ENDS != 0 {
                let end = lanes.offset[lane].wrapping_add(at as u64 + 1);
                report(self.machine, state, lanes.segment[lane], end, self.found);
            }
        }
        lanes.state[lane] = state;
    }

    /// Keeps the state of a lane whose segment has ended.
    fn end(&self, lanes: &Lanes<'_>, lane: usize, segments: &mut [Segment<'_>]) {
        let segment = &mut segments[lanes.segment[lane] as usize];
        let mut states = self.automaton.states(segment.state);
        states[self.number] = lanes.state[lane];
        segment.state = self.automaton.state(states);
    }
}

/// Adds the patterns that end at a state.
#[cold]
pub(crate) fn report(
    machine: Machine<'_>,
    state: u32,
    segment: u32,
    end: u64,
    found: &mut Vec<Found>,
) {
    let mut few = [0; 4];
    let ends = machine.ends(state, &mut few).iter();
    found.extend(ends.map(|pattern| Found { segment, end, pattern: *pattern }));
}
