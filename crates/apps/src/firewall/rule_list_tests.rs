//! Changes in any order against a plain list of rules.

use classify::filter::{Tail, application as number, header_v4, header_v6, shape};
use classify::{Classify, Match};
use lookup::versions::Patchable;

use super::*;

const CONFIG: &str = "[port.a]\n[port.b]\n[port.v]\nparent = \"a\"\nvlan = 7\n[l7]\n[firewall]\n";

/// A list without rules, and the tables as a worker has them.
fn start(algorithm: &str) -> (RuleList, FirewallTables) {
    let text = format!("{CONFIG}algorithm = \"{algorithm}\"\n");
    let (config, _) = config::parse(&text, &crate::known_stages()).unwrap();
    let interfaces = Interfaces::of(&config);
    RuleList::new("firewall", &config, &interfaces).unwrap()
}

/// Finishes a change.
fn whole(list: &mut RuleList, changed: Result<Changed, Refusal>) -> Result<Vec<String>, Refusal> {
    match changed? {
        Changed::Done(odd) => Ok(odd),
        Changed::Rebuild(rebuild) => {
            assert!(list.take_patches().is_empty() || !list.is_rebuilding, "a rule is missing");
            list.rebuilt(rebuild.run())
        }
    }
}

fn add(list: &mut RuleList, rule: Rule, place: &Place) -> Result<Vec<String>, Refusal> {
    let changed = list.add(rule, place);
    whole(list, changed)
}

fn replace(list: &mut RuleList, rule: Rule) -> Result<Vec<String>, Refusal> {
    let changed = list.replace(rule);
    whole(list, changed)
}

fn replace_all(list: &mut RuleList, entries: &[RuleEntry]) -> Result<(), Refusal> {
    let built = list.basis().build(entries, true).map_err(Refusal::Bad)?;
    list.take(built);
    Ok(())
}

/// Those that rules ask for. Structures change their headers when the first such rule comes.
const APPLICATIONS: [&str; 2] = ["bittorrent", "tls"];

/// Numbers that look random, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn rule(&mut self, name: String) -> Rule {
        let net = |random: &mut Self| match random.below(5) {
            0 => Some(format!("10.0.0.{}/{}", random.below(4) * 64, 26)),
            1 => Some("10.0.0.0/8".to_owned()),
            2 => Some(format!("fd00::{}/128", random.below(4))),
            _ => None,
        };
        let src = net(self).map(|net| net.parse().unwrap());
        let dport = (self.below(2) == 0).then(|| {
            let low = self.below(8) as u16;
            control::firewall::Ports::new(low, low + self.below(4) as u16)
        });
        let interface =
            (self.below(4) == 0).then(|| ["a", "b", "v"][self.below(3) as usize].into());
        let fragment = (self.below(6) == 0).then(|| self.below(2) == 0);
        let application = (self.below(8) == 0).then(|| APPLICATIONS[self.below(2) as usize].into());
        let conditions =
            Conditions { src, dport, interface, fragment, application, ..Conditions::default() };
        let actions = ["accept", "drop", "reject", "send b", "mirror a, mark 3, drop"];
        let action = actions[self.below(5) as usize].parse().unwrap();
        Rule { name, conditions, action }
    }

    /// A header of one family.
    fn header(&mut self) -> (Family, Vec<u32>) {
        let is_fragment = self.below(5) == 0;
        let ports = if is_fragment { shape::FRAGMENT } else { shape::PORTS };
        let dport = if is_fragment { 0 } else { self.below(12) as u16 };
        let tail = Tail {
            dport,
            proto: 17,
            shape: ports,
            interface: self.below(3) as u16,
            ..Tail::default()
        };
        if self.below(2) == 0 {
            let src = [0x0a00_0000, 0x0a01_0000][self.below(2) as usize] + self.below(256) as u32;
            (Family::V4, header_v4(src, 9, tail).to_vec())
        } else {
            let src = [0xfd00 << 48, self.below(5)];
            (Family::V6, header_v6(src, [0, 9], tail).to_vec())
        }
    }
}

