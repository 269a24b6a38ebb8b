//! Requests and responses, one JSON object a line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::rows::*;
use crate::config::NextHop;
use crate::firewall::{Action, Place, Rule};

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// A table: the response of the same name, in pieces.
    Show {
        /// Which.
        what: Show,
    },
    /// Adds a route of source `api`; an error where one of that source stands. Answer: `done`.
    RouteAdd {
        /// No host bits set.
        prefix: IpNet,
        /// Where to.
        next_hop: NextHop,
    },
    /// Adds or replaces a route of source `api`. Answer: `done`.
    RouteReplace {
        /// No host bits set.
        prefix: IpNet,
        /// Where to.
        next_hop: NextHop,
    },
    /// Takes a route of source `api` away; an error where there is none. Answer: `done`.
    RouteDel {
        /// No host bits set.
        prefix: IpNet,
    },
    /// The route that packets to `address` take. Answer: `routes` with one row, or none.
    RouteGet {
        /// Destination.
        address: IpAddr,
    },
    /// Forgets learned stations: of a port, of a VLAN, or all. Answer: `done`.
    ClearMacs {
        /// The port's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<String>,
        /// The VLAN.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vlan: Option<u16>,
    },
    /// Adds a route for names, of source `api`; an error where one of that source stands. Answer: `done`.
    NameAdd {
        /// A URI such as `/org/example`; `/` for all names.
        prefix: String,
        /// Names of faces, best first.
        faces: Vec<String>,
    },
    /// Takes a route of source `api` away; an error where there is none. Answer: `done`.
    NameDel {
        /// As in `name_add`.
        prefix: String,
    },
    /// The route that Interests for `name` take. Answer: `names` with one row.
    NameGet {
        /// A URI.
        name: String,
    },
    /// Adds a rule to the firewall; an error where one has its name. Answer: `done` with what is odd.
    RuleAdd {
        /// The rule.
        rule: Rule,
        /// Among the others.
        #[serde(default)]
        place: Place,
    },
    /// Changes a rule in its place, or adds it behind all. Answer: as of `rule_add`.
    RuleReplace {
        /// The rule.
        rule: Rule,
    },
    /// Makes the rules those of a file, all at once. Answer: as of `rule_add`.
    RuleReplaceAll {
        /// Its path, as the router sees it: `[[rule]]` entries, or a ClassBench file.
        file: PathBuf,
        /// What all rules of a ClassBench file do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        action: Option<Action>,
    },
    /// Takes a rule away; an error where there is none. Answer: `done`.
    RuleDel {
        /// Its name.
        name: String,
    },
    /// Rules in order, the default last. Answer: `rules`.
    RuleShow {
        /// One of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Starts counters at zero. Answer: `done`.
    ClearCounters,
    /// Reads the configuration file again. Answer: `done` with the differences.
    Reload,
    /// Follows the next `count` packets through the stages. Answer: `trace` for each.
    Trace {
        /// Packets.
        count: u32,
        /// In the syntax of `packet::filter`; empty: any packet.
        #[serde(default)]
        filter: String,
        /// Gives up after so long.
        #[serde(default, with = "seconds", skip_serializing_if = "Option::is_none")]
        duration_s: Option<Duration>,
    },
    /// Copies packets. Answer: `frame` for each, until a limit or until the client hangs up.
    Capture {
        /// Where.
        at: CaptureAt,
        /// In the syntax of `packet::filter`; empty: any packet.
        #[serde(default)]
        filter: String,
        /// Packets; `None`: no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
        /// Time; `None`: no limit.
        #[serde(default, with = "seconds", skip_serializing_if = "Option::is_none")]
        duration_s: Option<Duration>,
    },
    /// Drains and ends the router. Answer: `done` once it has begun.
    Stop,
}

/// Tables of `show`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Show {
    /// [`InterfaceRow`].
    Interfaces,
    /// [`QueueRow`].
    Queues,
    /// [`RouteRow`].
    Routes,
    /// [`NeighbourRow`].
    Neighbours,
    /// [`MacRow`].
    Macs,
    /// [`FaceRow`].
    Faces,
    /// [`NameRow`].
    Names,
    /// [`StageRow`].
    Stages,
    /// [`DropRow`].
    Drops,
    /// [`Runtime`].
    Runtime,
}

