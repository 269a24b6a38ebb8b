//! The rules of a set by their different conditions.

use std::collections::HashMap;
use std::hash::Hash;

use crate::rule::{Match, RuleError, RuleRef, RuleSet};
use crate::schema::{Kind, Schema};

/// A prefix of an address or of a part of one: value and length. In this order they are a preorder of their tree.
pub(crate) type Prefix = (u32, u8);

/// A range of ports, both ends included.
pub(crate) type Range = (u16, u16);

/// Bits of a protocol and which of them count.
pub(crate) type Masked = (u8, u8);

/// What a rule says beside the addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tail {
    pub(crate) sport: Range,
    pub(crate) dport: Range,
    pub(crate) proto: Masked,
}

impl Tail {
    /// Whether every header matches.
    pub(crate) fn is_any(&self) -> bool {
        self.sport == (0, u16::MAX) && self.dport == (0, u16::MAX) && self.proto.1 == 0
    }

    /// Whether every header that `other` matches is matched by this one.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let holds = |outer: Range, inner: Range| outer.0 <= inner.0 && inner.1 <= outer.1;
        let (mask, theirs) = (self.proto.1, other.proto.1);
        holds(self.sport, other.sport)
            && holds(self.dport, other.dport)
            && mask & !theirs | (self.proto.0 ^ other.proto.0) & mask == 0
    }
}

/// A rule by the numbers of its conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Parts {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) tail: u32,
}

/// A set of rules, taken apart. A rule's number is its rank among those that are left: of rules that match the
/// same headers only the best one is.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    /// Different prefixes, as they come.
    pub(crate) src: Vec<Prefix>,
    pub(crate) dst: Vec<Prefix>,
    pub(crate) tails: Vec<Tail>,
    /// Rules by rank.
    pub(crate) rules: Vec<Parts>,
    pub(crate) places: Vec<Match>,
}

/// Numbers things as they come.
#[derive(Debug)]
pub(crate) struct Numbers<T>(HashMap<T, u32>);

impl<T: Hash + Eq + Copy> Numbers<T> {
    pub(crate) fn new() -> Self {
        Self(HashMap::new())
    }

    pub(crate) fn of(&mut self, thing: T, things: &mut Vec<T>) -> u32 {
        *self.0.entry(thing).or_insert_with(|| {
            things.push(thing);
            things.len() as u32 - 1
        })
    }
}

impl Fields {
    /// Takes a set apart.
    ///
    /// # Errors
    /// Another schema, or two rules with one id.
    pub(crate) fn of(set: &RuleSet, structure: &'static str) -> Result<Self, RuleError> {
        if !is_five_tuple(set.schema()) {
            return Err(RuleError::Schema { structure });
        }
        let mut ids: Vec<u32> = set.iter().map(|rule| rule.id).collect();
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(RuleError::DuplicateId(twice[0]));
        }
        let mut fields = Self::default();
        let (mut src, mut dst, mut tails) = (Numbers::new(), Numbers::new(), Numbers::new());
        let mut rules = Numbers::new();
        for index in set.ranked() {
            let rule = set.rule(index as usize);
            let Some((from, to, tail)) = parts(&rule) else { continue };
            let parts = Parts {
                src: src.of(from, &mut fields.src),
                dst: dst.of(to, &mut fields.dst),
                tail: tails.of(tail, &mut fields.tails),
            };
            if rules.of(parts, &mut fields.rules) as usize == fields.places.len() {
                fields.places.push(rule.place());
            }
        }
        Ok(fields)
    }
}

/// Whether headers are as [`Schema::five_tuple`] has them, whatever the fields are called.
pub(crate) fn is_five_tuple(schema: &Schema) -> bool {
    let fields = schema.fields().iter().map(|field| (field.bits, field.kind));
    fields.eq(Schema::five_tuple().fields().iter().map(|field| (field.bits, field.kind)))
        && schema.fields()[0].kind == Kind::Prefix
}

/// The conditions of a rule; `None` where a range has no value in it.
fn parts(rule: &RuleRef<'_>) -> Option<(Prefix, Prefix, Tail)> {
    let (&[src, dst, ports, proto], &[src_mask, dst_mask, ports_high, proto_mask]) =
        (rule.lows().first_chunk::<4>()?, rule.highs().first_chunk::<4>()?);
    let prefix = |value: u32, mask: u32| {
        let len = mask.leading_ones() as u8;
        (value & mask, len)
    };
    let (value, mask) = ((proto >> 24) as u8, (proto_mask >> 24) as u8);
    let tail = Tail {
        sport: ((ports >> 16) as u16, (ports_high >> 16) as u16),
        dport: (ports as u16, ports_high as u16),
        proto: (value & mask, mask),
    };
    let is_there = tail.sport.0 <= tail.sport.1 && tail.dport.0 <= tail.dport.1;
    is_there.then_some((prefix(src, src_mask), prefix(dst, dst_mask), tail))
}
