//! What can be read and is seldom meant: variables that no rule names, flowbits that no rule sets.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::Path;

use control::config::Ids;
use signatures::config::{Class, Limit};
use signatures::{
    Check, Condition, Flowbits, List, Protocol, Rule, RuleSet, Variables, nearest_variable,
};

/// A variable with a value that no rule names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unused {
    /// Its name, without `$`.
    pub name: String,
    /// A name that may be meant.
    pub meant: Option<&'static str>,
}

impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no rule names the variable `{}`", self.name)?;
        match self.meant {
            Some(meant) => write!(f, ", did you mean `{meant}`?"),
            None => Ok(()),
        }
    }
}

/// Variables with a value that neither suricata.yaml has nor a rule or another variable names.
pub(super) fn unused(own: &Ids, set: &RuleSet) -> Vec<Unused> {
    let new = own.vars.iter().map(|(name, _)| name.as_str());
    let mut new: BTreeSet<&str> = new.filter(|name| !Variables::is_default(name)).collect();
    if new.is_empty() {
        return Vec::new();
    }
    for (_, value) in &own.vars {
        new.retain(|name| !names_in(value).any(|own| own == *name));
    }
    for loaded in &set.rules {
        let rule = &loaded.rule;
        let mut seen = |name: &str| _ = new.remove(name);
        [&rule.source, &rule.destination].into_iter().for_each(|list| names(list, &mut seen));
        let ports = [&rule.source_ports, &rule.destination_ports];
        ports.into_iter().for_each(|list| names(list, &mut seen));
    }
    // A rule that cannot be read may name one.
    let all = new.into_iter().filter(|name| {
        let mark = format!("${name}");
        !set.problems.iter().any(|own| own.problem.reason.contains(&mark))
    });
    all.map(|name| Unused { name: name.to_owned(), meant: nearest_variable(name) }).collect()
}

fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split('$')
        .skip(1)
        .map(move |rest| &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())])
}

fn names<T>(list: &List<T>, seen: &mut impl FnMut(&str)) {
    match list {
        List::Any | List::Item(_) => {}
        List::Variable(name) => seen(name),
        List::Not(inner) => names(inner, seen),
        List::Several(members) => members.iter().for_each(|own| names(own, seen)),
    }
}

/// Classes that rules name and the file of classes does not have: of each, the first rule that names it.
pub(super) fn unknown_classes(set: &RuleSet, classes: &HashMap<String, Class>) -> Vec<String> {
    let mut unknown: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (index, loaded) in set.rules.iter().enumerate() {
        let Some(name) = &loaded.rule.classtype else { continue };
        let key = name.to_ascii_lowercase();
        if !classes.contains_key(&key) {
            unknown.entry(key).or_insert((index, 0)).1 += 1;
        }
    }
    let mut all: Vec<_> = unknown.into_values().collect();
    all.sort();
    let said = all.into_iter().map(|(index, rules)| {
        let own = &set.rules[index];
        let (file, line, sid) = (&set.files[own.file], own.line, own.rule.sid);
        let name = own.rule.classtype.as_deref().unwrap_or_default();
        let others = match rules {
            0 | 1 => String::new(),
            2 => "; another rule does, too".to_owned(),
            rules => format!("; {} others do, too", rules - 1),
        };
        format!(
            "{file}:{line}: rule {sid} names the class `{name}`, which the classification file does not have{others}"
        )
    });
    said.collect()
}

/// Rules that can be read and never match: of each, why.
pub(super) fn never(set: &RuleSet, is_refused: impl Fn(usize) -> bool) -> Vec<String> {
    let all = set.rules.iter().enumerate().filter(|(index, _)| !is_refused(*index));
    let said = all.filter_map(|(_, own)| {
        let why = why_never(&own.rule)?;
        let (file, line, sid) = (&set.files[own.file], own.line, own.rule.sid);
        Some(format!("{file}:{line}: rule {sid} never matches: {why}"))
    });
    said.collect()
}

