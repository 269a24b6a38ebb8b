//! Inputs of every form, whole, cut and corrupt.

use super::*;

/// `first line` and a line end, by `xz -0 --check=crc32`.
const FIRST: &str = "fd377a585a0000016922de36020021010c0000008f98419c01000a6669727374206c696e650a000010fcefbd\
     00011f0b3d620e7a9042990d010000000001595a";
/// 300 times `second line` and a line end, by `xz`.
const SECOND: &str = "fd377a585a000004e6d6b4460200210116000000742fe5a3e00e0f00265d0039994891b1699607d6df9eff69\
     68802285f317b9d22c944493df579d77d7914b74c6a55f7f00000000a11d237d48e8a876000142901c000000\
     8db00c4ab1c467fb020000000004595a";

/// The first text by `zstd --no-check`.
const FIRST_ZSTD: &str = "28b52ffd00585900006669727374206c696e650a";
/// The second by `zstd --check`.
const SECOND_ZSTD: &str = "28b52ffd04589d0000607365636f6e64206c696e650a010001be5f92ad846f52";
/// A frame to be skipped, of three bytes.
const SKIPPED: &[u8] = &[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
    io::Write::write_all(&mut encoder, text).unwrap();
    encoder.finish().unwrap()
}

fn decompressed(input: impl Read + Send) -> io::Result<Vec<u8>> {
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
fn compressed_or_not() {
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
        (bytes(SECOND_ZSTD), &lines),
        ([bytes(FIRST_ZSTD), SKIPPED.to_vec(), bytes(SECOND_ZSTD)].concat(), &both),
        ([SKIPPED, &bytes(FIRST_ZSTD)].concat(), b"first line\n"),
    ] {
        assert_eq!(decompressed(&packed[..]).unwrap(), wanted);
        assert_eq!(decompressed(Slow(&packed)).unwrap(), wanted);
    }
}

#[test]
fn the_length_of_a_text_is_known_or_estimated() {
    let folder = std::env::temp_dir().join(format!("sl-text-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("text"); // by its bytes, not by its name
    for (bytes, expected) in [
        (b"first line\n".to_vec(), 11),
        (bytes(SECOND), bytes(SECOND).len() as u64 * TEXT_PER_BYTE),
        (bytes(SECOND_ZSTD), bytes(SECOND_ZSTD).len() as u64 * TEXT_PER_BYTE),
        (Vec::new(), 0),
    ] {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(text_bytes(&path), expected);
    }
    assert_eq!(text_bytes(&folder), 0);
    assert_eq!(text_bytes(&folder.join("none")), 0);
    assert_eq!(text_bytes(Path::new("-")), 0);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn broken_streams_are_errors_and_nothing_else() {
    let gz = gzip(&b"second line\n".repeat(300));
    for whole in [bytes(SECOND), bytes(SECOND_ZSTD), gz] {
        for end in 6..whole.len() {
            assert!(decompressed(&whole[..end]).is_err(), "{end} of {}", whole.len());
        }
        // No byte that is changed makes a panic, and none in the packed data goes unseen.
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 0x55;
            drop(decompressed(&bad[..]));
        }
        let mut bad = whole.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 0x55;
        assert!(decompressed(&bad[..]).is_err());
    }
}

#[test]
fn bytes_before_a_fault_are_delivered_and_the_fault_is_named() {
    // Hard to compress, so that every format has several blocks.
    let mut seed = 1_u64;
    let text: Vec<u8> = (0..600_000)
        .map(|_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 58) as u8
        })
        .collect();
    let zstd =
        ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest);
    for (name, whole, at_least) in [("gzip", gzip(&text), 200_000), ("zstd", zstd, 128_000)] {
        for (cut, what) in [(true, "truncated"), (false, "corrupt")] {
            let mut bad = whole.clone();
            if cut {
                bad.truncate(whole.len() / 2);
            } else {
                let middle = whole.len() / 2;
                bad[middle..middle + 16].fill(0xff);
            }
            let mut out = Vec::new();
            let error = reader(&bad[..]).unwrap().read_to_end(&mut out).unwrap_err();
            let message = error.to_string();
            assert!(message.contains(&format!("the {name} data is {what}")), "{message}");
            if cut {
                assert!(text.starts_with(&out), "{name}");
            }
            assert!(out.len() > at_least && out[..at_least] == text[..at_least], "{name}: {what}");
        }
    }
}

