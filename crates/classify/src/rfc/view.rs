//! The read side.

use interleave::{Walk, run_grouped};
use lookup::Blob;

use crate::classifier::Classify;
use crate::linear::Vectors;
use crate::reduction::frame::*;
use crate::rule::Match;
use crate::tuple::Form;

pub(super) const MAGIC: u32 = 0x7266_6301;

pub(super) const SPORT: usize = 7;
pub(super) const DPORT: usize = 8;
pub(super) const PROTO: usize = 9;
pub(super) const PORTS: usize = 10;
pub(super) const TAILS: usize = 11;
pub(super) const RESULT: usize = 12;

/// Accesses of a lookup, but for the one that turns a rank into a [`Match`].
pub(super) const TABLES: usize = 13;

/// The tables, for people.
pub(super) const NAMES: [&str; TABLES] = [
    "source, high half",
    "source, low half",
    "destination, high half",
    "destination, low half",
    "source",
    "destination",
    "addresses",
    "source port",
    "destination port",
    "protocol",
    "ports",
    "ports and protocol",
    "result",
];

/// Lookups that go level by level together.
const GROUP: usize = 32;

/// Images of so many words are beyond a core's part of the caches: 16 MB. Up to 15 MB direct lookups were quicker by
/// 4 to 50 %, from 25 MB on switched ones, by 30 to 150 %.
const NEAR_WORDS: usize = 4 << 20;

/// A reduction tree to look up in.
#[derive(Debug, Clone, Copy)]
pub struct Rfc<'a> {
    pub(super) frame: Frame<'a, TABLES>,
}

impl<'a> Rfc<'a> {
    /// The tree in `blob`; `None` if that holds none.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        Some(Self { frame: Frame::new(blob, MAGIC)? })
    }

    /// As [`Classify::classify`], in a form. [`Form::Best`] is [`Form::Vectors`] where gathers are quick (Sapphire
    /// Rapids: 1.4 to 2.4 times as fast as both others in six sets). Elsewhere it is [`Form::Switched`], which goes
    /// phase by phase, for images beyond the caches, and [`Form::Direct`] for others: the accesses of a phase do not
    /// wait for each other, so a processor overlaps them by itself.
    ///
    /// # Panics
    /// As [`Classify::classify`].
    pub fn classify_by(&self, form: Form, headers: &[u32], out: &mut [Match]) {
        assert_eq!(headers.len(), out.len() * WORDS, "one result for each header");
        let (headers, _) = headers.as_chunks::<WORDS>();
        let vectors = Vectors::Avx512.is_there() && cfg!(target_arch = "x86_64");
        let form = match form {
            Form::Best if vectors && lookup::gathers_are_quick() => Form::Vectors,
            form => form,
        };
        match form {
            Form::Best if self.frame.image.len() < NEAR_WORDS => self.run_direct(headers, out),
            Form::Direct => self.run_direct(headers, out),
            #[cfg(target_arch = "x86_64")]
            Form::Vectors if vectors => {
                // SAFETY: the processor has AVX-512 F and BW, it was asked above.
                unsafe { self.run_vectors(headers, out) }
            }
            Form::Vectors => self.run_direct(headers, out),
            Form::Best | Form::Switched => run_grouped::<GROUP, _>(&Levels(*self), headers, out),
        }
    }

    fn run_direct(&self, headers: &[[u32; WORDS]], out: &mut [Match]) {
        for (header, out) in headers.iter().zip(out) {
            *out = self.find(header);
        }
    }

    /// One lookup, access by access.
    #[inline(always)]
    fn find(&self, header: &[u32; WORDS]) -> Match {
        let frame = &self.frame;
        let [a, b, c, d, sport, dport, proto] = halves(header);
        let src = frame.cross(SRC, frame.get(SRC_HIGH, a), frame.get(SRC_LOW, b));
        let dst = frame.cross(DST, frame.get(DST_HIGH, c), frame.get(DST_LOW, d));
        let ports = frame.cross(PORTS, frame.get(SPORT, sport), frame.get(DPORT, dport));
        let tail = frame.cross(TAILS, ports, frame.get(PROTO, proto));
        let addresses = frame.cross(ADDRESSES, src, dst);
        frame.place(frame.cross(RESULT, addresses, tail))
    }
}

/// The numbers of the entries of phase 0.
#[inline(always)]
pub(super) fn halves([src, dst, ports, proto]: &[u32; WORDS]) -> [u32; 7] {
    [src >> 16, src & 0xffff, dst >> 16, dst & 0xffff, ports >> 16, ports & 0xffff, proto >> 24]
}

/// Entries of the phase that is next; what was found already is behind them.
#[derive(Debug, Clone, Copy)]
struct State {
    at: [u32; 7],
    phase: u32,
}

/// Lookups level by level.
#[derive(Debug)]
struct Levels<'a>(Rfc<'a>);

impl Walk for Levels<'_> {
    type Key = [u32; WORDS];
    type Value = Match;
    type State = State;

    #[inline(always)]
    fn begin(&self, header: &[u32; WORDS]) -> State {
        let at = halves(header);
        let tables = [SRC_HIGH, SRC_LOW, DST_HIGH, DST_LOW, SPORT, DPORT, PROTO];
        for (table, at) in tables.iter().zip(at) {
            self.0.frame.come(*table, at);
        }
        State { at, phase: 0 }
    }

    #[inline(always)]
    fn level(&self, _: &[u32; WORDS], state: &mut State) -> bool {
        let frame = &self.0.frame;
        let cross = |table: usize, row: u32, column: u32| {
            let at = frame.tables[table].at(row, column);
            frame.come(table, at);
            at
        };
        let at = &mut state.at;
        match state.phase {
            0 => {
                let get = |table: usize, at: u32| frame.get(table, at);
                let src = cross(SRC, get(SRC_HIGH, at[0]), get(SRC_LOW, at[1]));
                let dst = cross(DST, get(DST_HIGH, at[2]), get(DST_LOW, at[3]));
                let ports = cross(PORTS, get(SPORT, at[4]), get(DPORT, at[5]));
                *at = [src, dst, ports, get(PROTO, at[6]), 0, 0, 0];
            }
            1 => {
                at[0] = cross(ADDRESSES, frame.get(SRC, at[0]), frame.get(DST, at[1]));
                at[1] = cross(TAILS, frame.get(PORTS, at[2]), at[3]);
            }
            2 => at[0] = cross(RESULT, frame.get(ADDRESSES, at[0]), frame.get(TAILS, at[1])),
            _ => {
                at[0] = frame.get(RESULT, at[0]);
                return false;
            }
        }
        state.phase += 1;
        true
    }

    #[inline(always)]
    fn end(&self, _: &[u32; WORDS], state: &State) -> Match {
        self.0.frame.place(state.at[0])
    }
}

impl Classify for Rfc<'_> {
    fn words(&self) -> usize {
        WORDS
    }

    fn classify(&self, headers: &[u32], out: &mut [Match]) {
        self.classify_by(Form::Best, headers, out);
    }
}
