//! Rules that `ctl nat` adds and removes, as `[[nat]]` of the configuration file.
//!
//! A rule has no name: it is what it says, and called by its place. What `ctl` adds is put among the rules in use in a file of
//! its own, which is read as any configuration is: so it has the words of the file, and a mistake gets the same answer.

use control::config::draft::{Draft, Keys, Value};
use control::config::{Diagnostic, NatKind, NatProtocol, NatRule, Severity};

/// The rules with a new one at place `at`. `ports`: those of the configuration.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn added(
    now: &[NatRule],
    at: usize,
    new: Keys,
    ports: &[String],
) -> Result<Vec<NatRule>, String> {
    let port = |name: &String| format!("[port.{name:?}]\nbackend = \"memory\"\n");
    let head: String = ports.iter().map(port).collect();
    let mut draft = Draft::parse(&format!("mode = \"router\"\n{head}"))?;
    let mut list = draft.list(&["nat"]);
    let mut all: Vec<Keys> = now.iter().map(keys).collect();
    all.insert(at.min(all.len()), new);
    for (place, keys) in all.into_iter().enumerate() {
        list.insert(place, keys);
    }
    match control::config::parse(&draft.text(), &crate::known_stages()) {
        Ok((config, _)) => Ok(config.nat),
        Err(found) => {
            let mut errors = found.iter().filter(|own| own.severity == Severity::Error);
            let text = errors.next().map(Diagnostic::text);
            Err(text.unwrap_or_else(|| "the rule cannot be read".to_owned()))
        }
    }
}

/// Makes the rules of the file those of `now`; `file` are those that it has. Entries that stay keep their place and layout.
pub(super) fn save(now: &[NatRule], file: &[NatRule], draft: &mut Draft) {
    let (mut kept, mut from) = (Vec::new(), 0);
    for (number, rule) in file.iter().enumerate() {
        if let Some(at) = now[from..].iter().position(|own| own == rule) {
            kept.push((number, from + at));
            from += at + 1;
        }
    }
    let mut list = draft.list(&["nat"]);
    for number in (0..file.len()).rev() {
        if !kept.iter().any(|own| own.0 == number) {
            list.remove(number);
        }
    }
    for (place, rule) in now.iter().enumerate() {
        if !kept.iter().any(|own| own.1 == place) {
            list.insert(place, keys(rule));
        }
    }
    // What translates for its rules stays without them.
    if now.is_empty() && !file.is_empty() {
        draft.need_section("translation");
    }
}

