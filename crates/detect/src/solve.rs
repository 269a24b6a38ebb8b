//! Do places of a buffer fulfil all checks?
//!
//! A content or an expression may be found at several places. The first is taken; if a check fails whose place depends on
//! it, the next one is tried. A check whose place does not depend on what is before it fails once and for all. The work is
//! bounded: bytes that were searched are counted, and beyond the bound nothing matches.

use signatures::{Base64Mode, JumpFrom, Operation, Relation};

use crate::checks::{NAMES_MAX, Number, Op, Reading};
use crate::transform::base64;

/// A buffer, or the part of it that is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) bytes: &'a [u8],
    /// The place of the first of them in the buffer.
    pub(crate) base: u64,
}

/// So much is searched at least, in bytes, before a search is given up.
const WORK_MIN: u64 = 1 << 18;

/// What is decoded at once, in bytes of Base64.
const BASE64_MAX: usize = 1 << 16;

/// A number in text whose length the rule leaves open is looked for in so many bytes.
const DIGITS_MAX: usize = 256;

enum Fail {
    /// Another place of the one before may do.
    Dependent,
    Final,
}

struct Solver<'a> {
    ops: &'a [Op],
    view: View<'a>,
    names: [i64; NAMES_MAX],
    work: u64,
    /// From this place on, the expression with this number matches nowhere.
    nowhere: Option<(usize, usize)>,
}

/// Whether all checks hold; `is_given_up` where that took too long to find out.
pub(crate) fn holds(ops: &[Op], view: View<'_>, is_given_up: &mut bool) -> bool {
    let work = WORK_MIN.max(view.bytes.len() as u64 * 64);
    let mut solver = Solver { ops, view, names: [0; NAMES_MAX], work, nowhere: None };
    let holds = solver.solve(0, 0).is_ok();
    *is_given_up |= solver.work == 0;
    holds
}

