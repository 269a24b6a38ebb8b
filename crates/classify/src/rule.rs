//! Rules and sets of them.
//!
//! A rule says for each field which values it wants. It is kept as two headers' worth of words, so that two
//! million of them are a flat array:
//!
//! ```text
//! words 0…W-1     of a prefix or mask field its value, of a range field its lowest value
//! words W…2W-1    of a prefix or mask field its mask,  of a range field its highest value
//! ```
//!
//! A value has no bit outside its mask, and no range is reversed: [`Schema::conditions`] sees to it, and so two
//! rules that match the same headers have the same words.
//!
//! **Order.** A rule carries a *priority*, smaller is better, and an *id* of the user's that no other rule of
//! the set has; of two rules with one priority that with the smaller id is better. Both make one number of 64
//! bits, [`Match`], which every structure stores beside its entries and compares. So an insert renumbers
//! nothing, whatever is between, and answers of two structures over parts of one set are put together by the
//! smaller [`Match`]. A dense rank (the position in that order, which fits a device's 32-bit atomic minimum)
//! exists only where a whole set is frozen: [`RuleSet::ranked`].

use std::fmt;
use std::sync::Arc;

use crate::schema::{Field, Kind, Schema, ones};

/// A rule's place in the order of its set, and what a lookup finds: the smaller the better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Match(u64);

impl Match {
    /// No rule: worse than every rule.
    pub const NONE: Self = Self(u64::MAX);

    /// The place of a rule.
    pub const fn new(priority: u32, id: u32) -> Self {
        Self((priority as u64) << 32 | id as u64)
    }

    /// The rule's id; `None` for [`Match::NONE`].
    #[inline]
    pub const fn id(self) -> Option<u32> {
        if self.0 == u64::MAX { None } else { Some(self.0 as u32) }
    }

    /// Whether there is a rule.
    #[inline]
    pub const fn is_some(self) -> bool {
        self.0 != u64::MAX
    }

    /// The rule's priority; of no rule the worst.
    pub const fn priority(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// As it stands in tables: the lower word, then the upper one.
    pub(crate) const fn to_words(self) -> [u32; 2] {
        [self.0 as u32, (self.0 >> 32) as u32]
    }

    #[inline]
    pub(crate) const fn from_words(low: u32, high: u32) -> Self {
        Self((high as u64) << 32 | low as u64)
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id() {
            Some(id) => write!(f, "rule {id} (priority {})", self.priority()),
            None => f.write_str("no rule"),
        }
    }
}

/// The id that no rule may have.
pub const NO_ID: u32 = u32::MAX;

/// Which values of a field a rule wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Condition {
    /// The first `len` bits are those of `value`.
    Prefix {
        /// The bits; those below the length do not count.
        value: u128,
        /// Their number.
        len: u8,
    },
    /// From `low` to `high`, both included.
    Range {
        /// The lowest value.
        low: u128,
        /// The highest value.
        high: u128,
    },
    /// The bits under `mask` are those of `value`.
    Mask {
        /// The bits; those outside the mask do not count.
        value: u128,
        /// Which bits count.
        mask: u128,
    },
}

impl Condition {
    /// Any value of a field.
    pub fn any(field: &Field) -> Self {
        match field.kind {
            Kind::Prefix => Self::Prefix { value: 0, len: 0 },
            Kind::Range => Self::Range { low: 0, high: field.max() },
            Kind::Mask => Self::Mask { value: 0, mask: 0 },
        }
    }

    /// One value of a field.
    pub fn exact(field: &Field, value: u128) -> Self {
        match field.kind {
            Kind::Prefix => Self::Prefix { value, len: field.bits },
            Kind::Range => Self::Range { low: value, high: value },
            Kind::Mask => Self::Mask { value, mask: field.max() },
        }
    }
}

