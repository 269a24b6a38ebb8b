//! Requests and tables of IPsec for `ctl`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use control::config::draft::{Keys, Value};
use controlplane::request::{GroupKind, RequestKind, TableKind};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Its groups of requests.
pub const GROUPS: &[GroupKind] = &[
    GroupKind::new("sa", "Show or change the security associations of IPsec").shows("sa"),
    GroupKind::new("policy", "Show or change the security policies of IPsec").shows("policies"),
];

/// Its requests.
pub const REQUESTS: &[RequestKind] = &[
    RequestKind::change::<SaAdd>(&["sa", "add"], "Add an association; its keys are in a file")
        .keywords(&[
            "direction",
            "spi",
            "source",
            "destination",
            "reqid",
            "key-file",
            "if-id",
            "mode",
            "encryption",
            "authentication",
            "window",
            "first-number",
            "udp-port",
            "pad-to",
            "df",
            "dscp",
            "soft-bytes",
            "hard-bytes",
            "soft-packets",
            "hard-packets",
            "soft-seconds",
            "hard-seconds",
        ]),
    RequestKind::change::<SaDel>(&["sa", "del"], "Remove an association; its keys are wiped")
        .keywords(&["spi", "destination"]),
    RequestKind::change::<PolicyAdd>(&["policy", "add"], "Add a policy to those of [[policy]]")
        .keywords(&[
            "action",
            "reqid",
            "if-id",
            "direction",
            "source",
            "destination",
            "protocol",
            "source-port",
            "destination-port",
            "at",
        ]),
    RequestKind::change::<PolicyDel>(&["policy", "del"], "Remove a policy of [[policy]]"),
];

/// Its tables.
pub const TABLES: &[TableKind] = &[
    TableKind::new("sa", "Security associations of IPsec with their counts; no keys"),
    TableKind::new("policies", "Security policies of IPsec in their order"),
];

/// The program, which opens the file, has a working directory of its own.
fn absolute(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| error.to_string())
}

fn index(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.ok().filter(|own| *own >= 256).ok_or_else(|| "expected 256 to 4294967295".to_owned())
}

/// Adds an association, in the words of `[[sa]]`: `sa_add`.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaAdd {
    /// in or out
    #[arg(long, value_name = "DIRECTION")]
    pub direction: String,
    /// Security parameters index
    #[arg(long, value_name = "SPI", value_parser = index)]
    pub spi: u32,
    /// Sender of ESP packets
    #[arg(long, value_name = "ADDRESS")]
    pub source: IpAddr,
    /// Receiver
    #[arg(long, value_name = "ADDRESS")]
    pub destination: IpAddr,
    /// Number by which policies refer to it
    #[arg(long, value_name = "NUMBER")]
    pub reqid: u32,
    /// File with the keys, readable by the program and only by its owner
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    pub key_file: PathBuf,
    /// Number of the tunnel interface whose packets it carries
    #[arg(long, value_name = "NUMBER")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_id: Option<u32>,
    /// tunnel or transport
    #[arg(long, value_name = "MODE")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Cipher; default: aes-128-gcm
    #[arg(long, value_name = "CIPHER")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<String>,
    /// Authentication beside a cipher that does not authenticate
    #[arg(long, value_name = "NAME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<String>,
    /// Sequence numbers of 64 bits
    #[arg(long)]
    #[serde(default)]
    pub esn: bool,
    /// UDP around ESP
    #[arg(long)]
    #[serde(default)]
    pub udp: bool,
    /// Replay window in packets
    #[arg(long, value_name = "PACKETS")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// First sequence number of an association that sends
    #[arg(long, value_name = "NUMBER")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_number: Option<i64>,
    /// Port of the receiver, with UDP
    #[arg(long, value_name = "PORT")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_port: Option<u16>,
    /// Length in bytes that shorter inner packets are padded to
    #[arg(long, value_name = "BYTES")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pad_to: Option<u32>,
    /// DF of outer IPv4 headers: copy, set or clear
    #[arg(long, value_name = "WHAT")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub df: Option<String>,
    /// Code point of outer headers; default: that of the inner header
    #[arg(long, value_name = "DSCP")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// Bytes of payload at which a new association is due
    #[arg(long, value_name = "BYTES")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_bytes: Option<i64>,
    /// Bytes of payload after which it ends
    #[arg(long, value_name = "BYTES")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_bytes: Option<i64>,
    /// Packets at which a new association is due
    #[arg(long, value_name = "PACKETS")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_packets: Option<i64>,
    /// Packets after which it ends
    #[arg(long, value_name = "PACKETS")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_packets: Option<i64>,
    /// Seconds after which a new association is due
    #[arg(long, value_name = "SECONDS")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_seconds: Option<i64>,
    /// Seconds after which it ends
    #[arg(long, value_name = "SECONDS")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_seconds: Option<i64>,
    /// No congestion marks between outer and inner header
    #[arg(long)]
    #[serde(default)]
    pub no_ecn: bool,
}

