//! Rules of a firewall as `[[rule]]` of the configuration file.
//!
//! The entries of the file that are still there, in their order, stay where they are; of others only what differs is
//! changed, and the rest is removed or inserted. An entry that is a file of rules stays if all of its rules are there as
//! they were, one behind the other. Otherwise its rules become entries of their own, for the file of rules has neither names
//! nor actions.
//!
//! An entry without a name is called by its number. If that changes, the entry gets its name written down.

use std::collections::HashMap;

use control::config::draft::{Draft, Keys, Value};
use control::config::{RuleEntry, rule_list};
use control::firewall::Rule;

/// Makes the rules of the file those of `now`; `entries` are those that it has, under `path`. Whether anything changed.
pub(super) fn rules(now: &[Rule], entries: &[RuleEntry], path: &[&str], draft: &mut Draft) -> bool {
    let places: HashMap<&str, usize> =
        now.iter().enumerate().map(|(at, rule)| (&*rule.name, at)).collect();
    // By entry: where its rules are now.
    let is_there = |entry: &RuleEntry| match entry {
        RuleEntry::One(rule) => places.get(&*rule.name).copied(),
        RuleEntry::File(_) => {
            let mut rules =
                rule_list(std::slice::from_ref(entry)).map(|(name, conditions, action)| Rule {
                    name: name.to_string(),
                    conditions: conditions.clone(),
                    action: action.clone(),
                });
            let first = rules.next()?;
            let begin = *places.get(&*first.name)?;
            let behind = now.get(begin + 1..begin + entry.len())?;
            (now[begin] == first && behind.iter().cloned().eq(rules)).then_some(begin)
        }
    };
    let found: Vec<(usize, usize)> = entries
        .iter()
        .enumerate()
        .filter_map(|(number, entry)| Some((number, is_there(entry)?)))
        .collect();
    let kept = in_order(&found);
    let mut list = draft.list(path);
    let mut changed = false;
    for number in (0..entries.len()).rev() {
        if kept.binary_search_by_key(&number, |(number, _)| *number).is_err() {
            list.remove(number);
            changed = true;
        }
    }
    let (mut kept, mut place, mut at) = (kept.into_iter().peekable(), 0, 0);
    while place < now.len() || kept.peek().is_some() {
        match kept.next_if(|(_, begin)| *begin == place) {
            Some((number, _)) => {
                let entry = &entries[number];
                if number != at && !list.has(at, "name") {
                    list.set(at, "name", Some(entry.name().into()));
                    changed = true;
                }
                if let RuleEntry::One(rule) = entry {
                    for (key, value) in differences(rule, &now[place]) {
                        list.set(at, &key, value);
                        changed = true;
                    }
                }
                place += entry.len();
            }
            None => {
                list.insert(at, keys(&now[place]));
                changed = true;
                place += 1;
            }
        }
        at += 1;
    }
    changed
}

/// The most of these pairs whose second numbers increase, too (the first ones do).
fn in_order(all: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // By length: the pair that ends the sequence of that length with the smallest number; by pair: the one before it.
    let (mut ends, mut before) = (Vec::<usize>::new(), vec![None; all.len()]);
    for (number, (_, place)) in all.iter().enumerate() {
        let length = ends.partition_point(|end| all[*end].1 < *place);
        before[number] = length.checked_sub(1).map(|shorter| ends[shorter]);
        match ends.get_mut(length) {
            Some(end) => *end = number,
            None => ends.push(number),
        }
    }
    let mut sequence: Vec<_> =
        std::iter::successors(ends.last().copied(), |number| before[*number])
            .map(|n| all[n])
            .collect();
    sequence.reverse();
    sequence
}

/// A rule as keys of the file.
fn keys(rule: &Rule) -> Keys {
    let own = [("name", rule.name.as_str().into()), ("action", rule.action.to_string().into())];
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value));
    own.chain(conditions(rule)).collect()
}

