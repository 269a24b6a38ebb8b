//! Requests and tables of address translation for `ctl`.

use std::net::Ipv4Addr;

use clap::Args;
use control::config::draft::{Keys, Value};
use controlplane::request::{GroupKind, RequestKind, TableKind};
use serde::{Deserialize, Serialize};

/// Its groups of requests.
pub const GROUPS: &[GroupKind] =
    &[GroupKind::new("nat", "Show or change the rules of address translation").shows("nat-rules")];

/// Its requests.
pub const REQUESTS: &[RequestKind] = &[
    RequestKind::change::<NatAdd>(&["nat", "add"], "Add a rule (default: after all others)")
        .keywords(&[
            "kind",
            "outside",
            "source",
            "destination",
            "protocol",
            "port",
            "to",
            "ports",
            "prefix",
            "before",
        ]),
    RequestKind::change::<NatDel>(&["nat", "del"], "Remove a rule; its sessions end"),
];

/// Its tables.
pub const TABLES: &[TableKind] = &[
    TableKind::with::<ShowNat>("nat", "Sessions of address translation"),
    TableKind::new("nat-rules", "Rules of address translation in order, with their sessions"),
    TableKind::new("nat-pools", "Outside addresses of address translation and their use"),
    TableKind::with::<ShowSubscribers>(
        "nat-subscribers",
        "Who has which ports by deterministic rules of address translation, computed",
    ),
];

/// Sessions of address translation now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowNat {
    /// Only sessions with this address, or an address in this prefix, before or behind the translator
    #[arg(long, value_name = "PREFIX", value_parser = controlplane::request::address_or_prefix)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<ipnet::IpNet>,
    /// Only sessions with this port or identifier
    #[arg(long, value_name = "PORT")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// Who has which ports by `deterministic` rules. That is computed (RFC 7422), so it holds for any time since the rules were as
/// they are.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowSubscribers {
    /// An inside address, or an outside address, whose subscribers are shown
    #[arg(value_name = "ADDRESS")]
    pub address: Ipv4Addr,
    /// Only the subscriber who has this port of the outside address
    #[arg(long, value_name = "PORT")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// Adds a rule, in the words of `[[nat]]`: `nat_add`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatAdd {
    /// masquerade, source, destination, static, deterministic or nat64
    #[arg(long, value_name = "KIND")]
    pub kind: String,
    /// Ports of the outside
    #[arg(long, value_delimiter = ',', value_name = "PORT[,PORT]")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
    /// Inside addresses whose packets are translated
    #[arg(long, value_delimiter = ',', value_name = "PREFIX[,PREFIX]")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<String>,
    /// Outside addresses that are forwarded
    #[arg(long, value_delimiter = ',', value_name = "ADDRESS[,ADDRESS]")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destination: Vec<String>,
    /// tcp, udp or icmp; default: all
    #[arg(long, value_name = "PROTOCOL")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Outside port that is forwarded, or a range
    #[arg(long, value_name = "PORTS")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// What addresses become: an address, a prefix or an address with a port
    #[arg(long, value_name = "TARGET")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Outside ports that sources get
    #[arg(long, value_name = "PORTS")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<String>,
    /// IPv6 prefix of nat64
    #[arg(long, value_name = "PREFIX")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Insert before the rule with this number
    #[arg(long, value_name = "NUMBER")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<usize>,
}

impl NatAdd {
    /// The rule as keys of the file.
    pub(super) fn keys(&self) -> Keys {
        let texts = [
            ("kind", Some(&self.kind)),
            ("protocol", self.protocol.as_ref()),
            ("port", self.port.as_ref()),
            ("to", self.to.as_ref()),
            ("ports", self.ports.as_ref()),
            ("prefix", self.prefix.as_ref()),
        ];
        let lists = [
            ("outside", &self.outside),
            ("source", &self.source),
            ("destination", &self.destination),
        ];
        let texts = texts.into_iter().filter_map(|(key, own)| Some((key, Value::from(own?))));
        let lists = lists.into_iter().filter(|(_, own)| !own.is_empty());
        let lists = lists.map(|(key, own)| (key, Value::from_iter(own)));
        texts.chain(lists).map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Takes a rule away; an error where there is none: `nat_del`.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatDel {
    /// Its number in the list of rules, from 1
    #[arg(value_name = "NUMBER")]
    pub rule: usize,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::requests::{error_of, request_of, table_of};

    #[test]
    fn rules_are_requests_in_the_words_of_the_file() {
        let (add, del) = (&REQUESTS[0], &REQUESTS[1]);
        let words = "kind destination outside wan protocol tcp port 8080 to 10.0.0.9:80 before 2"
            .split(' ');
        let fields = json!({"kind": "destination", "outside": ["wan"], "protocol": "tcp", "port": "8080",
            "to": "10.0.0.9:80", "before": 2});
        let words: Vec<_> = words.collect();
        let read: NatAdd = request_of(add, &words, "nat_add", &fields);
        let keys: Vec<_> = read.keys().iter().map(|(key, _)| key.clone()).collect();
        assert_eq!(keys, ["kind", "protocol", "port", "to", "outside"]);
        let fields = json!({"kind": "masquerade", "outside": ["wan", "dsl"], "source": ["10.0.0.0/8"],
            "ports": "2000-3000"});
        let words = [
            "--kind",
            "masquerade",
            "--outside",
            "wan,dsl",
            "--source",
            "10.0.0.0/8",
            "--ports",
            "2000-3000",
        ];
        request_of::<NatAdd>(add, &words, "nat_add", &fields);
        request_of::<NatDel>(del, &["3"], "nat_del", &json!({"rule": 3}));
        assert!(error_of(del, &[]).contains("NUMBER"));
        let who = TABLES.iter().find(|own| own.name == "nat-subscribers").unwrap();
        assert!(table_of(who, &["192.0.2.1", "--port", "70000"]).is_err());
        assert!(table_of(who, &["192.0.2.1", "--port", "700"]).is_ok());
    }
}
