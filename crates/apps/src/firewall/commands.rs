//! Requests of a firewall for `ctl`.
//!
//! A pipeline may have several firewalls under names of their own: `stage` says which one is meant. Without it, it is the
//! only one.

use std::path::PathBuf;

use clap::Args;
use control::api::fields_of;
use control::config::{RuleName, load_rules, rule_list};
use control::firewall::{Action, Conditions, Place, Ports, Protocol, Rule, States, TcpFlags};
use controlplane::request::{
    Arguments, GroupKind, NameKind, RequestKind, TableKind, address_or_prefix,
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Its groups of requests.
pub const GROUPS: &[GroupKind] =
    &[GroupKind::new("rule", "Show or change the rules of the firewall")];

/// Its requests. Changes answer `done` with what is odd about the rules; `rule show` answers with `rules`.
pub const REQUESTS: &[RequestKind] = &[
    RequestKind::change::<AddArgs>(&["rule", "add"], "Add a rule (default: after all others)")
        .begins(),
    RequestKind::change::<RuleDel>(&["rule", "del"], "Remove a rule"),
    RequestKind::change::<ReplaceArgs>(
        &["rule", "replace"],
        "Replace a rule, keeping its place, or all rules with --file",
    ),
    RequestKind {
        // `rule replace --file` is this request; as a command of its own it needs no place in the help.
        command: || ReplaceAllArgs::augment_args(clap::Command::new("request")).hide(true),
        ..RequestKind::change::<ReplaceAllArgs>(
            &["rule", "replace_all"],
            "Replace all rules with those of a file",
        )
    },
    RequestKind::query::<RuleShow>(
        &["rule", "show"],
        "Print the rules in order, with their counters",
    ),
];

/// Its tables.
pub const TABLES: &[TableKind] =
    &[TableKind::with::<RuleShow>("rules", "Rules of the firewall in order, with their counters")
        .keywords(&["stage"])];

/// Its names.
pub const NAMES: &[NameKind] =
    &[NameKind { value: "RULE", table: "rules", arguments: &[], field: "name" }];

/// Adds a rule; an error where one has its name: `rule_add`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleAdd {
    /// The rule.
    pub rule: Rule,
    /// Among the others.
    #[serde(default)]
    pub place: Place,
    /// The firewall's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// Changes a rule in its place, or adds it behind all: `rule_replace`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleReplace {
    /// The rule.
    pub rule: Rule,
    /// The firewall's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// Makes these the rules, all at once: `rule_replace_all`. The client has read them from its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleReplaceAll {
    /// In order.
    pub rules: Vec<Rule>,
    /// The firewall's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// `rule replace_all`.
#[derive(Debug, Args)]
struct ReplaceAllArgs {
    /// `[[rule]]` entries, or a ClassBench file together with --action; `-` is standard input
    file: PathBuf,
    /// What all rules of a ClassBench file do
    #[arg(long, value_name = "ACTION")]
    action: Option<Action>,
    /// Name of the firewall; needed if there are several
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
}

impl Arguments for ReplaceAllArgs {
    fn fields(self) -> Result<Map<String, Value>, String> {
        let entries = load_rules(&self.file, self.action.as_ref());
        let entries = entries.map_err(|error| error.to_string())?;
        let rule = |(name, conditions, action): (RuleName<'_>, &Conditions, &Action)| Rule {
            name: name.to_string(),
            conditions: conditions.clone(),
            action: action.clone(),
        };
        let rules = rule_list(&entries).map(rule).collect();
        fields_of(&RuleReplaceAll { rules, stage: self.stage })
    }
}

/// Takes a rule away; an error where there is none: `rule_del`.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleDel {
    /// Its name
    #[arg(value_name = "RULE")]
    pub name: String,
    /// Name of the firewall; needed if there are several
    #[arg(long, value_name = "NAME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// Rules in order, the default last: `rule_show`, and the table `rules`.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleShow {
    /// Only this rule; `default`: packets that match no rule
    #[arg(value_name = "RULE")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the firewall; needed if there are several
    #[arg(long, value_name = "NAME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// A rule on the command line.
#[derive(Debug, Args)]
struct RuleArgs {
    /// Its name
    #[arg(value_name = "RULE")]
    name: Option<String>,
    /// Action: accept, drop, reject, dump or `send PORT`; `mirror PORT`, `mark DSCP` and `context NAME` may precede it, separated by `,`
    #[arg(long, value_name = "ACTION")]
    action: Option<Action>,
    /// Receiving interface
    #[arg(long = "in", value_name = "PORT")]
    interface: Option<String>,
    /// Source address or prefix
    #[arg(long, value_parser = address_or_prefix, value_name = "PREFIX")]
    src: Option<IpNet>,
    /// Destination address or prefix
    #[arg(long, value_parser = address_or_prefix, value_name = "PREFIX")]
    dst: Option<IpNet>,
    /// IP protocol, by name or number
    #[arg(long)]
    proto: Option<Protocol>,
    /// Source port or range, such as 1024-65535
    #[arg(long, value_name = "PORTS")]
    sport: Option<Ports>,
    /// Destination port or range
    #[arg(long, value_name = "PORTS")]
    dport: Option<Ports>,
    /// TCP flags, such as syn/syn,ack
    #[arg(long, value_name = "SET/OF")]
    tcp_flags: Option<TcpFlags>,
    /// ICMP type
    #[arg(long, value_name = "N")]
    icmp_type: Option<u8>,
    /// ICMP code; needs the type
    #[arg(long, value_name = "N")]
    icmp_code: Option<u8>,
    /// Whether the packet is a fragment
    #[arg(long, value_name = "true|false")]
    fragment: Option<bool>,
    /// State of the packet in its flow, or several, such as established,related
    #[arg(long, value_name = "STATES")]
    state: Option<States>,
    /// Application of the packet's flow, such as bittorrent
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    /// Name of the firewall; needed if there are several
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
}

impl RuleArgs {
    /// The rule, and the firewall's name.
    fn rule(self) -> Result<(Rule, Option<String>), String> {
        let name = self.name.ok_or("a rule needs a name")?;
        let action = self.action.ok_or("a rule needs --action")?;
        let conditions = Conditions {
            interface: self.interface.map(Into::into),
            src: self.src,
            dst: self.dst,
            proto: self.proto,
            sport: self.sport,
            dport: self.dport,
            tcp_flags: self.tcp_flags,
            icmp_type: self.icmp_type,
            icmp_code: self.icmp_code,
            fragment: self.fragment,
            state: self.state,
            application: self.application.map(Into::into),
        };
        conditions.check().map_err(|contradiction| contradiction.to_string())?;
        Ok((Rule { name, conditions, action }, self.stage))
    }
}

/// `rule add`.
#[derive(Debug, Args)]
struct AddArgs {
    #[command(flatten)]
    rule: RuleArgs,
    /// Insert directly before this rule
    #[arg(long, value_name = "RULE", conflicts_with_all = ["after", "first"])]
    before: Option<String>,
    /// Insert directly after this rule
    #[arg(long, value_name = "RULE", conflicts_with = "first")]
    after: Option<String>,
    /// Insert before all others
    #[arg(long)]
    first: bool,
}

impl Arguments for AddArgs {
    fn fields(self) -> Result<Map<String, Value>, String> {
        let place = match (self.before, self.after, self.first) {
            (Some(name), _, _) => Place::Before(name),
            (_, Some(name), _) => Place::After(name),
            (_, _, true) => Place::First,
            _ => Place::Last,
        };
        let (rule, stage) = self.rule.rule()?;
        fields_of(&RuleAdd { rule, place, stage })
    }
}

/// `rule replace`.
#[derive(Debug, Args)]
struct ReplaceArgs {
    #[command(flatten)]
    rule: RuleArgs,
    /// Replace all rules by those of this file: `[[rule]]` entries, or a ClassBench file together with --action; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    file: Option<PathBuf>,
}

impl Arguments for ReplaceArgs {
    fn fields(self) -> Result<Map<String, Value>, String> {
        let Some(file) = self.file else {
            let (rule, stage) = self.rule.rule()?;
            return fields_of(&RuleReplace { rule, stage });
        };
        let all = ReplaceAllArgs { file, action: self.rule.action, stage: self.rule.stage };
        let mut fields = all.fields()?;
        fields.insert("request".to_owned(), "rule_replace_all".into());
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::requests::{error_of, request_of};

    const ADD: &RequestKind = &REQUESTS[0];
    const DEL: &RequestKind = &REQUESTS[1];
    const REPLACE: &RequestKind = &REQUESTS[2];
    const ALL: &RequestKind = &REQUESTS[3];
    const SHOW: &RequestKind = &REQUESTS[4];

    #[test]
    fn rules_are_requests() {
        let words = "ssh --action drop --in wan --proto tcp --dst 192.0.2.0/24 --src 10.0.0.1 --dport 22 \
                     --sport 1024-65535 --tcp-flags syn/syn,ack --fragment false --state new --application tls";
        let words: Vec<_> = words.split_whitespace().collect();
        let conditions = json!({
            "in": "wan", "src": "10.0.0.1/32", "dst": "192.0.2.0/24", "proto": "tcp", "dport": "22",
            "sport": "1024-65535", "tcp_flags": "syn/syn,ack", "fragment": false, "state": "new",
            "application": "tls",
        });
        let rule = json!({"name": "ssh", "action": "drop", "conditions": conditions});
        let fields = json!({"rule": rule, "place": "last"});
        let read: RuleAdd = request_of(ADD, &words, "rule_add", &fields);
        assert_eq!(read.rule.conditions.check(), Ok(()));
        request_of::<RuleReplace>(REPLACE, &words, "rule_replace", &json!({"rule": rule}));
        let rule = json!({"name": "all", "action": "mark 46, accept", "conditions": {}});
        for (more, place) in [
            (&["--first"] as &[_], json!("first")),
            (&["--before", "ssh"], json!({"before": "ssh"})),
            (&["--after", "ssh"], json!({"after": "ssh"})),
        ] {
            let words = [&["all", "--action", "mark 46, accept"], more].concat();
            let fields = json!({"rule": rule, "place": place});
            request_of::<RuleAdd>(ADD, &words, "rule_add", &fields);
        }
        // The place may be left out.
        let fields = fields_of(&json!({"rule": {"name": "all", "action": "drop"}})).unwrap();
        let read: RuleAdd = control::api::decode(fields).unwrap();
        assert_eq!(read.place, Place::Last);
    }

    #[test]
    fn a_firewall_has_a_name_where_there_are_several() {
        let rule = json!({"name": "all", "action": "drop", "conditions": {}});
        let words = ["all", "--stage", "edge", "--action", "drop"];
        let fields = json!({"rule": rule, "place": "last", "stage": "edge"});
        request_of::<RuleAdd>(ADD, &words, "rule_add", &fields);
        let fields = json!({"rule": rule, "stage": "edge"});
        request_of::<RuleReplace>(REPLACE, &words, "rule_replace", &fields);
        let fields = json!({"name": "all", "stage": "edge"});
        request_of::<RuleDel>(DEL, &["all", "--stage", "edge"], "rule_del", &fields);
        request_of::<RuleShow>(SHOW, &["all", "--stage", "edge"], "rule_show", &fields);
        request_of::<RuleDel>(DEL, &["all"], "rule_del", &json!({"name": "all"}));
        request_of::<RuleShow>(SHOW, &[], "rule_show", &json!({}));
    }

    #[test]
    fn the_client_reads_the_file_of_all_rules() {
        let scratch = testkit::Scratch::new();
        let set = scratch.write("set.txt", "@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xFF\n");
        let set = set.to_str().unwrap();
        let rule = |name, action| {
            json!({"name": name, "action": action,
                   "conditions": {"src": "10.0.0.0/8", "proto": "tcp", "dport": "22"}})
        };
        let words = ["--file", set, "--action", "send wan", "--stage", "edge"];
        let fields = json!({"rules": [rule("set:0", "send wan")], "stage": "edge"});
        request_of::<RuleReplaceAll>(REPLACE, &words, "rule_replace_all", &fields);
        let fields = json!({"rules": [rule("set:0", "drop")]});
        let words = [set, "--action", "drop"];
        request_of::<RuleReplaceAll>(ALL, &words, "rule_replace_all", &fields);
        // A file that names another one.
        let text =
            "[[rule]]\nfile = \"set.txt\"\naction = \"reject\"\n[[rule]]\naction = \"accept\"\n";
        let own = scratch.write("own.toml", text);
        let last = json!({"name": "#2", "action": "accept", "conditions": {}});
        let fields = json!({"rules": [rule("set:0", "reject"), last]});
        let words = ["--file", own.to_str().unwrap()];
        request_of::<RuleReplaceAll>(REPLACE, &words, "rule_replace_all", &fields);
        for (file, expected) in
            [("/dev/zero", "/dev/zero: more than 32 MiB"), ("/no/such", "/no/such: No such file")]
        {
            let error = error_of(REPLACE, &["--file", file]);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn bad_arguments_are_refused() {
        for (kind, words, expected) in [
            (ADD, "", "a rule needs a name"),
            (ADD, "a", "a rule needs --action"),
            (ADD, "a --action allow", "is not an action: expected accept, drop"),
            (
                ADD,
                "a --action drop --dport 22 --proto icmp",
                "`dport`, but the protocol has no ports",
            ),
            (ADD, "a --action drop --tcp-flags syn/syn", "`tcp_flags` without TCP"),
            (ADD, "a --action drop --src 10.0.0.1/8", "expected 10.0.0.0/8"),
            (ADD, "a --action drop --first --before b", "cannot be used with"),
            (ADD, "a --action drop --before b --after c", "cannot be used with"),
            (REPLACE, "a --file f", "cannot be used with"),
            (REPLACE, "--action drop", "a rule needs a name"),
            (REPLACE, "a --first", "unexpected argument"),
            (DEL, "", "<RULE>"),
        ] {
            let words: Vec<_> = words.split_whitespace().collect();
            let error = error_of(kind, &words);
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }

    #[test]
    fn the_help_has_no_command_twice() {
        assert!(ALL.named("replace_all").is_hide_set());
        assert!(!REPLACE.named("replace").is_hide_set());
        for kind in REQUESTS {
            assert_eq!(kind.changes, kind.words != ["rule", "show"]);
            kind.named("it").debug_assert();
        }
    }
}