fn conditions(rule: &Rule) -> Keys {
    let fields = control::api::fields_of(&rule.conditions).unwrap_or_default();
    let value = |value: serde_json::Value| match value {
        serde_json::Value::Bool(flag) => Value::from(flag),
        serde_json::Value::Number(number) => Value::from(number.as_i64().unwrap_or_default()),
        serde_json::Value::String(text) => match text.parse::<u16>() {
            // A port or a protocol by its number.
            Ok(number) => Value::from(i64::from(number)),
            Err(_) => Value::from(text),
        },
        other => Value::from(other.to_string()),
    };
    fields.into_iter().map(|(key, own)| (key, value(own))).collect()
}

/// Keys of a rule that must have other values, or none.
fn differences(before: &Rule, now: &Rule) -> Vec<(String, Option<Value>)> {
    let mut all = Vec::new();
    if before.action != now.action {
        all.push(("action".to_owned(), Some(now.action.to_string().into())));
    }
    if before.conditions == now.conditions {
        return all;
    }
    let (before, now) = (conditions(before), conditions(now));
    let value = |keys: &Keys, key: &str| {
        keys.iter().find(|(own, _)| own == key).map(|(_, value)| value.to_string())
    };
    let gone = before.iter().filter(|(key, _)| value(&now, key).is_none());
    all.extend(gone.map(|(key, _)| (key.clone(), None)));
    let other = now.iter().filter(|(key, own)| value(&before, key) != Some(own.to_string()));
    all.extend(other.map(|(key, own)| (key.clone(), Some(own.clone()))));
    all
}

#[cfg(test)]
mod tests {
    use control::config::RuleFile;
    use proptest::prelude::*;

    use super::*;

    fn rule(name: &str, port: u16) -> Rule {
        let json = serde_json::json!({
            "name": name, "action": "drop",
            "conditions": {"in": "lan", "proto": "tcp", "dport": port.to_string()},
        });
        serde_json::from_value(json).unwrap()
    }

    const HEAD: &str =
        "mode = \"wire\"\n[port.lan]\nbackend = \"memory\"\n[port.wan]\nbackend = \"memory\"\n";

    /// The entries of a text.
    fn read(text: &str) -> Vec<RuleEntry> {
        let known = crate::known_stages();
        let (config, _) = control::config::parse(&format!("{HEAD}{text}"), &known).unwrap();
        config.firewall.rules
    }

    fn listed(entries: &[RuleEntry]) -> Vec<Rule> {
        let rules = rule_list(entries).map(|(name, conditions, action)| Rule {
            name: name.to_string(),
            conditions: conditions.clone(),
            action: action.clone(),
        });
        rules.collect()
    }

    fn saved(text: &str, now: &[Rule]) -> String {
        let mut draft = Draft::parse(text).unwrap();
        let changed = rules(now, &read(text), &["rule"], &mut draft);
        assert_eq!(changed, draft.text() != text);
        assert_eq!(listed(&read(&draft.text())), now);
        draft.text()
    }

    const FILE: &str = "# The first\n[[rule]]\nname = \"a\" # one\naction = \"drop\"\nin = \"lan\"\nproto = 6\ndport = 1\n\
                        [[rule]]\naction = \"drop\"\nin = \"lan\"\nproto = \"tcp\"\ndport = 2\n\
                        # The last\n[[rule]]\naction = \"drop\"\nin = \"lan\"\nproto = \"tcp\"\ndport = 3\n";

    #[test]
    fn what_is_the_same_stays_as_it_is() {
        let all = listed(&read(FILE));
        assert_eq!(saved(FILE, &all), FILE);
        // A rule in front: those behind it keep their names.
        let more = [&[rule("new", 9)], &all[..]].concat();
        let text = saved(FILE, &more);
        assert!(text.contains("name = \"#2\"") && text.contains("name = \"#3\""), "{text}");
        assert!(text.contains("# The first\n[[rule]]\nname = \"a\" # one"), "{text}");
        // One behind: nothing else changes.
        let text = saved(FILE, &[&all[..], &[rule("new", 9)]].concat());
        let new = "\n[[rule]]\nname = \"new\"\naction = \"drop\"\ndport = 9\nin = \"lan\"\nproto = \"tcp\"\n";
        assert_eq!(text, format!("{FILE}{new}"));
        // One less, with its comment.
        assert!(!saved(FILE, &all[1..]).contains("# The first"));
        assert_eq!(saved(FILE, &[]), "");
        // One that is another one by now: what differs.
        let other = Rule { action: "accept".parse().unwrap(), ..rule("#2", 2) };
        let text = saved(FILE, &[all[0].clone(), other, all[2].clone()]);
        assert_eq!(
            text,
            FILE.replacen(
                "action = \"drop\"\nin = \"lan\"\nproto = \"tcp\"\ndport = 2",
                "action = \"accept\"\nin = \"lan\"\nproto = \"tcp\"\ndport = 2",
                1
            )
        );
        let text = saved(FILE, &[rule("a", 7), all[1].clone(), all[2].clone()]);
        assert_eq!(text, FILE.replace("dport = 1", "dport = 7"));
    }