/// Why a rule was refused. The set, or the classifier, is as it was before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Not one condition for each field.
    #[error("expected {expected} conditions, one for each field, found {found}")]
    Count {
        /// Fields.
        expected: usize,
        /// Conditions.
        found: usize,
    },
    /// The condition is of another kind than the field.
    #[error("the field {field} is matched by a {kind:?}, found {found:?}")]
    Kind {
        /// The field.
        field: String,
        /// Its kind.
        kind: Kind,
        /// What was given.
        found: Condition,
    },
    /// A prefix that is longer than its field.
    #[error("the field {field} has {bits} bits, found a prefix of {len}")]
    Length {
        /// The field.
        field: String,
        /// Its length.
        bits: u8,
        /// The prefix's.
        len: u8,
    },
    /// The lowest value is above the highest.
    #[error("the field {field}: the range {low} : {high} is reversed")]
    Reversed {
        /// The field.
        field: String,
        /// The lowest value.
        low: u128,
        /// The highest value.
        high: u128,
    },
    /// A value that does not fit.
    #[error("the field {field} has {bits} bits, {value} does not fit")]
    Value {
        /// The field.
        field: String,
        /// Its length.
        bits: u8,
        /// The value.
        value: u128,
    },
    /// Another schema's rule.
    #[error("a rule has {expected} words, found {found}")]
    Words {
        /// Words of a rule of this schema.
        expected: usize,
        /// Words of this one.
        found: usize,
    },
    /// The id that says "none".
    #[error("the id {NO_ID} means no rule")]
    ReservedId,
    /// Another rule has the id.
    #[error("rule {0} exists already")]
    DuplicateId(u32),
    /// The ranges of the rule make more prefixes than the structure takes.
    #[error("the ranges of rule {id} make {entries} entries, at most {limit}")]
    Expansion {
        /// The rule.
        id: u32,
        /// Entries that it would make.
        entries: u64,
        /// How many it may make.
        limit: u64,
    },
    /// The structure has no room.
    #[error("the table is full: {used} of {limit} {what} in use")]
    Full {
        /// What ran out.
        what: &'static str,
        /// How many are in use.
        used: u64,
        /// How many there may be.
        limit: u64,
    },
    /// The structure takes rules of one schema alone.
    #[error(
        "no place for {structure}: rules have other fields than addresses of IPv4, ports, protocol"
    )]
    Schema {
        /// The structure.
        structure: &'static str,
    },
    /// The structure would get too large.
    #[error(
        "the structure would take at least {bytes} bytes with its {part}, at most {limit} are allowed"
    )]
    TooLarge {
        /// With what it passes the limit.
        part: &'static str,
        /// Bytes with that.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The system gave no memory.
    #[error("no memory for a table of {bytes} bytes: {reason}")]
    Memory {
        /// Size asked for.
        bytes: usize,
        /// What the system said.
        reason: String,
    },
}

/// One rule by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its conditions, as [`Schema::conditions`] packs them.
    pub words: Box<[u32]>,
    /// Smaller is better.
    pub priority: u32,
    /// The user's number of it.
    pub id: u32,
}

impl Rule {
    /// The same, borrowed.
    pub fn as_ref(&self) -> RuleRef<'_> {
        RuleRef { words: &self.words, priority: self.priority, id: self.id }
    }
}

/// A rule of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleRef<'a> {
    /// Its conditions, as [`Schema::conditions`] packs them.
    pub words: &'a [u32],
    /// Smaller is better.
    pub priority: u32,
    /// The user's number of it.
    pub id: u32,
}

impl<'a> RuleRef<'a> {
    /// Its place in the order.
    pub fn place(&self) -> Match {
        Match::new(self.priority, self.id)
    }

    /// Values of the fields that are not ranges, lowest values of those that are.
    pub fn lows(&self) -> &'a [u32] {
        &self.words[..self.words.len() / 2]
    }

    /// Masks of the fields that are not ranges, highest values of those that are.
    pub fn highs(&self) -> &'a [u32] {
        &self.words[self.words.len() / 2..]
    }

    /// A copy.
    pub fn to_rule(&self) -> Rule {
        Rule { words: self.words.into(), priority: self.priority, id: self.id }
    }
}

