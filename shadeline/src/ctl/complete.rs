//! What may come next in a line of the shell: for Tab, and for `?`.
//!
//! Commands, options and their help are those of the command line. Names of ports, rules and the like are asked of the
//! running program: applications declare in which table they are ([`NameKind`]).

use clap::{Arg, Command, FromArgMatches};
use controlplane::NameKind;

use crate::cli::ctl::{keywords_of, names, tree};
use crate::cli::{CtlArgs, CtlCommand, words};

/// Something that may come next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// A word to insert; of a placeholder, what the help calls the value.
    pub(super) word: String,
    /// What it means.
    pub(super) help: String,
    /// It stands for values that are not known.
    pub(super) is_placeholder: bool,
}

/// Gives the names of a kind that the running program has.
pub(super) type Ask<'a> = &'a dyn Fn(&NameKind) -> Vec<String>;

/// Commands of the shell itself.
const OWN: [(&str, &str); 3] =
    [("help", "Print the help of a command"), ("exit", "End the shell"), ("quit", "End the shell")];

/// Where the word begins that the end of `line` is in.
pub(super) fn word_start(line: &str) -> usize {
    line.rfind(char::is_whitespace)
        .map_or(0, |at| at + line[at..].chars().next().map_or(1, char::len_utf8))
}

/// What may stand at the end of `line`, which may have the beginning of a word.
pub(super) fn candidates(line: &str, ask: Ask<'_>) -> Vec<Candidate> {
    let (before, partial) = line.split_at(word_start(line));
    let Some(typed) = shlex::split(before) else { return Vec::new() };
    let tree = tree();
    let (mut all, mut lacks_value) = (Vec::new(), false);
    let Ok(led) = words::lead(&tree, typed.iter().cloned()) else { return all };
    if led.command.has_subcommands() {
        if !led.rest.is_empty() {
            return all; // a command that nobody knows
        }
        let below = led.command.get_subcommands().filter(|below| !below.is_hide_set());
        all.extend(below.map(|below| word(below.get_name(), &about(below))));
        if led.path.is_empty() {
            all.extend(OWN.iter().map(|(name, help)| word(name, help)));
        }
    } else {
        let keywords = keywords_of(&led.path);
        lacks_value = arguments(led.command, keywords, &led.rest, partial, ask, &mut all);
    }
    all.retain(|own| own.is_placeholder || own.word.starts_with(partial));
    if partial.is_empty() && !lacks_value && is_complete(typed) {
        let help = "Execute the command".to_owned();
        all.push(Candidate { word: "<Enter>".to_owned(), help, is_placeholder: true });
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|own| seen.insert(own.word.clone()));
    all
}

/// Candidates as `?` lists them.
pub(super) fn text(candidates: &[Candidate]) -> String {
    let width = candidates.iter().map(|own| own.word.chars().count()).max().unwrap_or(0);
    let line =
        |own: &Candidate| format!("  {:width$}  {}", own.word, own.help).trim_end().to_owned();
    candidates.iter().map(|own| line(own) + "\n").collect()
}