    /// Rules of a file of rules: kept as a whole, or written down one by one.
    #[test]
    fn a_file_of_rules_stays_while_it_says_the_same() {
        let conditions: Vec<_> = (0..3).map(|port| rule("", port).conditions).collect();
        let action = "drop".parse().unwrap();
        let file = RuleFile {
            name: "acl".to_owned(),
            path: "acl".into(),
            action,
            rules: conditions.into(),
        };
        let entries = [RuleEntry::One(rule("a", 1)), RuleEntry::File(file)];
        let text = "[[rule]]\nname = \"a\"\naction = \"drop\"\nin = \"lan\"\nproto = \"tcp\"\ndport = 1\n\
                    [[rule]]\nfile = \"acl\"\naction = \"drop\"\n";
        let all = listed(&entries);
        assert_eq!(all[1].name, "acl:0");
        let saved = |now: &[Rule]| {
            let mut draft = Draft::parse(text).unwrap();
            rules(now, &entries, &["rule"], &mut draft);
            draft.text()
        };
        assert_eq!(saved(&all), text);
        assert!(
            saved(&all[1..]).contains("name = \"acl\"\n")
                || saved(&all[1..]).contains("name = \"acl\"")
        );
        let added = saved(&[&all[..], &[rule("b", 9)]].concat());
        assert!(added.starts_with(text) && added.contains("name = \"b\""), "{added}");
        let less = saved(&all[..3]);
        assert!(!less.contains("file =") && less.contains("name = \"acl:1\""), "{less}");
        assert_eq!(listed(&read(&less)), all[..3]);
    }

    proptest! {
        /// Whatever rules there are, the file then has them, and a second time there is nothing to do.
        #[test]
        fn the_file_has_the_rules_of_now(
            before in prop::collection::vec((0..12_u16, any::<bool>()), 0..10),
            now in prop::collection::vec((0..12_u16, 0..3_u16), 0..10),
        ) {
            let mut seen = std::collections::HashSet::new();
            let before = before.iter().filter(|(name, _)| seen.insert(*name));
            let text: String = before.map(|(name, is_named)| {
                let name = if *is_named { format!("name = \"r{name}\"\n") } else { String::new() };
                format!("[[rule]]\n{name}action = \"drop\"\nin = \"lan\"\nproto = \"tcp\"\ndport = 1\n")
            }).collect();
            let names: Vec<String> = listed(&read(&text)).into_iter().map(|rule| rule.name).collect();
            let mut seen = std::collections::HashSet::new();
            // Names of the file among others.
            let name = |at: u16| names.get(usize::from(at)).cloned().unwrap_or(format!("n{at}"));
            let now: Vec<Rule> = now.iter().map(|(at, port)| rule(&name(*at), *port))
                .filter(|rule| seen.insert(rule.name.clone())).collect();
            let text = saved(&text, &now);
            prop_assert_eq!(saved(&text, &now), text);
        }

        #[test]
        fn the_longest_sequence_is_found(places in prop::collection::vec(0..9_usize, 0..9)) {
            let mut seen = std::collections::HashSet::new();
            let all: Vec<_> = places.into_iter().filter(|place| seen.insert(*place)).enumerate().collect();
            let found = in_order(&all);
            prop_assert!(found.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
            let longest = (0..1_u32 << all.len()).filter_map(|set| {
                let some: Vec<_> = (0..all.len()).filter(|at| set >> at & 1 == 1).map(|at| all[at].1).collect();
                some.is_sorted().then_some(some.len())
            }).max().unwrap();
            prop_assert_eq!(found.len(), longest);
        }
    }
}
