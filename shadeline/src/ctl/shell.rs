//! `shadeline ctl` without a command: lines of commands, from a person or from a file.
//!
//! On a terminal it has a history, completes words by Tab, and `?` lists what may come next, as on routers. An error does
//! not end it. Otherwise it reads a script: no prompt, `#` begins a comment, and the first command that fails ends it
//! with its exit status and the number of its line.
//!
//! Each command has a connection of its own, so an instance that is started again answers the next command.

use std::borrow::Cow;
use std::io::{BufRead, IsTerminal, stdin};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::FromArgMatches;
use control::api::{Client, Request, Response};
use controlplane::NameKind;
use files::output::shown;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{
    Cmd, CompletionType, ConditionalEventHandler, Config, Context, Editor, Event, EventContext,
    EventHandler, Helper, KeyEvent, RepeatCount,
};

use super::complete::{self, candidates, word_start};
use super::{By, connect, execute};
use crate::cli::ctl::{tables, tree};
use crate::cli::{CtlArgs, words};
use crate::failure::Failure;
use crate::output::{note, put, say};

const PROMPT: &str = "shadeline> ";

/// Lines that the history keeps.
const HISTORY: usize = 1000;

/// How long a completion may wait for names.
const PATIENCE: Duration = Duration::from_secs(2);

/// Names that a completion shows at most.
const NAMES_MAX: usize = 1000;

/// Runs the commands of standard input until its end.
pub(super) fn run(args: &CtlArgs) -> Result<(), Failure> {
    let shell = Shell { socket: args.socket.clone(), json: args.json };
    if stdin().is_terminal() { shell.interact() } else { shell.script() }
}

/// What its options say of all commands.
#[derive(Clone)]
struct Shell {
    socket: Option<PathBuf>,
    json: bool,
}

/// What a line did.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Line,
    End,
}

impl Shell {
    fn script(&self) -> Result<(), Failure> {
        for (number, line) in (1..).zip(stdin().lock().lines()) {
            let line = line.map_err(|error| Failure::file(Path::new("-"), error));
            match line.and_then(|line| self.line(&line)) {
                Ok(Next::Line) => {}
                Ok(Next::End) => break,
                Err(failure) => return Err(failure.in_line(number)),
            }
        }
        Ok(())
    }

    fn interact(&self) -> Result<(), Failure> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .max_history_size(HISTORY)
            .map_err(Failure::other)?
            .history_ignore_space(true)
            .build();
        let asked = Arc::new(AtomicUsize::new(NOT_ASKED));
        let mut editor: Editor<Names, FileHistory> =
            Editor::with_config(config).map_err(Failure::other)?;
        editor.set_helper(Some(Names(self.clone())));
        let question = EventHandler::Conditional(Box::new(Question(asked.clone())));
        editor.bind_sequence(KeyEvent::from('?'), question);
        let history = history_file();
        if let Some(path) = &history {
            // The first one has no file yet.
            let _ = editor.load_history(path);
        }
        note!("Tab completes a word, `?` lists what may come next, Ctrl-D ends the shell.");
        if let Err(failure) = connect(self.socket.as_deref()) {
            failure.report();
        }
        let mut unfinished = (String::new(), String::new());
        loop {
            let (left, right) = std::mem::take(&mut unfinished);
            let line = match editor.readline_with_initial(PROMPT, (&left, &right)) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(()),
                Err(error) => return Err(Failure::other(error)),
            };
            let at = asked.swap(NOT_ASKED, Ordering::Relaxed);
            if let Some((left, right)) = line.split_at_checked(at) {
                self.explain(left)?;
                unfinished = (left.to_owned(), right.to_owned());
                continue;
            }
            if editor.add_history_entry(&line).is_ok_and(|is_new| is_new)
                && let Some(path) = &history
                && let Err(error) = append(&mut editor, path)
            {
                note!("{}: the history cannot be written: {error}", path.display());
            }
            // What is pasted may be several lines.
            for line in line.lines() {
                match self.line(line) {
                    Ok(Next::Line) => {}
                    Ok(Next::End) => return Ok(()),
                    Err(failure) => drop(failure.report()),
                }
            }
        }
    }

    /// Executes a line.
    fn line(&self, line: &str) -> Result<Next, Failure> {
        let line = line.trim();
        if let Some(before) = line.strip_suffix('?') {
            return self.explain(before).map(|()| Next::Line);
        }
        let words = shlex::split(line)
            .ok_or_else(|| Failure::usage("a quotation mark is missing at the end"))?;
        match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [] => return Ok(Next::Line),
            ["exit" | "quit"] => return Ok(Next::End),
            _ => {}
        }
        let words = words::spelled_out(words).map_err(Failure::usage)?;
        let matches = match tree().try_get_matches_from(words) {
            Ok(matches) => matches,
            Err(help) if !help.use_stderr() => {
                return put!("{}", help.render()).map(|()| Next::Line);
            }
            Err(error) => return Err(refused(&error)),
        };
        let args = CtlArgs::from_arg_matches(&matches).map_err(|error| refused(&error))?;
        let Some(command) = &args.command else {
            return Err(Failure::usage("options without a command"));
        };
        let socket = args.socket.as_ref().or(self.socket.as_ref());
        let json = self.json || args.json;
        execute(command, socket.map(PathBuf::as_path), json, By::Shell).map(|()| Next::Line)
    }

    /// Prints what may come next.
    fn explain(&self, before: &str) -> Result<(), Failure> {
        let text = complete::text(&candidates(before, &|kind| self.names(kind)));
        if text.is_empty() { say!("  no such command") } else { put!("{text}") }
    }

    /// Names of a kind that the running program has; none where it does not answer.
    fn names(&self, kind: &NameKind) -> Vec<String> {
        self.ask(kind).unwrap_or_default()
    }

    fn ask(&self, kind: &NameKind) -> Option<Vec<String>> {
        let table = tables().into_iter().find(|table| table.name == kind.table)?;
        let arguments = kind.arguments.iter().map(|word| (*word).to_owned());
        let command = table.named().no_binary_name(true);
        let words = controlplane::request::keywords(&command, table.keywords, arguments);
        let request = table.request(&command.try_get_matches_from(words).ok()?).ok()?;
        let mut client = connect(self.socket.as_deref()).ok()?;
        names(&mut client, request, kind.field)
    }
}

