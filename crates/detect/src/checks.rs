//! Checks of one buffer, as they are evaluated: names are numbers, contents are searchers.
//!
//! ```text
//!  Inspection.checks ─▶ Op, Op, Op …      relative ones follow the match of the one before
//!                       └ solve: the first places that fulfil all of them
//! ```

use std::sync::Arc;

use memchr::memmem::Finder;
use signatures::{
    Base, Check, Compare, Content, Endian, Field, JumpFrom, Operation, Relation, Value,
};

use crate::pattern::{Pattern, PatternLimits};
use crate::sets::{Ask, Dataset, Datasets};

/// A rule has at most so many numbers with names.
pub(crate) const NAMES_MAX: usize = 32;

/// A number of a rule, or one that was taken from the bytes, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Fixed(i64),
    Named(u8),
}

/// A content.
#[derive(Clone, Debug)]
pub(crate) struct Literal {
    pub(crate) negated: bool,
    /// In small letters where case does not count.
    pub(crate) bytes: Box<[u8]>,
    pub(crate) offset: Option<Number>,
    pub(crate) depth: Option<Number>,
    pub(crate) distance: Option<Number>,
    pub(crate) within: Option<Number>,
    pub(crate) starts: bool,
    pub(crate) ends: bool,
    /// Of bytes whose case counts.
    pub(crate) finder: Option<Finder<'static>>,
}

impl Literal {
    pub(crate) fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }

    /// Where it is first found at or behind `from`, ending at `to` or before.
    pub(crate) fn find(&self, bytes: &[u8], from: usize, to: usize) -> Option<usize> {
        let to = to.min(bytes.len());
        let hay = bytes.get(from..to)?;
        if hay.len() < self.bytes.len() {
            return None;
        }
        if let Some(finder) = &self.finder {
            return finder.find(hay).map(|at| from + at);
        }
        let (low, len) = (self.bytes[0], self.bytes.len());
        let high = low.to_ascii_uppercase();
        let starts = &hay[..hay.len() - len + 1];
        let mut places = memchr::memchr2_iter(low, high, starts);
        places.find(|at| hay[*at..*at + len].eq_ignore_ascii_case(&self.bytes)).map(|at| from + at)
    }
}

/// How a number is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) is_little: bool,
    /// Base of text: 0 follows from a prefix. `None`: binary.
    pub(crate) base: Option<u32>,
    pub(crate) relative: bool,
    pub(crate) bitmask: Option<u32>,
}

/// A check.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Literal(Box<Literal>),
    Pattern {
        pattern: Pattern,
        negated: bool,
        relative: bool,
    },
    IsDataAt {
        negated: bool,
        at: Number,
        relative: bool,
    },
    ByteTest {
        bytes: Number,
        negated: bool,
        relation: Relation,
        value: Number,
        offset: Number,
        read: Reading,
    },
    ByteJump {
        bytes: Number,
        offset: Number,
        read: Reading,
        multiplier: i64,
        align: bool,
        from: JumpFrom,
        post_offset: Number,
    },
    ByteExtract {
        bytes: u8,
        offset: i64,
        name: u8,
        read: Reading,
        multiplier: i64,
        align: u8,
    },
    ByteMath {
        bytes: Number,
        offset: i64,
        operation: Operation,
        value: Number,
        name: u8,
        read: Reading,
    },
    Bsize(Compare),
    /// On the number that the buffer is.
    Number(Test),
    /// What follows from Base64 in the buffer, and the checks of it.
    Base64 {
        bytes: u32,
        offset: Number,
        relative: bool,
        ops: Box<[Op]>,
    },
    /// All of the buffer is looked up.
    Dataset {
        set: Arc<Dataset>,
        ask: Ask,
    },
}

/// What a number fulfils.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Compare(Compare),
    /// It is one of these, or none of them.
    OneOf {
        negated: bool,
        numbers: Box<[u16]>,
    },
}

/// The bytes of a number that is known, or is at least so much.
pub(crate) fn number_bytes(number: u64, is_exact: bool) -> [u8; 9] {
    let mut bytes = [0; 9];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[8] = is_exact.into();
    bytes
}

