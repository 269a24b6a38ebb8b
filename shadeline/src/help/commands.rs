//! The commands that README.md and the pages of docs/ show are those of the command line: none is out of date.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::*;

/// A piece of a shell's line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// What ends a command: `|`, `&`, `;`, a redirection, a comment.
    End,
}

/// The words of a line, without their quotation marks.
fn tokens(line: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(&first) = chars.peek() {
        if first == ' ' {
            chars.next();
            continue;
        }
        if first == '#' {
            tokens.push(Token::End);
            break;
        }
        if "|&;<>".contains(first) {
            tokens.push(Token::End);
            while chars.next_if(|c| "|&;<>".contains(*c)).is_some() {}
            continue;
        }
        let mut word = String::new();
        let mut quote = None;
        while let Some(c) = chars.next_if(|c| quote.is_some() || !" |&;<>".contains(*c)) {
            match quote {
                Some(open) if open == c => quote = None,
                None if "'\"".contains(c) => quote = Some(c),
                _ => word.push(c),
            }
        }
        tokens.push(Token::Word(word));
    }
    tokens
}

/// The command lines of the program in a line of a shell.
fn commands(line: &str) -> Vec<Vec<String>> {
    let tokens = tokens(line);
    let words = |part: &[Token]| -> Vec<String> {
        let words = part.iter().filter_map(|token| match token {
            Token::Word(word) => Some(word.clone()),
            Token::End => None,
        });
        words.skip_while(|word| word == "$" || word == "sudo" || word.contains('=')).collect()
    };
    let parts = tokens.split(|token| *token == Token::End).map(words);
    parts.filter(|words| words.first().is_some_and(|word| word == "shadeline")).collect()
}

/// Pieces of code within a line.
fn spans(line: &str) -> impl Iterator<Item = String> {
    line.split('`').skip(1).step_by(2).map(|span| span.replace("\\|", "|"))
}

/// The lines of a page that are commands, each with whether it is complete: a piece of code in a sentence may lack
/// arguments.
fn shown(page: &str) -> Vec<(usize, String, bool)> {
    let mut shown = Vec::new();
    let (mut is_fenced, mut is_of_ctl) = (false, false);
    for (at, line) in page.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        is_of_ctl = line.starts_with('|') && (is_of_ctl || line.ends_with("| `shadeline ctl` |"));
        if is_fence || is_fenced || line.ends_with("| `shadeline ctl` |") {
            continue;
        }
        if let Some(code) = line.strip_prefix("    ") {
            shown.push((at + 1, code.to_owned(), true));
        } else if is_of_ctl {
            let cell = line.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
            let whole = |span: String| match span.starts_with("shadeline ") {
                true => span,
                false => format!("shadeline ctl {span}"),
            };
            shown.extend(spans(cell).map(|span| (at + 1, whole(span), false)));
        } else {
            shown.extend(spans(line).map(|span| (at + 1, span, false)));
        }
    }
    // A synopsis, or something left out.
    shown.retain(|(_, line, _)| !line.contains(" [") && !line.contains('…'));
    shown
}

/// What is wrong with a command line.
fn fault(words: &[String], is_complete: bool) -> Option<String> {
    if words.get(1).is_some_and(|word| word == "help") {
        let known = words.iter().any(|word| word == "TOPIC") || text(&words[2..], false).is_ok();
        return (!known).then(|| "no such topic".to_owned());
    }
    let args = words.iter().map(Into::into).collect();
    let args = match crate::cli::words::of_command_line(args) {
        Ok(args) => args,
        Err(message) => return Some(message),
    };
    let error = Cli::command().try_get_matches_from(args).err()?;
    let is_good = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => !is_complete,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            match error.get(ContextKind::InvalidValue) {
                // An option without its value, or with a word for it.
                Some(ContextValue::String(value)) if !value.is_empty() => {
                    value.chars().all(char::is_uppercase)
                }
                _ => !is_complete,
            }
        }
        // A word for any command.
        ErrorKind::InvalidSubcommand => words.iter().any(|word| word == "COMMAND"),
        _ => false,
    };
    (!is_good).then(|| error.to_string())
}

#[test]
fn every_command_in_the_documentation_is_one_of_the_command_line() {
    let readme = std::fs::read_to_string(testkit::repository().join("README.md")).unwrap();
    let pages = TOPICS.iter().copied().chain([("README", readme.as_str())]);
    let mut count = 0;
    let mut faults = String::new();
    for (name, page) in pages {
        for (number, line, is_complete) in shown(page) {
            for words in commands(&line) {
                count += 1;
                if let Some(fault) = fault(&words, is_complete) {
                    crate::output::line!(&mut faults, "{name}:{number}: {words:?}: {fault}");
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults}");
    assert!(count > 100, "{count} commands: are they marked otherwise?");
}

#[test]
fn commands_are_found_in_lines_of_a_shell() {
    let of = |line: &str| -> Vec<String> {
        commands(line).iter().map(|words| words.join("·")).collect()
    };
    assert_eq!(of("shadeline run a.toml   # until Ctrl-C"), ["shadeline·run·a.toml"]);
    assert_eq!(of("$ SHADELINE_CACHE= shadeline devices"), ["shadeline·devices"]);
    assert_eq!(of("zcat a | shadeline run - > x"), ["shadeline·run·-"]);
    assert_eq!(
        of("shadeline ctl trace 'tcp or udp' & left ping b"),
        ["shadeline·ctl·trace·tcp or udp"]
    );
    assert_eq!(of("unshare sh lab.sh"), [""; 0]);
    let page = "`shadeline ctl show x` and\n\n    shadeline check\n\n| a | `shadeline ctl` |\n| --- | --- |\n\
                | `b` | `show y`, `z` |\n```\n    shadeline no\n```\n";
    let shown = shown(page);
    let lines: Vec<_> =
        shown.iter().map(|(number, line, whole)| (*number, line.as_str(), *whole)).collect();
    assert_eq!(
        lines,
        [
            (1, "shadeline ctl show x", false),
            (3, "shadeline check", true),
            (7, "shadeline ctl show y", false),
            (7, "shadeline ctl z", false),
        ]
    );
    let fault = |line: &str, whole| fault(&commands(line)[0], whole).is_some();
    assert!(
        fault("shadeline chekc a.toml", true) && fault("shadeline run --nothing a.toml", false)
    );
    assert!(fault("shadeline check", true) && !fault("shadeline check", false));
    assert!(fault("shadeline help nothing", true) && !fault("shadeline help router", true));
}
