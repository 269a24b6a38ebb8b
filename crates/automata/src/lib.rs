//! Matching of many literals and regular expressions with state: which are in a stream of bytes, and where?
//!
//! A rule set has tens of thousands of strings, a stream comes in segments, and a string may lie over any of their
//! boundaries. This crate finds every (pattern, end) once, by end and then by pattern, however the stream is cut; what it
//! has to know of a stream meanwhile is a [`State`] of 8 bytes. It sees no packets and knows no rules: a pattern is a
//! number.
//!
//! ```text
//!  Patterns ─▶ Automaton (tables as words, for CPU and device)
//!                │
//!                ├─ scan        one segment: the plain walk
//!                ├─ walk_many   a batch of segments: interleaved walks
//!                └─ scan_many   a batch: vector prefilter, then a walk of what passes; walk_many where too much does
//!
//!           ─▶ Finder
//!                └─ find        one buffer as a whole, without a state: vector prefilter, then comparisons
//!
//!  Regex, … ─▶ Regexes (tables as words, for CPU and device; the hybrid engine for what has too many states)
//!                └─ scan        one segment
//! ```
//!
//! - [`Patterns`]: a set, with its limits and errors; [`Pattern::nocase`], [`Pattern::anchored`].
//! - [`Automaton`]: Aho-Corasick; `layout` in the sources shows the tables, which take 16 bytes for most nodes. A byte
//!   takes at most two reads of records in the mean, whatever the patterns and the bytes are.
//! - [`Finder`]: the same matches in bytes of which nothing comes before or after, by the rarest four bytes of each pattern.
//! - [`Segment`], [`Found`], [`Scratch`]: batches.
//! - [`Regexes`]: regular expressions; [`mod@regex`] says how.
//! - [`mod@reference`]: every pattern at every place, for tests.
//!
//! The kernels `literals` and `dfa` of the crate `kernels` walk over the words on a device.
//!
//! All ways give the same matches in the same order and end in the same states, so that a stream may change between them
//! from segment to segment.
//!
//! Thread rule: an automaton is read-only and shared; each thread has a [`Scratch`].
//!
//! Unsafe code is in `filter::vectors` alone.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod automaton;
mod filter;
mod interleaved;
mod layout;
mod patterns;
pub mod reference;
pub mod regex;
mod trie;

pub use automaton::{Automaton, Match, State};
pub use filter::{Finder, Level, Scratch};
pub use interleaved::{Found, Segment};
pub use layout::MAGIC;
pub use patterns::{Limits, PATTERN_BYTES_MAX, Pattern, PatternError, Patterns};
pub use regex::{Engine, Regex, RegexError, RegexLimits, RegexScratch, Regexes};
