//! Compressed files of tests.

use std::io::Write;
use std::process::{Command, Stdio};

/// The end of the names of files, and how they are compressed.
pub type Packer = (&'static str, fn(&[u8]) -> Vec<u8>);

/// As it is, and by every program whose files are read.
pub fn all() -> Vec<Packer> {
    let mut all: Vec<Packer> = vec![("", <[u8]>::to_vec), (".gz", gzip), (".zst", zstd)];
    if crate::require_tool("xz").is_some() {
        all.push((".xz", xz));
    }
    all
}

/// By gzip.
///
/// # Panics
/// Never: memory can be written.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// By Zstandard.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// By the program `xz`, in blocks so small that a part of a file holds some.
///
/// # Panics
/// Where there is no such program.
pub fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut command = Command::new("xz");
    command.args(["-1", "-c", "--block-size=262144"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("xz");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = bytes.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input).expect("a pipe"));
    let output = child.wait_with_output().expect("xz");
    writer.join().expect("the writer");
    assert!(output.status.success());
    output.stdout
}
