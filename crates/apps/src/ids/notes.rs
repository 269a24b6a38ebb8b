//! What can be read and is seldom meant: variables that no rule names, flowbits that no rule sets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use control::config::Ids;
use signatures::{Condition, Flowbits, List, RuleSet, Variables, nearest_variable};

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