/// A rule as keys of the file.
pub(super) fn keys(rule: &NatRule) -> Keys {
    let kind = match rule.kind {
        NatKind::Masquerade => "masquerade",
        NatKind::Source => "source",
        NatKind::Destination => "destination",
        NatKind::Static => "static",
        NatKind::Deterministic => "deterministic",
        NatKind::Nat64 => "nat64",
    };
    let plain = NatRule::default();
    let texts = |key: &str, all: Vec<String>| {
        (!all.is_empty()).then(|| (key.to_owned(), Value::from_iter(all)))
    };
    let text = |key: &str, own: Option<String>| own.map(|own| (key.to_owned(), Value::from(own)));
    let ports = |key: &str, own: Option<&control::config::PortRange>| {
        let own = own?;
        let (first, last) = (*own.0.start(), *own.0.end());
        let value = match first == last {
            true => Value::from(i64::from(first)),
            false => Value::from(own.to_string()),
        };
        Some((key.to_owned(), value))
    };
    let protocol = rule.protocol.map(|protocol| match protocol {
        NatProtocol::Tcp => "tcp".to_owned(),
        NatProtocol::Udp => "udp".to_owned(),
        NatProtocol::Icmp => "icmp".to_owned(),
    });
    let all = [
        text("kind", Some(kind.to_owned())),
        texts("outside", rule.outside.clone()),
        texts("source", rule.source.iter().map(ToString::to_string).collect()),
        texts("destination", rule.destination.iter().map(ToString::to_string).collect()),
        text("protocol", protocol),
        ports("port", rule.port.as_ref()),
        text("to", rule.to.map(|to| to.to_string())),
        ports("ports", Some(&rule.ports).filter(|own| **own != plain.ports)),
        text("prefix", (rule.prefix != plain.prefix).then(|| rule.prefix.to_string())),
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &str =
        "mode = \"router\"\n[port.lan]\nbackend = \"memory\"\n[port.wan]\nbackend = \"memory\"\n";

    /// Rules of each kind, with each key.
    const ALL: [&str; 8] = [
        "kind = \"masquerade\"\noutside = [\"wan\"]\n",
        "kind = \"masquerade\"\noutside = [\"lan\"]\nsource = [\"10.0.0.0/8\"]\nports = \"2000-3000\"\n",
        "kind = \"source\"\nto = \"192.0.2.0/30\"\nprotocol = \"udp\"\n",
        "kind = \"destination\"\noutside = [\"wan\"]\nprotocol = \"tcp\"\nport = 8080\nto = \"10.0.0.9:80\"\n",
        "kind = \"destination\"\ndestination = [\"192.0.2.9\"]\nprotocol = \"udp\"\nport = \"90-99\"\nto = \"10.0.0.9\"\n",
        "kind = \"static\"\nsource = [\"10.1.0.0/24\"]\nto = \"198.51.100.0/24\"\n",
        "kind = \"deterministic\"\nsource = [\"10.2.0.0/24\"]\nto = \"203.0.113.0/30\"\n",
        "kind = \"nat64\"\nprefix = \"2001:db8:64::/96\"\nto = \"192.0.2.77\"\n",
    ];

    fn read(text: &str) -> Vec<NatRule> {
        control::config::parse(&format!("{HEAD}{text}"), &crate::known_stages()).unwrap().0.nat
    }

    fn file(rules: &[usize]) -> String {
        rules.iter().map(|own| format!("# Number {own}\n[[nat]]\n{}", ALL[*own])).collect()
    }

    #[test]
    fn a_rule_is_read_as_the_file_is() {
        let ports = ["lan".to_owned(), "wan".to_owned()];
        for text in ALL {
            let rule = read(&format!("[[nat]]\n{text}"));
            assert_eq!(added(&[], 0, keys(&rule[0]), &ports), Ok(rule));
        }
        let now = read(&file(&[0, 3]));
        let new = read(&file(&[5])).remove(0);
        let all = added(&now, 1, keys(&new), &ports).unwrap();
        assert_eq!(all, [now[0].clone(), new.clone(), now[1].clone()]);
        // The same mistakes as in a file.
        let said = added(&now, 2, keys(&now[1]), &ports).unwrap_err();
        assert!(said.contains("an earlier rule forwards these packets already"), "{said}");
        let said = added(&now, 2, keys(&new), &ports[..1]).unwrap_err();
        assert!(said.contains("wan"), "{said}");
        let none = vec![("kind".to_owned(), Value::from("mascarade"))];
        let said = added(&[], 0, none, &ports).unwrap_err();
        assert!(said.contains("masquerade"), "{said}");
    }

    #[test]
    fn without_rules_a_file_still_translates() {
        let text = format!("{HEAD}{}", file(&[0]));
        let mut draft = Draft::parse(&text).unwrap();
        save(&[], &read(&file(&[0])), &mut draft);
        let text = draft.text();
        let (config, _) = control::config::parse(&text, &crate::known_stages()).unwrap();
        assert!(config.nat.is_empty() && text.contains("[translation]"), "{text}");
        assert!(config.in_use().any(|pipeline| pipeline.has(super::super::STAGE)), "{text}");
    }

    proptest! {
        /// The file then has the rules of now; entries that stay have their comments.
        #[test]
        fn the_file_has_the_rules_of_now(
            before in Just((0..ALL.len()).collect::<Vec<_>>()).prop_shuffle(), some in 0..=ALL.len(),
            now in Just((0..ALL.len()).collect::<Vec<_>>()).prop_shuffle(), others in 1..=ALL.len(),
        ) {
            let (before, now) = (&before[..some], &now[..others]);
            let (old, new) = (read(&file(before)), read(&file(now)));
            let mut draft = Draft::parse(&format!("{HEAD}{}", file(before))).unwrap();
            save(&new, &old, &mut draft);
            let text = draft.text();
            let (config, _) = control::config::parse(&text, &crate::known_stages()).unwrap();
            prop_assert_eq!(&config.nat, &new);
            let mut again = Draft::parse(&text).unwrap();
            save(&new, &new, &mut again);
            prop_assert_eq!(again.text(), text.clone());
            if before == now {
                prop_assert_eq!(text, format!("{HEAD}{}", file(before)));
            }
        }
    }
}