fn why_never(rule: &Rule) -> Option<String> {
    use Protocol::{Icmp, Icmpv4, Icmpv6, Sctp, Tcp, TcpPacket, TcpStream, Udp};
    let protocol = rule.protocol;
    let is_tcp = matches!(protocol, Tcp | TcpPacket | TcpStream);
    let is_icmp = matches!(protocol, Icmp | Icmpv4 | Icmpv6);
    let is_other = matches!(protocol, Udp | Sctp);
    let of_icmp = rule.conditions.iter().find_map(|own| match own {
        Condition::Itype(_) => Some("itype"),
        Condition::Icode(_) => Some("icode"),
        Condition::IcmpId(_) => Some("icmp_id"),
        Condition::IcmpSeq(_) => Some("icmp_seq"),
        _ => None,
    });
    let of_tcp = rule.conditions.iter().find_map(|own| match own {
        Condition::Flags(_) => Some("flags"),
        Condition::Seq(_) => Some("seq"),
        Condition::Ack(_) => Some("ack"),
        Condition::Window(_) => Some("window"),
        Condition::Mss(_) => Some("tcp.mss"),
        _ => None,
    });
    let other = of_icmp.filter(|_| is_tcp || is_other).or(of_tcp.filter(|_| is_icmp || is_other));
    if let Some(keyword) = other {
        return Some(format!("packets of {} have no `{keyword}`", protocol.name()));
    }
    let mut names = rule.conditions.iter().filter_map(|own| match own {
        Condition::AppProtocol { negated: false, name, mode: None } => Some(name),
        _ => None,
    });
    let first = names.next();
    if let Some((first, other)) =
        first.and_then(|first| Some((first, names.find(|own| *own != first)?)))
    {
        return Some(format!("a flow is not both {first} and {other}"));
    }
    let mut checks = rule.inspections.iter().flat_map(|own| &own.checks);
    let decodes_nothing =
        |own: &Check| matches!(own, Check::Base64Decode(own) if own.bytes == Some(0));
    { checks.any(decodes_nothing) }.then(|| "`base64_decode` decodes 0 bytes".to_owned())
}

/// Rules that want files to be stored, which is not done: the first, and how many others.
pub(super) fn stored_files(set: &RuleSet, is_refused: impl Fn(usize) -> bool) -> Option<String> {
    let stores = |own: &Condition| matches!(own, Condition::FileStore(_));
    let mut all = set
        .rules
        .iter()
        .enumerate()
        .filter(|(index, own)| own.rule.conditions.iter().any(stores) && !is_refused(*index));
    let (_, first) = all.next()?;
    let (file, line, sid) = (&set.files[first.file], first.line, first.rule.sid);
    let others = match all.count() {
        0 => String::new(),
        1 => "; another rule has it, too".to_owned(),
        rules => format!("; {rules} others have it, too"),
    };
    Some(format!("{file}:{line}: rule {sid} is evaluated, but `filestore` stores no file{others}"))
}

/// Limits of a rule that no file of rules has.
pub(super) fn limits_of_no_rule(set: &RuleSet, limits: &[Limit], path: &Path) -> Vec<String> {
    if !limits.iter().any(|own| own.sid != 0) {
        return Vec::new();
    }
    let known: HashSet<u32> = set.rules.iter().map(|own| own.rule.sid).collect();
    let vain = limits.iter().filter(|own| own.sid != 0 && !known.contains(&own.sid));
    vain.map(|own| format!("{}:{}: no rule has sid {}", path.display(), own.line, own.sid))
        .collect()
}

/// A flowbit that rules test and none sets: they never match.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct UnsetBit {
    /// Its name.
    pub bit: String,
    /// The file of the first rule that tests it.
    pub file: String,
    /// The line of that rule, from 1.
    pub line: u64,
    /// Its `sid`.
    pub sid: u32,
    /// How many rules test it.
    pub rules: usize,
}

impl fmt::Display for UnsetBit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bit, file, line, sid, rules } = self;
        write!(f, "{file}:{line}: rule {sid} tests the flowbit `{bit}`, which no rule sets")?;
        match rules {
            0 | 1 => Ok(()),
            2 => write!(f, "; another rule does, too"),
            rules => write!(f, "; {} others do, too", rules - 1),
        }
    }
}

/// By the place of the first rule that tests it. `is_refused`: of a rule, by its index.
pub(super) fn unset_bits(set: &RuleSet, is_refused: impl Fn(usize) -> bool) -> Vec<UnsetBit> {
    let mut is_set = BTreeSet::new();
    let mut tested: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (index, loaded) in set.rules.iter().enumerate().filter(|(index, _)| !is_refused(*index)) {
        for condition in &loaded.rule.conditions {
            match condition {
                Condition::Flowbits(Flowbits::Set(names) | Flowbits::Toggle(names)) => {
                    is_set.extend(names.iter().map(String::as_str));
                }
                // One of several may do.
                Condition::Flowbits(Flowbits::IsSet(names)) if names.len() == 1 => {
                    tested.entry(&names[0]).or_insert((index, 0)).1 += 1;
                }
                _ => {}
            }
        }
    }
    tested.retain(|bit, _| !is_set.contains(bit));
    let mut all: Vec<(usize, UnsetBit)> = tested
        .into_iter()
        .map(|(bit, (index, rules))| {
            let own = &set.rules[index];
            let (file, line, sid) = (set.files[own.file].clone(), own.line, own.rule.sid);
            (index, UnsetBit { bit: bit.to_owned(), file, line, sid, rules })
        })
        .collect();
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, own)| own).collect()
}
