//! What a firewall shows: rows of `rule show`, its part of `show runtime`, its metrics.

use control::api::table::{Row, bytes_text, counts, thousands, time};
use control::firewall::{Action, Conditions, DEFAULT_RULE};
use control::metrics::Metrics;
use serde::{Deserialize, Serialize};

/// One rule of the firewall, or what becomes of packets that no rule matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleRow {
    /// In the order, from 1.
    pub place: u64,
    /// Its name; `default` behind all rules.
    pub name: String,
    /// What it asks of a packet.
    pub conditions: Conditions,
    /// What it does.
    pub action: Action,
    /// Packets that it matched, and no rule before it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time of the last match, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_hit_s: Option<f64>,
    /// How long ago that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
}

impl Row for RuleRow {
    const COLUMNS: &'static [&'static str] =
        &[">#", "rule", "matches", "action", ">packets", ">bytes", ">last hit"];

    fn cells(&self) -> Vec<String> {
        let is_default = self.name == DEFAULT_RULE;
        vec![
            if is_default { String::new() } else { self.place.to_string() },
            self.name.clone(),
            if is_default {
                "what no rule matches".to_owned()
            } else {
                self.conditions.to_string()
            },
            self.action.to_string(),
            thousands(self.packets),
            thousands(self.bytes),
            self.age_s.map_or_else(String::new, |age| format!("{} ago", time(age))),
        ]
    }
}

/// What a firewall has, and what it did beside the fates of the packets that it was given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FirewallTotals {
    /// Rules.
    pub rules: u64,
    /// Structure that finds the rule of a packet.
    pub algorithm: String,
    /// Bytes of its tables, one copy.
    pub rule_bytes: u64,
    /// Copies sent by `mirror`.
    pub copies: u64,
    /// Copies for which no cell was free.
    pub copies_lost: u64,
    /// Answers of a switch for packets that were rejected; a router counts its own.
    pub answers: u64,
    /// Those that the rate limit withheld.
    pub answers_withheld: u64,
}

impl FirewallTotals {
    /// Its lines of `show runtime`.
    pub fn lines(&self) -> Vec<[String; 2]> {
        let t = self;
        let bytes = bytes_text(t.rule_bytes);
        let rules = format!("{} by {}, {bytes}", thousands(t.rules), t.algorithm);
        let copies = [(t.copies, "sent"), (t.copies_lost, "lost")];
        let answers = [(t.answers, "sent"), (t.answers_withheld, "withheld")];
        vec![
            ["rules".to_owned(), rules],
            ["copies".to_owned(), counts(&copies)],
            ["rejections".to_owned(), counts(&answers)],
        ]
    }

    /// Its families, without those of its rules.
    pub fn metrics(&self, out: &mut Metrics) {
        metrics(&[Counted { stage: None, totals: self, rules: &[] }], out);
    }
}

/// A firewall and its rules, for the metrics.
#[derive(Debug, Clone, Copy)]
pub struct Counted<'a> {
    /// Its name, the label `stage`; `None` where it is the only one: no label.
    pub stage: Option<&'a str>,
    /// What it has and did.
    pub totals: &'a FirewallTotals,
    /// Its rules, the default last.
    pub rules: &'a [RuleRow],
}

