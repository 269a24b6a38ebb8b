//! Keys of the configuration file as rows of a Markdown table, and as a manual page.

use super::schema::SectionKeys;
use super::section::{About, Key, KeyDefault};

/// A Markdown table of keys: name, default, values, reload, text.
pub fn table<'k>(keys: impl IntoIterator<Item = &'k Key>) -> String {
    let mut table = "| key | default | values | reload | meaning |\n".to_owned();
    table += "| --- | --- | --- | --- | --- |\n";
    for key in keys {
        let About { allowed, default, .. } = key.about();
        let (name, reload, text) = (key.name, key.reload, key.text());
        table +=
            &format!("| `{name}` | {} | {allowed} | {reload} | {text} |\n", default_text(&default));
    }
    table
}

fn default_text(default: &KeyDefault) -> String {
    match default {
        KeyDefault::Value(value) => format!("`{value}`"),
        KeyDefault::Words(words) => (*words).to_owned(),
        KeyDefault::Absent => "–".to_owned(),
        KeyDefault::Needed(_) => "required".to_owned(),
    }
}

/// The manual page `shadeline.toml(5)` of these sections, as roff.
pub fn roff(sections: &[SectionKeys]) -> String {
    let mut page = String::from(HEAD);
    for SectionKeys { title, text, keys } in sections {
        page += &format!(".SH \"{}\"\n{}\n", quoted(title), formatted(text));
        for key in keys {
            let About { kind, allowed, default, .. } = key.about();
            page += &format!(".TP\n\\fB{}\\fR\n{}\n", escaped(key.name), formatted(&key.text()));
            page += &format!(".RS\n.PP\nType: {kind}. Values: {}.\n", formatted(&allowed));
            page += &match default {
                KeyDefault::Value(value) => format!("Default: \\fB{}\\fR.\n", escaped(&value)),
                KeyDefault::Words(words) => format!("Default: {}.\n", formatted(words)),
                KeyDefault::Absent => "Default: none.\n".to_owned(),
                KeyDefault::Needed(example) => {
                    format!("Required, for example \\fB{}\\fR.\n", escaped(example))
                }
            };
            page += &format!("Reload: {}.\n.RE\n", key.reload);
        }
    }
    page += FOOT;
    page
}

