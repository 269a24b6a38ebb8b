//! How a command fails: one message on standard error, and an exit status.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use files::output;

use crate::{color, log};

/// A command's failure.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// Something went wrong: status 1.
    pub(crate) fn other(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 1 }
    }

    /// The command line asks for what makes no sense: status 2.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { message: message.to_string(), code: 2 }
    }

    /// Something about a file that is read.
    pub(crate) fn file(path: &Path, error: impl Display) -> Self {
        Self::other(format!("{}: {error}", files::input::name(path)))
    }

    /// A file cannot be written.
    pub(crate) fn output(path: &Path, error: &io::Error) -> Self {
        let (name, reason) = (files::output::name(path), files::output::reason(error));
        Self::other(format!("{name}: {reason}"))
    }

    /// The message alone.
    pub(crate) fn into_message(self) -> String {
        self.message
    }

    /// Standard output cannot be written.
    pub(crate) fn standard_output(error: io::Error) -> Self {
        Self::output(Path::new("-"), &error)
    }

    /// Already reported.
    pub(crate) fn reported() -> Self {
        Self { message: String::new(), code: 1 }
    }

    /// A signal ended the work early: status 128 and the signal's number, as a shell reports it.
    pub(crate) fn interrupted(signal: i32) -> Self {
        Self { message: String::new(), code: 128 + signal as u8 }
    }

    /// The same of a line of a script.
    pub(crate) fn in_line(mut self, number: usize) -> Self {
        if !self.message.is_empty() {
            self.message = format!("line {number}: {}", self.message);
        }
        self
    }

    /// Prints the message.
    pub(crate) fn report(self) -> ExitCode {
        if self.message.is_empty() {
            // Reported already.
        } else if log::is_json(tracing::Level::ERROR) {
            let message = self.message.trim_end();
            tracing::error!("{}", message.strip_prefix("error: ").unwrap_or(message));
        } else {
            let error = match (self.message.starts_with("error"), color::is_on(std::io::stderr())) {
                (true, _) => "",
                (false, true) => "\x1b[1;31merror\x1b[0m: ",
                (false, false) => "error: ",
            };
            let text = format!("{error}{}\n", output::shown(self.message.trim_end()));
            log::say(tracing::Level::ERROR, &text);
        }
        log::finish();
        ExitCode::from(self.code)
    }
}
