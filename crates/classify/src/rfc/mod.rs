//! Recursive flow classification (Gupta and McKeown, SIGCOMM 1999; TIC §4.1 and Figure 2): the 5-tuple of IPv4
//! through a reduction tree of four phases, 13 accesses whatever the rules are.
//!
//! ```text
//! phase 0    7 tables   halves of both addresses, both ports (2^16 entries each), protocol (2^8)
//! phase 1    3          source │ destination │ ports              cross products of two
//! phase 2    2          addresses │ tails = ports × protocol
//! phase 3    1          result = addresses × tails: 1 + rank of the best rule, or 0
//! ```
//!
//! A 14th access turns the rank into a [`Match`](crate::Match).
//!
//! **Memory.** Entries have as many bytes (1, 2 or 4) as their table needs. The tables of the later phases grow with
//! the product of the classes before them, and so explode for sets whose rules overlap much: [`RfcBuilder`]
//! reports the bytes of each table, and refuses a set before its tables would pass a limit
//! ([`Options::limit_bytes`]). What is refused is seen before it is allocated; while classes are counted, what they
//! take so far is held against the limit too, so the size that is named may be a lower bound.
//!
//! **Ours and the paper's.** Classes of addresses leave out rules that a better one of the class covers, which
//! makes fewer of them. An identical rule behind another takes no part. Sets of rules are found again as the
//! shared reduction tree says, and not by bitmaps over all rules: 4,000 rules of a firewall take two seconds.
//!
//! **Updates** build everything anew ([`Classifier::rebuilds`](crate::Classifier::rebuilds)).
//!
//! Other schemas than the 5-tuple of IPv4 are refused: halves of IPv6 addresses would be sixteen tables, and their
//! cross products larger than any memory.
//!
//! Thread rule: as the crate's.

mod builder;
mod explain;
#[cfg(target_arch = "x86_64")]
mod vectors;
mod view;

pub use builder::{Options, RfcBuilder};
pub use view::Rfc;

/// How large a structure may get unless one says otherwise, bytes.
pub const LIMIT_BYTES: u64 = 1 << 30;