/// What the list says: the first rule that matches.
fn plain<'a>(rules: &'a [Rule], family: Family, header: &[u32]) -> Option<&'a Rule> {
    let schema = set::schema(family, true);
    let number =
        |name: &str| ["a", "b", "v"].iter().position(|other| *other == name).map(|n| n as u16);
    rules.iter().find(|rule| {
        let words = words(&rule.conditions, &schema, family, number).unwrap();
        words.is_some_and(|words| schema.matches(&words, header))
    })
}

/// The tables, and the rows, are those of the list.
fn compare(firewall: &RuleList, tables: &FirewallTables, rules: &[Rule], random: &mut Random) {
    let rows = firewall.rows(None).unwrap();
    assert_eq!(rows.len(), rules.len() + 1);
    for (row, rule) in rows.iter().zip(rules) {
        assert_eq!(
            (&row.name, &row.conditions, &row.action),
            (&rule.name, &rule.conditions, &rule.action)
        );
    }
    let (v4, v6) = tables.rules().unwrap();
    for _ in 0..40 {
        let (family, header) = random.header();
        let mut found = [Match::NONE];
        let table = if family == Family::V4 { v4 } else { v6 };
        let application = [0, number(APPLICATIONS[0]), number(APPLICATIONS[1])];
        let mut wide = [header.clone(), vec![application[random.below(3) as usize]]].concat();
        wide.resize(set::schema(family, true).words(), 0);
        let is_wide = table.words() == wide.len();
        assert!(is_wide || rules.iter().all(|rule| rule.conditions.application.is_none()));
        table.classify(if is_wide { &wide } else { &header }, &mut found);
        let header = wide;
        let record = tables.record(found[0].id().unwrap_or(0)).unwrap();
        match plain(rules, family, &header) {
            Some(rule) => {
                assert_eq!(*record.name, *rule.name, "{header:x?}");
                assert_eq!(
                    record.action,
                    resolve(&rule.action, &firewall.interfaces, &[]).unwrap()
                );
            }
            None => assert_eq!(&*record.name, DEFAULT_RULE),
        }
    }
}

fn name(random: &mut Random) -> String {
    format!("r{}", random.below(30))
}

#[test]
fn changes_in_any_order_are_those_of_a_list() {
    for (seed, algorithm) in ["auto", "linear", "tuple", "bloom"].into_iter().enumerate() {
        let (mut firewall, mut tables) = start(algorithm);
        let (mut random, mut rules) = (Random(seed as u64), Vec::<Rule>::new());
        for _ in 0..600 {
            let rule_name = name(&mut random);
            let at = rules.iter().position(|rule| rule.name == rule_name);
            match random.below(8) {
                0..=3 => {
                    let rule = random.rule(rule_name);
                    let other = name(&mut random);
                    let before = rules.iter().position(|rule| rule.name == other);
                    let (place, to) = match (random.below(4), before) {
                        (0, _) => (Place::First, 0),
                        (1, Some(at)) => (Place::Before(other), at),
                        (2, Some(at)) => (Place::After(other), at + 1),
                        _ => (Place::Last, rules.len()),
                    };
                    let added = add(&mut firewall, rule.clone(), &place);
                    assert_eq!(added.is_ok(), at.is_none());
                    if at.is_none() {
                        rules.insert(to, rule);
                    }
                }
                4 => {
                    let rule = random.rule(rule_name);
                    let done = replace(&mut firewall, rule.clone());
                    match at {
                        Some(at) => rules[at] = rule,
                        None => assert!(matches!(done, Err(Refusal::NotFound(_)))),
                    }
                }
                5 | 6 => {
                    assert_eq!(firewall.remove(&rule_name).is_ok(), at.is_some());
                    rules.retain(|rule| rule.name != rule_name);
                }
                _ if random.below(6) == 0 => {
                    let count = random.below(20);
                    rules = (0..count).map(|n| random.rule(format!("r{n}"))).collect();
                    let entries: Vec<_> = rules.iter().cloned().map(RuleEntry::One).collect();
                    replace_all(&mut firewall, &entries).unwrap();
                }
                _ => {}
            }
            firewall.take_patches().iter().for_each(|patch| tables.apply(patch));
            compare(&firewall, &tables, &rules, &mut random);
        }
    }
}

