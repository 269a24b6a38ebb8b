//! `[firewall]` and `[[rule]]`.

use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;

use crate::config::kinds::{
    Custom, Kind, boolean, custom, integer, number_or_parsed, parsed, rate,
};
use crate::config::rules_file_name;
use crate::config::section::SectionValue;
use crate::config::types::{RuleEntry, RuleFile};
use crate::config::values::{self, Value, Walk, string};
use crate::config::walk::{Place, Section};
use crate::firewall::{
    Action, Conditions, Ending, Ports, Protocol, Rule, States, TcpFlags, action, is_rule_name,
    of_classbench,
};

/// Problems of a rules file that are reported one by one.
const PROBLEMS_SHOWN: usize = 10;

/// What a rule may be called, for messages.
const NAME: &str = "1 to 64 letters, digits or `.`, `_`, `-`, `:`, `#`, `/`, and not `default`";

/// What an action may be, for the documentation.
const ACTION: &str = "`accept`, `drop`, `reject`, `dump` ([dump.NAME]) or `send PORT`; before it `mirror PORT` and \
                      `mark N` (0 to 63) and `context NAME` ([stage.NAME]), joined by `,`";

// What no rule forbids is allowed. Rates as those of the router.
crate::section! {
    /// Packet filter of a router, a switch or a wire.
    #[derive(Eq)]
    pub struct Firewall("firewall") {
        /// Action for packets that match no rule.
        live default: Action = Action::of(Ending::Accept),
            parsed(action::EXPECTED).named("action", ACTION);
        /// Lookup structure for the rules, on the CPU or a device. `auto`: the fastest one for the given rules, as
        /// measured on the CPU.
        live algorithm: String = "auto".to_owned(), algorithm();
        /// ICMP and ICMPv6 errors that each worker of a switch or wire sends for rejected packets of one port (over
        /// captures: all workers together). 0: none. A router uses `icmp_rate` of `[router]`.
        live icmp_rate: u32 = 100, rate(0..=10_000_000);
        /// ICMP and ICMPv6 errors that may be sent at once.
        live icmp_burst: u32 = 20, integer(1..=1_000_000);
    }
    also {
        /// The file has the section, or a rule.
        is_on: bool = false;
        /// `[[rule]]`, in the order of the file: the first is the best.
        rules: Vec<RuleEntry> = Vec::new();
    }
}

crate::section! {
    /// A rule: the first one that matches a packet decides about it.
    pub(in crate::config) struct RuleKeys("[[rule]]") {
        /// Name of the rule; it must be unique.
        live name: Option<String> = None,
            rule_name().optional().shown("`#` and its number among the rules");
        /// What happens to packets that match.
        live action: Option<Action> = None,
            parsed(action::EXPECTED).named("action", ACTION).optional().needed("\"drop\"");
    }
}

crate::section! {
    /// A file of rules in the place of a rule.
    pub(in crate::config) struct RuleFileKeys("[[rule]]") {
        /// Instead of conditions: path of a ClassBench file. All its rules take the place of this one and have its
        /// `action`. A relative path starts at the folder of the configuration. A reload reads the file again.
        live file: Option<(PathBuf, Arc<[Conditions]>)> = None, rules_file().optional();
    }
}

crate::section! {
    /// What a packet must be for the rule to match.
    pub(in crate::config) struct ConditionKeys("[[rule]]") {
        /// Port or subinterface that the packet was received on.
        live interface["in"]: Option<Box<str>> = None, port().optional();
        /// Source address.
        live src: Option<IpNet> = None, net().optional();
        /// Destination address.
        live dst: Option<IpNet> = None, net().optional();
        /// Protocol.
        live proto: Option<Protocol> = None,
            number_or_parsed("\"tcp\" or 6").named("protocol", PROTO).optional();
        /// Source port.
        live sport: Option<Ports> = None,
            number_or_parsed(PORTS).named("ports", PORTS_SHOWN).optional();
        /// Destination port.
        live dport: Option<Ports> = None,
            number_or_parsed(PORTS).named("ports", PORTS_SHOWN).optional();
        /// TCP flags that are set, of those that are checked: `"syn/syn,ack"`.
        live tcp_flags: Option<TcpFlags> = None,
            parsed("such as \"syn/syn,ack\"").named("flags", FLAGS).optional();
        /// ICMP or ICMPv6 type.
        live icmp_type: Option<u8> = None, integer(0..=255).optional();
        /// ICMP or ICMPv6 code.
        live icmp_code: Option<u8> = None, integer(0..=255).optional();
        /// `true`: only fragments, the first one included. `false`: no fragments.
        live fragment: Option<bool> = None, boolean().optional();
        /// State of the packet in its flow, or several: `"established,related"`. Needs `[flow]`.
        live state: Option<States> = None,
            parsed("such as \"established,related\"").named("states", STATES).optional();
        /// Application of the packet's flow, as far as it is known with this packet: `"bittorrent"` ([l7.md](l7.md)). Needs
        /// `[l7]`.
        live application: Option<Box<str>> = None, application().optional();
    }
}

const PORTS: &str = "a port or a range such as 22 or \"1024-65535\"";
const PORTS_SHOWN: &str = "a port such as `22`, or a range such as `\"1024-65535\"`";
const PROTO: &str = "a number, or `\"icmp\"`, `\"igmp\"`, `\"tcp\"`, `\"udp\"`, `\"dccp\"`, `\"gre\"`, `\"esp\"`, \
                     `\"icmpv6\"`, `\"ospf\"`, `\"sctp\"`, `\"udplite\"`";