impl Schema {
    /// Packs one condition for each field into the words of a rule.
    ///
    /// # Errors
    /// Conditions that are too few or too many, of another kind than their fields, or that cannot be.
    pub fn conditions(&self, conditions: &[Condition]) -> Result<Box<[u32]>, RuleError> {
        let (expected, found) = (self.fields().len(), conditions.len());
        if expected != found {
            return Err(RuleError::Count { expected, found });
        }
        let mut words = vec![0; 2 * self.words()];
        let (lows, highs) = words.split_at_mut(self.words());
        for (at, (field, condition)) in self.fields().iter().zip(conditions).enumerate() {
            let (low, high) = packed(field, *condition)?;
            self.set(lows, at, low);
            self.set(highs, at, high);
        }
        Ok(words.into())
    }

    /// The condition of a rule on a field. A mask that is a prefix in a prefix field comes back as one.
    pub fn condition(&self, words: &[u32], field: usize) -> Condition {
        let (lows, highs) = words.split_at(self.words());
        let (low, high) = (self.get(lows, field), self.get(highs, field));
        match self.fields()[field].kind {
            Kind::Prefix => Condition::Prefix { value: low, len: high.count_ones() as u8 },
            Kind::Range => Condition::Range { low, high },
            Kind::Mask => Condition::Mask { value: low, mask: high },
        }
    }

    /// Whether a rule matches a header.
    pub fn matches(&self, words: &[u32], header: &[u32]) -> bool {
        let (lows, highs) = words.split_at(self.words());
        let masked = self.masked_bits().iter().zip(lows).zip(highs).zip(header);
        let mut masked = masked.map(|(((bits, low), high), word)| (word ^ low) & high & bits);
        masked.all(|differ| differ == 0)
            && self.ranges().all(|place| {
                let of = |words: &[u32]| words[place.word] >> place.shift & place.max;
                (of(lows)..=of(highs)).contains(&of(header))
            })
    }

    /// Whether every header that `inner` matches is matched by `outer`.
    pub fn covers(&self, outer: &[u32], inner: &[u32]) -> bool {
        let width = self.words();
        let masked = self.masked_bits().iter().enumerate();
        let mut masked = masked.map(|(at, bits)| {
            let (mask, theirs) = (outer[width + at] & bits, inner[width + at] & bits);
            mask & !theirs | (outer[at] ^ inner[at]) & mask
        });
        masked.all(|differ| differ == 0)
            && self.ranges().all(|place| {
                let of = |words: &[u32]| words[place.word] >> place.shift & place.max;
                of(&outer[..width]) <= of(&inner[..width])
                    && of(&inner[width..]) <= of(&outer[width..])
            })
    }

    /// Whether some header is matched by both rules.
    pub fn overlap(&self, a: &[u32], b: &[u32]) -> bool {
        let width = self.words();
        let masked = self.masked_bits().iter().enumerate();
        let mut masked =
            masked.map(|(at, bits)| (a[at] ^ b[at]) & a[width + at] & b[width + at] & bits);
        masked.all(|differ| differ == 0)
            && self.ranges().all(|place| {
                let of = |words: &[u32]| words[place.word] >> place.shift & place.max;
                of(&a[..width]) <= of(&b[width..]) && of(&b[..width]) <= of(&a[width..])
            })
    }
}

/// The two values that stand for a condition.
fn packed(field: &Field, condition: Condition) -> Result<(u128, u128), RuleError> {
    let (bits, max) = (field.bits, field.max());
    let name = || field.name.to_string();
    let fits = |value: u128| match value <= max {
        true => Ok(value),
        false => Err(RuleError::Value { field: name(), bits, value }),
    };
    match (field.kind, condition) {
        (Kind::Prefix, Condition::Prefix { value, len }) => {
            if len > bits {
                return Err(RuleError::Length { field: name(), bits, len });
            }
            let mask = max & !ones(bits - len);
            Ok((fits(value)? & mask, mask))
        }
        (Kind::Range, Condition::Range { low, high }) => {
            if low > high {
                return Err(RuleError::Reversed { field: name(), low, high });
            }
            Ok((fits(low)?, fits(high)?))
        }
        (Kind::Mask, Condition::Mask { value, mask }) => Ok((fits(value)? & fits(mask)?, mask)),
        (kind, found) => Err(RuleError::Kind { field: name(), kind, found }),
    }
}

