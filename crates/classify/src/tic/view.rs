//! The read side: the tree, and the interpreter (TIC Figure 4).

use interleave::{Walk, prefetch, run_grouped};
use lookup::Blob;

use super::code::*;
use crate::classifier::Classify;
use crate::linear::Vectors;
use crate::reduction::frame::*;
use crate::reduction::strips::STRIP;
use crate::rule::Match;
use crate::tuple::Form;

pub(super) const MAGIC: u32 = 0x7469_6301;

/// Accesses of the first stage.
pub(super) const TABLES: usize = 10;

/// The tables, for people.
pub(super) const NAMES: [&str; TABLES] = [
    "source, high half",
    "source, low half",
    "destination, high half",
    "destination, low half",
    "source",
    "destination",
    "addresses",
    "source, strips",
    "destination, strips",
    "addresses, strips",
];

/// Lookups that go level by level together.
const GROUP: usize = 32;

/// A tree and code to look up in.
#[derive(Debug, Clone, Copy)]
pub struct Tic<'a> {
    pub(super) frame: Frame<'a, TABLES>,
    pub(super) code: &'a [u32],
    /// The last word of a block has these bits.
    pub(super) block_mask: u32,
    pub(super) unit: u32,
}

/// Where the interpreter is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pointer {
    /// The instruction's first word.
    pub(super) at: u32,
    /// The upper half of rule numbers.
    pub(super) base: u32,
    /// The instruction does not count.
    pub(super) skip: bool,
}

impl<'a> Tic<'a> {
    /// The structure in `blob`; `None` if that holds none.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        let frame = Frame::new(blob, MAGIC)?;
        let [first, words, block, unit] = frame.code;
        let code = frame.image.get(first as usize..)?.get(..words as usize)?;
        let block_mask = (block.is_power_of_two() && block <= 1024).then(|| block - 1)?;
        Some(Self { frame, code, block_mask, unit })
    }

    /// As [`Classify::classify`], in a form. [`Form::Switched`] goes phase by phase, then block by block: the
    /// interpreter's branches are seldom foreseen, so headers by themselves wait for each other. [`Form::Best`] is
    /// [`Form::Vectors`] where gathers are quick (Sapphire Rapids: 2.3 to 5 times as fast in six sets), and
    /// [`Form::Switched`] elsewhere (EPYC).
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
            let mut pointer = self.tree(header);
            *out = loop {
                self.come(pointer.at | self.block_mask);
                if let Some(number) = self.block(header, &mut pointer) {
                    break self.frame.place(number);
                }
            };
        }
    }

    /// The first stage, access by access.
    #[inline(always)]
    fn tree(&self, header: &[u32; WORDS]) -> Pointer {
        let frame = &self.frame;
        let [a, b, c, d] = halves(header);
        let src = frame.in_strips(SRC, frame.get(SRC_HIGH, a), frame.get(SRC_LOW, b));
        let dst = frame.in_strips(DST, frame.get(DST_HIGH, c), frame.get(DST_LOW, d));
        let entry = frame.in_strips(ADDRESSES, src, dst);
        Pointer { at: entry.wrapping_mul(self.unit), ..Pointer::default() }
    }

    /// Starts loading the block behind the word `last`.
    #[inline(always)]
    fn come(&self, last: u32) {
        if let Some(word) = self.code.get(last as usize + 1) {
            prefetch(word);
        }
    }

    /// Interprets a block: 1 + the number of a rule, 0 for none, or `None` where the next block goes on.
    #[inline(always)]
    fn block(&self, header: &[u32; WORDS], pointer: &mut Pointer) -> Option<u32> {
        let end = pointer.at | self.block_mask;
        loop {
            if let Some(number) = self.instruction(header, pointer) {
                return Some(number);
            }
            if pointer.at > end {
                return None;
            }
        }
    }

    /// Executes an instruction: 1 + the number of its rule if it is true, 0 if the list ends, else `None`.
    ///
    /// The pointer always goes up, and beyond the code a list ends.
    #[inline(always)]
    pub(super) fn instruction(
        &self,
        [_, _, ports, proto]: &[u32; WORDS],
        pointer: &mut Pointer,
    ) -> Option<u32> {
        let at = pointer.at as usize;
        let Some(word) = self.code.get(at).copied() else { return Some(0) };
        let operator = word >> 24;
        let (sport, dport) = (operator >> 3 & 7, operator & 7);
        let ends = (operator & LAST != 0).then_some(0);
        if sport == SPECIAL {
            pointer.at += 1;
            match dport {
                NOP => pointer.at = (at as u32 | self.block_mask) + 1,
                BASE => pointer.base = word << 16,
                _ => pointer.skip = (word >> 16 ^ proto >> 24) & word >> 8 & 0xff != 0,
            }
            return ends;
        }
        let (of_sport, of_dport) = (OPERANDS[sport as usize], OPERANDS[dport as usize]);
        let operand = |number: usize| u64::from(self.code.get(at + number).copied().unwrap_or(0));
        let mut operands = operand(1) | operand(2) << 32;
        let mut matches = |class: u32, count: u32, port: u32| {
            let first = operands as u32 & 0xffff;
            let second = if count == 2 { (operands >> 16) as u32 & 0xffff } else { first };
            let given = count > 0;
            let low = if given { first } else { LOWS[class as usize] };
            let high = if given { second } else { HIGHS[class as usize] };
            operands >>= 16 * count;
            port.wrapping_sub(low) <= high.wrapping_sub(low)
        };
        let matched = matches(sport, of_sport, ports >> 16)
            & matches(dport, of_dport, ports & 0xffff)
            & (operator & PROTO == 0 || word >> 16 & 0xff == proto >> 24)
            & !pointer.skip;
        pointer.skip = false;
        pointer.at += 1 + (of_sport + of_dport).div_ceil(2);
        if matched { Some((pointer.base | word & 0xffff).wrapping_add(1)) } else { ends }
    }
}

