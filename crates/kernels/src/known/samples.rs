//! Small tables, rules and packets: what the known answers of this crate use, and those of applications may.

pub use super::classify::{Case, GROUP_ITEMS_MIN, NONE, linear, tuple};
pub use super::cuts::cuts;
pub use super::exact::{MISS, exact_table, exact_value};
pub use super::names::{A, B, LONG, name_table};
pub use super::packets::{CUT, TCP, UDP, frames};
pub use super::tables::{ADDRESSES4, ADDRESSES6, route_tables};
pub use super::walks::{Case as WalkCase, EARLY, LATE, LITERALS, dfa_words, literal_words};