impl Test {
    /// Does the number in these bytes fulfil it, whatever it may still become?
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let Some((number, [is_exact])) = bytes.split_first_chunk::<8>() else { return false };
        let (number, is_exact) = (u64::from_be_bytes(*number), *is_exact != 0);
        match self {
            Self::Compare(own @ (Compare::Greater(_) | Compare::GreaterOrEqual(_))) => {
                own.holds(number)
            }
            Self::Compare(own) => is_exact && own.holds(number),
            Self::OneOf { negated, numbers } => {
                let is_one = numbers.iter().any(|own| u64::from(*own) == number);
                is_exact && is_one != *negated
            }
        }
    }
}

impl Op {
    /// Does its place follow from that of the match before, or from a number that was read before? Otherwise it fails
    /// wherever the one before is found.
    pub(crate) fn is_dependent(&self) -> bool {
        let named = |number: &Number| matches!(number, Number::Named(_));
        let some = |number: &Option<Number>| number.as_ref().is_some_and(named);
        match self {
            Self::Literal(l) => l.is_relative() || some(&l.offset) || some(&l.depth),
            Self::Pattern { relative, .. } => *relative,
            Self::IsDataAt { relative, at, .. } => *relative || named(at),
            Self::ByteTest { bytes, value, offset, read, .. } => {
                read.relative || named(bytes) || named(value) || named(offset)
            }
            Self::ByteJump { bytes, offset, read, post_offset, .. } => {
                read.relative || named(bytes) || named(offset) || named(post_offset)
            }
            Self::ByteExtract { read, .. } => read.relative,
            Self::ByteMath { bytes, value, read, .. } => {
                read.relative || named(bytes) || named(value)
            }
            Self::Base64 { relative, offset, .. } => *relative || named(offset),
            Self::Bsize(_) | Self::Number(_) | Self::Dataset { .. } => false,
        }
    }

    /// If it holds of the first bytes of a buffer, does it hold of more of them?
    pub(crate) fn is_monotone(&self) -> bool {
        match self {
            Self::Literal(l) => !l.negated && !l.ends,
            Self::Pattern { pattern, negated, .. } => !negated && !pattern.looks_at_end,
            Self::IsDataAt { negated, .. } => !negated,
            // More digits may follow.
            Self::ByteTest { bytes: Number::Fixed(0), .. }
            | Self::ByteExtract { bytes: 0, .. }
            | Self::ByteMath { bytes: Number::Fixed(0), .. } => false,
            Self::ByteJump { bytes, from, read, .. } => {
                let is_open = *bytes == Number::Fixed(0) && read.base.is_some();
                *from != JumpFrom::End && !is_open
            }
            Self::Base64 { ops, .. } => ops.iter().all(Self::is_monotone),
            Self::Bsize(_) | Self::Number(_) | Self::Dataset { .. } => false,
            _ => true,
        }
    }

    /// Does it write a set once all checks of the buffer hold?
    pub(crate) fn writes(&self) -> bool {
        matches!(self, Self::Dataset { ask, .. } if ask.writes())
    }

    /// Is it on a set that rules write?
    pub(crate) fn defers(&self) -> bool {
        matches!(self, Self::Dataset { set, .. } if set.is_written())
    }

    /// If it is on a set that rules write: does this set have what it asks for?
    pub(crate) fn asks(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Dataset { set, ask } => !set.is_written() || ask.holds(set, bytes),
            _ => true,
        }
    }
}

/// The names of a rule's numbers.
#[derive(Default)]
pub(crate) struct Names(Vec<String>);

impl Names {
    fn get(&self, name: &str) -> Result<u8, String> {
        let place = self.0.iter().position(|own| own == name);
        place.map(|place| place as u8).ok_or_else(|| format!("`{name}` is not read before"))
    }

    fn put(&mut self, name: &str) -> Result<u8, String> {
        if let Ok(place) = self.get(name) {
            return Ok(place);
        }
        if self.0.len() == NAMES_MAX {
            return Err(format!("more than {NAMES_MAX} names of numbers"));
        }
        self.0.push(name.to_owned());
        Ok(self.0.len() as u8 - 1)
    }

    fn number(&self, value: &Value) -> Result<Number, String> {
        Ok(match value {
            Value::Number(number) => Number::Fixed(*number),
            Value::Name(name) => Number::Named(self.get(name)?),
        })
    }

    fn option(&self, value: &Option<Value>) -> Result<Option<Number>, String> {
        value.as_ref().map(|value| self.number(value)).transpose()
    }
}

