//! How a command fails: one message on standard error, and an exit status.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use crate::log;

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

    /// Something about a file.
    pub(crate) fn file(path: &Path, error: impl Display) -> Self {
        Self::other(format!("{}: {error}", path.display()))
    }

    /// Already reported.
    pub(crate) fn reported() -> Self {
        Self { message: String::new(), code: 1 }
    }

    /// Prints the message.
    pub(crate) fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            let error = if self.message.starts_with("error") { "" } else { "error: " };
            let text = format!("{error}{}\n", self.message.trim_end());
            eprint!("{}", log::on_stderr(tracing::Level::ERROR, &text));
        }
        ExitCode::from(self.code)
    }
}
