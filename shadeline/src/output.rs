//! What commands print and write.
//!
//! Results go to standard output and messages to standard error. Where a file of results is `-`, the results take
//! standard output, and the figures about them go to standard error too.
//!
//! Standard output that cannot be written is a failure of one line, as of any file. Nothing here panics, and nothing
//! else in the program prints (`clippy::print_stdout`, `clippy::print_stderr`).

use std::fmt::Arguments;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use control::config::Flow;
use files::output;
use serde::Serialize;

use crate::failure::Failure;

/// Prints a line to standard output.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Prints text that ends its own lines to standard output.
macro_rules! put {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

/// Prints a line to standard error.
macro_rules! note {
    ($($text:tt)*) => { files::output::note(format_args!($($text)*)) };
}

/// Adds a line to a text.
macro_rules! line {
    ($to:expr, $($text:tt)*) => {{
        let to: &mut String = $to;
        to.push_str(&format!($($text)*));
        to.push('\n');
    }};
}

pub(crate) use {line, note, put, say};

/// Prints text to standard output.
pub(crate) fn print(text: Arguments<'_>) -> Result<(), Failure> {
    output::print(text).map_err(Failure::standard_output)
}

/// Prints lines of UTF-8 to standard output.
pub(crate) fn print_lines(text: &[u8]) -> Result<(), Failure> {
    output::print_lines(text).map_err(Failure::standard_output)
}

/// Prints text with colours to standard output; names in it have passed [`output::shown`].
pub(crate) fn coloured(text: &str) -> Result<(), Failure> {
    output::print_coloured(text).map_err(Failure::standard_output)
}

/// How long the end of a live run waits for whoever reads its totals.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prints at the end of a live run, which ends even if nobody reads what it prints.
pub(crate) fn in_time(
    printing: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    let (done, printed) = mpsc::channel();
    std::thread::spawn(move || done.send(printing()));
    printed.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        tracing::error!("the totals were not printed: standard output has no reader");
        Err(Failure::reported())
    })
}

/// Prints figures as JSON.
pub(crate) fn json(figures: &impl Serialize) -> Result<(), Failure> {
    say!("{}", serde_json::to_string_pretty(figures).map_err(Failure::other)?)
}

/// Prints the figures of a command whose results went to `results`: where standard output is theirs, to standard error.
pub(crate) fn figures(
    results: Option<&Path>,
    as_json: bool,
    figures: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let text = match as_json {
        true => serde_json::to_string_pretty(figures).map_err(Failure::other)?,
        false => text(),
    };
    let text = text.trim_end();
    if results.is_some_and(files::is_standard) {
        note!("{text}");
        return Ok(());
    }
    say!("{text}")
}

/// Where the figures of a run go that may write records of flows to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// To standard output, which is theirs.
    Output,
    /// To standard error.
    Error,
}

impl Beside {
    /// The place that the outputs of `[flow]` leave.
    ///
    /// # Errors
    /// Two of them are standard output.
    pub(crate) fn of(flow: &Flow) -> Result<Self, Failure> {
        let is_standard = |path: &Option<PathBuf>| path.as_deref().is_some_and(files::is_standard);
        match (is_standard(&flow.events), is_standard(&flow.parquet)) {
            (true, true) => {
                Err(Failure::usage("only one output can be `-`: `events` or `parquet` of [flow]"))
            }
            (false, false) => Ok(Self::Output),
            _ => Ok(Self::Error),
        }
    }

    /// Prints text that ends its own lines.
    pub(crate) fn put(self, text: Arguments<'_>) -> Result<(), Failure> {
        match self {
            Self::Output => print(text),
            Self::Error => {
                note!("{}", text.to_string().trim_end());
                Ok(())
            }
        }
    }
}

/// Makes a folder for results, and those above it, unless it is there.
pub(crate) fn folder(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            Failure::output(path, &io::Error::other("expected a folder, found a file"))
        }
        _ => Failure::output(path, &error),
    })
}

/// Writes a file, or standard output.
pub(crate) fn write(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let written = output::create(path).and_then(|file| {
        let mut file = BufWriter::with_capacity(64 << 10, file);
        content(&mut file)?;
        file.flush()
    });
    written.map_err(|error| Failure::output(path, &error))
}

#[cfg(test)]
mod tests {
    use control::api::{DropRow, InterfaceRow, Response, answer, table};
    use control::config::{parse, render};
    use proptest::prelude::*;

    /// Names with control characters, and with what terminals take for commands.
    fn odd() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            proptest::char::range('\0', '\u{a0}').prop_map(String::from),
            Just("\x1b[31m".to_owned()),
            Just("\x1b]0;title\x07".to_owned()),
            Just("\u{9b}2J".to_owned()),
            Just("\u{202e}".to_owned()),
        ];
        proptest::collection::vec(piece, 1..12).prop_map(|pieces| pieces.concat())
    }

    fn is_clean(text: &str) -> bool {
        !text.chars().any(|c| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}')
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Whatever name comes from outside, in a table, a message, a log or a diagnostic.
        #[test]
        fn no_control_character_is_printed(odd in odd()) {
            let row = InterfaceRow { name: odd.clone(), kind: odd.clone(), ..InterfaceRow::default() };
            let drop = DropRow { reason: odd.clone(), text: odd.clone(), ..DropRow::default() };
            let whole = answer::text(vec![
                Response::piece("interfaces", std::slice::from_ref(&row), true),
                Response::piece("drops", &[drop], true),
                Response::Done { message: odd.clone() },
            ]);
            let json = serde_json::to_string_pretty(&row).unwrap();
            for text in [&whole, &table::table(std::slice::from_ref(&row)), &json, &odd] {
                prop_assert!(is_clean(&files::output::shown(text)));
            }
            // JSON stays JSON, with the same name in it.
            let shown = files::output::shown(&json);
            let back: InterfaceRow = serde_json::from_str(&shown).unwrap();
            prop_assert_eq!(&back.name, &odd);
            let name = serde_json::to_string(&odd).unwrap();
            let file = format!("mode = {name}\n[port.{name}]\n# {odd}\n{name} = 1\n");
            if let Err(errors) = parse(&file, &crate::pipelines::known()) {
                prop_assert!(is_clean(&render(&errors, &odd, &file, false)));
                let coloured = render(&errors, &odd, &file, true);
                prop_assert!(is_clean(&without_colours(&coloured)));
            }
        }
    }

    fn without_colours(text: &str) -> String {
        let codes = ["0", "1", "1;31", "1;33", "1;34"];
        codes.iter().fold(text.to_owned(), |text, code| text.replace(&format!("\x1b[{code}m"), ""))
    }
}
