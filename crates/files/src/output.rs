//! Output: files and standard output.
//!
//! A program that prints reports what went wrong with it, as for any file: a full disk or a closed pipe is an error of
//! one line, and never a panic.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

use crate::is_standard;

/// What a message calls an output.
pub fn name(path: &Path) -> Cow<'_, str> {
    if is_standard(path) { STANDARD.into() } else { path.to_string_lossy() }
}

/// What a message calls standard output.
pub const STANDARD: &str = "standard output";

/// Makes a file, replacing one that is there; `-` is standard output. Not buffered.
///
/// # Errors
/// It cannot be made.
pub fn create(path: &Path) -> io::Result<File> {
    if is_standard(path) {
        // What was printed before comes first.
        io::stdout().flush()?;
        return io::stdout().as_fd().try_clone_to_owned().map(File::from);
    }
    File::create(path)
}

/// The same for packets, which are not written to a terminal.
///
/// # Errors
/// It cannot be made, or is standard output and that is a terminal.
pub fn create_capture(path: &Path) -> io::Result<File> {
    if is_standard(path) && io::stdout().is_terminal() {
        let what = "a capture is not written to a terminal: redirect it to a file, or into \
                    `tcpdump -r -`";
        return Err(io::Error::other(what));
    }
    create(path)
}

/// Prints to standard output, at once.
///
/// # Errors
/// Those of standard output.
pub fn print(text: Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_fmt(text)?;
    out.flush()
}

/// Prints a line to standard error, where nothing can be done if it cannot be printed.
pub fn note(text: Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Why an output failed, in words: of a pipe that the system calls broken, what happened to it.
pub fn reason(error: &io::Error) -> Cow<'static, str> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => "the reader closed the pipe".into(),
        _ => error.to_string().into(),
    }
}