fn word(word: &str, help: &str) -> Candidate {
    Candidate { word: word.to_owned(), help: help.to_owned(), is_placeholder: false }
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn help(arg: &Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default()
}

/// Whether these words are a whole command.
fn is_complete(typed: Vec<String>) -> bool {
    let Ok(words) = words::spelled_out(typed) else { return false };
    let Ok(matches) = tree().try_get_matches_from(words) else { return false };
    match CtlArgs::from_arg_matches(&matches).map(|args| args.command) {
        Ok(Some(CtlCommand::Declared(kind, own))) => kind.request(&own).is_ok(),
        Ok(Some(CtlCommand::Show(table, own))) => table.request(&own).is_ok(),
        Ok(Some(_)) => true,
        _ => false,
    }
}

/// Where the end of the arguments is.
enum At<'c> {
    /// The value of an option is missing.
    Value(&'c Arg),
    /// In the words of a phrase, behind this one.
    Phrase(&'c Arg, Option<String>),
    /// So many arguments have no option.
    Positional(usize),
}

/// What may follow the arguments `rest` of a command. Whether an option of these still lacks its value.
fn arguments(
    command: &Command,
    keywords: &[&str],
    rest: &[String],
    partial: &str,
    ask: Ask<'_>,
    all: &mut Vec<Candidate>,
) -> bool {
    let by_long = |name: &str| {
        let is_it = |arg: &&Arg| {
            arg.get_long() == Some(name)
                || arg.get_all_aliases().is_some_and(|all| all.contains(&name))
        };
        command.get_arguments().find(is_it)
    };
    let by_short = |name: char| command.get_arguments().find(|arg| arg.get_short() == Some(name));
    let keyword = |word: &str| keywords.contains(&word).then(|| by_long(word)).flatten();
    let (mut at, mut count) = (At::Positional(0), 0);
    let mut used: Vec<&str> = Vec::new();
    for word in rest {
        let mut letters = word.chars();
        let option = match (word.strip_prefix("--"), letters.next(), letters.next()) {
            (Some(long), ..) if !long.contains('=') => by_long(long),
            (None, Some('-'), Some(letter)) if letters.next().is_none() => by_short(letter),
            _ => None,
        };
        let takes_values = |arg: &Arg| arg.get_action().takes_values();
        at = match (at, option, keyword(word)) {
            (At::Value(_), ..) => At::Positional(count),
            (_, Some(arg), _) if takes_values(arg) => At::Value(arg),
            (_, Some(_), _) => At::Positional(count),
            (_, None, Some(arg)) if phrase(arg).is_some() => At::Phrase(arg, None),
            (At::Phrase(arg, _), ..) => At::Phrase(arg, Some(word.clone())),
            (_, None, Some(arg)) => {
                used.extend(arg.get_long());
                if takes_values(arg) { At::Value(arg) } else { At::Positional(count) }
            }
            (_, None, None) => {
                count += usize::from(!word.starts_with('-'));
                At::Positional(count)
            }
        };
    }
    match at {
        At::Value(arg) => {
            values(arg, value_name(arg), ask, all);
            return true;
        }
        At::Phrase(arg, last) => {
            let words = phrase(arg).unwrap_or_default();
            let is_word = |word: &str| word.chars().all(char::is_lowercase);
            let last = last.and_then(|last| words.iter().position(|own| *own == last));
            if let Some(value) =
                last.filter(|at| is_word(words[*at])).and_then(|at| words.get(at + 1))
            {
                values(arg, value, ask, all);
                return true;
            }
            all.extend(words.iter().filter(|own| is_word(own)).map(|own| word(own, "")));
            all.extend(arg.get_long().map(|long| word(long, &help(arg))));
            return false;
        }
        At::Positional(count) => {
            if let Some(arg) = command.get_positionals().filter(|arg| !arg.is_hide_set()).nth(count)
            {
                values(arg, value_name(arg), ask, all);
            }
        }
    }
    let open = keywords.iter().filter(|name| !used.contains(*name));
    all.extend(open.filter_map(|name| {
        let arg = by_long(name)?;
        let aliases = arg.get_visible_aliases().unwrap_or_default();
        let is_shown = arg.get_long() == Some(name) || aliases.contains(name);
        is_shown.then(|| word(name, &help(arg)))
    }));
    if partial.starts_with('-') || keywords.is_empty() {
        let long = command.get_arguments().filter(|arg| !arg.is_hide_set());
        all.extend(
            long.filter_map(|arg| Some(word(&format!("--{}", arg.get_long()?), &help(arg)))),
        );
        all.extend(partial.starts_with('-').then(|| word("--json", "Print JSON")));
    }
    false
}

/// The words of an option whose value is a phrase: `via ADDRESS dev PORT`.
fn phrase(arg: &Arg) -> Option<Vec<&str>> {
    let name = arg.get_value_names()?.iter().find(|name| name.contains(' '))?;
    Some(name.split(' ').collect())
}

fn value_name(arg: &Arg) -> &str {
    arg.get_value_names().and_then(<[_]>::first).map_or("VALUE", |name| name.as_str())
}

/// The values of an argument that are known, or what the help calls them.
fn values(arg: &Arg, name: &str, ask: Ask<'_>, all: &mut Vec<Candidate>) {
    let before = all.len();
    for value in arg.get_possible_values() {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        all.push(word(value.get_name(), &help));
    }
    for part in name.split('|') {
        let mut kinds = names().filter(|kind| kind.value == part || kind.value == name).peekable();
        if kinds.peek().is_none() && name.contains('|') && part.chars().all(char::is_lowercase) {
            all.push(word(part, ""));
        }
        for kind in kinds {
            all.extend(ask(kind).iter().map(|known| word(known, "")));
        }
    }
    // What is listed alone says nothing of what it is.
    let is_listed = !arg.get_possible_values().is_empty();
    if !is_listed {
        let help = help(arg);
        let own = Candidate { word: format!("<{name}>"), help, is_placeholder: true };
        all.insert(before, own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(kind: &NameKind) -> Vec<String> {
        let known: &[&str] = match kind.table {
            "routes" if kind.arguments.contains(&"api") => &["10.7.0.0/16"],
            "interfaces" => &["lan", "wan"],
            "rules" => &["ssh", "default"],
            "routes" => &["10.0.0.0/8"],
            "stages" => &["decode", "route"],
            _ => &[],
        };
        known.iter().map(|name| (*name).to_owned()).collect()
    }

    fn words(line: &str) -> Vec<String> {
        let all = candidates(line, &ask).into_iter();
        all.filter(|own| !own.is_placeholder).map(|own| own.word).collect()
    }

    fn has(line: &str, expected: &[&str]) {
        let found = words(line);
        for word in expected {
            assert!(found.iter().any(|own| own == word), "`{line}`: {found:?} lacks {word}");
        }
    }

    #[test]
    fn commands_tables_and_names_are_completed() {
        assert_eq!(words("sh"), ["show"]);
        assert_eq!(words("show inter"), ["interfaces"]);
        assert_eq!(words("sh ru"), ["runtime", "rules"]);
        assert_eq!(words("qu"), ["quit"]);
        has("", &["show", "route", "rule", "reload", "help", "exit"]);
        has("route ", &["add", "replace", "del", "get"]);
        assert_eq!(words("route add 10.0.0.0/8 dev "), ["lan", "wan"]);
        assert_eq!(words("route add 10.0.0.0/8 --dev w"), ["wan"]);
        assert_eq!(words("ro a 10.0.0.0/8 via 192.0.2.1 d"), ["dev"]);
        has("route add 10.0.0.0/8 ", &["via", "dev", "blackhole", "metric"]);
        assert!(!words("route add 10.0.0.0/8 via 192.0.2.1 ").contains(&"via".to_owned()));
        assert_eq!(words("route add 10.0.0.0/8 nexthop dev l"), ["lan"]);
        has("route add 10.0.0.0/8 nexthop via 192.0.2.1 ", &["dev", "weight", "nexthop"]);
        // Routes of other sources than `ctl` cannot be removed.
        assert_eq!(words("route del 10"), ["10.7.0.0/16"]);
        has("route add ", &["10.0.0.0/8"]);
        assert_eq!(words("show routes 10.0.0.0/8 lon"), ["longer-prefixes"]);
        has("route show source ", &["static"]);
        assert_eq!(words("rule del s"), ["ssh"]);
        assert_eq!(words("rule add x --before "), ["ssh", "default"]);
        assert_eq!(words("rule add x --in "), ["lan", "wan"]);
        has("capture ", &["lan", "wan", "decode", "route", "drops", "dumps"]);
        has("capture lan --", &["--write", "--count", "--json"]);
        assert_eq!(words("show routes source st"), ["static"]);
        has("show routes 10.0.0.0/8 ", &["longer-prefixes", "source"]);
        assert_eq!(words("show neighbours dev "), ["lan", "wan"]);
        assert!(words("weather ").is_empty() && words("show weather ").is_empty());
        assert!(words("rule del 'un").is_empty());
    }

    #[test]
    fn a_question_mark_lists_what_is_missing() {
        let text = text(&candidates("route add 10.0.0.0/8 via ", &ask));
        assert_eq!(text, "  <ADDRESS>  Address of the next hop\n");
        let all = candidates("show routes ", &ask);
        assert!(all.iter().any(|own| own.word == "<Enter>"), "{all:?}");
        let all = candidates("route add 10.0.0.0/8 ", &ask);
        assert!(all.iter().all(|own| own.word != "<Enter>"), "{all:?}");
        let all = candidates("route add 10.0.0.0/8 via 192.0.2.1 ", &ask);
        assert!(all.iter().any(|own| own.word == "<Enter>"), "{all:?}");
        let all = candidates("show ", &ask);
        let routes = all.iter().find(|own| own.word == "routes").unwrap();
        assert_eq!(routes.help, "Routes of all sources; `*`: in use");
    }
}
