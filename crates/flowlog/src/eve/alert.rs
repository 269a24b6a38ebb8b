//! Alerts of rules, and packets that rules dropped.

use applayer::{File, Transaction};

use super::{Eve, Origin, Protocols, application};
use crate::json::{self, Object};

/// What became of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It went on.
    Allowed,
    /// It was dropped, or would have been where packets are not held back.
    Blocked,
}

impl Decision {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Blocked => "blocked",
        }
    }
}

/// A match of a rule.
#[derive(Clone, Copy, Debug)]
pub struct Alert<'a> {
    /// What became of the packet.
    pub decision: Decision,
    /// Generator of the rule.
    pub gid: u32,
    /// Its number.
    pub sid: u32,
    /// Its revision.
    pub rev: u32,
    /// Its message.
    pub msg: &'a str,
    /// What its class is called; empty where it has none.
    pub category: &'a str,
    /// 1 is the most urgent.
    pub priority: u8,
    /// `metadata` of the rule: key and value.
    pub metadata: &'a [(String, String)],
    /// The client sent the packet; `None` of a packet of no flow.
    pub to_server: Option<bool>,
    /// The application of the flow, by Suricata's name.
    pub application: Option<&'a str>,
    /// What its sides speak beside it.
    pub protocols: Protocols,
    /// The number of the transaction in which the match is.
    pub transaction_id: Option<u64>,
    /// What is known of that transaction.
    pub transaction: Option<&'a Transaction>,
    /// Files that have ended, of which those of the transaction are shown.
    pub files: &'a [File],
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug)]
pub enum Dropped<'a> {
    /// By the rule of this alert.
    Rule(Alert<'a>),
    /// Its flow was dropped before.
    Flow,
    /// It is a segment of no stream.
    Stream,
    /// Its flow exceeds a bound of its inspection.
    Limit,
}

/// A packet that was dropped.
#[derive(Clone, Copy, Debug)]
pub struct Drop<'a> {
    /// Bytes of the packet of IP.
    pub len: u64,
    /// Why.
    pub why: Dropped<'a>,
    /// The client sent it.
    pub to_server: Option<bool>,
}

impl Eve {
    /// Appends the line of event type `alert`.
    pub fn alert(&self, origin: &Origin<'_>, alert: &Alert<'_>, out: &mut Vec<u8>) {
        let mut line = self.begin("alert", origin, out);
        if let Some(id) = alert.transaction_id {
            line.number("tx_id", id);
        }
        of_rule(&mut line, alert);
        if let Some(transaction) = alert.transaction {
            application::in_alert(&mut line, transaction);
        }
        let is_own = |file: &&File| Some(file.transaction) == alert.transaction_id;
        application::files(&mut line, alert.files.iter().filter(is_own));
        if let Some(name) = alert.application {
            line.string("app_proto", name);
        }
        alert.protocols.write(&mut line);
        direction(&mut line, alert.to_server);
        line.end();
        out.push(b'\n');
    }

    /// Appends the line of event type `drop`.
    pub fn dropped(&self, origin: &Origin<'_>, drop: &Drop<'_>, out: &mut Vec<u8>) {
        let mut line = self.begin("drop", origin, out);
        direction(&mut line, drop.to_server);
        let mut object = line.object("drop");
        object.number("len", drop.len);
        // By the names that Suricata has for reasons of drops (`PktDropReasonToString` in its `src/decode.c`).
        object.string(
            "reason",
            match drop.why {
                Dropped::Rule(_) => "rules",
                Dropped::Flow => "flow drop",
                Dropped::Stream => "stream error",
                Dropped::Limit => "applayer error",
            },
        );
        object.end();
        if let Dropped::Rule(alert) = &drop.why {
            of_rule(&mut line, alert);
        }
        line.end();
        out.push(b'\n');
    }
}

pub(super) fn direction(line: &mut Object<'_>, to_server: Option<bool>) {
    if let Some(to_server) = to_server {
        line.string("direction", if to_server { "to_server" } else { "to_client" });
    }
}

fn of_rule(line: &mut Object<'_>, alert: &Alert<'_>) {
    let mut object = line.object("alert");
    object.string("action", alert.decision.name());
    object.number("gid", alert.gid);
    object.number("signature_id", alert.sid);
    object.number("rev", alert.rev);
    object.string("signature", alert.msg);
    object.string("category", alert.category);
    object.number("severity", alert.priority);
    if !alert.metadata.is_empty() {
        metadata(object.value("metadata"), alert.metadata);
    }
    object.end();
}

/// An array of values for each key, in the order in which keys first occur.
fn metadata(out: &mut Vec<u8>, pairs: &[(String, String)]) {
    let mut object = Object::begin(out);
    for (at, (key, _)) in pairs.iter().enumerate() {
        if pairs[..at].iter().any(|(before, _)| before == key) {
            continue;
        }
        let out = object.named(key);
        out.push(b'[');
        for (number, (_, value)) in pairs.iter().filter(|(own, _)| own == key).enumerate() {
            if number > 0 {
                out.push(b',');
            }
            json::string(value, out);
        }
        out.push(b']');
    }
    object.end();
}
