//! From rules to the image, and from changes to patches.

use std::collections::HashMap;
use std::sync::Arc;

use lookup::{Blob, Patch};

use super::layout::*;
use crate::classifier::{Classifier, Memory, Stats};
use crate::image::Image;
use crate::rule::{Match, RuleError, RuleRef, RuleSet, check};
use crate::schema::Schema;

/// Fresh places before the table is put in order, at least.
const FRESH_MIN: usize = 16 * LANES;

/// Of the rules, one part of so many may be fresh.
const FRESH_PART: usize = 8;

/// The rules of a linear search, as the control side changes them.
#[derive(Debug)]
pub struct LinearBuilder {
    schema: Arc<Schema>,
    tests: Vec<Test>,
    image: Image,
    /// Place of each rule, by id: block × 16 + lane.
    places: HashMap<u32, u32>,
    /// Ordered blocks.
    ordered: usize,
    blocks: usize,
    /// Empty places of fresh blocks.
    free: Vec<u32>,
    /// Empty places of ordered blocks.
    holes: usize,
}

/// A rule as its columns have it: two words for each test.
type Lane = Vec<[u32; 2]>;

impl LinearBuilder {
    /// An image of rules that are in order.
    fn ordered<'r>(
        schema: &Arc<Schema>,
        tests: Vec<Test>,
        rules: impl ExactSizeIterator<Item = (Match, &'r Lane)>,
    ) -> Result<Self, RuleError> {
        let count = rules.len();
        let blocks = count.div_ceil(LANES);
        let words = blocks_offset(tests.len()) + blocks * block_words(tests.len());
        let mut image = Image::new(words)?;
        image.write(HEADER_MAGIC, &[MAGIC, schema.words() as u32, tests.len() as u32]);
        image.write(HEADER_ORDERED, &[blocks as u32, blocks as u32]);
        for (at, test) in tests.iter().enumerate() {
            image.write(TESTS + 4 * at, &test.to_words());
        }
        let mut builder = Self {
            schema: schema.clone(),
            tests,
            image,
            places: HashMap::with_capacity(count),
            ordered: blocks,
            blocks,
            free: Vec::new(),
            holes: blocks * LANES - count,
        };
        for (place, (found, lane)) in rules.enumerate() {
            builder.put(place, found, lane);
            if let Some(id) = found.id()
                && builder.places.insert(id, place as u32).is_some()
            {
                return Err(RuleError::DuplicateId(id));
            }
        }
        for place in count..blocks * LANES {
            builder.clear(place);
        }
        Ok(builder)
    }

    fn offset(&self, place: usize) -> usize {
        let block = blocks_offset(self.tests.len()) + place / LANES * block_words(self.tests.len());
        block + place % LANES
    }

    fn put(&mut self, place: usize, found: Match, lane: &[[u32; 2]]) {
        let offset = self.offset(place);
        for (at, word) in lane.iter().flatten().chain(&found.to_words()).enumerate() {
            self.image.set(offset + at * LANES, *word);
        }
    }

    fn clear(&mut self, place: usize) {
        let nothing: Lane = self.tests.iter().map(Test::of_nothing).collect();
        self.put(place, Match::NONE, &nothing);
    }

    /// The rule at a place.
    fn get(&self, place: usize) -> (Match, Lane) {
        let offset = self.offset(place);
        let word = |at: usize| self.image.words()[offset + at * LANES];
        let count = self.tests.len();
        let lane = (0..count).map(|test| [word(2 * test), word(2 * test + 1)]).collect();
        (Match::from_words(word(2 * count), word(2 * count + 1)), lane)
    }

    fn lane(&self, rule: &RuleRef<'_>) -> Lane {
        let bits = self.schema.masked_bits();
        self.tests.iter().map(|test| test.of_rule(rule.lows(), rule.highs(), bits)).collect()
    }

    /// Adds a block of fresh places.
    fn add_block(&mut self) -> Result<(), RuleError> {
        self.image.extend(block_words(self.tests.len()))?;
        let first = self.blocks * LANES;
        self.blocks += 1;
        (first..first + LANES).for_each(|place| self.clear(place));
        self.free.extend((first..first + LANES).rev().map(|place| place as u32));
        self.image.set(HEADER_BLOCKS, self.blocks as u32);
        Ok(())
    }

