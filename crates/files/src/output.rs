//! Output: files and standard output.
//!
//! A program that prints reports what went wrong with it, as for any file: a full disk or a closed pipe is an error of
//! one line, and never a panic.
//!
//! What is printed has names in it that come from elsewhere: of interfaces, rules, files, other hosts. A terminal takes
//! control characters for commands, so whatever is printed passes [`shown`].

use std::borrow::Cow;
use std::fmt::Arguments;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

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
    open(path, File::options().write(true).create(true).truncate(true))
}

/// Makes a file or opens one that is there, to append to it.
///
/// # Errors
/// As of [`create`].
pub fn append(path: &Path) -> io::Result<File> {
    open(path, File::options().append(true).create(true))
}

/// Opens a file for writing. In a folder where anyone may make files, such as `/tmp`, a symbolic link that is not the
/// user's own is not followed: somebody else would choose what is written over. Linux does the same by default
/// (`fs.protected_symlinks`), but not everywhere.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    const ANYONE: u32 = 0o002;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = std::fs::metadata(folder.unwrap_or(Path::new(".")));
    let own = rustix::process::geteuid().as_raw();
    let is_own_link = || std::fs::symlink_metadata(path).is_ok_and(|link| link.uid() == own);
    if folder.is_ok_and(|folder| folder.mode() & ANYONE != 0) && !is_own_link() {
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
    }
    options.open(path)
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

/// Prints to standard output, at once, as [`shown`].
///
/// # Errors
/// Those of standard output.
pub fn print(text: Arguments<'_>) -> io::Result<()> {
    print_as_is(&shown(&formatted(text)))
}

/// Prints text with colours to standard output, at once. What is in it of names has passed [`shown`] before.
///
/// # Errors
/// Those of standard output.
pub fn print_coloured(text: &str) -> io::Result<()> {
    print_as_is(&shown_coloured(text))
}

/// Prints lines of UTF-8 to standard output, at once, as [`shown`]; what is no UTF-8 is replaced.
///
/// # Errors
/// Those of standard output.
pub fn print_lines(text: &[u8]) -> io::Result<()> {
    match is_plain(text) {
        true => write_out(text),
        false => print_as_is(&shown(&String::from_utf8_lossy(text))),
    }
}

fn print_as_is(text: &str) -> io::Result<()> {
    write_out(text.as_bytes())
}

fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Whether bytes are visible letters of ASCII, spaces, tabs and line ends: nearly always all of them are, and nothing of them is
/// odd. Blocks of a size that compilers make vectors of.
fn is_plain(bytes: &[u8]) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    let mut blocks = bytes.chunks_exact(64);
    blocks.all(|block| block.iter().fold(true, |all, byte| all & is_plain(byte)))
        && blocks.remainder().iter().all(is_plain)
}

/// Prints a line to standard error as [`shown`], where nothing can be done if it cannot be printed.
pub fn note(text: Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{}", shown(&formatted(text)));
}

/// Prints a line with colours to standard error. What is in it of names has passed [`shown`] before.
pub fn note_coloured(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", shown_coloured(text));
}

fn formatted(text: Arguments<'_>) -> Cow<'static, str> {
    text.as_str().map_or_else(|| text.to_string().into(), Cow::Borrowed)
}

/// Text as a terminal may get it: of control characters only line ends and tabs, and no characters that change the
/// direction of others; these are `\u` and four hexadecimal digits, as in JSON, so JSON stays what it is.
pub fn shown(text: &str) -> Cow<'_, str> {
    if is_plain(text.as_bytes()) || !text.contains(is_odd) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    text.chars().for_each(|c| push_shown(&mut out, c));
    out.into()
}

