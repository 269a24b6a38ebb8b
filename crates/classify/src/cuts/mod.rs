//! Cut trees: a few bits of a header lead to eight rules, which are compared at once.
//!
//! A tree over all rules copies those that leave many bits open into many leaves. So the rules are parted by which of
//! their addresses are long (CutSplit: Li et al., INFOCOM 2018), and each part has a tree of its own, which cuts only at
//! bits that its rules care for. A cut takes any bits of the header at once (BitCuts: Liu et al., Computer
//! Communications 2017), so a tree has two levels and nothing in it depends on data but the next address:
//!
//! ```text
//! header ─▶ bits of the tree ─▶ node: its bits ─▶ cell ─▶ leaf: blocks of eight rules, the best first
//!           (up to 2^14 nodes)  (up to 2^8 cells)         src │ dst │ ports from │ to │ lengths, protocol │ Match
//! ```
//!
//! A search goes through all trees, four at most and one of rules that came later; what it finds is the best of their
//! answers. There is no branch in a tree that a processor could guess wrong but for leaves of several blocks.
//!
//! - *Bits* are chosen one after the other: the one that leaves the fewest rules to compare, weighed by how often a
//!   leaf is come to, where a rule in many cells weighs little in each. Of a range of ports those bits are cared for
//!   that its first and its last port have in common from the top; the rest is compared in the leaf.
//! - *Parts*: every way to join the four parts to trees is tried on some of the rules; the one with the least to do
//!   is taken.
//! - *Leaves* hold what of a rule is left to compare in 20 bytes, and its [`Match`](crate::Match). Cells of one node
//!   whose rules are the same share a leaf.
//!
//! **Updates** touch the leaves where a rule belongs: lanes of their blocks move up or on. A rule goes to the tree of its
//! part, unless another tree copies it much less; where the trees have as many copies already as when they were made, one
//! that would be copied very often goes to a tree of its own kind. A leaf that gets long has its node cut anew, and
//! when many are long, everything is built anew.
//!
//! Headers are two addresses of IPv4, two ports, and a word of which any bits may be asked for: the 5-tuple, and the
//! header of a packet [`filter`](crate::filter). Or they are up to sixteen words of fields without ranges, as the flows of an OpenFlow
//! table look at: such rules are values and masks in leaves (`masks`), and cuts are at bits of four of the words.
//! Other schemas are refused.
//!
//! Thread rule: as the crate's.

mod builder;
mod choose;
mod columns;
mod layout;
mod leaf;
mod masks;
mod plan;
mod schemas;
#[cfg(target_arch = "x86_64")]
mod vectors;
mod view;

pub use builder::Copies;
pub use schemas::CutsBuilder;
pub use view::Cuts;
