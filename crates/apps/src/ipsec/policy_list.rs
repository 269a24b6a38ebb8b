//! Policies that `ctl policy` adds and removes, as `[[policy]]` of the configuration file.
//!
//! A policy has no name: it is what it says, and called by its place. What `ctl` adds is put among the policies in use in a file
//! of its own, which is read as any configuration is: so it has the words of the file, and a mistake gets the same answer.

use control::config::draft::{Draft, Keys, Value};
use control::config::{
    Diagnostic, PolicyAction, PolicyDirection, PolicyEntry, PortRange, Severity,
};

/// The policies with a new one at place `at`.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn added(now: &[PolicyEntry], at: usize, new: Keys) -> Result<Vec<PolicyEntry>, String> {
    let mut draft = Draft::parse("mode = \"router\"\n[port.a]\nbackend = \"memory\"\n")?;
    let mut list = draft.list(&["policy"]);
    let mut all: Vec<Keys> = now.iter().map(keys).collect();
    all.insert(at.min(all.len()), new);
    for (place, keys) in all.into_iter().enumerate() {
        list.insert(place, keys);
    }
    match control::config::parse(&draft.text(), &crate::known_stages()) {
        Ok((config, _)) => Ok(config.policies),
        Err(found) => {
            let mut errors = found.iter().filter(|own| own.severity == Severity::Error);
            let text = errors.next().map(Diagnostic::text);
            Err(text.unwrap_or_else(|| "the policy cannot be read".to_owned()))
        }
    }
}

/// Makes the policies of the file those of `now`; `file` are those that it has. Entries that stay keep their place and layout.
pub(super) fn save(now: &[PolicyEntry], file: &[PolicyEntry], draft: &mut Draft) {
    let (mut kept, mut from) = (Vec::new(), 0);
    for (number, own) in file.iter().enumerate() {
        if let Some(at) = now[from..].iter().position(|other| other == own) {
            kept.push((number, from + at));
            from += at + 1;
        }
    }
    let mut list = draft.list(&["policy"]);
    for number in (0..file.len()).rev() {
        if !kept.iter().any(|own| own.0 == number) {
            list.remove(number);
        }
    }
    for (place, own) in now.iter().enumerate() {
        if !kept.iter().any(|kept| kept.1 == place) {
            list.insert(place, keys(own));
        }
    }
}

/// A policy as keys of the file.
fn keys(own: &PolicyEntry) -> Keys {
    let action = match own.action {
        PolicyAction::Protect => "protect",
        PolicyAction::Bypass => "bypass",
        PolicyAction::Discard => "discard",
    };
    let direction = match own.direction {
        PolicyDirection::Both => None,
        PolicyDirection::In => Some("in"),
        PolicyDirection::Out => Some("out"),
    };
    let text = |key: &str, own: Option<String>| own.map(|own| (key.to_owned(), Value::from(own)));
    let ports = |key: &str, own: Option<&PortRange>| {
        let own = own?;
        let (first, last) = (*own.0.start(), *own.0.end());
        let value = match first == last {
            true => Value::from(i64::from(first)),
            false => Value::from(own.to_string()),
        };
        Some((key.to_owned(), value))
    };
    let protocol = own.protocol.map(|own| match own.to_string().parse::<u8>() {
        Ok(number) => ("protocol".to_owned(), Value::from(i64::from(number))),
        Err(_) => ("protocol".to_owned(), Value::from(own.to_string())),
    });
    let all = [
        text("action", Some(action.to_owned())),
        own.reqid.map(|own| ("reqid".to_owned(), Value::from(i64::from(own)))),
        own.if_id.map(|own| ("if_id".to_owned(), Value::from(i64::from(own)))),
        text("direction", direction.map(str::to_owned)),
        text("source", own.source.map(|own| own.to_string())),
        text("destination", own.destination.map(|own| own.to_string())),
        protocol,
        ports("source_port", own.source_port.as_ref()),
        ports("destination_port", own.destination_port.as_ref()),
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::commands::PolicyAdd;
    use super::*;

    fn words(text: &str) -> PolicyAdd {
        let mut add = PolicyAdd::default();
        for pair in text.split_whitespace().collect::<Vec<_>>().chunks(2) {
            let value = pair[1].to_owned();
            match pair[0] {
                "action" => add.action = value,
                "reqid" => add.reqid = value.parse().ok(),
                "direction" => add.direction = Some(value),
                "source" => add.source = value.parse().ok(),
                "destination" => add.destination = value.parse().ok(),
                "protocol" => add.protocol = Some(value),
                "source_port" => add.source_port = Some(value),
                _ => add.destination_port = Some(value),
            }
        }
        add
    }

    #[test]
    fn what_is_added_has_the_words_of_the_file_and_is_saved() {
        let mut now = Vec::new();
        for (at, text) in [
            (0, "action protect reqid 7 source 10.1.0.0/16 destination 10.2.0.0/16"),
            (0, "action bypass direction out protocol tcp source_port 80 destination_port 90-99"),
            (9, "action discard protocol 89"),
        ] {
            now = added(&now, at, words(text).keys()).unwrap();
        }
        let text: Vec<String> = now.iter().map(ToString::to_string).collect();
        assert!(text[0].contains("bypass") && text[1].contains("reqid 7"), "{text:?}");
        assert!(text[2].contains("discard") && text[2].contains("89"), "{text:?}");
        // To a file with two of them in another order, and one that is gone.
        let gone = added(&[], 0, words("action bypass source 10.9.0.0/16").keys()).unwrap();
        let file = [now[2].clone(), gone[0].clone(), now[0].clone()];
        let mut draft =
            Draft::parse("mode = \"router\"\n[port.a]\nbackend = \"memory\"\n").unwrap();
        let mut list = draft.list(&["policy"]);
        file.iter().enumerate().for_each(|(at, own)| list.insert(at, keys(own)));
        save(&now, &file, &mut draft);
        let (config, _) = control::config::parse(&draft.text(), &crate::known_stages()).unwrap();
        assert_eq!(config.policies, now);
    }

    #[test]
    fn mistakes_get_the_answer_of_the_file() {
        let said = |text: &str| added(&[], 0, words(text).keys()).unwrap_err();
        assert!(said("action protect").contains("reqid"), "{}", said("action protect"));
        assert!(said("action pass").contains("pass"));
        assert!(said("action discard source_port 9-1").contains("9-1"));
    }
}