/// Where packets are copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureAt {
    /// As a port receives and sends them.
    Port(String),
    /// As they come out of a stage.
    Stage(String),
    /// As they are dropped, the reason in the comment.
    Drops,
    /// Those that a stage gives to captures and nothing else.
    Dumps,
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are the rows of the variant's table")]
pub enum Response {
    /// Part of the table.
    Interfaces { rows: Vec<InterfaceRow> },
    /// Part of the table.
    Queues { rows: Vec<QueueRow> },
    /// Part of the table.
    Routes { rows: Vec<RouteRow> },
    /// Part of the table.
    Neighbours { rows: Vec<NeighbourRow> },
    /// Part of the table.
    Macs { rows: Vec<MacRow> },
    /// Part of the table.
    Faces { rows: Vec<FaceRow> },
    /// Part of the table.
    Names { rows: Vec<NameRow> },
    /// Part of the table.
    Rules { rows: Vec<RuleRow> },
    /// Part of the table.
    Stages { rows: Vec<StageRow> },
    /// Part of the table.
    Drops { rows: Vec<DropRow> },
    /// The process.
    Runtime(Box<Runtime>),
    /// One packet's way.
    Trace { steps: Vec<TraceStep> },
    /// One packet.
    Frame(Frame),
    /// It was done; `message` may be empty.
    Done { message: String },
    /// It was not done. Ends the answer.
    Error { kind: ErrorKind, message: String },
    /// Ends the answer.
    End,
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The line is no request, or names what does not exist.
    BadRequest,
    /// There is no such route, port or stage.
    NotFound,
    /// There is one already.
    Exists,
    /// A table is full; it keeps what it holds.
    Full,
    /// Too many connections or captures.
    Busy,
    /// This build or mode cannot.
    Unsupported,
    /// The configuration has errors; the message shows them.
    Config,
    /// A defect or a failing system.
    Internal,
}

/// One step of a traced packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// `rx`, the stage's name, or `tx`.
    pub stage: String,
    /// Verdict after it, in words: `next`, `forward wan`, `drop ttl_exceeded`.
    pub verdict: String,
    /// What it saw and did: columns that it wrote, header fields.
    pub detail: String,
}

/// A captured frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Since 1970.
    pub time_ns: u64,
    /// Port that received it (or sends it, where `sent`).
    pub port: String,
    /// Copied at transmit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sent: bool,
    /// Bytes on the wire; `bytes` may hold fewer.
    pub original_len: u32,
    /// From the Ethernet header on; in hexadecimal on the socket.
    #[serde(with = "hex")]
    pub bytes: Vec<u8>,
    /// For the packet's comment in pcapng, such as the drop reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

impl Response {
    /// An error of `kind`.
    pub fn error(kind: ErrorKind, message: impl ToString) -> Response {
        Response::Error { kind, message: message.to_string() }
    }

    /// Nothing follows it.
    pub fn is_last(&self) -> bool {
        matches!(self, Response::Error { .. } | Response::End)
    }
}

mod seconds {
    use super::*;
    use serde::{Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<f64>::deserialize(deserializer)?
            .map(|seconds| Duration::try_from_secs_f64(seconds).map_err(D::Error::custom))
            .transpose()
    }
}

mod hex {
    use super::*;
    use serde::{Deserializer, Serializer, de::Error};
    use std::borrow::Cow;

    const DIGITS: &[u8; 16] = b"0123456789abcdef";

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            text.push(DIGITS[usize::from(byte >> 4)] as char);
            text.push(DIGITS[usize::from(byte & 15)] as char);
        }
        s.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        let text = Cow::<'de, str>::deserialize(d)?;
        let error = || D::Error::custom("expected an even number of hexadecimal digits");
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let digit = |c: u8| char::from(c).to_digit(16).ok_or_else(error);
        if !rest.is_empty() {
            return Err(error());
        }
        pairs.iter().map(|[high, low]| Ok((digit(*high)? << 4 | digit(*low)?) as u8)).collect()
    }
}