/// The same, but sequences that change colour and weight (`ESC [ … m`) stay.
pub fn shown_coloured(text: &str) -> Cow<'_, str> {
    if !text.contains(is_odd) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let n = colour_len(rest).unwrap_or(0);
        out.push_str(&rest[..n]);
        rest = &rest[n..];
        if n == 0 {
            push_shown(&mut out, c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out.into()
}

/// Bytes of a sequence for colours that the text begins with.
fn colour_len(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    parameters[end..].starts_with('m').then_some(2 + end + 1)
}

fn push_shown(out: &mut String, c: char) {
    use std::fmt::Write as _;
    match is_odd(c) {
        true => drop(write!(out, "\\u{:04x}", u32::from(c))),
        false => out.push(c),
    }
}

fn is_odd(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n' && c != '\t')
}

/// Why an output failed, in words: of a pipe that the system calls broken, what happened to it.
pub fn reason(error: &io::Error) -> Cow<'static, str> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => "the reader closed the pipe".into(),
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            "a symbolic link of another user, in a folder where anyone may make files, is not followed"
                .into()
        }
        _ => error.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_reaches_a_terminal() {
        for c in '\0'..=char::MAX {
            let text = format!("a{c}b");
            let out = shown(&text);
            assert!(!out.chars().any(|c| c.is_control() && !"\n\t".contains(c)), "{c:?}");
            if !c.is_control() && !is_odd(c) {
                assert_eq!(out, text);
            }
        }
        assert_eq!(
            shown("\x1b]0;x\x07\u{9b}31m\r\u{202e}"),
            "\\u001b]0;x\\u0007\\u009b31m\\u000d\\u202e"
        );
        assert!(matches!(shown("two\n\tlines ü"), Cow::Borrowed(_)));
    }

    /// What is taken as plain has nothing odd, wherever the odd letter is.
    #[test]
    fn plain_text_is_shown_as_it_is() {
        let plain = "a letter, \ta number 12~\n".repeat(7);
        assert!(is_plain(plain.as_bytes()) && is_plain(b""));
        assert!(matches!(shown(&plain), Cow::Borrowed(_)));
        for at in 0..plain.len() {
            for odd in ['\0', '\x1b', '\r', '\x7f', '\u{9b}', '\u{202e}', 'ü'] {
                let text = format!("{}{odd}{}", &plain[..at], &plain[at..]);
                assert!(!is_plain(text.as_bytes()), "{odd:?} at {at}");
                let letters = text.chars().map(|c| match is_odd(c) {
                    true => format!("\\u{:04x}", u32::from(c)),
                    false => c.to_string(),
                });
                assert_eq!(shown(&text), letters.collect::<String>());
            }
        }
    }

    #[test]
    fn a_link_of_somebody_else_is_not_followed() {
        use std::os::unix::fs::{PermissionsExt, lchown, symlink};
        let folder = std::env::temp_dir().join(format!("shadeline-links-{}", std::process::id()));
        let public = folder.join("public");
        std::fs::create_dir_all(&public).unwrap();
        std::fs::set_permissions(&public, std::fs::Permissions::from_mode(0o777)).unwrap();
        let precious = folder.join("precious");
        std::fs::write(&precious, "old").unwrap();
        let link = public.join("link");
        symlink(&precious, &link).unwrap();
        append(&link).expect("the user's own");
        // Only root can give it away.
        if lchown(&link, Some(65534), None).is_ok() {
            for error in [create(&link).unwrap_err(), append(&link).unwrap_err()] {
                assert!(reason(&error).contains("is not followed"), "{error}");
            }
            std::fs::set_permissions(&public, std::fs::Permissions::from_mode(0o755)).unwrap();
            create(&link).expect("nobody else may make files there");
        }
        create(&public.join("file")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn colours_stay_where_they_are_meant() {
        let red = "\x1b[1;31merror\x1b[0m: x\n";
        assert_eq!(shown_coloured(red), red);
        for (text, expected) in [
            ("\x1b[2J", "\\u001b[2J"),
            ("\x1b[31", "\\u001b[31"),
            ("\x1b[\x1b[m", "\\u001b[\x1b[m"),
            ("\x1b", "\\u001b"),
            ("\r\x1b[m\x07", "\\u000d\x1b[m\\u0007"),
        ] {
            assert_eq!(shown_coloured(text), expected);
        }
    }
}
