//! Requests of a firewall for `ctl`.
//!
//! A pipeline may have several firewalls under names of their own: `stage` says which one is meant. Without it, it is the
//! only one.

use std::path::PathBuf;

use clap::Args;
use control::api::fields_of;
use control::firewall::{Action, Conditions, Place, Ports, Protocol, Rule, TcpFlags};
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
        command: || RuleReplaceAll::augment_args(clap::Command::new("request")).hide(true),
        ..RequestKind::change::<RuleReplaceAll>(
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

/// Makes the rules those of a file, all at once: `rule_replace_all`.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleReplaceAll {
    /// Its path, as the running program sees it: `[[rule]]` entries, or a ClassBench file together with --action
    pub file: PathBuf,
    /// What all rules of a ClassBench file do
    #[arg(long, value_name = "ACTION")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Name of the firewall; needed if there are several
    #[arg(long, value_name = "NAME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
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
    /// Replace all rules by those of this file: `[[rule]]` entries, or a ClassBench file together with --action
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    file: Option<PathBuf>,
}

impl Arguments for ReplaceArgs {
    fn fields(self) -> Result<Map<String, Value>, String> {
        let Some(file) = self.file else {
            let (rule, stage) = self.rule.rule()?;
            return fields_of(&RuleReplace { rule, stage });
        };
        if files::is_standard(&file) {
            let what = "--file -: the running program reads the file, so it needs a path";
            return Err(what.to_owned());
        }
        // The running program has another working directory.
        let path = std::path::absolute(&file);
        let path = path.map_err(|error| format!("{}: {error}", file.display()))?;
        let all = RuleReplaceAll { file: path, action: self.rule.action, stage: self.rule.stage };
        let mut fields = fields_of(&all)?;
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
                     --sport 1024-65535 --tcp-flags syn/syn,ack --fragment false";
        let words: Vec<_> = words.split_whitespace().collect();
        let conditions = json!({
            "in": "wan", "src": "10.0.0.1/32", "dst": "192.0.2.0/24", "proto": "tcp", "dport": "22",
            "sport": "1024-65535", "tcp_flags": "syn/syn,ack", "fragment": false,
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
    fn all_rules_come_from_a_file() {
        let words = ["--file", "/etc/rules", "--action", "send wan", "--stage", "edge"];
        let fields = json!({"file": "/etc/rules", "action": "send wan", "stage": "edge"});
        request_of::<RuleReplaceAll>(REPLACE, &words, "rule_replace_all", &fields);
        let fields = json!({"file": "/etc/rules"});
        request_of::<RuleReplaceAll>(REPLACE, &words[..2], "rule_replace_all", &fields);
        request_of::<RuleReplaceAll>(ALL, &["/etc/rules"], "rule_replace_all", &fields);
        // The running program has another working directory.
        let here = std::env::current_dir().unwrap().join("rules");
        let fields = json!({"file": here});
        request_of::<RuleReplaceAll>(REPLACE, &["--file", "rules"], "rule_replace_all", &fields);
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
            (REPLACE, "--file -", "the running program reads the file"),
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
