//! Two-stage classification by interpreting (TIC; Cheng, Chen, Hua, Tang, PPoPP 2008): a reduction tree over the
//! addresses of an IPv4 5-tuple, then range expressions over ports and protocol.
//!
//! ```text
//! stage 1   phase 0: 4 tables │ phase 1: source, destination │ phase 2: addresses       10 accesses
//! stage 2   code: one instruction a rule, best first; the first that is true is the answer    1 cache line
//! ```
//!
//! An entry of the last table names code: the candidate rules of that pair of addresses. Blocks of code have the size
//! of a cache line, 64 bytes, or 32 ([`Options::block`]). What is left of a block that goes on in the next one is
//! NOPs, so no instruction is in two (§5.2). The next block is prefetched while one is interpreted (Figure 4).
//!
//! **Instructions** have 4, 8 or 12 bytes (Figure 3):
//!
//! ```text
//! operator (8 bits) │ protocol (8) │ rule (16)      then one 16-bit operand for EM, two for AR: source, destination
//!
//! bit 7     the list ends here
//! bit 6     the protocol must be equal (EM), else any (WC)
//! bits 5-3  source port         0: WC any │ 1: HI 1024-65535 │ 2: LO 0-1023 │ 3: EM one port │ 4: AR a range
//! bits 2-0  destination port    the same
//!           source port 7: no range expression but NOP (0), BASE (1) or GUARD (2)
//! ```
//!
//! **What is ours beyond the paper**
//!
//! - *More than 64K rules*: BASE, 4 bytes, sets the upper 16 bits of the rule numbers behind it. Numbers are ranks, so
//!   a list has few; sets of up to 65,536 rules have none. A number leads to a [`Match`](crate::Match) in a table of
//!   rules, so that any priorities and ids are possible: one access more than in the paper.
//! - *Strips.* The paper's tree takes 7 accesses (§4.2). Here the rows of its three cross products are cut into strips of
//!   32 entries, of which equal ones are stored once: three accesses more, and on firewalls' rules a tenth of the memory.
//! - *Protocol masks* other than 0 and 255: GUARD, 4 bytes, holds value and mask, and the instruction behind it does
//!   not count unless they match.
//! - *Short lists share blocks.* Most lists have one to three instructions. They are packed into blocks, none in
//!   two unless it is longer than one; an entry counts in *units* of 4 bytes to a block, whichever makes table and
//!   code smallest.
//! - *Rules that a better one of the list covers are left out*, and what is behind one that takes everything.
//! - A list that ends without an answer says so by bit 7; the paper does not say how its lists end.
//!
//! **Statistics** as in Table 4 and Table 6 ([`Report`], [`Classifier::memory`](crate::Classifier::memory)) and
//! Table 9 ([`measure`]); `shadeline classify` prints them.
//!
//! **Where it ends.** Lists of rules are long where many wide rules meet: those of `fw1_10k` pass the default limit
//! while they are made.
//!
//! **Updates** build everything anew ([`Classifier::rebuilds`](crate::Classifier::rebuilds)). Other schemas than the
//! 5-tuple of IPv4, and sets that would pass a limit, are refused as in [`rfc`](crate::rfc).
//!
//! Thread rule: as the crate's.

mod builder;
mod code;
mod explain;
#[cfg(target_arch = "x86_64")]
mod vectors;
mod view;

pub use builder::{Options, TicBuilder};
pub use code::{Block, Report};
pub use view::{Evaluations, Tic, measure};