#[test]
fn a_firewall_without_labels_refuses_applications() {
    let text = "[port.a]\n[firewall]\n";
    let (config, _) = config::parse(text, &crate::known_stages()).unwrap();
    let (mut firewall, tables) =
        RuleList::new("firewall", &config, &Interfaces::of(&config)).unwrap();
    let conditions = Conditions { application: Some("tls".into()), ..Conditions::default() };
    let rule = Rule { name: "r".into(), conditions, action: "drop".parse().unwrap() };
    let Err(Refusal::Bad(why)) = add(&mut firewall, rule.clone(), &Place::Last) else { panic!() };
    assert!(why.contains("nothing before the firewall labels flows"), "{why}");
    assert!(firewall.take_patches().is_empty() && tables.fits_device());
    // Kernels know no applications.
    let (mut firewall, mut tables) = start("linear");
    assert!(tables.fits_device());
    add(&mut firewall, rule, &Place::Last).unwrap();
    firewall.take_patches().iter().for_each(|patch| tables.apply(patch));
    assert!(!tables.fits_device());
    firewall.remove("r").unwrap();
    replace_all(&mut firewall, &[]).unwrap();
    firewall.take_patches().iter().for_each(|patch| tables.apply(patch));
    assert!(tables.fits_device());
}

#[test]
fn a_place_without_a_number_makes_new_ones() {
    let (mut firewall, mut tables) = start("tuple");
    let mut random = Random(7);
    let mut rules = vec![random.rule("first".into()), random.rule("last".into())];
    for rule in &rules {
        add(&mut firewall, rule.clone(), &Place::Last).unwrap();
    }
    // Always between the same two: the gap is halved until nothing is left of it.
    for n in 0..60 {
        let rule = random.rule(format!("n{n}"));
        add(&mut firewall, rule.clone(), &Place::After("first".into())).unwrap();
        rules.insert(1, rule);
    }
    for n in 0..5 {
        let rule = random.rule(format!("m{n}"));
        add(&mut firewall, rule.clone(), &Place::First).unwrap();
        rules.insert(0, rule);
    }
    firewall.take_patches().iter().for_each(|patch| tables.apply(patch));
    compare(&firewall, &tables, &rules, &mut random);
    // Ids are those that the rules began with.
    let id = |firewall: &RuleList, name: &str| firewall.names[name].0;
    let before = id(&firewall, "n7");
    let entries: Vec<_> = rules.iter().rev().cloned().map(RuleEntry::One).collect();
    replace_all(&mut firewall, &entries).unwrap();
    assert_eq!(id(&firewall, "n7"), before);
}

#[test]
fn what_is_refused_changes_nothing() {
    let (mut firewall, mut tables) = start("tuple");
    let mut random = Random(9);
    let rules: Vec<_> = (0..6).map(|n| random.rule(format!("r{n}"))).collect();
    let entries: Vec<_> = rules.iter().cloned().map(RuleEntry::One).collect();
    replace_all(&mut firewall, &entries).unwrap();
    let bad = |rule: &str| Rule { action: rule.parse().unwrap(), ..rules[0].clone() };
    // Packets leave by ports, not by subinterfaces.
    assert!(matches!(replace(&mut firewall, bad("send v")), Err(Refusal::Bad(_))));
    let new = Rule { name: "new".into(), ..bad("mirror nobody") };
    assert!(matches!(add(&mut firewall, new, &Place::Last), Err(Refusal::Bad(_))));
    let conditions = Conditions { icmp_code: Some(1), ..Conditions::default() };
    assert!(matches!(
        replace(&mut firewall, Rule { conditions, ..bad("drop") }),
        Err(Refusal::Bad(_))
    ));
    assert!(matches!(add(&mut firewall, bad("drop"), &Place::Last), Err(Refusal::Exists(_))));
    assert!(matches!(firewall.remove("new"), Err(Refusal::NotFound(_))));
    let twice = [entries.clone(), entries].concat();
    assert!(matches!(replace_all(&mut firewall, &twice), Err(Refusal::Bad(_))));
    firewall.take_patches().iter().for_each(|patch| tables.apply(patch));
    compare(&firewall, &tables, &rules, &mut random);
}