/// The numbers of the entries of phase 0.
#[inline(always)]
fn halves([src, dst, ..]: &[u32; WORDS]) -> [u32; 4] {
    [src >> 16, src & 0xffff, dst >> 16, dst & 0xffff]
}

/// Entries of the phase that is next, then the interpreter.
#[derive(Debug, Clone, Copy)]
struct State {
    at: [u32; 4],
    phase: u32,
    pointer: Pointer,
    number: u32,
}

/// Lookups level by level.
#[derive(Debug)]
struct Levels<'a>(Tic<'a>);

impl Walk for Levels<'_> {
    type Key = [u32; WORDS];
    type Value = Match;
    type State = State;

    #[inline(always)]
    fn begin(&self, header: &[u32; WORDS]) -> State {
        let at = halves(header);
        for (table, at) in [SRC_HIGH, SRC_LOW, DST_HIGH, DST_LOW].into_iter().zip(at) {
            self.0.frame.come(table, at);
        }
        State { at, phase: 0, pointer: Pointer::default(), number: 0 }
    }

    #[inline(always)]
    fn level(&self, header: &[u32; WORDS], state: &mut State) -> bool {
        let frame = &self.0.frame;
        let get = |table: usize, at: u32| frame.get(table, at);
        let at = |table: usize, row: u32, column: u32| {
            let at = frame.tables[table].at(row, column);
            frame.come(table, at);
            at
        };
        let first = |table: usize, row: u32, column: u32| at(table, row, column / STRIP as u32);
        let second = |table: usize, strip: u32, column: u32| {
            at(table + STRIPS, get(table, strip), column % STRIP as u32)
        };
        let last = |table: usize, entry: u32| get(table + STRIPS, entry);
        let [a, b, c, d] = state.at;
        match state.phase {
            0 => {
                let (src, dst) = (get(SRC_LOW, b), get(DST_LOW, d));
                let strips = [first(SRC, get(SRC_HIGH, a), src), first(DST, get(DST_HIGH, c), dst)];
                state.at = [strips[0], src, strips[1], dst];
            }
            1 => state.at = [second(SRC, a, b), 0, second(DST, c, d), 0],
            2 => {
                let dst = last(DST, c);
                state.at = [first(ADDRESSES, last(SRC, a), dst), dst, 0, 0];
            }
            3 => state.at = [second(ADDRESSES, a, b), 0, 0, 0],
            4 => {
                state.pointer.at = last(ADDRESSES, a).wrapping_mul(self.0.unit);
                if let Some(word) = self.0.code.get(state.pointer.at as usize) {
                    prefetch(word);
                }
            }
            _ => {
                self.0.come(state.pointer.at | self.0.block_mask);
                match self.0.block(header, &mut state.pointer) {
                    None => return true,
                    Some(number) => state.number = number,
                }
                return false;
            }
        }
        state.phase += 1;
        true
    }

    #[inline(always)]
    fn end(&self, _: &[u32; WORDS], state: &State) -> Match {
        self.0.frame.place(state.number)
    }
}

impl Classify for Tic<'_> {
    fn words(&self) -> usize {
        WORDS
    }

    fn classify(&self, headers: &[u32], out: &mut [Match]) {
        self.classify_by(Form::Best, headers, out);
    }
}

/// What the interpreter had to do (TIC Table 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evaluations {
    /// Headers.
    pub headers: u64,
    /// Range expressions that were evaluated.
    pub ranges: u64,
    /// Blocks that were fetched.
    pub blocks: u64,
    /// Range expressions of one header at most.
    pub ranges_max: u64,
    /// Blocks of one header at most.
    pub blocks_max: u64,
}

impl Evaluations {
    /// Range expressions a header.
    pub fn ranges_per_header(&self) -> f64 {
        self.ranges as f64 / self.headers.max(1) as f64
    }

    /// Blocks a header.
    pub fn blocks_per_header(&self) -> f64 {
        self.blocks as f64 / self.headers.max(1) as f64
    }
}

/// Classifies headers and counts. `None` where the image is none of this structure.
pub fn measure(blob: &Blob, headers: &[u32]) -> Option<Evaluations> {
    let tic = Tic::new(blob)?;
    let mut counts = Evaluations::default();
    for header in headers.as_chunks::<WORDS>().0 {
        let (mut ranges, mut blocks) = (0, 1);
        let mut pointer = tic.tree(header);
        loop {
            let before = pointer.at;
            let word = tic.code.get(before as usize).copied().unwrap_or(NOP_WORD);
            ranges += u64::from(word >> 27 & 7 != SPECIAL);
            if tic.instruction(header, &mut pointer).is_some() {
                break;
            }
            blocks += u64::from((before | tic.block_mask) < pointer.at);
        }
        counts.headers += 1;
        counts.ranges += ranges;
        counts.blocks += blocks;
        counts.ranges_max = counts.ranges_max.max(ranges);
        counts.blocks_max = counts.blocks_max.max(blocks);
    }
    Some(counts)
}