/// Many rules of one schema.
#[derive(Debug, Clone)]
pub struct RuleSet {
    schema: Arc<Schema>,
    words: Vec<u32>,
    /// Priority and id of each.
    places: Vec<Match>,
}

impl RuleSet {
    /// No rules yet.
    pub fn new(schema: impl Into<Arc<Schema>>) -> Self {
        Self { schema: schema.into(), words: Vec::new(), places: Vec::new() }
    }

    /// The fields.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Adds a rule behind the others. Whether its id is new is seen when a classifier is built.
    ///
    /// # Errors
    /// A rule of another width, or the reserved id.
    pub fn push(&mut self, rule: RuleRef<'_>) -> Result<(), RuleError> {
        check(&self.schema, &rule)?;
        self.words.extend_from_slice(rule.words);
        self.places.push(rule.place());
        Ok(())
    }

    /// Adds a rule that is worse than all that were added so: its number is its priority and its id, as the
    /// first rule of a file is the best.
    ///
    /// # Errors
    /// As [`Schema::conditions`].
    pub fn append(&mut self, conditions: &[Condition]) -> Result<(), RuleError> {
        let words = self.schema.conditions(conditions)?;
        let number = u32::try_from(self.len()).unwrap_or(NO_ID);
        self.push(RuleRef { words: &words, priority: number, id: number })
    }

    /// Rules.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The rule of an index, from 0.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn rule(&self, index: usize) -> RuleRef<'_> {
        let length = 2 * self.schema.words();
        let place = self.places[index];
        let words = &self.words[index * length..][..length];
        RuleRef { words, priority: place.priority(), id: place.to_words()[0] }
    }

    /// All rules, in the order in which they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RuleRef<'_>> {
        (0..self.len()).map(|index| self.rule(index))
    }

    /// Indices of the rules, the best first: the dense rank of a rule is its position here.
    pub fn ranked(&self) -> Vec<u32> {
        let mut indices: Vec<u32> = (0..self.len() as u32).collect();
        if !self.places.is_sorted() {
            indices.sort_unstable_by_key(|index| self.places[*index as usize]);
        }
        indices
    }

    /// Memory of the rules, bytes.
    pub fn len_bytes(&self) -> usize {
        self.words.len() * 4 + self.places.len() * 8
    }
}