impl SaAdd {
    /// The association as keys of the file.
    pub(super) fn keys(&self) -> Keys {
        let text = |key: &str, own: String| Some((key.to_owned(), Value::from(own)));
        let number = |key: &str, own: u32| Some((key.to_owned(), Value::from(i64::from(own))));
        // As all else writes it.
        let hexadecimal = |key: &str, own: u32| {
            let value = format!("{own:#x}").parse::<Value>();
            Some((key.to_owned(), value.unwrap_or_else(|_| Value::from(i64::from(own)))))
        };
        let large = |key: &str, own: i64| Some((key.to_owned(), Value::from(own)));
        let flag = |key: &str, own: bool| own.then(|| (key.to_owned(), Value::from(true)));
        let all = [
            text("direction", self.direction.clone()),
            hexadecimal("spi", self.spi),
            text("source", self.source.to_string()),
            text("destination", self.destination.to_string()),
            number("reqid", self.reqid),
            text("key_file", self.key_file.display().to_string()),
            self.if_id.and_then(|own| number("if_id", own)),
            self.mode.clone().and_then(|own| text("mode", own)),
            self.encryption.clone().and_then(|own| text("encryption", own)),
            self.authentication.clone().and_then(|own| text("authentication", own)),
            flag("esn", self.esn),
            flag("udp", self.udp),
            self.window.and_then(|own| number("window", own)),
            self.first_number.and_then(|own| large("first_number", own)),
            self.udp_port.and_then(|own| number("udp_port", own.into())),
            self.pad_to.and_then(|own| number("pad_to", own)),
            self.df.clone().and_then(|own| text("df", own)),
            self.dscp.and_then(|own| number("dscp", own.into())),
            self.soft_bytes.and_then(|own| large("soft_bytes", own)),
            self.hard_bytes.and_then(|own| large("hard_bytes", own)),
            self.soft_packets.and_then(|own| large("soft_packets", own)),
            self.hard_packets.and_then(|own| large("hard_packets", own)),
            self.soft_seconds.and_then(|own| large("soft_seconds", own)),
            self.hard_seconds.and_then(|own| large("hard_seconds", own)),
            self.no_ecn.then(|| ("ecn".to_owned(), Value::from(false))),
        ];
        all.into_iter().flatten().collect()
    }
}

/// Takes an association away; an error where there is none: `sa_del`.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaDel {
    /// Security parameters index
    #[arg(long, value_name = "SPI", value_parser = index)]
    pub spi: u32,
    /// Receiver of its packets
    #[arg(long, value_name = "ADDRESS")]
    pub destination: IpAddr,
}