impl Solver<'_> {
    fn number(&self, number: Number) -> i64 {
        match number {
            Number::Fixed(number) => number,
            Number::Named(name) => self.names[usize::from(name)],
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Fail> {
        self.work = self.work.saturating_sub(bytes as u64 + 16);
        if self.work == 0 { Err(Fail::Final) } else { Ok(()) }
    }

    /// A place that counts from the beginning of the buffer, in the bytes that are there.
    fn absolute(&self, at: i64) -> i64 {
        at.saturating_sub(self.view.base as i64)
    }

    /// Fulfils the checks from number `at` on; `last` is where the last match ended.
    fn solve(&mut self, at: usize, last: usize) -> Result<(), Fail> {
        let ops = self.ops;
        let Some(op) = ops.get(at) else { return Ok(()) };
        let fail = || if op.is_dependent() { Fail::Dependent } else { Fail::Final };
        self.spend(0)?;
        let bytes = self.view.bytes;
        let len = bytes.len() as i64;
        match op {
            Op::Literal(literal) => {
                let size = literal.bytes.len() as i64;
                let (mut from, mut to) = (0, len);
                let base = match literal.is_relative() {
                    true => last as i64,
                    false => self.absolute(0),
                };
                if literal.is_relative() {
                    from = base.saturating_add(literal.distance.map_or(0, |n| self.number(n)));
                    if let Some(within) = literal.within {
                        to = to.min(from.saturating_add(self.number(within)));
                    }
                }
                if let Some(offset) = literal.offset {
                    from = from.max(base.saturating_add(self.number(offset)));
                }
                if let Some(depth) = literal.depth {
                    let start = base.saturating_add(literal.offset.map_or(0, |n| self.number(n)));
                    to = to.min(start.saturating_add(self.number(depth)));
                }
                if literal.starts {
                    (from, to) = (from.max(base), to.min(base + size));
                    if from != base {
                        from = to; // not there
                    }
                }
                let from_at = from.max(0);
                if literal.starts && from < 0 || literal.ends && to < len {
                    // The beginning is not among the bytes, or the end is out of reach.
                    return self.absent(literal.negated, at, last, fail());
                }
                let mut from = if literal.ends { from_at.max(len - size) } else { from_at };
                loop {
                    let found = literal.find(bytes, from.max(0) as usize, to.max(0) as usize);
                    // As far as it searched.
                    let end = found.map_or(to, |found| found as i64 + size);
                    self.spend(end.saturating_sub(from).max(0) as usize)?;
                    let Some(found) = found else {
                        return self.absent(literal.negated, at, last, fail());
                    };
                    if literal.negated {
                        return Err(fail());
                    }
                    match self.solve(at + 1, found + literal.bytes.len()) {
                        Ok(()) => return Ok(()),
                        Err(Fail::Final) => return Err(Fail::Final),
                        Err(Fail::Dependent) => from = found as i64 + 1,
                    }
                }
            }
            Op::Pattern { pattern, negated, relative } => {
                let begin = if *relative { last } else { 0 };
                let hay = bytes.get(begin..).unwrap_or_default();
                if !relative && self.view.base > 0 && pattern.looks_at_start {
                    return self.absent(*negated, at, last, fail());
                }
                let mut from = 0;
                if self.nowhere.is_some_and(|(number, place)| number == at && place <= begin) {
                    return self.absent(*negated, at, last, fail());
                }
                loop {
                    self.spend(pattern.cost(hay.len() - from.min(hay.len())))?;
                    let Ok(found) = pattern.find(hay, from) else {
                        self.work = 0;
                        return Err(Fail::Final);
                    };
                    let Some((start, end)) = found else {
                        if pattern.goes_forward {
                            self.nowhere = Some((at, begin + from));
                        }
                        return self.absent(*negated, at, last, fail());
                    };
                    if *negated {
                        return Err(fail());
                    }
                    match self.solve(at + 1, begin + end) {
                        Ok(()) => return Ok(()),
                        Err(Fail::Final) => return Err(Fail::Final),
                        Err(Fail::Dependent) => from = start + 1,
                    }
                    if from > hay.len() {
                        return Err(fail());
                    }
                }
            }
            Op::IsDataAt { negated, at: place, relative } => {
                let place = self.number(*place);
                let is_there = match relative {
                    true => (last as i64).saturating_add(place) <= len,
                    false => self.absolute(place) < len,
                };
                if is_there == *negated { Err(fail()) } else { self.solve(at + 1, last) }
            }
            Op::ByteTest { bytes: count, negated, relation, value, offset, read } => {
                let (count, offset) = (self.number(*count), self.number(*offset));
                let read = self.read(*read, offset, count, last);
                let Some((number, _, _)) = read else { return Err(fail()) };
                let value = self.number(*value) as u64;
                let holds = match relation {
                    Relation::Equal => number == value,
                    Relation::Less => number < value,
                    Relation::LessOrEqual => number <= value,
                    Relation::Greater => number > value,
                    Relation::GreaterOrEqual => number >= value,
                    Relation::And => number & value != 0,
                    Relation::Xor => number ^ value != 0,
                };
                if holds == *negated { Err(fail()) } else { self.solve(at + 1, last) }
            }
            Op::ByteJump { bytes: count, offset, read, multiplier, align, from, post_offset } => {
                let (count, offset) = (self.number(*count), self.number(*offset));
                let place = match count {
                    // Nothing is read: the jump is that of `post_offset` alone.
                    0 if read.base.is_none() => {
                        self.place(read.relative, offset, last).map(|start| (0, start, 0))
                    }
                    _ => self.read(*read, offset, count, last),
                };
                let Some((number, start, used)) = place else { return Err(fail()) };
                let mut jump = i64::try_from(number).unwrap_or(i64::MAX);
                jump = jump.saturating_mul(*multiplier);
                if *align && jump % 4 != 0 {
                    jump = jump.saturating_add(4 - jump % 4);
                }
                jump = jump.saturating_add(self.number(*post_offset));
                let to = match from {
                    JumpFrom::Here => ((start + used) as i64).saturating_add(jump),
                    JumpFrom::Beginning => self.absolute(jump),
                    JumpFrom::End => len.saturating_add(jump),
                };
                if to < 0 || to > len {
                    return Err(fail());
                }
                self.solve(at + 1, to as usize)
            }
            Op::ByteExtract { bytes: count, offset, name, read, multiplier, align } => {
                let read = self.read(*read, *offset, i64::from(*count), last);
                let Some((number, start, used)) = read else { return Err(fail()) };
                let mut number = i64::try_from(number).unwrap_or(i64::MAX);
                number = number.saturating_mul(*multiplier);
                let align = i64::from(*align);
                if align > 1 && number % align != 0 {
                    number = number.saturating_add(align - number % align);
                }
                let before = std::mem::replace(&mut self.names[usize::from(*name)], number);
                let result = self.solve(at + 1, start + used);
                if result.is_err() {
                    self.names[usize::from(*name)] = before;
                }
                // What follows may depend on the number, and so on the place it was read from.
                match result {
                    Err(Fail::Dependent) => Err(fail()),
                    result => result,
                }
            }
            Op::ByteMath { bytes: count, offset, operation, value, name, read } => {
                let count = self.number(*count);
                let read = self.read(*read, *offset, count, last);
                let Some((number, start, used)) = read else { return Err(fail()) };
                let value = self.number(*value) as u64;
                let result = match operation {
                    Operation::Add => Some(number.wrapping_add(value)),
                    Operation::Subtract => Some(number.wrapping_sub(value)),
                    Operation::Multiply => Some(number.wrapping_mul(value)),
                    Operation::Divide => number.checked_div(value),
                    Operation::ShiftLeft => {
                        u32::try_from(value).ok().and_then(|n| number.checked_shl(n))
                    }
                    Operation::ShiftRight => {
                        u32::try_from(value).ok().and_then(|n| number.checked_shr(n))
                    }
                };
                let Some(mut result) = result else { return Err(fail()) };
                result &= u64::from(u32::MAX);
                let before = std::mem::replace(&mut self.names[usize::from(*name)], result as i64);
                let solved = self.solve(at + 1, start + used);
                if solved.is_err() {
                    self.names[usize::from(*name)] = before;
                }
                match solved {
                    Err(Fail::Dependent) => Err(fail()),
                    solved => solved,
                }
            }
            Op::Base64 { bytes: most, offset, relative, ops } => {
                let start = self.place(*relative, self.number(*offset), last);
                let Some(start) = start else { return Err(fail()) };
                let encoded = &bytes[start..];
                let encoded = &encoded[..encoded.len().min(*most as usize).min(BASE64_MAX)];
                self.spend(encoded.len())?;
                let decoded = base64(encoded, Base64Mode::Rfc4648);
                if decoded.is_empty() {
                    return Err(fail());
                }
                let view = View { bytes: &decoded, base: 0 };
                let mut inner =
                    Solver { ops, view, names: self.names, work: self.work, nowhere: None };
                let holds = inner.solve(0, 0).is_ok();
                self.work = inner.work;
                if holds { self.solve(at + 1, last) } else { Err(fail()) }
            }
            Op::Dataset { set, ask } => {
                // A buffer whose beginning is gone is in no set.
                let is_whole = self.view.base == 0;
                // Sets that rules write are asked once the rest of the rule holds.
                match is_whole && (set.is_written() || ask.holds(set, bytes)) {
                    true => self.solve(at + 1, last),
                    false => Err(Fail::Final),
                }
            }
            Op::Number(test) => match self.view.base == 0 && test.holds(bytes) {
                true => self.solve(at + 1, last),
                false => Err(Fail::Final),
            },
            Op::Bsize(size) => match size.holds(self.view.base + len as u64) {
                true => self.solve(at + 1, last),
                false => Err(Fail::Final),
            },
        }
    }

    /// What was looked for is not there.
    fn absent(&mut self, negated: bool, at: usize, last: usize, fail: Fail) -> Result<(), Fail> {
        if negated { self.solve(at + 1, last) } else { Err(fail) }
    }

    /// Where a number begins that has this offset.
    fn place(&self, relative: bool, offset: i64, last: usize) -> Option<usize> {
        let at = match relative {
            true => (last as i64).checked_add(offset)?,
            false => self.absolute(offset),
        };
        usize::try_from(at).ok().filter(|at| *at <= self.view.bytes.len())
    }

    /// A number, where it begins, and how many bytes of it were read.
    fn read(
        &self,
        read: Reading,
        offset: i64,
        count: i64,
        last: usize,
    ) -> Option<(u64, usize, usize)> {
        let start = self.place(read.relative, offset, last)?;
        let count = usize::try_from(count).ok()?;
        let bytes = match count {
            // All digits that there are.
            0 => &self.view.bytes[start..self.view.bytes.len().min(start + DIGITS_MAX)],
            _ => self.view.bytes.get(start..start.checked_add(count)?)?,
        };
        let (mut number, used) = match read.base {
            None if count == 0 || count > 8 => return None,
            None if read.is_little => {
                (bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)), count)
            }
            None => (bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)), count),
            Some(base) => text_number(bytes, base)?,
        };
        if let Some(mask) = read.bitmask {
            number = (number & u64::from(mask)) >> mask.trailing_zeros().min(31);
        }
        Some((number, start, used))
    }
}

/// A number in digits, as C's `strtoull` reads it: white space may be before it, and what is behind it is not read.
fn text_number(bytes: &[u8], base: u32) -> Option<(u64, usize)> {
    let mut at = bytes.iter().take_while(|b| b.is_ascii_whitespace() || **b == 0x0b).count();
    let mut base = base;
    let has_prefix = bytes[at..].len() > 2 && bytes[at] == b'0' && bytes[at + 1] | 0x20 == b'x';
    if matches!(base, 0 | 16) && has_prefix && bytes[at + 2].is_ascii_hexdigit() {
        (at, base) = (at + 2, 16);
    } else if base == 0 {
        base = if bytes.get(at) == Some(&b'0') { 8 } else { 10 };
    }
    let (mut number, first) = (0_u64, at);
    while let Some(digit) = bytes.get(at).and_then(|b| char::from(*b).to_digit(base)) {
        number = number.checked_mul(u64::from(base))?.checked_add(u64::from(digit))?;
        at += 1;
    }
    (at > first).then_some((number, at))
}