/// The families of all firewalls of a program: each family once, whatever number of firewalls it has samples of.
pub fn metrics(firewalls: &[Counted<'_>], out: &mut Metrics) {
    type Total = (&'static str, &'static str, fn(&FirewallTotals) -> u64);
    let totals: [Total; 4] = [
        ("mirror_copies_total", "Copies sent by rules.", |t| t.copies),
        ("mirror_copies_lost_total", "Copies lost for lack of a cell.", |t| t.copies_lost),
        (
            "reject_answers_total",
            "Answers to rejected packets, of a firewall in a switch or a wire.",
            |t| t.answers,
        ),
        ("reject_answers_withheld_total", "Answers withheld by the rate limit.", |t| {
            t.answers_withheld
        }),
    ];
    let mut family = out.gauge("rules", "Rules of the firewall.");
    for firewall in firewalls {
        family.sample(&labels(firewall, None), firewall.totals.rules);
    }
    for (name, help, value) in totals {
        let mut family = out.counter(name, help);
        for firewall in firewalls {
            family.sample(&labels(firewall, None), value(firewall.totals));
        }
    }
    let rules = || {
        let of = |firewall| move |rule| (labels(firewall, Some(rule)), rule);
        firewalls.iter().flat_map(move |firewall| firewall.rules.iter().map(of(firewall)))
    };
    let mut family = out.counter("rule_packets_total", "Packets that matched a rule.");
    rules().for_each(|(labels, rule)| family.sample(&labels, rule.packets));
    let mut family = out.counter("rule_bytes_total", "Bytes that matched a rule.");
    rules().for_each(|(labels, rule)| family.sample(&labels, rule.bytes));
    let mut family = out
        .gauge("rule_last_hit_timestamp_seconds", "Time of the last match, in seconds since 1970.");
    for (labels, rule) in rules() {
        if let Some(seconds) = rule.last_hit_s {
            family.sample(&labels, seconds);
        }
    }
}

/// Labels of a firewall's sample, or of its rule's.
fn labels<'a>(firewall: &Counted<'a>, rule: Option<&'a RuleRow>) -> Vec<(&'static str, &'a str)> {
    let stage = firewall.stage.map(|stage| ("stage", stage));
    stage.into_iter().chain(rule.map(|rule| ("rule", rule.name.as_str()))).collect()
}

#[cfg(test)]
mod tests {
    use control::api::table::table;
    use control::firewall::Ending;
    use control::metrics::{Snapshot, encode};

    use super::*;

    fn rule(name: &str) -> RuleRow {
        RuleRow {
            place: 1,
            name: name.to_owned(),
            conditions: Conditions::default(),
            action: Action::of(Ending::Drop),
            packets: 3,
            bytes: 1800,
            last_hit_s: Some(1.5),
            age_s: Some(2.0),
        }
    }

    #[test]
    fn rules_are_shown() {
        let default = RuleRow { place: 2, age_s: None, last_hit_s: None, ..rule(DEFAULT_RULE) };
        let expected = "\
#  rule     matches               action  packets  bytes   last hit
1  ssh      any                   drop          3  1,800  2.0 s ago
-  default  what no rule matches  drop          3  1,800          -
";
        assert_eq!(table(&[rule("ssh"), default.clone()]), expected);
        let json = r#"{"place":2,"name":"default","conditions":{},"action":"drop","packets":3,"bytes":1800}"#;
        assert_eq!(serde_json::to_string(&default).unwrap(), json);
    }

    #[test]
    fn totals_are_shown() {
        let totals = FirewallTotals {
            rules: 1200,
            algorithm: "tuple".to_owned(),
            rule_bytes: 2048,
            copies: 4,
            ..FirewallTotals::default()
        };
        let lines: String =
            totals.lines().iter().map(|[title, text]| format!("{title}: {text}\n")).collect();
        assert_eq!(
            lines,
            "rules: 1,200 by tuple, 2.0 KiB\ncopies: 4 sent, 0 lost\n\
             rejections: 0 sent, 0 withheld\n"
        );
        let one = Counted { stage: None, totals: &totals, rules: &[rule("ssh")] };
        let text = encode(&Snapshot::default(), |out| metrics(&[one], out));
        for line in [
            "shadeline_rules 1200",
            "shadeline_mirror_copies_total 4",
            "shadeline_rule_packets_total{rule=\"ssh\"} 3",
            "shadeline_rule_last_hit_timestamp_seconds{rule=\"ssh\"} 1.5",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\nnot in\n{text}");
        }
        let two = ["edge", "core"].map(|stage| Counted { stage: Some(stage), ..one });
        let text = encode(&Snapshot::default(), |out| metrics(&two, out));
        for line in [
            "shadeline_rules{stage=\"core\"} 1200",
            "shadeline_rule_packets_total{stage=\"edge\",rule=\"ssh\"} 3",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\nnot in\n{text}");
        }
        assert_eq!(text.matches("# TYPE shadeline_rules ").count(), 1);
    }
}
