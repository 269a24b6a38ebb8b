//! What commands print and write.
//!
//! Results go to standard output and messages to standard error. Where a file of results is `-`, the results take
//! standard output, and the figures about them go to standard error too.
//!
//! Standard output that cannot be written is a failure of one line, as of any file. Nothing here panics, and nothing
//! else in the program prints (`clippy::print_stdout`, `clippy::print_stderr`).

use std::fmt::Arguments;
use std::io::{self, BufWriter, Write};
use std::path::Path;

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