/// Whether a rule may be one of a schema.
pub(crate) fn check(schema: &Schema, rule: &RuleRef<'_>) -> Result<(), RuleError> {
    let (expected, found) = (2 * schema.words(), rule.words.len());
    if expected != found {
        return Err(RuleError::Words { expected, found });
    }
    if rule.id == NO_ID {
        return Err(RuleError::ReservedId);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(rules: &[[Condition; 5]]) -> RuleSet {
        let mut set = RuleSet::new(Schema::five_tuple());
        rules.iter().for_each(|rule| set.append(rule).unwrap());
        set
    }

    const ANY: Condition = Condition::Range { low: 0, high: 65535 };

    fn rule(src: (u128, u8), dport: (u128, u128), proto: Option<u128>) -> [Condition; 5] {
        let (value, mask) = proto.map_or((0, 0), |value| (value, 255));
        [
            Condition::Prefix { value: src.0, len: src.1 },
            Condition::Prefix { value: 7, len: 0 },
            ANY,
            Condition::Range { low: dport.0, high: dport.1 },
            Condition::Mask { value, mask },
        ]
    }

    #[test]
    fn conditions_come_back_without_what_does_not_count() {
        let set = set(&[rule((0x0a01_0203, 8), (80, 90), Some(6))]);
        let rule = set.rule(0);
        let condition = |field| set.schema().condition(rule.words, field);
        assert_eq!(condition(0), Condition::Prefix { value: 0x0a00_0000, len: 8 });
        assert_eq!(condition(1), Condition::Prefix { value: 0, len: 0 });
        assert_eq!(condition(2), ANY);
        assert_eq!(condition(3), Condition::Range { low: 80, high: 90 });
        assert_eq!(condition(4), Condition::Mask { value: 6, mask: 255 });
    }

    #[test]
    fn matches_covers_and_overlaps() {
        let set = set(&[
            rule((0x0a00_0000, 8), (80, 90), None),
            rule((0x0a01_0000, 16), (80, 85), Some(6)),
            rule((0x0b00_0000, 8), (0, 65535), None),
            rule((0, 0), (85, 100), Some(17)),
        ]);
        let s = set.schema();
        let words = |index| set.rule(index).words;
        let matching = |values: [u128; 5]| -> Vec<usize> {
            let header = s.header(&values);
            (0..4).filter(|index| s.matches(words(*index), &header)).collect()
        };
        assert_eq!(matching([0x0a01_0001, 1, 2, 85, 6]), [0, 1]);
        assert_eq!(matching([0x0a01_0001, 1, 2, 86, 6]), [0]);
        assert_eq!(matching([0x0b01_0001, 1, 2, 86, 17]), [2, 3]);
        assert_eq!(matching([0x0c01_0001, 1, 2, 84, 17]), [0; 0]);
        let pairs = |of: &dyn Fn(usize, usize) -> bool| -> Vec<(usize, usize)> {
            let all = (0..4).flat_map(|a| (0..4).map(move |b| (a, b)));
            all.filter(|(a, b)| a != b && of(*a, *b)).collect()
        };
        assert_eq!(pairs(&|a, b| s.covers(words(a), words(b))), [(0, 1)]);
        let overlaps = [(0, 1), (0, 3), (1, 0), (2, 3), (3, 0), (3, 2)];
        assert_eq!(pairs(&|a, b| s.overlap(words(a), words(b))), overlaps);
    }

    #[test]
    fn refuses_what_cannot_be() {
        let s = Schema::five_tuple();
        let with = |at: usize, condition| {
            let mut all = rule((0, 0), (0, 1), None);
            all[at] = condition;
            s.conditions(&all).unwrap_err()
        };
        let long = Condition::Prefix { value: 0, len: 33 };
        assert!(matches!(with(0, long), RuleError::Length { len: 33, bits: 32, .. }));
        let reversed = Condition::Range { low: 2, high: 1 };
        assert!(matches!(with(2, reversed), RuleError::Reversed { .. }));
        let large = Condition::Range { low: 0, high: 65536 };
        assert!(matches!(with(2, large), RuleError::Value { value: 65536, .. }));
        assert!(matches!(with(4, large), RuleError::Kind { kind: Kind::Mask, .. }));
        assert!(matches!(s.conditions(&[]), Err(RuleError::Count { expected: 5, found: 0 })));
        let mut set = RuleSet::new(s);
        let short = RuleRef { words: &[0; 3], priority: 0, id: 0 };
        assert_eq!(set.push(short), Err(RuleError::Words { expected: 8, found: 3 }));
        let reserved = RuleRef { words: &[0; 8], priority: 0, id: NO_ID };
        assert_eq!(set.push(reserved), Err(RuleError::ReservedId));
        assert_eq!(Match::new(u32::MAX, 5).id(), Some(5));
        assert!(Match::new(u32::MAX, 5) < Match::NONE);
    }

    #[test]
    fn ranks_follow_priority_then_id() {
        let mut set = RuleSet::new(Schema::five_tuple());
        for (priority, id) in [(5, 1), (3, 9), (5, 0), (3, 2)] {
            set.push(RuleRef { words: &[0; 8], priority, id }).unwrap();
        }
        assert_eq!(set.ranked(), [3, 1, 2, 0]);
    }
}
