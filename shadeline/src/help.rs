//! `shadeline help`: of commands, and of topics, which are the pages of docs/.
//!
//! clap's own `help` knows commands alone, so what follows the word does not get there.
//!
//! The pages are part of the program, so that a user who has nothing else can read them. On a terminal they go through
//! a pager.

#[cfg(test)]
mod commands;
mod page;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

use clap::CommandFactory;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output::{coloured, line};

/// The pages of docs/ by their names, in order.
const TOPICS: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/topics.rs"));

/// Other names of topics.
const ALIASES: &[(&str, &str)] =
    &[("pipelines", "stages"), ("config", "configuration"), ("shadeline.toml", "configuration")];

/// The words that follow `help`, if the command line is that.
pub(crate) fn wanted(words: impl Iterator<Item = OsString>) -> Option<Vec<String>> {
    let mut words = words.map(|word| word.to_string_lossy().into_owned());
    let _program = words.next();
    let mut first = words.next();
    // The option of all commands may stand before them.
    loop {
        first = match first.as_deref() {
            Some("--color") => words.nth(1),
            Some(word) if word.starts_with("--color=") => words.next(),
            _ => break,
        };
    }
    let is_help = first.is_some_and(|word| word == "help");
    let words: Vec<String> = words.collect();
    (is_help && words.iter().all(|word| !word.starts_with('-'))).then_some(words)
}

/// Prints the help of a command, of a topic, or a list of both.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let color = crate::color::is_on(std::io::stdout());
    show(&text(words, color)?)
}

fn text(words: &[String], color: bool) -> Result<String, Failure> {
    let mut root = Cli::command();
    root.build();
    match words {
        [] => return Ok(help_of(&mut root, color) + "\n" + &topics()),
        [only] if only.eq_ignore_ascii_case("topics") => return Ok(topics()),
        _ => {}
    }
    let of_command = command(&mut root, words).map(|command| help_of(command, color));
    let pages: Option<Vec<_>> = words.iter().map(|word| topic(word)).collect();
    let parts: Vec<String> = match (of_command, pages) {
        // A command with a page of the same name: both.
        (Ok(help), Some(pages)) => {
            std::iter::once(help).chain(pages.into_iter().map(page::plain)).collect()
        }
        (Ok(help), None) => vec![help],
        (Err(_), Some(pages)) => pages.into_iter().map(page::plain).collect(),
        (Err(at), None) => return Err(unknown(&root, words, at)),
    };
    Ok(parts.join(&format!("\n{}\n\n", "─".repeat(page::WIDTH))))
}

/// The list of topics.
fn topics() -> String {
    let mut text = "Topics (`shadeline help TOPIC`):\n".to_owned();
    let width = TOPICS.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, page) in TOPICS {
        line!(&mut text, "  {name:<width$}  {}", page::title(page));
    }
    text
}

/// The command of these words, in any case.
///
/// # Errors
/// The index of the first word that is none.
fn command<'c>(
    root: &'c mut clap::Command,
    words: &[String],
) -> Result<&'c mut clap::Command, usize> {
    let mut command = root;
    for (at, word) in words.iter().enumerate() {
        let lower = word.to_lowercase();
        let name = [word, &lower].into_iter().find(|name| command.find_subcommand(name).is_some());
        command = name.and_then(|name| command.find_subcommand_mut(name)).ok_or(at)?;
    }
    Ok(command)
}

fn help_of(command: &mut clap::Command, color: bool) -> String {
    let help = command.render_long_help();
    if color { help.ansi().to_string() } else { help.to_string() }
}

/// The page of a name, in any case, or of its file.
fn topic(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    let name = name.rsplit_once("docs/").map_or(name.as_str(), |(_, name)| name);
    let name = name.strip_suffix(".md").unwrap_or(name);
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let find = |name: &str| TOPICS.iter().find(|(own, _)| *own == name).map(|(_, page)| *page);
    find(name).or_else(|| find(alias?.1))
}

/// The word at `at` is no command below those before it, and some word is no topic.
fn unknown(root: &clap::Command, words: &[String], at: usize) -> Failure {
    let mut command = root;
    for word in &words[..at] {
        command = command.find_subcommand(word.to_lowercase()).unwrap_or(command);
    }
    // Topics and something else: that is what is wrong.
    let not_topic = words.iter().position(|word| topic(word).is_none()).unwrap_or(at);
    let (above, last) = match at {
        0 => (&words[..0], &words[not_topic..=not_topic]),
        at => words[..=at].split_at(at),
    };
    let commands = command.get_subcommands().filter(|below| !below.is_hide_set());
    let mut known: Vec<&str> = commands.map(clap::Command::get_name).collect();
    let what = match (above, words) {
        ([], [_]) => "command or topic",
        ([], _) if not_topic > 0 => "topic",
        ([], _) => "command or topic",
        _ => "command",
    };
    if above.is_empty() {
        if what == "topic" {
            known.clear();
        }
        known.extend(TOPICS.iter().map(|(name, _)| *name));
        known.extend(ALIASES.iter().map(|(name, _)| *name));
    }
    let of = if above.is_empty() { String::new() } else { format!(" of `{}`", above.join(" ")) };
    let mut message = format!("unknown {what} `{}`{of}", last[0]);
    match control::config::nearest(&last[0], known.iter().copied()) {
        Some(near) => message += &format!(", did you mean `{near}`?"),
        None if known.is_empty() => message += ": it has none",
        None => {
            let below = if what == "topic" { &["topics".to_owned()][..] } else { above };
            let see = [&["shadeline".to_owned(), "help".to_owned()], below].concat().join(" ");
            message += &format!(": see `{see}`");
        }
    }
    Failure::usage(message)
}

