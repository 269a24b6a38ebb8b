//! Address translation: a router's NAT.
//!
//! ```text
//!  decode ─▶ nat ─▶ … firewall ─▶ route ─▶ nat_source ─▶ rewrite
//!             │                                │
//!             └───────▶ Translator (crate `nat`), one for each worker ◀────┘
//! ```
//!
//! As in Linux, destinations are translated before the route is looked up, and sources when the way out is known: rules of
//! a firewall see inside addresses in both directions. Packets of NAT64 have one family there: answers become IPv6 in `nat`, and
//! packets of IPv6 hosts IPv4 in `nat_source`, by a route that `nat` has given the IPv4 destination. Where no stage between reads
//! packets, or one encrypts them, that is done in `nat`, too.
//!
//! - [`destination`] finds the session of each packet, writes its destination, and puts fragments together.
//!   `known` is the short way of most of them.
//! - [`source`](mod@source) writes sources, and begins sessions. `ftp` edits lines of FTP's control connections there.
//! - [`origin`] gives `rewrite` packets as their senders sent them, for ICMP errors.
//! - `proxy` answers on links for outside addresses that no interface has.
//! - [`rules`] makes the rules of the configuration ready for use; `rule_list` adds those of `ctl`.
//!
//! Workers: an inside host belongs to the worker of its address, and outside ports are divided among workers, so that
//! answers come to the worker of their host ([`nat::rules`]). Fragments come to the worker of their addresses; once a
//! datagram is whole, it is handed over to the worker of its session.
//!
//! # Deliberately absent
//! - Translation of addresses in payload other than FTP's (SIP), and of FTP between the families.
//! - IPv6 to IPv6.
//!
//! Threads: one translator per worker. Control reads it under its lock, a piece at a time.

mod ahead;
mod columns;
pub mod commands;
mod control_part;
pub mod destination;
mod family;
mod ftp;
mod known;
pub mod origin;
mod proxy;
pub mod reasons;
pub mod rows;
mod rule_list;
pub mod rules;
pub mod source;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use control::config::{Application, Config, Settings, StageKind};
use controlplane::{Descriptor, Findings, Interfaces};
use nat::{Rules, Translator};

/// The stage that translates destinations.
pub const STAGE: &str = "nat";

/// The stage that translates sources.
pub const SOURCE_STAGE: &str = "nat_source";

/// What the stages declare.
pub static DESCRIPTOR: Descriptor = Descriptor {
    application: &APPLICATION,
    stages: STAGES,
    reasons: REASONS,
    requests: commands::REQUESTS,
    tables: commands::TABLES,
    groups: commands::GROUPS,
    absent: "this instance translates no addresses: add [[nat]] to the configuration and restart",
    start: control_part::start,
    check,
    ..Descriptor::NONE
};

fn check(config: &Config, _: &Interfaces, findings: &mut Findings) {
    if let Err(error) = one_pipeline(config) {
        findings.error_of_all(error);
    }
}

/// Each pipeline has sessions of its own, and the answers of one come in at a port of another.
///
/// # Errors
/// There are several with the stage.
fn one_pipeline(config: &Config) -> Result<(), String> {
    let mut own = config.in_use().filter(|own| own.kinds.iter().any(|kind| kind == STAGE));
    match (own.next(), own.next()) {
        (Some(one), Some(two)) => Err(format!(
            "the pipelines `{}` and `{}` both translate addresses, each with sessions of its own, so answers that come in at a port of \
             the other one would be lost: use one pipeline for these ports, and contexts to choose stages by port",
            one.name, two.name
        )),
        _ => Ok(()),
    }
}

/// Blocks of the reasons that its stages drop for.
pub const REASONS: &[&chunk::ReasonBlock] = &[reasons::BLOCK];

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: STAGE,
    title: "address translation",
    sections: &["nat", "translation"],
    joins: Some(STAGE),
    joins_end: Some(SOURCE_STAGE),
    // What tunnels carry is not translated; `esp_out` comes before `nat_source`, too.
    behind: &[crate::ipsec::IN],
    ..Application::NONE
};

/// Its stages.
pub const STAGES: &[StageKind] = &[
    StageKind {
        name: STAGE,
        about: "Translates destination addresses and ports before the route is looked up; puts fragments together.",
        application: &APPLICATION,
        needs: &["ip"],
        provides: &["translated"],
        is_first: false,
        is_last: false,
        places: &[destination::PLACE],
        leads_to: &[],
        settings: Settings::None,
    },
    StageKind {
        name: SOURCE_STAGE,
        about: "Translates source addresses and ports when the way out is known; begins sessions.",
        application: &APPLICATION,
        needs: &["translated", "next_hop"],
        provides: &[],
        is_first: false,
        is_last: false,
        places: &[],
        leads_to: &[],
        settings: Settings::None,
    },
];

/// The translator of a worker, which control reads.
pub type Shared = Arc<Mutex<Translator>>;

/// Rules in use, for whoever spreads packets.
pub type Current = Arc<RwLock<Arc<Rules>>>;

/// The translator, whoever held it before.
fn lock(translator: &Shared) -> MutexGuard<'_, Translator> {
    translator.lock().unwrap_or_else(PoisonError::into_inner)
}
