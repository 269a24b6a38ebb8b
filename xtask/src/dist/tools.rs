//! Small programs of every Linux that the packages are made with: `gzip`, `xz`, `sha256sum`, `md5sum`, `readelf`.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What a program makes of bytes.
fn filter(program: &str, args: &[&str], input: &[u8]) -> io::Result<Vec<u8>> {
    let failed = |what: String| io::Error::other(format!("{program}: {what}"));
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // In a thread of its own: the program writes before it has read everything.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output()
    })?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(failed(output.status.to_string())),
    }
}

/// With neither name nor time, so that the same input gives the same bytes.
pub(crate) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    filter("gzip", &["-9nc"], bytes)
}

/// On one thread: several threads cut the input by their number. `level` is `-0` (quick) to `-9` (small).
pub(crate) fn xz(bytes: &[u8], level: &str) -> io::Result<Vec<u8>> {
    filter("xz", &["-c", "-T1", level], bytes)
}

/// In hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> io::Result<String> {
    digest("sha256sum", bytes)
}

/// In hexadecimal digits.
pub(crate) fn md5(bytes: &[u8]) -> io::Result<String> {
    digest("md5sum", bytes)
}

fn digest(program: &str, bytes: &[u8]) -> io::Result<String> {
    let line = String::from_utf8_lossy(&filter(program, &[], bytes)?).into_owned();
    let digits = line.split_whitespace().next().map(str::to_owned);
    digits.ok_or_else(|| io::Error::other(format!("{program} printed nothing")))
}

/// The libraries that a program names (DT_NEEDED).
pub(crate) fn needed(program: &Path) -> io::Result<Vec<String>> {
    let output = Command::new("readelf").arg("-dW").arg(program).env("LC_ALL", "C").output();
    let output = output.map_err(|error| io::Error::other(format!("readelf: {error}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("readelf: {text}")));
    }
    Ok(needed_of(&String::from_utf8_lossy(&output.stdout)))
}

fn needed_of(readelf: &str) -> Vec<String> {
    let lines = readelf.lines().filter(|line| line.contains("(NEEDED)"));
    let name = |line: &str| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned());
    lines.filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_known() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b"").unwrap(), empty);
        assert_eq!(md5(b"abc").unwrap(), "900150983cd24fb0d6963f7d28e17f72");
    }

    #[test]
    fn what_is_larger_than_a_pipe_passes() {
        let bytes = vec![7; 1 << 20];
        let packed = gzip(&bytes).unwrap();
        assert!(packed.len() < 1 << 14);
        assert_eq!(filter("gzip", &["-dc"], &packed).unwrap(), bytes);
        assert_eq!(packed, gzip(&bytes).unwrap());
    }

    #[test]
    fn a_program_that_is_missing_is_an_error() {
        let error = filter("no-such-program", &[], b"").unwrap_err().to_string();
        assert!(error.starts_with("no-such-program: "), "{error}");
    }

    #[test]
    fn libraries_of_a_program() {
        let text = " 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n\
                    0x000000000000000c (INIT)               0x1000\n";
        assert_eq!(needed_of(text), ["libc.so.6"]);
    }
}
