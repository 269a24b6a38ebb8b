//! Linear search: a header against every rule, sixteen at a time, the best rules first.
//!
//! Rules are in blocks of sixteen, one test after the other, so that a vector holds the same word of sixteen
//! rules (a structure of arrays, as GSwitch §4.1 has it for headers). A block whose first tests leave no rule is
//! left at once; the tests that refuse most come first. As blocks are in order, the first hit is the best
//! match: the search ends there.
//!
//! ```text
//! line 0          magic │ words of a header │ tests │ ordered blocks │ blocks │ first block │ words of a block
//! line 1…         the tests: kind │ word │ shift │ largest value
//! blocks          test 0: 16 × value, 16 × mask │ test 1 … │ 16 × lower, 16 × upper word of the Match
//!
//! masked          (header & mask) == value              prefix and mask fields that share a word
//! halves          both halves - low ≤ high - low        ranges of 16 bits, two to a word
//! wide            field - low ≤ high - low              other ranges
//! ```
//!
//! **Updates.** Behind the ordered blocks are *fresh* ones, in no order: a lookup reads them all. An insert
//! fills a place there; a removal empties its place wherever it is. When an eighth of the rules is fresh, or half
//! of the ordered places are empty, the whole table is put in order and replaced.
//!
//! Search is `O(rules)`, an update `O(1)` amortised over `rules / 8`, memory 4 bytes × 2 × (tests + 1) a rule.
//!
//! Thread rule: as the crate's.

mod builder;
mod lanes;
mod layout;
mod view;

pub use builder::LinearBuilder;
pub use view::{Linear, Vectors};
