//! Words of a `ctl` command as people type them, made to those that the command line declares: unambiguous abbreviations
//! (`sh int`), and the words of `ip` (`route add default via 192.0.2.1`), whose options have no dashes.
//!
//! ```text
//! sh ro 10.0.0.0/8 longer-prefixes  ─▶  show routes 10.0.0.0/8 --longer-prefixes
//! -6 route add default dev wan      ─▶  route add -6 default --dev wan
//! ```
//!
//! Nothing here names a request: the commands are clap's, and the keywords are declared with the request or table
//! ([`controlplane::request::keywords`]).

use std::ffi::OsString;

use clap::Command;
use controlplane::request::keywords;

use super::ctl::{keywords_of, tree};

/// Options of `ctl` itself, which may be anywhere: with a value, or without.
const GLOBAL: [(&str, bool); 2] = [("--socket", true), ("--json", false)];

/// The command that some words lead to.
pub(crate) struct Led<'c> {
    /// It.
    pub(crate) command: &'c Command,
    /// The words that lead there, in full.
    pub(crate) path: Vec<&'c str>,
    /// The words behind them.
    pub(crate) rest: Vec<String>,
    /// Options of `ctl`, of the family (`-4`, `-6`) and for help, among or before them.
    options: Vec<String>,
}

/// Follows words down the tree of commands.
///
/// # Errors
/// A word may be several commands.
pub(crate) fn lead<'c>(
    tree: &'c Command,
    words: impl IntoIterator<Item = String>,
) -> Result<Led<'c>, String> {
    let mut led = Led { command: tree, path: Vec::new(), rest: Vec::new(), options: Vec::new() };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word.starts_with('-') {
            let has_value = GLOBAL.contains(&(&*word, true));
            led.options.push(word);
            led.options.extend(has_value.then(|| words.next()).flatten());
            continue;
        }
        match find(led.command, &word)? {
            Some(below) => {
                led.command = below;
                led.path.push(below.get_name());
            }
            None => led.rest.push(word),
        }
        if !led.rest.is_empty() || !led.command.has_subcommands() {
            break;
        }
    }
    led.rest.extend(words);
    Ok(led)
}

/// The command below `command` that a word means: of this name, or the only one whose name begins so.
fn find<'c>(command: &'c Command, word: &str) -> Result<Option<&'c Command>, String> {
    if let Some(found) = command.find_subcommand(word) {
        return Ok(Some(found));
    }
    let begins = |below: &&Command| below.get_name().starts_with(word) && !below.is_hide_set();
    let found: Vec<_> = command.get_subcommands().filter(begins).collect();
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        several => {
            let names: Vec<_> = several.iter().map(|below| below.get_name()).collect();
            Err(format!("`{word}` is ambiguous: {}", names.join(", ")))
        }
    }
}

impl Led<'_> {
    /// All words as the command line declares them.
    fn spelled_out(self) -> Vec<String> {
        // These are of the last command, wherever they are.
        let is_of_last = |option: &String| matches!(option.as_str(), "-4" | "-6" | "-h" | "--help");
        let (of_last, mut out): (Vec<_>, Vec<_>) = self.options.into_iter().partition(is_of_last);
        let mut rest = self.rest;
        if self.command.is_allow_external_subcommands_set() {
            // What follows a word that is no command would be its arguments.
            let mut words = std::mem::take(&mut rest).into_iter();
            while let Some(word) = words.next() {
                let name = word.split('=').next().unwrap_or_default();
                match GLOBAL.iter().find(|(global, _)| *global == name) {
                    Some((_, has_value)) => {
                        let value = (*has_value && name == word).then(|| words.next()).flatten();
                        out.push(word);
                        out.extend(value);
                    }
                    None => rest.push(word),
                }
            }
        }
        let keys = keywords_of(&self.path);
        out.extend(self.path.into_iter().map(str::to_owned));
        out.extend(of_last);
        out.extend(keywords(self.command, keys, rest));
        out
    }
}

/// The words of a `ctl` command, spelled out.
///
/// # Errors
/// A word may be several commands.
pub(crate) fn spelled_out(words: Vec<String>) -> Result<Vec<String>, String> {
    Ok(lead(&tree(), words)?.spelled_out())
}

/// The program's arguments, those of `ctl` spelled out.
///
/// # Errors
/// A word may be several commands.
pub(crate) fn of_command_line(args: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let words: Option<Vec<String>> =
        args.iter().map(|arg| arg.to_str().map(str::to_owned)).collect();
    // What is no text is for clap to refuse.
    let Some(mut words) = words.filter(|words| words.get(1).is_some_and(|word| word == "ctl"))
    else {
        return Ok(args);
    };
    let behind = words.split_off(2);
    Ok(words.into_iter().chain(spelled_out(behind)?).map(Into::into).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(words: &str) -> String {
        let words = words.split_whitespace().map(str::to_owned).collect();
        spelled_out(words).unwrap().join(" ")
    }

    #[test]
    fn words_are_spelled_out() {
        for (words, expected) in [
            ("sh int", "show interfaces"),
            ("sh ro 10.0.0.0/8 longer-prefixes", "show routes 10.0.0.0/8 --longer-prefixes"),
            ("show route 10.0.0.1", "show routes 10.0.0.1"),
            ("--json sh run", "--json show runtime"),
            ("--socket /s ro a 10.0.0.0/8 lan", "--socket /s route add 10.0.0.0/8 lan"),
            (
                "route add default via 192.0.2.1 dev lan",
                "route add default --via 192.0.2.1 --dev lan",
            ),
            ("-6 route add default dev lan", "route add -6 default --dev lan"),
            ("route delete 10.0.0.0/8", "route del 10.0.0.0/8"),
            (
                "route add 10.0.0.0/8 nexthop via 192.0.2.1 weight 2 nexthop dev lan --json",
                "route add 10.0.0.0/8 --nexthop=via 192.0.2.1 weight 2 --nexthop=dev lan --json",
            ),
            // A table that only the running program knows.
            ("show meters --json --socket /s", "--json --socket /s show meters"),
            ("show meters", "show meters"),
            // A rule may be called as an option of a route.
            ("rule add dev --action drop", "rule add dev --action drop"),
            ("weather", "weather"),
            ("", ""),
            ("--help", "--help"),
            ("show --help", "show --help"),
            ("ro -h", "route -h"),
            ("--json rule add --help", "--json rule add --help"),
            ("show neigh dev lan", "show neighbours --dev lan"),
        ] {
            assert_eq!(out(words), expected, "{words}");
        }
        let error = spelled_out(vec!["show".to_owned(), "r".to_owned()]).unwrap_err();
        assert_eq!(error, "`r` is ambiguous: runtime, routes, rules");
    }

    #[test]
    fn arguments_of_other_commands_are_left_alone() {
        for words in
            [&["shadeline", "run", "ctl", "sh"] as &[_], &["shadeline"], &["shadeline", "ct"]]
        {
            let args: Vec<OsString> = words.iter().map(Into::into).collect();
            assert_eq!(of_command_line(args.clone()).unwrap(), args);
        }
        let args = ["shadeline", "ctl", "sh", "dr"].iter().map(Into::into).collect();
        let expected: Vec<OsString> =
            ["shadeline", "ctl", "show", "drops"].iter().map(Into::into).collect();
        assert_eq!(of_command_line(args).unwrap(), expected);
    }
}
