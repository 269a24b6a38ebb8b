//! What tables of address translation show.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use control::api::table::{Row, thousands, time};
use nat::Rules;
use nat::deterministic::Blocks;
use nat::translator::{PoolUse, Session};
use nat::tuple::{End, Tuple};
use serde::{Deserialize, Serialize};

use crate::flow::rows::{end, protocol};

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NatRow {
    /// `tcp`, `udp`, … or the number.
    pub proto: String,
    /// Who opened it, and with whom, as it came.
    pub source: String,
    /// See there.
    pub destination: String,
    /// The same behind the translator.
    pub new_source: String,
    /// See there.
    pub new_destination: String,
    /// Whether the other end answered.
    pub answered: bool,
    /// Place of the rule in the configuration, from 1.
    pub rule: usize,
    /// Since its last packet, seconds.
    pub idle_s: f64,
    /// Until it ends if it stays idle, seconds.
    pub left_s: f64,
}

/// The place of a rule in the configuration, from 1.
pub(super) fn place(rules: &Rules, number: u16) -> usize {
    rules.all.iter().position(|rule| rule.number == number).map_or(0, |at| at + 1)
}

/// Address of an end.
pub(super) fn address(family: u8, of: [u64; 2]) -> IpAddr {
    match family {
        6 => IpAddr::V6(Ipv6Addr::from_bits(u128::from(of[0]) << 64 | u128::from(of[1]))),
        _ => IpAddr::V4(Ipv4Addr::from_bits(of[1] as u32)),
    }
}

impl NatRow {
    /// The row of a session of the rule at place `rule`.
    pub(super) fn of(session: &Session, rule: usize) -> Self {
        let text = |tuple: &Tuple, own: End| end(address(tuple.family, own.0), own.1);
        let (before, behind) = (&session.original, &session.translated);
        Self {
            proto: protocol(before.protocol),
            source: text(before, before.src),
            destination: text(before, before.dst),
            new_source: text(behind, behind.src),
            new_destination: text(behind, behind.dst),
            answered: session.is_answered,
            rule,
            idle_s: session.idle_s.into(),
            left_s: session.left_s.into(),
        }
    }
}

impl Row for NatRow {
    const COLUMNS: &'static [&'static str] = &[
        "proto",
        "source",
        "destination",
        "new source",
        "new destination",
        "answered",
        ">rule",
        ">idle",
        ">left",
    ];
    const EMPTY: &'static str = "no sessions";

    fn cells(&self) -> Vec<String> {
        vec![
            self.proto.clone(),
            self.source.clone(),
            self.destination.clone(),
            self.new_source.clone(),
            self.new_destination.clone(),
            if self.answered { "yes" } else { "no" }.to_owned(),
            self.rule.to_string(),
            time(self.idle_s),
            time(self.left_s),
        ]
    }
}

/// An outside address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRow {
    /// Place of the rule in the configuration, from 1.
    pub rule: usize,
    /// The address.
    pub address: IpAddr,
    /// Ports and identifiers in use, of all protocols and workers.
    pub used: u64,
}

impl PoolRow {
    pub(super) fn of(pool: &PoolUse, rule: usize) -> Self {
        Self { rule, address: address(4, [0, pool.address.into()]), used: pool.used.into() }
    }
}

impl Row for PoolRow {
    const COLUMNS: &'static [&'static str] = &[">rule", "address", ">used"];
    const EMPTY: &'static str = "no outside addresses";

    fn cells(&self) -> Vec<String> {
        vec![self.rule.to_string(), self.address.to_string(), thousands(self.used)]
    }
}

/// A subscriber of a deterministic rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriberRow {
    /// Place of the rule in the configuration, from 1.
    pub rule: usize,
    /// Inside address.
    pub subscriber: IpAddr,
    /// Outside address.
    pub address: IpAddr,
    /// Its ports and identifiers, from here
    pub first_port: u16,
    /// to here.
    pub last_port: u16,
}

impl SubscriberRow {
    /// The row of an inside address; `None` if it is no subscriber.
    pub(super) fn of(blocks: &Blocks, subscriber: u32, rule: usize) -> Option<Self> {
        let (outside, ports) = blocks.of(subscriber)?;
        let [subscriber, address] = [subscriber, outside].map(|own| address(4, [0, own.into()]));
        let (first_port, last_port) = ports.into_inner();
        Some(Self { rule, subscriber, address, first_port, last_port })
    }
}

impl Row for SubscriberRow {
    const COLUMNS: &'static [&'static str] = &[">rule", "subscriber", "address", ">ports"];
    const EMPTY: &'static str = "no subscriber";

    fn cells(&self) -> Vec<String> {
        let ports = format!("{}-{}", self.first_port, self.last_port);
        vec![self.rule.to_string(), self.subscriber.to_string(), self.address.to_string(), ports]
    }
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRow {
    /// Its place, from 1.
    pub number: usize,
    /// What it says, in the words of the configuration.
    pub rule: String,
    /// Its sessions now.
    pub sessions: u64,
}

impl Row for RuleRow {
    const COLUMNS: &'static [&'static str] = &[">number", "rule", ">sessions"];
    const EMPTY: &'static str = "no rules";

    fn cells(&self) -> Vec<String> {
        vec![self.number.to_string(), self.rule.clone(), thousands(self.sessions)]
    }
}