const STATES: &str = "`new`, `established`, `related`, `invalid`, `untracked`";
const FLAGS: &str = "`fin`, `syn`, `rst`, `psh`, `ack`, `urg`, `ece`, `cwr`, `none`";

/// `None` where something is missing or wrong. `number`: the rule's place in the file, from 1.
pub(in crate::config) fn rule(
    mut section: Section<'_, '_>,
    walk: &mut Walk<'_>,
    number: usize,
) -> Option<(RuleEntry, Place)> {
    let place = section.place();
    let mut keys = RuleKeys::default();
    keys.read(&mut section, walk);
    let RuleKeys { name, action } = keys;
    if section.has("file") {
        let mut keys = RuleFileKeys::default();
        keys.read(&mut section, walk);
        section.finish(walk);
        let (path, rules) = keys.file?;
        let name = name.or_else(|| rules_file_name(&path)).unwrap_or_else(|| format!("#{number}"));
        return Some((RuleEntry::File(RuleFile { name, path, action: action?, rules }), place));
    }
    let mut keys = ConditionKeys::default();
    keys.read(&mut section, walk);
    section.finish(walk);
    let conditions = keys.into_conditions();
    if let Err(problem) = conditions.check() {
        walk.error(place.at(problem.key), problem.message).expected(problem.expected);
    }
    let name = name.unwrap_or_else(|| format!("#{number}"));
    Some((RuleEntry::One(Rule { name, conditions, action: action? }), place))
}

impl ConditionKeys {
    fn into_conditions(self) -> Conditions {
        let ConditionKeys {
            interface,
            src,
            dst,
            proto,
            sport,
            dport,
            tcp_flags,
            icmp_type,
            icmp_code,
            fragment,
            state,
            application,
        } = self;
        Conditions {
            interface,
            src,
            dst,
            proto,
            sport,
            dport,
            tcp_flags,
            icmp_type,
            icmp_code,
            fragment,
            state,
            application,
        }
    }
}

/// Names of structures that find rules of both families, `auto` first.
fn algorithms() -> Vec<&'static str> {
    // A firewall has rules of both families.
    let known = classify::algorithms::ALGORITHMS.iter().filter(|known| known.any_fields);
    let known = known.map(|algorithm| algorithm.name);
    let mut known: Vec<_> = known.filter(|known| *known != "auto").collect();
    known.insert(0, "auto");
    known
}

fn algorithm() -> Custom<String> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let name = string(walk, value)?;
        let known = algorithms();
        if !known.contains(&name) {
            let expected = format!("one of {}", known.join(", "));
            let message = format!("{} is `{name}`", walk.subject());
            walk.error(value.span(), message).nearest(name, known).expected(expected);
            return None;
        }
        Some(name.to_owned())
    };
    let words: Vec<_> = algorithms().iter().map(|name| format!("`\"{name}\"`")).collect();
    custom("word", words.join(", "), read, String::clone)
}

fn rule_name() -> Custom<String> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let name = string(walk, value)?;
        if !is_rule_name(name) {
            let message = format!("{} is `{name}`", walk.subject());
            walk.error(value.span(), message).expected(NAME);
            return None;
        }
        Some(name.to_owned())
    };
    custom("name", NAME, read, String::clone)
}

fn port() -> Custom<Box<str>> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| string(walk, value).map(Box::from);
    custom("name", "a port", read, |port| port.to_string())
}

fn application() -> Custom<Box<str>> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| string(walk, value).map(Box::from);
    custom("name", "an application", read, |name| name.to_string())
}

/// An address, or a prefix.
fn net() -> Custom<IpNet> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let text = string(walk, value)?;
        match text.parse::<std::net::IpAddr>() {
            Ok(address) => Some(address.into()),
            Err(_) => values::prefix(walk, value),
        }
    };
    custom(
        "prefix",
        "a prefix without bits beyond its length, or an address",
        read,
        IpNet::to_string,
    )
}

fn rules_file() -> Custom<(PathBuf, Arc<[Conditions]>)> {
    custom("path", "a path", read_rules_file, |(path, rules)| {
        format!("{} rules of {}", rules.len(), path.display())
    })
}

/// A ClassBench file, read where there is a folder to look in.
fn read_rules_file(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<(PathBuf, Arc<[Conditions]>)> {
    let file = string(walk, value)?;
    let Some(folder) = walk.folder() else { return Some((file.into(), Arc::default())) };
    let path = folder.join(file);
    match classify::classbench::read_rules(&path) {
        Ok(rules) => {
            let flags = rules.flags.iter().flatten().filter(|(_, mask)| *mask != 0).count();
            if flags > 0 {
                let message =
                    format!("{}: the TCP flags of {flags} rules are ignored", path.display());
                walk.warning(value.span(), message).help(
                    "the format does not define which flags it means; use `tcp_flags` of [[rule]]",
                );
            }
            let conditions = of_classbench(&rules);
            let never = conditions.iter().filter(|conditions| conditions.check().is_err()).count();
            if never > 0 {
                let message = format!(
                    "{}: {never} rules match ports of a protocol that has none",
                    path.display()
                );
                walk.warning(value.span(), message).help("they never match");
            }
            Some((path, conditions.into()))
        }
        Err(problems) => {
            for problem in problems.first.iter().take(PROBLEMS_SHOWN) {
                walk.error(value.span(), format!("{}, {problem}", path.display()));
            }
            let more = problems.count.saturating_sub(PROBLEMS_SHOWN as u64);
            if more > 0 {
                let message = format!("{}: and {more} more", path.display());
                walk.error(value.span(), message);
            }
            None
        }
    }
}