const HEAD: &str = "\
.TH SHADELINE.TOML 5 \"\" Shadeline
.SH NAME
shadeline.toml \\- configuration file of shadeline(1)
.SH DESCRIPTION
One TOML file holds the configuration.
\\fBshadeline run\\fR \\fIFILE\\fR starts with it, \\fBshadeline check\\fR \\fIFILE\\fR reports all errors,
\\fBshadeline ctl reload\\fR applies a changed file.
.PP
Durations are texts with the unit ns, us, ms, s, min or h (\\fB\"1.5ms\"\\fR).
Rates are integers per second, or texts with the unit pps, kpps, Mpps or /s.
.PP
Reload is \\fBlive\\fR if a reload applies a change, and \\fBrestart\\fR if only a restart does:
a reload then reports the key and keeps its old value.
";

const FOOT: &str = "\
.SH FILES
.TP
\\fB/run/shadeline/ctl.sock\\fR
The control socket, unless \\fBsocket\\fR of \\fB[system]\\fR names another.
.PP
Files that the configuration names may be compressed by gzip, xz or zstd.
A relative path starts at the folder of the configuration.
.SH EXAMPLES
A router with two ports and a default route:
.PP
.RS 4
.nf
mode = \"router\"

[port.lan]
interface = \"eth1\"
addresses = [\"192.0.2.1/24\", \"2001:db8:1::1/64\"]

[port.wan]
interface = \"eth2\"
addresses = [\"198.51.100.1/24\"]

[[route]]
prefix = \"0.0.0.0/0\"
via = \"198.51.100.2\"
.fi
.RE
.PP
Rules before it:
.PP
.RS 4
.nf
[firewall]
default = \"accept\"

[[rule]]
name = \"no\\-telnet\"
proto = \"tcp\"
dport = 23
action = \"reject\"
.fi
.RE
.SH \"SEE ALSO\"
.BR shadeline (1),
.BR shadeline\\-run (1),
.BR shadeline\\-check (1)
";

/// Markdown as roff: code in bold, links as their text.
fn formatted(markdown: &str) -> String {
    let mut out = String::new();
    for (at, part) in markdown.split('`').enumerate() {
        match at % 2 {
            0 => out += &escaped(&without_links(part)),
            _ => out += &format!("\\fB{}\\fR", escaped(part)),
        }
    }
    // A dot or a quote at the start of a line would be a request.
    if out.starts_with(['.', '\'']) { format!("\\&{out}") } else { out }
}

/// `[text](target)` becomes `text`.
fn without_links(markdown: &str) -> String {
    let mut out = String::new();
    let mut rest = markdown;
    while let Some(open) = rest.find('[') {
        let link = rest[open + 1..].split_once("](").and_then(|(text, after)| {
            let (_, after) = after.split_once(')')?;
            (!text.contains(']')).then_some((text, after))
        });
        let Some((text, after)) = link else {
            out += &rest[..=open];
            rest = &rest[open + 1..];
            continue;
        };
        out += &rest[..open];
        out += text;
        rest = after;
    }
    out + rest
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out += "\\e",
            '-' => out += "\\-",
            '–' => out += "\\(en",
            c => out.push(c),
        }
    }
    out
}

/// For the argument of a request, which quotes surround.
fn quoted(text: &str) -> String {
    escaped(&text.replace('`', "")).replace('"', "\"\"")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use super::*;
    use crate::config::schema;
    use crate::config::section::{self, SectionValue};
    use crate::config::{Application, KnownStages, StageKind};

    const PAGE: &str = "docs/configuration.md";
    const END: &str = "<!-- end of keys -->\n";

    /// Where the table of a section begins in the page.
    fn begin(title: &str) -> String {
        format!("<!-- keys: {title} -->\n")
    }

    /// The page with every table replaced.
    fn page(there: &str) -> String {
        let mut page = there.to_owned();
        for SectionKeys { title, keys, .. } in schema::keys() {
            let begin = begin(title);
            assert_eq!(page.matches(&begin).count(), 1, "{PAGE} has one line `{}`", begin.trim());
            let from = page.find(&begin).unwrap() + begin.len();
            let to = from + page[from..].find(END).expect("an end of keys");
            page.replace_range(from..to, &table(keys));
        }
        page
    }

    #[test]
    fn the_page_is_made_from_the_declarations() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
        let there = std::fs::read_to_string(&path).unwrap();
        let wanted = page(&there);
        if std::env::var_os("UPDATE_KEYS").is_some() {
            std::fs::write(&path, &wanted).unwrap();
            return;
        }
        assert!(there == wanted, "{PAGE} is old: UPDATE_KEYS=1 cargo test -p control manual");
        let marks = there.matches("<!-- keys: ").count();
        assert_eq!((marks, there.matches(END).count()), (schema::keys().len(), marks));
    }

    #[test]
    fn texts_of_keys_are_sentences() {
        for SectionKeys { title, text, keys } in schema::keys() {
            assert!(text.ends_with('.'), "{title}");
            for key in keys {
                let (name, text, About { kind, allowed, .. }) = (key.name, key.text(), key.about());
                let first = text.chars().next();
                assert!(first.is_some_and(|c| c.is_uppercase() || c == '`'), "{title} {name}");
                assert!(text.ends_with('.'), "{title} {name}: {text}");
                assert!(!text.contains(['|', '\n']) && !allowed.contains('|'), "{title} {name}");
                assert!(!kind.is_empty() && !allowed.is_empty(), "{title} {name}");
                assert_eq!(text.matches('`').count() % 2, 0, "{title} {name}");
            }
        }
    }

    #[test]
    fn no_section_has_a_key_twice() {
        for SectionKeys { title, keys, .. } in schema::keys() {
            let mut names: Vec<_> = keys.iter().map(|key| key.name).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{title}: {names:?}");
        }
    }

    /// The reader lists the keys that it knows where one is unknown: they are those of the tables.
    #[test]
    fn the_reader_knows_the_declared_keys() {
        let application = &Application::NONE;
        let kinds = vec![StageKind::new("x", application)];
        let known = KnownStages { kinds, ..KnownStages::default() };
        // Where the pipeline is unknown, no application hides the keys of another one.
        let text = "mode = \"?\"\n[system]\nzz = 1\n[router]\nzz = 1\n[engine]\nzz = 1\nsim.zz = 1\n[port.p]\nzz = 1\nfault.zz = 1\nhost.zz = 1\n\
                    storm.zz = 1\n[port.v]\nparent = \"p\"\nzz = 1\n[[route]]\nzz = 1\nvia = [{ zz = 1 }]\n[[routes]]\n\
                    zz = 1\n[[neighbour]]\nzz = 1\n[switch]\nzz = 1\n[[station]]\nzz = 1\n[pipeline.x]\nzz = 1\n\
                    [ndn]\nzz = 1\n[ndn.face.x]\nzz = 1\n[ndn.face.y]\nlocal = \"192.0.2.1\"\nzz = 1\n[[name]]\n\
                    zz = 1\n[[names]]\nzz = 1\n[firewall]\nzz = 1\n[flow]\nzz = 1\n[l7]\nzz = 1\n[ids]\nzz = 1\n[[module]]\nzz = 1\n[[nat]]\nzz = 1\n[translation]\nzz = 1\n[ipsec]\nzz = 1\n[[sa]]\nzz = 1\n[[policy]]\nzz = 1\n[[rule]]\naction = \"drop\"\nzz = 1\n\
                    [[rule]]\naction = \"drop\"\nfile = \"f\"\nzz = 1\n\
                    [stage.x]\nzz = 1\n[dump.x]\nzz = 1\n";
        let errors = crate::config::parse(text, &known).unwrap_err();
        let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for error in errors {
            let Some(section) = error.message.strip_prefix("unknown key `zz` in ") else {
                continue;
            };
            let section =
                ["port.p", "port.v", "pipeline.x", "stage.x", "dump.x", "ndn.face.x", "ndn.face.y"]
                    .iter()
                    .fold(section.to_owned(), |section, name| {
                        let (kind, _) = name.rsplit_once('.').unwrap();
                        section.replace(name, &format!("{kind}.NAME"))
                    })
                    .replace("[route.via]", "member");
            let expected = error.expected.unwrap_or_default();
            let names = expected.trim_start_matches("one of ").split(", ").map(str::to_owned);
            known.entry(section).or_default().extend(names);
        }
        // A table of tables.
        assert!(known.get_mut("[ndn]").unwrap().remove("face"));
        let mut declared: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for SectionKeys { title, keys, .. } in schema::keys() {
            // Behind the section's name is what makes a part of it.
            let section = title.split(' ').next().unwrap().to_owned();
            declared.entry(section).or_default().extend(keys.iter().map(|k| k.name.to_owned()));
        }
        assert!(declared.remove("Top").is_some());
        assert_eq!(known, declared);
    }

    fn settings(section: &dyn SectionValue) -> Vec<section::Setting> {
        let mut settings = Vec::new();
        section.settings("", &mut settings);
        settings
    }

    /// What the documentation calls the default is read as the default, and an example is read without mistakes.
    #[test]
    fn defaults_and_examples_are_read() {
        let mut values = 0;
        for default in schema::sections().into_iter().flat_map(|(_, sections)| sections) {
            for key in default.keys() {
                let value = match key.about().default {
                    KeyDefault::Value(value) => value,
                    KeyDefault::Needed(example) => example.to_owned(),
                    _ => continue,
                };
                let mut all = format!("[s]\n{} = {value}\n", key.name);
                // Others that must be there.
                for other in default.keys().iter().filter(|other| other.name != key.name) {
                    if let KeyDefault::Needed(example) = other.about().default {
                        all += &format!("{} = {example}\n", other.name);
                    }
                }
                let mut read = default.clone();
                assert_eq!(section::read(&all, "s", &mut *read), [], "{all}");
                if let KeyDefault::Value(_) = key.about().default {
                    let of = |section| {
                        let name = format!(".{}", key.name);
                        settings(section).into_iter().find(|setting| setting.key == name)
                    };
                    assert_eq!(of(&*read), of(&*default), "{all}");
                    values += 1;
                }
            }
        }
        assert!(values >= 50, "{values}");
    }

    #[test]
    fn the_manual_page_has_every_key() {
        let page = roff(&schema::keys());
        for SectionKeys { title, keys, .. } in schema::keys() {
            assert!(page.contains(&format!(".SH \"{}\"\n", quoted(title))), "{title}");
            for key in keys {
                assert!(page.contains(&format!(".TP\n\\fB{}\\fR\n", key.name)), "{}", key.name);
            }
        }
        // Empty lines are for examples, which are printed as they are.
        let mut as_is = false;
        for line in page.lines() {
            as_is = (as_is || line == ".nf") && line != ".fi";
            assert!(as_is || !line.is_empty());
        }
        let requests = [".TH", ".SH", ".TP", ".PP", ".RS", ".RE", ".BR", ".nf", ".fi"];
        for line in page.lines().filter(|line| line.starts_with(['.', '\''])) {
            assert!(requests.iter().any(|request| line.starts_with(request)), "{line}");
        }
        assert!(!page.contains('`') && !page.contains("]("));
    }

    #[test]
    fn markdown_becomes_roff() {
        for (markdown, roff) in [
            ("`a-b` and [x](y.md)", "\\fBa\\-b\\fR and x"),
            ("`[10, \"20-29\"]` [a] [b](c", "\\fB[10, \"20\\-29\"]\\fR [a] [b](c"),
            (".x", "\\&.x"),
            ("a\\b – c", "a\\eb \\(en c"),
        ] {
            assert_eq!(formatted(markdown), roff, "{markdown}");
        }
    }
}