/// The texts of a field in the rows of an answer.
fn names(client: &mut Client, request: Request, field: &str) -> Option<Vec<String>> {
    client.set_timeout(Some(PATIENCE)).ok()?;
    let mut names = Vec::new();
    for response in client.call(&request.asked(false)).ok()? {
        let Response::Rows { rows, .. } = response else { continue };
        names.extend(rows.iter().filter_map(|row| Some(row.get(field)?.as_str()?.to_owned())));
    }
    // What cannot be typed is not completed, either.
    names.retain(|name| matches!(shown(name), Cow::Borrowed(_)));
    names.truncate(NAMES_MAX);
    Some(names)
}

/// What is wrong with the words of a command.
fn refused(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    Failure::usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end())
}

/// Where the history is kept; `None` where the user has no home.
fn history_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("shadeline/history"))
}

fn append(editor: &mut Editor<Names, FileHistory>, path: &Path) -> Result<(), ReadlineError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    editor.append_history(path)
}

/// No `?` was typed.
const NOT_ASKED: usize = usize::MAX;

/// `?`: ends the line, which comes back after the help. Between quotation marks it is a letter.
struct Question(Arc<AtomicUsize>);

impl ConditionalEventHandler for Question {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, at: &EventContext<'_>) -> Option<Cmd> {
        let before = &at.line()[..at.pos()];
        shlex::split(before)?;
        self.0.store(at.pos(), Ordering::Relaxed);
        Some(Cmd::AcceptLine)
    }
}

/// Completes words.
struct Names(Shell);

impl Completer for Names {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..at];
        let all = candidates(before, &|kind| self.0.names(kind)).into_iter();
        let pair = |word: String| Pair { display: word.clone(), replacement: quoted(&word) };
        let words: Vec<_> = all.filter(|own| !own.is_placeholder).map(|own| own.word).collect();
        let mut pairs: Vec<Pair> = words.into_iter().map(pair).collect();
        if let [only] = pairs.as_mut_slice() {
            only.replacement.push(' ');
        }
        Ok((word_start(before), pairs))
    }
}

/// A word as a line may have it.
fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), |quoted| quoted.into_owned())
}

impl Helper for Names {}
impl Hinter for Names {
    type Hint = String;
}
impl Highlighter for Names {}
impl Validator for Names {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands() {
        let nowhere = Shell { socket: Some("/nowhere/ctl.sock".into()), json: false };
        for line in ["", "   ", "# show routes", "show ?", "help route add", "route add --help"] {
            assert_eq!(nowhere.line(line).unwrap(), Next::Line, "{line}");
        }
        for line in ["exit", " quit # now"] {
            assert_eq!(nowhere.line(line).unwrap(), Next::End, "{line}");
        }
        for (line, expected) in [
            ("show routes", "/nowhere/ctl.sock: no instance listens there"),
            ("show r", "`r` is ambiguous: runtime, routes, rules"),
            ("weather", "unrecognized subcommand 'weather'"),
            ("rule del 'a", "a quotation mark is missing"),
            ("--json", "options without a command"),
            ("trace --weather", "Usage: shadeline ctl trace "),
            ("route add 10.0.0.0/8", "a route needs a next hop"),
        ] {
            let error = format!("{:?}", nowhere.line(line).unwrap_err());
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn words_of_a_completion_are_quoted() {
        assert_eq!((&*quoted("lan"), &*quoted("#3")), ("lan", "'#3'"));
    }
}
