//! Rules of intrusion detection: the language of Snort 2.9 and Suricata, parsed into a typed model.
//!
//! The two write the same things in two ways: `content:"x"; http_uri;` is `http.uri; content:"x";`. Here both are an
//! [`Inspection`] of the [`Buffer`] `HttpUri`. A [`Rule`] is what an engine evaluates, not the text it came from; its
//! [`Display`](std::fmt::Display) is the normal form, which parses back to the same rule.
//!
//! ```text
//!  files ─▶ lines ─▶ header ┐
//!           (text)   options ├─▶ Rule ─▶ RuleSet: rules, problems with file, line and column, Summary
//!                    checks ┘     ▲         (Loader)
//!                                 └─ Variables resolve its addresses and ports
//! ```
//!
//! - [`Rule::parse`]: one rule. A [`Problem`] has line, column, keyword, reason and, where near, "did you mean".
//! - [`Loader`]: many files. Disabled rules (`# alert …`) are counted apart.
//! - [`Variables`]: `$HOME_NET` and others; [`List::resolve`] makes sorted ranges of a list.
//! - [`config`]: `classification.config`, `reference.config`, `threshold.config`.
//!
//! What the language has and no engine here evaluates is [`Unsupported`], with its name; what the language does not have
//! is a problem. Semantic checks are those of Suricata. Time and memory are linear in the size of the input: a rule is at
//! most [`RULE_BYTES_MAX`] long, has at most [`OPTIONS_MAX`] options, and lists nest at most [`LIST_DEPTH_MAX`] deep.
//!
//! Thread rule: everything is data; nothing is shared.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod buffer;
pub mod config;
mod keywords;
mod list;
mod load;
mod model;
mod never;
mod options;
mod parse;
mod problem;
mod text;
mod variables;
mod write;

pub use buffer::Buffer;
pub use keywords::keywords;
pub use list::{AddressItem, Intervals, LIST_DEPTH_MAX, List, PortRange, RANGES_MAX, ResolveError};
pub use load::{FileProblem, LoadError, Loaded, Loader, PROBLEMS_MAX, RuleSet, Summary};
pub use model::*;
pub use options::*;
pub use parse::{OPTIONS_MAX, VALUE_PARTS_MAX};
pub use problem::{Problem, nearest};
pub use text::RULE_BYTES_MAX;
pub use variables::{VariableError, Variables, nearest_variable};