/// Prints a text, through a pager on a terminal.
fn show(text: &str) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() && paged(text) {
        return Ok(());
    }
    coloured(text)
}

/// Whether a pager showed the text.
fn paged(text: &str) -> bool {
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    if matches!(pager.trim(), "" | "cat") {
        return false;
    }
    let mut command = Command::new("sh");
    command.args(["-c", &pager]).stdin(Stdio::piped()).stderr(Stdio::null());
    if std::env::var_os("LESS").is_none() {
        // A short text stays on the screen; colours are shown; the screen is not cleared.
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut stdin) = child.stdin.take() {
        // A pager that was quit does not read to the end.
        let _ = stdin.write_all(text.as_bytes());
    }
    // The shell's status for a program that is not there.
    child.wait().is_ok_and(|status| !matches!(status.code(), Some(126 | 127)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Result<String, Failure> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        text(&words, false)
    }

    #[test]
    fn every_page_of_the_documentation_is_a_topic() {
        let docs = testkit::repository().join("docs");
        let files = std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<String> = files
            .filter(|path| path.extension().is_some_and(|end| end == "md"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        let topics: Vec<_> = TOPICS.iter().map(|(name, _)| *name).collect();
        assert_eq!(topics, names);
        for name in &names {
            let text = of(name).unwrap();
            let page = std::fs::read_to_string(
                testkit::repository().join("docs").join(name.clone() + ".md"),
            );
            let title = page::title(&page.unwrap()).to_uppercase();
            assert!(text.contains(&title), "{name}: {text}");
        }
        assert_eq!(of("config").unwrap(), of("configuration").unwrap());
        let router = of("router").unwrap();
        for same in ["router.md", "ROUTER", "docs/router.md", "./docs/Router.md"] {
            assert_eq!(of(same).unwrap(), router, "{same}");
        }
        // One after another.
        let both = of("router firewall").unwrap();
        assert!(both.starts_with(&router) && both.ends_with(&of("firewall").unwrap()));
    }

    #[test]
    fn words_of_help_are_its_own() {
        let of = |line: &str| wanted(line.split(' ').map(OsString::from));
        assert_eq!(of("shadeline help"), Some(vec![]));
        assert_eq!(of("shadeline help ctl show"), Some(vec!["ctl".into(), "show".into()]));
        assert_eq!(of("shadeline --color never help run"), Some(vec!["run".into()]));
        assert_eq!(of("shadeline --color=always help"), Some(vec![]));
        assert_eq!(of("shadeline --color"), None);
        assert_eq!(of("shadeline ctl help show"), None);
        assert_eq!(of("shadeline help --help"), None);
    }

    #[test]
    fn commands_and_topics_are_listed_and_found() {
        let list = of("").unwrap();
        for expected in ["\n  run ", "\n  ctl ", "\n  router  ", "The firewall", "Topics"] {
            assert!(list.contains(expected), "{expected}: {list}");
        }
        assert!(of("run").unwrap().contains("Usage: shadeline run"));
        assert!(of("ctl route add").unwrap().contains("Usage: shadeline ctl route add"));
        assert_eq!(of("CTL Route ADD").unwrap(), of("ctl route add").unwrap());
        assert!(of("").unwrap().ends_with(&of("topics").unwrap()));
        assert!(of("topics").unwrap().starts_with("Topics"));
        // A command with a page of the same name: both.
        let stages = of("stages").unwrap();
        assert!(stages.contains("Usage: shadeline stages") && stages.contains("\nSTAGES\n"));
    }

    #[test]
    fn unknown_words_have_suggestions() {
        let error = |words: &str| format!("{:?}", of(words).unwrap_err());
        for (words, expected) in [
            ("ruoter", "unknown command or topic `ruoter`, did you mean `router`?"),
            ("chekc", "unknown command or topic `chekc`, did you mean `check`?"),
            ("weather", "unknown command or topic `weather`: see `shadeline help`"),
            ("ctl shwo", "unknown command `shwo` of `ctl`, did you mean `show`?"),
            ("ctl weather", "unknown command `weather` of `ctl`: see `shadeline help ctl`"),
            ("check x", "unknown command `x` of `check`: it has none"),
            ("router add", "unknown topic `add`: see `shadeline help topics`"),
            ("router firewal", "unknown topic `firewal`, did you mean `firewall`?"),
            ("weather router", "unknown command or topic `weather`"),
        ] {
            assert!(error(words).contains(expected), "{}", error(words));
        }
    }
}