#[test]
fn what_follows_gzip_data_is_told_from_a_fault_in_it() {
    let line = b"first line\n";
    let read = |after: &[u8]| {
        let (mut bytes, mut out) = (gzip(line), Vec::new());
        bytes.extend(after);
        let end = reader(&bytes[..]).unwrap().read_to_end(&mut out);
        (out, end.map_err(|error| error.to_string()))
    };
    assert_eq!(read(&[0; 700]), (line.to_vec(), Ok(11)));
    assert_eq!(read(&gzip(b"next\n")), (b"first line\nnext\n".to_vec(), Ok(16)));
    for after in [&b"x"[..], b"something long enough for a header", &[0, 0, 7]] {
        let (out, end) = read(after);
        assert_eq!(out, line);
        assert_eq!(end.unwrap_err(), "the gzip data is corrupt: something else follows its end");
    }
    // A header that is cut.
    assert_eq!(read(&gzip(b"next\n")[..5]).1.unwrap_err(), "the gzip data is truncated");
}

#[test]
fn a_wrong_checksum_is_an_error() {
    let mut bad = bytes(SECOND_ZSTD);
    *bad.last_mut().unwrap() ^= 1;
    let error = decompressed(&bad[..]).unwrap_err().to_string();
    assert_eq!(error, "the zstd data is corrupt: wrong checksum");
}

#[test]
fn a_pipe_ends_when_it_is_to() {
    let (reads, writes) = io::pipe().unwrap();
    let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reads));
    let stop = Arc::new(AtomicBool::new(false));
    let mut source = Source::open(Path::new(&path)).unwrap().until(stop.clone()).unwrap();
    assert_eq!(source.len_bytes(), None);
    io::Write::write_all(&mut &writes, b"abc").unwrap();
    let mut buffer = [0; 8];
    assert_eq!(source.read(&mut buffer).unwrap(), 3);
    let waits = std::thread::spawn(move || source.read(&mut [0; 8]).unwrap());
    stop.store(true, Ordering::Relaxed);
    assert_eq!(waits.join().unwrap(), 0);
    drop(writes);
}

#[test]
fn a_named_pipe_without_a_writer_ends_when_it_is_to() {
    let fifo = |name: &str| {
        let path = std::env::temp_dir().join(format!("shadeline-{name}-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path
    };
    let path = fifo("fifo");
    let stop = Arc::new(AtomicBool::new(false));
    // Nobody writes: that must not be waited for here.
    let mut source = Source::open(&path).unwrap().until(stop.clone()).unwrap();
    assert_eq!((source.len_bytes(), source.can_be_opened_again()), (None, false));
    let waits = std::thread::spawn(move || source.read(&mut [0; 8]).unwrap());
    stop.store(true, Ordering::Relaxed);
    assert_eq!(waits.join().unwrap(), 0);
    std::fs::remove_file(&path).unwrap();
    // What a writer writes arrives, also where nothing can stop it. By another pipe: the thread that waits for a writer of
    // the first one ends with the program.
    let path = fifo("written");
    let write = path.clone();
    let writer = std::thread::spawn(move || std::fs::write(write, b"abc").unwrap());
    assert_eq!(read(&path).unwrap(), b"abc");
    writer.join().unwrap();
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn folders_and_absent_files_are_no_inputs() {
    for (path, reason) in [("/", "Is a directory"), ("/absent/file", "No such file")] {
        let error = read(Path::new(path)).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_file_without_an_end_is_refused() {
    let said = |path: &Path| read_at_most(path, 3 << 20).unwrap_err().to_string();
    assert_eq!(said(Path::new("/dev/zero")), "more than 3 MiB");
    let path = std::env::temp_dir().join(format!("shadeline-zeros-{}.gz", std::process::id()));
    std::fs::write(&path, gzip(&vec![0; (3 << 20) + 1])).unwrap();
    assert_eq!(said(&path), "more than 3 MiB");
    std::fs::write(&path, gzip(&vec![0; 3 << 20])).unwrap();
    assert_eq!(read_at_most(&path, 3 << 20).unwrap().len(), 3 << 20);
    std::fs::remove_file(&path).unwrap();
}
