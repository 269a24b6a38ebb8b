//! Tuple space search (Srinivasan, Suri, Varghese, SIGCOMM 1999; GSwitch §4.2 and Algorithm 4).
//!
//! Rules that look at the same bits are a *class*: whether one of them matches is one exact match, of the header
//! under the class's mask. Ranges become prefixes first, so one rule may make many *entries*
//! ([`Stats::entries`](crate::Stats::entries) says how many there are). Rules whose entries are equal share one,
//! which holds the best of them.
//!
//! ```text
//! header ─▶ & mask of class 0 ─ hash x ─▶ slot h₀(x) │ slot h₁(x) │ slot h₂(x) ─▶ entry: equal? its Match
//!        ─▶ & mask of class 1 …          until no class behind can hold a better rule than the one found
//! ```
//!
//! - *Classes are in the order of their best rule.* Beside each is a *bound*: the best priority of all
//!   classes from there on. A search ends where that is worse than what it has found.
//! - *Class tables* are cuckoo tables of three subtables (GSwitch §4.2, Pagh and Rodler). A slot is one word: some
//!   bits of the hash, and the number of an entry. A class that does not match costs three words, seldom an
//!   entry.
//! - *Hash*: a strongly universal 32-bit hash of the masked header (multiply-shift; GSwitch chose universal
//!   hashing as the quickest), or Murmur3 beside it ([`hash_headers`], [`fill`]); from it three slots by `(a x + b) · d / 2^32`. The paper's
//!   `((a x + b) mod p) mod d` takes two divisions more.
//! - *Filters*: with [`bloom`](crate::bloom) a Bloom filter of each class is asked first.
//!
//! **Updates.** An insert or removal touches a few words: an entry, a slot (or a path of moves, found breadth
//! first), perhaps a bound. A class that gets full moves to a larger room of the image; classes are sorted
//! again when many bounds have become loose. Entries that no three slots can hold (an adversary's) make the
//! whole table be hashed anew.
//!
//! **Equal priorities.** The bound compares priorities only: where many rules share one, a search sees more
//! classes than it would have to.
//!
//! A rule that would make more than [`ENTRIES_PER_RULE`] entries is refused.
//!
//! Lookups are written once, over the width of a header: one after the other, in turns of
//! [`interleave::Machine`], and sixteen headers at once with AVX-512. [`TupleSpace`]'s methods say which is best.
//!
//! Thread rule: as the crate's.

mod builder;
mod class;
mod expand;
mod hashes;
mod layout;
mod search;
mod trial;
#[cfg(target_arch = "x86_64")]
mod vectors;
mod view;

pub use builder::{Options, TupleBuilder};
pub use expand::ENTRIES_PER_RULE;
pub use hashes::HashKind;
pub use layout::FilterPlan;
pub use trial::{Filling, fill, hash_headers};
pub use view::{Form, SearchReport, TupleSpace, measure};

pub(crate) use layout::{false_positive_rate, false_positive_rate_in_words};