    /// Puts all rules in order in a new image.
    fn settle(&mut self, patches: &mut Vec<Patch>) -> Result<(), RuleError> {
        let places = self.places.values();
        let mut rules: Vec<_> = places.map(|place| self.get(*place as usize)).collect();
        rules.sort_unstable_by_key(|(found, _)| *found);
        let rules = rules.iter().map(|(found, lane)| (*found, lane));
        let mut next = Self::ordered(&self.schema, self.tests.clone(), rules)?;
        // What was noted for the old image is in the new one.
        patches.push(next.image.replacement());
        next.image.publish();
        *self = next;
        Ok(())
    }

    fn fresh(&self) -> usize {
        (self.blocks - self.ordered) * LANES - self.free.len()
    }
}

/// Tests in the order in which they refuse most: those with most bits, or least lengths, over all rules.
fn sort_tests(tests: &mut [Test], set: &RuleSet) {
    let bits = set.schema().masked_bits();
    let passed = |test: &Test| -> f64 {
        let of_rule = |rule: RuleRef<'_>| {
            let [_, second] = test.of_rule(rule.lows(), rule.highs(), bits);
            match test.kind {
                TestKind::Masked => 0.5_f64.powi(second.count_ones() as i32),
                TestKind::Halves => {
                    let part = |length: u32| f64::from(length + 1) / 65536.0;
                    part(second >> 16) * part(second & 0xffff)
                }
                TestKind::Wide => (f64::from(second) + 1.0) / (f64::from(test.max) + 1.0),
            }
        };
        set.iter().map(of_rule).sum()
    };
    tests.sort_by(|a, b| passed(a).total_cmp(&passed(b)));
}

impl Classifier for LinearBuilder {
    fn build(set: &RuleSet) -> Result<Self, RuleError> {
        let schema = set.schema();
        let mut tests = tests(schema);
        sort_tests(&mut tests, set);
        let bits = schema.masked_bits();
        let lanes: Vec<(Match, Lane)> = set
            .ranked()
            .into_iter()
            .map(|index| {
                let rule = set.rule(index as usize);
                let of = |test: &Test| test.of_rule(rule.lows(), rule.highs(), bits);
                (rule.place(), tests.iter().map(of).collect())
            })
            .collect();
        let rules = lanes.iter().map(|(found, lane)| (*found, lane));
        let mut builder = Self::ordered(schema, tests, rules)?;
        builder.image.publish();
        Ok(builder)
    }

    fn insert(&mut self, rule: RuleRef<'_>, patches: &mut Vec<Patch>) -> Result<(), RuleError> {
        check(&self.schema, &rule)?;
        if self.places.contains_key(&rule.id) {
            return Err(RuleError::DuplicateId(rule.id));
        }
        if self.free.is_empty() {
            if self.fresh() >= FRESH_MIN.max(self.places.len() / FRESH_PART) {
                self.settle(patches)?;
            }
            self.add_block()?;
        }
        if let Some(place) = self.free.pop() {
            self.put(place as usize, rule.place(), &self.lane(&rule));
            self.places.insert(rule.id, place);
        }
        self.image.flush(patches);
        Ok(())
    }

    fn remove(&mut self, id: u32, patches: &mut Vec<Patch>) -> bool {
        let Some(place) = self.places.remove(&id) else { return false };
        self.clear(place as usize);
        if place as usize >= self.ordered * LANES {
            self.free.push(place);
        } else {
            self.holes += 1;
        }
        self.image.flush(patches);
        if self.holes > FRESH_MIN && self.holes * 2 > self.ordered * LANES {
            // Without memory for another image this one goes on.
            let _ = self.settle(patches);
        }
        true
    }

    fn blob(&self) -> &Blob {
        self.image.blob()
    }

    fn len(&self) -> usize {
        self.places.len()
    }

    fn memory(&self) -> Memory {
        let block = block_words(self.tests.len()) * 4;
        let parts = vec![
            ("tests", blocks_offset(self.tests.len()) * 4),
            ("ordered rules", self.ordered * block),
            ("fresh rules", (self.blocks - self.ordered) * block),
            ("room", self.image.idle_words() * 4),
        ];
        Memory { parts }
    }

    fn stats(&self) -> Stats {
        Stats { rules: self.len(), entries: self.len(), ..Stats::default() }
    }
}
