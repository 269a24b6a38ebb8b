//! Whether text has colours: `--color`, else the environment, else whether it goes to a terminal.
//!
//! `NO_COLOR` (not empty) turns them off and `CLICOLOR_FORCE` (not empty, not `0`) on; `--color always` and `--color never`
//! are stronger than both. A terminal that is none (`TERM=dumb`) has none.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::{ColorChoice, ValueEnum};

/// What the command line says.
static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// Takes `--color` from the command line. The messages of the command line's own parser have colours, too, so this comes
/// before it; the parser then reports what is wrong.
pub(crate) fn choose(words: impl Iterator<Item = OsString>) -> ColorChoice {
    *CHOICE.get_or_init(|| wanted(words))
}

/// Whether text for this stream has colours.
pub(crate) fn is_on(stream: impl IsTerminal) -> bool {
    let of_environment = |name: &str| std::env::var(name).ok();
    decided(CHOICE.get().copied().unwrap_or_default(), of_environment, stream.is_terminal())
}

fn wanted(mut words: impl Iterator<Item = OsString>) -> ColorChoice {
    let mut choice = ColorChoice::Auto;
    while let Some(word) = words.next() {
        let word = word.to_string_lossy();
        let value = match word.strip_prefix("--color") {
            Some("") => words.next().map(|value| value.to_string_lossy().into_owned()),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            // Words behind this are no options.
            None if word == "--" => break,
            None => None,
        };
        if let Some(value) = value.and_then(|value| ColorChoice::from_str(&value, false).ok()) {
            choice = value;
        }
    }
    choice
}

fn decided(
    choice: ColorChoice,
    variable: impl Fn(&str) -> Option<String>,
    is_terminal: bool,
) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if is_set("NO_COLOR") => false,
        ColorChoice::Auto
            if is_set("CLICOLOR_FORCE") && variable("CLICOLOR_FORCE").as_deref() != Some("0") =>
        {
            true
        }
        ColorChoice::Auto => is_terminal && variable("TERM").as_deref() != Some("dumb"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_stronger_than_the_environment() {
        use ColorChoice::{Always, Auto, Never};
        /// What the command line says, the environment, whether it is a terminal, what follows.
        type Case = (ColorChoice, &'static [(&'static str, &'static str)], bool, bool);
        let cases: &[Case] = &[
            (Auto, &[], true, true),
            (Auto, &[], false, false),
            (Auto, &[("NO_COLOR", "1")], true, false),
            (Auto, &[("NO_COLOR", "")], true, true),
            (Auto, &[("CLICOLOR_FORCE", "1")], false, true),
            (Auto, &[("CLICOLOR_FORCE", "0")], false, false),
            (Auto, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], true, false),
            (Auto, &[("TERM", "dumb")], true, false),
            (Always, &[("NO_COLOR", "1")], false, true),
            (Never, &[("CLICOLOR_FORCE", "1")], true, false),
        ];
        for (choice, set, is_terminal, expected) in cases {
            let variable = |name: &str| {
                set.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
            };
            let is_on = decided(*choice, variable, *is_terminal);
            assert_eq!(is_on, *expected, "{choice:?} {set:?} {is_terminal}");
        }
    }

    #[test]
    fn it_is_found_anywhere_before_the_end_of_options() {
        let of = |line: &str| wanted(line.split(' ').map(OsString::from));
        for (line, expected) in [
            ("shadeline check c.toml", ColorChoice::Auto),
            ("shadeline --color never check c.toml", ColorChoice::Never),
            ("shadeline check --color=always c.toml", ColorChoice::Always),
            ("shadeline check --color=odd c.toml", ColorChoice::Auto),
            ("shadeline check --color", ColorChoice::Auto),
            ("shadeline check -- --color never", ColorChoice::Auto),
            ("shadeline --colors never", ColorChoice::Auto),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
    }
}
