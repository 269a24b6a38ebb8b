//! What tables of IPsec show. Nobody sees keys.

use control::api::table::{Row, thousands};
use ipsec::{Action, Association, Direction, Mode, Policy};
use serde::{Deserialize, Serialize};

/// An association.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaRow {
    /// `in` or `out`.
    pub direction: String,
    /// Security parameters index.
    pub spi: u32,
    /// Sender of ESP packets.
    pub source: String,
    /// Receiver.
    pub destination: String,
    /// `tunnel` or `transport`, and `udp`.
    pub mode: String,
    /// Cipher and authentication.
    pub suite: String,
    /// The number by which policies name it.
    pub reqid: u32,
    /// Number of its tunnel interface; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_id: Option<u32>,
    /// The next number that is sent, or the highest that was accepted.
    pub number: u64,
    /// Packets sealed or opened.
    pub packets: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Packets that were not genuine.
    pub forged: u64,
    /// Packets that the window refused.
    pub replayed: u64,
    /// `active`, `due` at a soft limit, `ended` at a hard one.
    pub state: String,
    /// The path MTU in bytes that ICMP errors have named in the last ten minutes; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u16>,
    /// The worker that opens or seals its packets; absent: any that receives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
}

const fn direction(own: Direction) -> &'static str {
    match own {
        Direction::In => "in",
        Direction::Out => "out",
    }
}

impl SaRow {
    /// That of an association.
    pub(super) fn of(own: &Association, now_ns: u64) -> Self {
        let parameters = own.parameters();
        let mode = match parameters.mode {
            Mode::Tunnel => "tunnel",
            Mode::Transport => "transport",
        };
        let [bytes, packets, forged, replayed] = own.counts();
        let state = match own.reached() {
            (_, true) => "ended",
            (true, false) => "due",
            _ => "active",
        };
        Self {
            direction: direction(parameters.direction).to_owned(),
            spi: parameters.spi,
            source: parameters.source.to_string(),
            destination: parameters.destination.to_string(),
            mode: if parameters.udp.is_some() { format!("{mode} udp") } else { mode.to_owned() },
            suite: own.suite().to_string(),
            reqid: parameters.reqid,
            if_id: (parameters.if_id != 0).then_some(parameters.if_id),
            number: own.number(),
            packets,
            bytes,
            forged,
            replayed,
            state: state.to_owned(),
            path_mtu: own.path_mtu(now_ns),
            worker: own.worker(),
        }
    }
}

impl Row for SaRow {
    const COLUMNS: &'static [&'static str] = &[
        "direction",
        "spi",
        "source",
        "destination",
        "mode",
        "suite",
        ">reqid",
        ">if_id",
        ">number",
        ">packets",
        ">bytes",
        ">forged",
        ">replayed",
        "state",
        ">path_mtu",
        ">worker",
    ];
    const EMPTY: &'static str = "no associations";

    fn cells(&self) -> Vec<String> {
        vec![
            self.direction.clone(),
            format!("{:#010x}", self.spi),
            self.source.clone(),
            self.destination.clone(),
            self.mode.clone(),
            self.suite.clone(),
            self.reqid.to_string(),
            shown(self.if_id),
            self.number.to_string(),
            thousands(self.packets),
            thousands(self.bytes),
            thousands(self.forged),
            thousands(self.replayed),
            self.state.clone(),
            shown(self.path_mtu.map(u32::from)),
            shown(self.worker.map(u32::from)),
        ]
    }
}

/// A policy of one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRow {
    /// `in` or `out`.
    pub direction: String,
    /// Its place, from 1.
    pub number: u32,
    /// What it asks for.
    pub selector: String,
    /// `protect`, `bypass` or `discard`.
    pub action: String,
    /// Number of its associations; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reqid: Option<u32>,
    /// Number of its tunnel interface; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_id: Option<u32>,
}

fn shown(number: Option<u32>) -> String {
    number.map_or(String::new(), |own| own.to_string())
}

impl PolicyRow {
    /// That of a policy.
    pub(super) fn of(own: &Policy) -> Self {
        let (action, reqid) = match own.action {
            Action::Bypass => ("bypass", None),
            Action::Discard => ("discard", None),
            Action::Protect(template) => ("protect", Some(template.reqid)),
        };
        Self {
            direction: direction(own.direction).to_owned(),
            number: own.priority,
            selector: own.selector.to_string(),
            action: action.to_owned(),
            reqid,
            if_id: (own.if_id != 0).then_some(own.if_id),
        }
    }
}

impl Row for PolicyRow {
    const COLUMNS: &'static [&'static str] =
        &["direction", ">number", "selector", "action", ">reqid", ">if_id"];
    const EMPTY: &'static str = "no policies";

    fn cells(&self) -> Vec<String> {
        vec![
            self.direction.clone(),
            self.number.to_string(),
            self.selector.clone(),
            self.action.clone(),
            shown(self.reqid),
            shown(self.if_id),
        ]
    }
}