fn reading(field: &Field) -> Result<Reading, String> {
    let is_little = match field.endian {
        Endian::Big => false,
        Endian::Little => true,
        Endian::Dce => return Err("byte order of DCE/RPC".to_owned()),
    };
    let base = match field.base {
        Base::Bytes => None,
        Base::Hex => Some(16),
        Base::Dec => Some(10),
        Base::Oct => Some(8),
        Base::Auto => Some(0),
    };
    Ok(Reading { is_little, base, relative: field.relative, bitmask: field.bitmask })
}

/// A content as it is evaluated.
fn literal(content: &Content, names: &Names) -> Result<Literal, String> {
    let nocase = content.nocase && content.bytes.iter().any(u8::is_ascii_alphabetic);
    let bytes: Box<[u8]> = match nocase {
        true => content.bytes.to_ascii_lowercase().into(),
        false => content.bytes.as_slice().into(),
    };
    let finder = (!nocase).then(|| Finder::new(&bytes).into_owned());
    Ok(Literal {
        negated: content.negated,
        offset: names.option(&content.offset)?,
        depth: names.option(&content.depth)?,
        distance: names.option(&content.distance)?,
        within: names.option(&content.within)?,
        starts: content.startswith,
        ends: content.endswith,
        finder,
        bytes,
    })
}

/// The checks of an inspection. Those that say whether there is a buffer at all are not among them.
pub(crate) fn compile(
    checks: &[Check],
    names: &mut Names,
    limits: &PatternLimits,
    sets: &Datasets,
) -> Result<Vec<Op>, String> {
    let dataset = |name: &str, ask| {
        let set = sets.get(name).ok_or_else(|| format!("dataset {name} was not loaded"))?;
        Ok::<_, String>(Op::Dataset { set: set.clone(), ask })
    };
    let mut ops = Vec::with_capacity(checks.len());
    for check in checks {
        ops.push(match check {
            Check::Content(content) => Op::Literal(Box::new(literal(content, names)?)),
            Check::Pcre(pcre) => {
                if !pcre.captures.is_empty() {
                    return Err("pcre: capturing into variables".to_owned());
                }
                let pattern = Pattern::new(pcre, limits).map_err(|e| format!("pcre: {e}"))?;
                Op::Pattern { pattern, negated: pcre.negated, relative: pcre.relative }
            }
            Check::IsDataAt(at) => Op::IsDataAt {
                negated: at.negated,
                at: names.number(&at.at)?,
                relative: at.relative,
            },
            Check::ByteTest(test) => Op::ByteTest {
                bytes: names.number(&test.bytes)?,
                negated: test.negated,
                relation: test.relation,
                value: names.number(&test.value)?,
                offset: names.number(&test.offset)?,
                read: reading(&test.field)?,
            },
            Check::ByteJump(jump) => Op::ByteJump {
                bytes: names.number(&jump.bytes)?,
                offset: names.number(&jump.offset)?,
                read: reading(&jump.field)?,
                multiplier: i64::from(jump.multiplier.unwrap_or(1)),
                align: jump.align,
                from: jump.from,
                post_offset: names.option(&jump.post_offset)?.unwrap_or(Number::Fixed(0)),
            },
            Check::ByteExtract(extract) => Op::ByteExtract {
                bytes: extract.bytes,
                offset: i64::from(extract.offset),
                read: reading(&extract.field)?,
                multiplier: i64::from(extract.multiplier.unwrap_or(1)),
                align: extract.align.unwrap_or(0),
                name: names.put(&extract.name)?,
            },
            Check::ByteMath(math) => Op::ByteMath {
                bytes: names.number(&math.bytes)?,
                offset: i64::from(math.offset),
                operation: math.operation,
                value: names.number(&math.value)?,
                read: reading(&math.field)?,
                name: names.put(&math.result)?,
            },
            Check::Bsize(size) => Op::Bsize(*size),
            Check::Absent { .. } => continue,
            Check::Base64Decode(decode) => Op::Base64 {
                bytes: decode.bytes.unwrap_or(u32::MAX),
                offset: names.option(&decode.offset)?.unwrap_or(Number::Fixed(0)),
                relative: decode.relative,
                ops: Box::default(),
            },
            Check::Dataset(own) => dataset(&own.name, Ask::Operation(own.operation))?,
            Check::Datarep(own) => dataset(&own.name, Ask::Reputation(own.value))?,
        });
    }
    Ok(ops)
}
