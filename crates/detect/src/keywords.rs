//! Options of rules, and which of them are evaluated.

/// Options that are read, and with which a rule is refused whatever their value.
const REFUSED: &[&str] = &[
    "dns.response.rrname",
    "domain",
    "file.magic",
    "filemagic",
    "pcrexform",
    "ssh.protoversion",
    "ssl_state",
    "tld",
    "tls_cert_expired",
    "tls_cert_valid",
];

/// Options that are evaluated and that Suricata 7.0.10 does not list.
const LATER: &[&str] = &[
    "absent",
    "dns.additionals.rrname",
    "dns.answer.name",
    "dns.answers.rrname",
    "dns.authorities.rrname",
    "dns.queries.rrname",
    "dns.query.name",
    "dns.rcode",
    "dns.rrtype",
    "email.cc",
    "email.date",
    "email.from",
    "email.message_id",
    "email.received",
    "email.subject",
    "email.to",
    "email.url",
    "email.x_mailer",
    "from_base64",
    "ftp.command",
    "ftp.command_data",
    "ftp.completion_code",
    "ftp.reply",
    "smtp.helo",
    "smtp.mail_from",
    "smtp.rcpt_to",
    "tls.alpn",
    "tls.subjectaltname",
];

/// Whether Suricata 7 does not have an option that is evaluated here.
pub fn is_later(name: &str) -> bool {
    LATER.binary_search(&name).is_ok()
}

/// All options of the language by name, and whether rules with them are evaluated. Some values of an option may be refused
/// nevertheless.
pub fn keywords() -> Vec<(&'static str, bool)> {
    let of = |(name, is_known): (&'static str, bool)| (name, is_known && !REFUSED.contains(&name));
    let mut all: Vec<_> = signatures::keywords().map(of).collect();
    all.sort_unstable();
    all.dedup_by_key(|(name, _)| *name);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_options_are_options() {
        assert!(LATER.is_sorted());
        let all = keywords();
        for name in LATER {
            assert!(all.contains(&(name, true)), "{name}");
        }
        assert!(is_later("dns.query.name") && !is_later("dns.query") && !is_later("flags"));
    }

    /// What is said to be refused is, as a buffer, a text or a transform.
    #[test]
    fn refused_options_are_refused() {
        let all = keywords();
        for name in REFUSED {
            assert!(all.contains(&(name, false)), "{name}");
            let wholes = [
                format!("{name}; content:\"a\";"),
                format!("{name}:\"a\";"),
                format!("{name};"),
                format!("{name}:client_hello;"),
                format!("file.data; {name}; content:\"a\";"),
                format!("file.data; {name}:\"a\"; content:\"a\";"),
            ];
            let variables = signatures::Variables::default();
            let mut loader = signatures::Loader::new(variables.clone());
            for (sid, whole) in wholes.iter().enumerate() {
                let text = format!("alert tcp any any -> any any ({whole} sid:{};)\n", sid + 1);
                loader.read("test", &mut text.as_bytes()).unwrap();
            }
            let set = loader.finish();
            assert!(!set.rules.is_empty(), "{name}");
            let options = crate::Options::default();
            let (ruleset, refused) = crate::Ruleset::compile(&set, &variables, &options);
            assert_eq!((ruleset.len(), refused.len()), (0, set.rules.len()), "{name}");
        }
    }
}
