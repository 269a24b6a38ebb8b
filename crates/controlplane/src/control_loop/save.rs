//! `ctl diff` and `ctl save`: what was changed since the configuration was read, as changes of its file.
//!
//! ```text
//!  ControlPart::save ─▶ changes of each part ─┐ on a thread of its own
//!  the file as it is now ─▶ Draft ────────────┴▶ Draft ─▶ difference
//!                                                   └──▶ the file ─▶ reload
//! ```
//!
//! After the file is written it is read again: what `ctl` had added is the configuration's from then on, and the next
//! reload has nothing to do. Changes by `ctl` wait meanwhile.

use std::path::Path;
use std::sync::mpsc::{self, Sender};

use control::api::{ErrorKind, Response};
use control::config::draft::{self, Draft};
use control::config::{self, KnownStages};
use serde::Serialize;

use super::{ControlLoop, Event, now_ns};
use crate::application::{Environment, Refusal, Save};

/// Whether a file is overwritten that is another one by now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Force(pub(super) bool);

/// A difference that was asked for, or a file that was to be written.
pub struct Drafted {
    result: Result<Done, Refusal>,
    as_text: bool,
    /// Who asked.
    answer: Sender<Response>,
}

enum Done {
    /// The difference is the answer.
    Changes(Changes),
    /// There was nothing to save.
    Nothing(Changes),
    /// The file has the changes.
    Saved(Changes),
}

/// What changed, as a change of the file.
#[derive(Debug, Serialize)]
struct Changes {
    /// The file.
    file: String,
    /// As `diff -u` prints it; empty: nothing.
    diff: String,
    /// The whole file with the changes.
    text: String,
    /// What a file cannot say.
    left_out: Vec<String>,
    /// The file is another one than was read.
    is_other: bool,
}

impl ControlLoop {
    /// Begins to look what changed, and to save it where `save` is given.
    pub(super) fn draft(&mut self, save: Option<Force>, as_text: bool, answer: Sender<Response>) {
        let env = super::environment!(self);
        let parts: Vec<Save> =
            self.publisher.parts.iter().filter_map(|own| own.part.save(&env)).collect();
        let (path, known, source) = (self.file.clone(), self.known.clone(), self.source.clone());
        let asks = answer.clone();
        self.build(None, asks, move || {
            let result = changes(&path, &known, &source, parts)
                .and_then(|changes| save_as(save, &path, changes));
            Event::Drafted(Box::new(Drafted { result, as_text, answer }))
        });
    }

    /// Answers; what was saved is read again first.
    pub(super) fn drafted(&mut self, drafted: Drafted) {
        let Drafted { result, as_text, answer } = drafted;
        let response = match result {
            Ok(Done::Changes(changes)) if as_text => Response::Text { text: changes.shown() },
            Ok(Done::Changes(changes)) => Response::object("diff", &changes),
            Ok(Done::Nothing(changes)) => {
                let message = format!("nothing to save: {} has it all\n", changes.file);
                Response::Done { message: message + &changes.left_out() }
            }
            Ok(Done::Saved(changes)) => {
                tracing::info!("{}: saved the changes made by `ctl`", changes.file);
                return self.read_saved(&changes, answer);
            }
            Err(refusal) => refusal.into(),
        };
        // A client that is gone needs no answer.
        let _ = answer.send(response);
    }

    /// Reads the file that was saved, and answers with what that changed.
    fn read_saved(&mut self, changes: &Changes, answer: Sender<Response>) {
        let (saved, left_out) = (format!("saved to {}", changes.file), changes.left_out());
        let (reloaded, inbox) = mpsc::channel();
        self.reload(reloaded);
        let pass_on = move || {
            let _ = answer.send(match inbox.recv() {
                Ok(Response::Done { message }) => {
                    Response::Done { message: format!("{saved}\n{message}{left_out}") }
                }
                Ok(Response::Error { kind, message }) => {
                    Response::error(kind, format!("{saved}, but not reloaded: {message}"))
                }
                _ => Response::error(ErrorKind::Internal, format!("{saved}, but not reloaded")),
            });
        };
        if let Err(error) = std::thread::Builder::new().name("save".to_owned()).spawn(pass_on) {
            tracing::error!("no thread to answer on: {error}");
        }
    }
}

/// What the parts change in the file as it is now.
fn changes(
    path: &Path,
    known: &KnownStages,
    source: &str,
    parts: Vec<Save>,
) -> Result<Changes, Refusal> {
    if files::is_standard(path) {
        let what = "the configuration came from standard input: start with a file to save changes";
        return Err(Refusal::new(ErrorKind::Unsupported, what));
    }
    let (config, report) = config::load(path, known).map_err(|error| {
        Refusal::new(ErrorKind::Config, format!("the file has changed and has errors:\n{error}"))
    })?;
    let file = report.file;
    let mut draft = Draft::parse(&report.source)
        .map_err(|error| Refusal::new(ErrorKind::Config, format!("{file}: {error}")))?;
    let left_out = parts.into_iter().flat_map(|save| save(&config, &mut draft)).collect();
    let text = draft.text();
    if let Err(problems) = config::parse(&text, known) {
        let problems = config::render(&problems, &file, &text, false);
        let what = format!("with the changes the file would have errors:\n{problems}");
        return Err(Refusal::new(ErrorKind::Config, what));
    }
    let diff = draft::unified(&file, &report.source, &text);
    Ok(Changes { file, diff, text, left_out, is_other: report.source != source })
}

fn save_as(save: Option<Force>, path: &Path, changes: Changes) -> Result<Done, Refusal> {
    let Some(Force(force)) = save else { return Ok(Done::Changes(changes)) };
    if changes.diff.is_empty() {
        return Ok(Done::Nothing(changes));
    }
    if changes.is_other && !force {
        let what = format!(
            "{}: the file has changed since it was read: apply it first with `ctl reload`, or save with --force, which \
             applies its changes, too",
            changes.file
        );
        return Err(Refusal::new(ErrorKind::Config, what));
    }
    draft::replace(path, &changes.text).map_err(|error| {
        let what = format!(
            "{}: cannot be written: {error}; `ctl save FILE` writes a file with your own permissions",
            changes.file
        );
        Refusal::new(ErrorKind::Internal, what)
    })?;
    Ok(Done::Saved(changes))
}

impl Changes {
    /// For people.
    fn shown(&self) -> String {
        let other = match self.is_other {
            true => format!("# {} has changed since it was read: see `ctl reload`\n", self.file),
            false => String::new(),
        };
        let diff = if self.diff.is_empty() { "nothing to save\n" } else { &self.diff };
        format!("{other}{diff}{}", self.left_out())
    }

    /// A line for each change that a file cannot say.
    fn left_out(&self) -> String {
        self.left_out.iter().map(|what| format!("# not saved: {what}\n")).collect()
    }
}
