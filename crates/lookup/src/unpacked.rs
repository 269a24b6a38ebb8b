//! Files as they are, or packed by gzip or xz.
//!
//! Tables of the Internet and sets of rules are handed around packed. What a file is packed by is known by its first
//! bytes, not by its name, so a user names the file and nothing else. Every reader of text goes through here.
//!
//! ```text
//!  1f 8b               gzip, any number of members       one after the other
//!  fd 37 7a 58 5a 00   xz, any number of streams         one after the other
//!  anything else       the bytes themselves
//! ```
//!
//! Functions of their arguments, on any thread.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;

const GZIP: &[u8] = &[0x1f, 0x8b];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];

/// Memory that unpacking xz may take, KiB: `xz -9` wants 64 MiB, and a header could ask for 4 GiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

const BUFFER: usize = 64 << 10;

/// What `input` holds, unpacked.
///
/// # Errors
/// The input's. What is wrong in a packed stream comes with the bytes.
pub fn reader<'a>(mut input: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut head = Vec::new();
    input.by_ref().take(XZ.len() as u64).read_to_end(&mut head)?;
    let (is_gzip, is_xz) = (head.starts_with(GZIP), head.starts_with(XZ));
    let whole = BufReader::with_capacity(BUFFER, io::Cursor::new(head).chain(input));
    Ok(match (is_gzip, is_xz) {
        (true, _) => Box::new(MultiGzDecoder::new(whole)),
        (_, true) => Box::new(XzReader::new_mem_limit(whole, true, XZ_MEMORY_KIB)),
        _ => Box::new(whole),
    })
}

/// A file, unpacked, to be read in lines.
///
/// # Errors
/// It cannot be opened or read.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(Box::new(BufReader::with_capacity(BUFFER, reader(File::open(path)?)?)))
}

/// The whole of a file, unpacked.
///
/// # Errors
/// It cannot be opened or read, or is packed and broken.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader(File::open(path)?)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `first line` and a line end, by `xz -0 --check=crc32`.
    const FIRST: &str = "fd377a585a0000016922de36020021010c0000008f98419c01000a6669727374206c696e650a000010fcefbd\
         00011f0b3d620e7a9042990d010000000001595a";
    /// 300 times `second line` and a line end, by `xz`.
    const SECOND: &str = "fd377a585a000004e6d6b4460200210116000000742fe5a3e00e0f00265d0039994891b1699607d6df9eff69\
         68802285f317b9d22c944493df579d77d7914b74c6a55f7f00000000a11d237d48e8a876000142901c000000\
         8db00c4ab1c467fb020000000004595a";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        io::Write::write_all(&mut encoder, text).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(input: impl Read) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        reader(input)?.read_to_end(&mut out).map(|_| out)
    }

    /// A byte at a time, as a pipe may give them.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let one = buffer.len().min(1);
            self.0.read(&mut buffer[..one])
        }
    }

    #[test]
    fn packed_or_not() {
        let lines = b"second line\n".repeat(300);
        let both = [&b"first line\n"[..], &lines].concat();
        for (packed, wanted) in [
            (both.clone(), &both[..]),
            (Vec::new(), &[]),
            (b"\x1f".to_vec(), b"\x1f"),
            (gzip(&both), &both),
            ([gzip(b"first line\n"), gzip(&lines)].concat(), &both),
            (bytes(SECOND), &lines),
            ([bytes(FIRST), bytes(SECOND)].concat(), &both),
        ] {
            assert_eq!(unpacked(&packed[..]).unwrap(), wanted);
            assert_eq!(unpacked(Slow(&packed)).unwrap(), wanted);
        }
    }

    #[test]
    fn broken_streams_are_errors_and_nothing_else() {
        let (xz, gz) = (bytes(SECOND), gzip(&b"second line\n".repeat(300)));
        for whole in [xz, gz] {
            for end in 6..whole.len() {
                assert!(unpacked(&whole[..end]).is_err(), "{end} of {}", whole.len());
            }
            // No byte that is changed makes a panic, and none in the packed data goes unseen.
            for at in 0..whole.len() {
                let mut bad = whole.clone();
                bad[at] ^= 0x55;
                drop(unpacked(&bad[..]));
            }
            let mut bad = whole.clone();
            let middle = bad.len() / 2;
            bad[middle] ^= 0x55;
            assert!(unpacked(&bad[..]).is_err());
        }
    }
}