/// Adds a policy, in the words of `[[policy]]`: `policy_add`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyAdd {
    /// protect, bypass or discard
    #[arg(long, value_name = "ACTION")]
    pub action: String,
    /// Number of the associations of protect
    #[arg(long, value_name = "NUMBER")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reqid: Option<u32>,
    /// Number of the tunnel interface whose packets it is for
    #[arg(long, value_name = "NUMBER")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_id: Option<u32>,
    /// both, in or out; default: both
    #[arg(long, value_name = "DIRECTION")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Source addresses
    #[arg(long, value_name = "PREFIX")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpNet>,
    /// Destination addresses
    #[arg(long, value_name = "PREFIX")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpNet>,
    /// Protocol as a name or number
    #[arg(long, value_name = "PROTOCOL")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Source port, or a range such as 8000-8010
    #[arg(long, value_name = "PORTS")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<String>,
    /// Destination port, or a range
    #[arg(long, value_name = "PORTS")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<String>,
    /// Its number among the policies, from 1; default: the last
    #[arg(long, value_name = "NUMBER")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<usize>,
}

impl PolicyAdd {
    /// The policy as keys of the file.
    pub(super) fn keys(&self) -> Keys {
        let text = |key: &str, own: Option<String>| Some((key.to_owned(), Value::from(own?)));
        let all = [
            text("action", Some(self.action.clone())),
            self.reqid.map(|own| ("reqid".to_owned(), Value::from(i64::from(own)))),
            self.if_id.map(|own| ("if_id".to_owned(), Value::from(i64::from(own)))),
            text("direction", self.direction.clone()),
            text("source", self.source.map(|own| own.to_string())),
            text("destination", self.destination.map(|own| own.to_string())),
            text("protocol", self.protocol.clone()),
            text("source_port", self.source_port.clone()),
            text("destination_port", self.destination_port.clone()),
        ];
        all.into_iter().flatten().collect()
    }
}

/// Takes a policy away, by its place: `policy_del`.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyDel {
    /// Its number in the list of policies, from 1
    #[arg(value_name = "NUMBER")]
    pub number: usize,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::requests::{error_of, request_of};

    #[test]
    fn associations_are_requests_in_the_words_of_the_file() {
        let (add, del) = (&REQUESTS[0], &REQUESTS[1]);
        let words = "direction out spi 0x1001 source 192.0.2.1 destination 198.51.100.1 reqid 7 if-id 3 --key-file /k --esn hard-packets 9";
        let words: Vec<_> = words.split(' ').collect();
        let fields = json!({"direction": "out", "spi": 4097, "source": "192.0.2.1", "destination": "198.51.100.1",
            "reqid": 7, "if_id": 3, "key_file": "/k", "esn": true, "udp": false, "hard_packets": 9, "no_ecn": false});
        let read: SaAdd = request_of(add, &words, "sa_add", &fields);
        let keys: Vec<_> = read.keys().iter().map(|(key, _)| key.clone()).collect();
        let expected = [
            "direction",
            "spi",
            "source",
            "destination",
            "reqid",
            "key_file",
            "if_id",
            "esn",
            "hard_packets",
        ];
        assert_eq!(keys, expected);
        let fields = json!({"spi": 256, "destination": "2001:db8::1"});
        request_of::<SaDel>(del, &["spi", "256", "destination", "2001:db8::1"], "sa_del", &fields);
        assert!(error_of(del, &["spi", "255", "destination", "::1"]).contains("256"));

        let (add, del) = (&REQUESTS[2], &REQUESTS[3]);
        let words = "action protect reqid 7 if-id 3 source 10.1.0.0/16 destination-port 80-90 at 1";
        let words: Vec<_> = words.split(' ').collect();
        let fields = json!({"action": "protect", "reqid": 7, "if_id": 3, "source": "10.1.0.0/16", "destination_port": "80-90", "at": 1});
        let read: PolicyAdd = request_of(add, &words, "policy_add", &fields);
        let keys: Vec<_> = read.keys().iter().map(|(key, _)| key.clone()).collect();
        assert_eq!(keys, ["action", "reqid", "if_id", "source", "destination_port"]);
        request_of::<PolicyDel>(del, &["2"], "policy_del", &json!({"number": 2}));
    }
}
