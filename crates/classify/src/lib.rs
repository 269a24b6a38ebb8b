//! Packet classification: which is the first of many rules that a header matches?
//!
//! A firewall, a flow table and an access list ask the same: rules over several fields (prefixes, ranges,
//! masks), each with a priority; of those that match a header the best one counts. This crate answers in
//! batches: headers of a fixed number of words in, [`Match`]es out. It sees no packets and knows no actions: a
//! rule is a number.
//!
//! ```text
//!  ClassBench file ─┐
//!  control ─────────┴▶ RuleSet ─▶ Classifier (control side) ─▶ Blob, later Patch lists
//!                                     insert, remove              │ lookup::versions
//!                                                                 ▼
//!                                                      Tables: classify(headers, out)
//! ```
//!
//! ```
//! use classify::algorithms::find;
//! use classify::{Classify, Match, RuleRef, RuleSet, classbench};
//! use lookup::versions::Patchable;
//!
//! let file = b"@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF\n@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n";
//! let set: RuleSet = classbench::parse_rules(file).unwrap().set;
//! let mut classifier = (find("auto").unwrap().build)(&set).unwrap();
//! let mut tables = classifier.tables().unwrap(); // for readers
//!
//! let web = [0x0a00_0001, 0xc0a8_0001, 40_000 << 16 | 80, 6 << 24]; // src, dst, ports, protocol
//! let mut out = [Match::NONE; 1];
//! tables.classify(&web, &mut out);
//! assert_eq!(out[0].id(), Some(0));
//!
//! // Changes come as patches, which `lookup::versions` brings to readers that go on meanwhile.
//! let mut patches = Vec::new();
//! assert!(classifier.remove(0, &mut patches));
//! patches.iter().for_each(|patch| tables.apply(patch));
//! tables.classify(&web, &mut out);
//! assert_eq!(out[0].id(), Some(1));
//!
//! let rule = set.rule(0);
//! patches.clear();
//! classifier.insert(RuleRef { id: 7, ..rule }, &mut patches).unwrap();
//! patches.iter().for_each(|patch| tables.apply(patch));
//! tables.classify(&web, &mut out);
//! assert_eq!(out[0].id(), Some(7));
//! ```
//!
//! | structure | module | for |
//! | --- | --- | --- |
//! | linear | [`linear`] | few rules; the reference of the others |
//! | tuple search | [`mod@tuple`] | many rules of few masks, and updates |
//! | Bloom search | [`bloom`] | the same where a header is in few classes of many |
//! | cut trees | [`cuts`] | 5-tuples of IPv4, and flows of many masks: few accesses, little memory, and updates |
//! | RFC | [`rfc`] | 5-tuples of IPv4 that seldom change: 13 accesses, and much memory |
//! | TIC | [`tic`] | the same with less memory: 10 accesses, then a few range expressions |
//! | auto | [`auto`] | the quickest of these for a set, by measuring |
//! | reference | [`mod@reference`] | every rule in order, for tests |
//!
//! - [`schema`]: any number of fields, and how a header is packed.
//! - [`rule`]: conditions, rules, sets, and the order of rules, which is what tables store and compare.
//! - [`classbench`], [`columns`]: rule files and traces, of the 5-tuple and of any fields.
//! - [`generate`]: sets and traces, by GSwitch's parameters or ClassBench's.
//! - [`algorithms`]: the structures by name.
//! - [`filter`]: the header that a firewall looks at.
//! - [`check`]: rules of a set that can never match, or could be left out.
//!
//! Devices read the images of these structures as they are: the kernels `classify4`, `classify12` and `classify32` of
//! the crate `kernels` are the lookups of [`linear`], [`mod@tuple`], [`bloom`], [`cuts`], [`rfc`] and [`tic`] there,
//! and `filter` those of the first four over the headers of [`filter`]. What changes in an image changes in the kernels
//! too; their tests hold them against [`mod@reference`].
//!
//! Thread rule: a classifier belongs to one control thread; [`Tables`] are read-only and are changed by
//! [`lookup::versions`] alone.
//!
//! Unsafe code is in the vector leaves (`linear::lanes`, and `vectors` of `tuple`, `cuts`,
//! `reduction`, `rfc` and `tic`).

mod classifier;
mod explain;
mod image;
mod ranges;
mod reduction;

pub mod algorithms;
pub mod auto;
pub mod bloom;
pub mod check;
pub mod classbench;
pub mod columns;
pub mod cuts;
pub mod filter;
pub mod generate;
pub mod linear;
pub mod reference;
pub mod rfc;
pub mod rule;
pub mod schema;
pub mod tic;
pub mod tuple;

pub use classifier::{Classifier, Classify, FilterStats, Memory, Stats, Tables};
pub use explain::{Explained, Outcome, Step};
pub use rule::{Condition, Match, NO_ID, Rule, RuleError, RuleRef, RuleSet};
pub use schema::{Field, Kind, Schema};
