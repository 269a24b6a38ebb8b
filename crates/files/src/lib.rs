//! Input and output files of the program: the one place that opens them.
//!
//! A user names a file, and nothing else: `-` is standard input or standard output, and whether an input is
//! compressed is known by its first bytes, not by its name.
//!
//! * [`input`]: files, pipes and standard input, decompressed.
//! * [`read_regular`]: files of a configuration, of a bounded size; [`open_private`]: those with secrets.
//! * [`output`]: files and standard output; what a program prints.
//!
//! Functions of their arguments, on any thread. The one thing that they share is whether standard input is in use.

#![forbid(unsafe_code)]

pub mod input;
pub mod output;
mod regular;
mod zstd;

use std::path::Path;

pub use regular::{open_private, open_regular, read_regular};

/// Whether a path stands for standard input or standard output.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}
