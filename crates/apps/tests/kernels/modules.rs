//! Modules in the kernel dialect: their hash table against its twin, and a program of several modules over frames.

use std::collections::BTreeMap;

use apps::modules::columns::{ModuleColumns as M, layers};
use apps::modules::decoded;
use apps::modules::pieces;
use apps::modules::table::{ADD, CAS, FIND, INSERT, TABLE, TableColumns as T, reference, words};
use chunk::{Attached, Columns, Verdict};
use controlplane::module::{MODULE_DROP, Piece, Table};
use kernels::job::JobBytes;
use kernels::{Launch, Spec};
use testkit::frames::Frame;

use crate::bed::{Bed, GROUP_ITEMS, Memories, over_rows};
use crate::frames::{frame, pack};
use crate::module_program::{DONE_WORDS, ROW_WORDS, ROWS, SLOTS, program};
use crate::random::Random;

fn put(job: &mut JobBytes, row: usize, [operation, key, first, second]: [u32; 4]) {
    job.put(T::TABLE_OPERATION, row, operation);
    job.put(T::TABLE_KEY, row, key);
    job.put(T::TABLE_FIRST, row, first);
    job.put(T::TABLE_SECOND, row, second);
}

fn random_row(random: &mut Random, keys: usize) -> [u32; 4] {
    let operation = [FIND, ADD, CAS, INSERT][random.below(4)];
    [operation, random.below(keys) as u32, random.below(3) as u32, random.below(5) as u32]
}

/// One operation after the other: each answer and each entry is the twin's, up to a full table.
#[test]
fn a_table_is_its_twin() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(61);
    let spec = Spec::of_file(&TABLE);
    for keys in [3, 40, 300] {
        let mut table = Table::new(64);
        let state = bed.memory_of_words(&words(&table));
        let mut full = 0;
        for _ in 0..250 {
            let row = random_row(&mut random, keys);
            let mut job = JobBytes::new(T::COLUMNS, 1);
            put(&mut job, 0, row);
            let arena = bed.memory(job.bytes());
            let launch = Launch { job: 63, ..over_rows("module_table", 1, 64) };
            let memories = Memories { arena, state, ..bed.memories() };
            bed.run(&spec, memories, &[launch]);
            bed.read(arena, job.bytes_mut());
            bed.free(arena);
            let expected = reference(&mut table, row);
            full += expected.1;
            assert_eq!(
                (job.get(T::TABLE_RESULT, 0), job.get(T::TABLE_ERROR, 0)),
                expected,
                "{row:?}"
            );
        }
        assert_eq!(bed.read_words(state, 128), words(&table));
        assert!(keys < 300 || full > 0, "no table was full");
        bed.free(state);
    }
}

/// Thousands of rows at once, on few keys: sums are those of the twin, of all that insert one key exactly one does, and what
/// is swapped in turn is counted once.
#[test]
fn a_table_is_shared_by_all_rows() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(62);
    for items in GROUP_ITEMS {
        let spec = Spec::of_file(&TABLE).with_group_items(items);
        for rows in [1, 64, 257, 4099] {
            let mut job = JobBytes::new(T::COLUMNS, rows);
            let mut sums: BTreeMap<u32, u32> = BTreeMap::new();
            for row in 0..rows {
                let key = 1 + random.below(50) as u32;
                match random.below(2) {
                    0 => {
                        let more = random.below(100) as u32;
                        *sums.entry(key).or_default() += more;
                        put(&mut job, row, [ADD, key, more, 0]);
                    }
                    _ => put(&mut job, row, [INSERT, 1000 + key, 1 + row as u32, 0]),
                }
            }
            let arena = bed.memory(job.bytes());
            let state = bed.memory_of_words(&[0; 2 * 1024]);
            let launch = Launch { job: 1023, ..over_rows("module_table", rows, items) };
            let memories = Memories { arena, state, ..bed.memories() };
            bed.run(&spec, memories, &[launch]);
            bed.read(arena, job.bytes_mut());
            let found = bed.read_words(state, 2 * 1024);
            bed.free(arena);
            bed.free(state);
            let found: BTreeMap<u32, u32> =
                found.chunks_exact(2).filter(|e| e[0] != 0).map(|e| (e[0], e[1])).collect();
            let mut winners: BTreeMap<u32, u32> = BTreeMap::new();
            for row in 0..rows {
                assert_eq!(job.get::<u32>(T::TABLE_ERROR, row), 0);
                let is_insert = job.get::<u32>(T::TABLE_OPERATION, row) == INSERT;
                if is_insert && job.get::<u32>(T::TABLE_RESULT, row) == 1 {
                    let (key, value) = (job.get(T::TABLE_KEY, row), job.get(T::TABLE_FIRST, row));
                    assert_eq!(winners.insert(key, value), None, "two rows inserted {key}");
                }
            }
            sums.extend(winners);
            assert_eq!(found, sums, "{items} items, {rows} rows");
        }
    }
}

/// Runs the modules over a few frames and compares what they did with what they should.
pub(crate) fn program_over_frames(bed: &mut Bed, items: u32) {
    let (text, names) = program(items);
    let key = format!("modules {items}");
    bed.build(&key, text, names.clone());
    let four = Frame::new().ipv4("192.0.2.1", "198.51.100.1").ttl(64);
    let udp = |from, to, ttl| four.clone().ttl(ttl).udp(from, to, b"payload").padded(60);
    // By row: frame, slot, and what becomes of it: 0 next, 1 drop, 2 dump.
    let frames = [
        (udp(1, 53, 64), 0, 2), // the first packet of port 53 is dumped
        (udp(1, 53, 64), 0, 0),
        (udp(2, 53, 4), 3, 1),  // its TTL
        (udp(1, 53, 64), 0, 1), // more than 130 bytes
        (udp(2, 22, 4), 1, 0),  // trusted: ignored by all others
        (udp(2, 22, 4), 1, 0),
        (four.clone().tcp(5, 80, 1, b"\r\nHos").padded(60), 2, 1), // brings "t: bad", which waited
        (four.clone().tcp(5, 80, 12, b"xxxxxx").padded(60), 2, 1),
        (udp(9, 53, 64), u32::MAX, 0),
        (vec![7; 60], u32::MAX, 0),
    ];
    let mut payload = Vec::new();
    let mut job = JobBytes::new(M::COLUMNS, ROWS);
    for (row, (frame, slot, _)) in frames.iter().enumerate() {
        let mut d = packet::Decoded::default();
        packet::decode::decode_into(frame, frame.len(), &mut d);
        job.put(M::MODULE_AT, row, payload.len() as u32);
        job.put(M::MODULE_LEN, row, frame.len() as u32);
        payload.extend_from_slice(frame);
        payload.resize(payload.len().next_multiple_of(16), 0);
        if row == 6 {
            let (own, waited): (&[u8], &[u8]) = (b"\r\nHos", b"t: bad");
            let piece = |offset, bytes| Piece { is_reply: false, offset, bytes };
            let mut attached = Attached::default();
            let all = [(piece(0, own), Some(54)), (piece(6, waited), None)];
            let count = pieces::attach(&mut attached, row, all.into_iter());
            job.put(M::MODULE_PIECES, row, count);
            payload.extend_from_slice(attached.of(row));
            payload.resize(payload.len().next_multiple_of(16), 0);
        }
        let (l4, end) = (u64::from(d.l4_offset), d.l3_end() as u64);
        let (has, data) = match (d.is_ip(), d.protocol.0) {
            (true, 17) => (0, l4 + 8),
            (true, _) => (layers::STREAM, l4 + 20),
            _ => (0, 0),
        };
        job.put(M::MODULE_LAYERS, row, has);
        job.put(M::MODULE_INFO, row, (frame.len() as u32) << 16);
        job.put(M::MODULE_SEES, row, 63u32);
        job.put(M::MODULE_SLOT, row, *slot);
        job.put(M::MODULE_GENERATION, row, 1u32);
        job.put(
            M::MODULE_PIECE,
            row,
            data as u32 | ((end - data) as u32 * u32::from(data > 0)) << 16,
        );
    }
    job.add_areas(&[4 * (DONE_WORDS + ROW_WORDS * ROWS)]);
    let mut sorted: Vec<u32> = (0..ROWS as u32).collect();
    sorted.sort_by_key(|row| frames[*row as usize].1);
    let tables: Vec<u32> = [vec![0; ROWS], sorted].concat();
    let arena = bed.memory(job.bytes());
    let state = bed.memory_of_words(&[0; 16 * SLOTS]);
    let (tables, before) = (bed.memory_of_words(&tables), payload.clone());
    let packets = bed.memory(&payload);
    // Their `job` says how many groups a device runs at once.
    let launch = |name: &&'static str| Launch { job: 1, ..over_rows(name, ROWS, items) };
    let launches: Vec<Launch> = names.iter().map(launch).collect();
    bed.launch(&key, Memories { arena, payload: packets, tables, state }, &launches);
    bed.read(arena, job.bytes_mut());
    bed.read(packets, &mut payload);
    for memory in [arena, packets, tables, state] {
        bed.free(memory);
    }
    // Ports are counted at once by all rows: any of the first packets of a port may be the one that is dumped.
    let mut dumped = 0;
    for (row, (frame, _, expected)) in frames.iter().enumerate() {
        let verdict = Verdict(job.get(M::VERDICT, row));
        let at: u32 = job.get(M::MODULE_AT, row);
        let (at, len) = (at as usize, frame.len());
        let is_changed = payload[at..at + len] != before[at..at + len];
        if verdict == Verdict::DUMP {
            dumped += 1;
            assert!(!is_changed, "row {row}");
            continue;
        }
        match expected {
            1 => assert_eq!(verdict, Verdict::drop(MODULE_DROP), "row {row}"),
            _ => assert_eq!(verdict, Verdict::NEXT, "row {row}"),
        }
        let is_udp = frame.len() > 23 && frame[12..14] == [8, 0] && frame[23] == 17;
        let is_ignored = job.get::<u32>(M::MODULE_IGNORED, row) != 0;
        assert_eq!(is_ignored, row == 4 || row == 5, "row {row}");
        assert_eq!(is_changed, is_udp && verdict.is_next() && !is_ignored, "row {row}");
        assert_eq!(job.get::<u32>(M::MODULE_ERROR, row), 0, "row {row}");
    }
    assert_eq!(dumped, 1, "a packet of port 53");
}

/// Decodes frames, of which only so many bytes are in the first cell and of which that is known before, and compares each
/// with the reference.
fn decode_and_compare(bed: &mut Bed, items: u32, frames: &[(Vec<u8>, usize, u32)]) {
    let (text, names) = program(items);
    let key = format!("modules {items}");
    bed.build(&key, text, names);
    let bytes: Vec<Vec<u8>> = frames.iter().map(|(frame, ..)| frame.clone()).collect();
    let (payload, places) = pack(&bytes, &mut Random(7));
    let mut job = JobBytes::new(M::COLUMNS, frames.len());
    for (row, (frame, there, has)) in frames.iter().enumerate() {
        job.put(M::MODULE_AT, row, places[row]);
        job.put(M::MODULE_LEN, row, frame.len() as u32);
        job.put(M::MODULE_INFO, row, 5 | (*there as u32) << 16);
        job.put(M::MODULE_LAYERS, row, *has);
        job.put(M::MODULE_SEEN, row, u32::MAX);
    }
    // What modules have done comes first.
    let scratch = job.add_areas(&[4 * (DONE_WORDS + ROW_WORDS * frames.len())])[0] + 4 * DONE_WORDS;
    job.bytes_mut()[scratch..].fill(0xcd);
    let (arena, payload) = (bed.memory(job.bytes()), bed.memory(&payload));
    let memories = Memories { arena, payload, ..bed.memories() };
    bed.launch(&key, memories, &[over_rows("module_begin", frames.len(), items)]);
    bed.read(arena, job.bytes_mut());
    bed.free(arena);
    bed.free(payload);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    let found: Vec<u32> = job.bytes()[scratch..].chunks_exact(4).map(word).collect();
    for (row, (frame, there, has)) in frames.iter().enumerate() {
        let there = (*there).min(frame.len());
        let words = &found[ROW_WORDS * row..][..ROW_WORDS];
        let wanted = decoded::reference(&frame[..there], frame.len(), *has);
        assert_eq!(words[..3], wanted, "row {row}, {there} bytes, {has:#x}: {frame:02x?}");
        assert!(words[3..].iter().all(|word| *word == 0xcdcd_cdcd), "row {row}: beyond its words");
        assert_eq!(job.get::<u32>(M::MODULE_SEEN, row), 0);
    }
}

/// Frames of every kind, right and wrong, cut, and of ports that ignore checksums: the device decodes them for modules as the
/// CPU would.
#[test]
fn frames_are_decoded_for_modules() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(63);
    let (mut anomalies, mut found) = (std::collections::BTreeSet::new(), 0);
    for (items, rows) in [(32, 1), (32, 777), (256, 5000), (256, 20_000)] {
        let frames: Vec<(Vec<u8>, usize, u32)> = (0..rows)
            .map(|_| {
                let frame = frame(&mut random);
                let is_cut = random.below(12) == 0;
                let there = if is_cut { random.below(frame.len() + 1) } else { frame.len() };
                let known = [layers::STREAM, layers::REPLY, layers::FORGIVEN];
                let has = known.map(|bit| if random.below(3) == 0 { bit } else { 0 });
                (frame, there, has.iter().sum())
            })
            .collect();
        for (frame, there, has) in &frames {
            anomalies.insert(packet::decode(&frame[..*there], frame.len()).anomaly);
            found |= decoded::reference(&frame[..*there], frame.len(), *has)[2] >> 16;
        }
        decode_and_compare(&mut bed, items, &frames);
    }
    assert_eq!(anomalies.len(), packet::Anomaly::ALL.len(), "{anomalies:?}");
    assert_eq!(found, 127, "every layer");
}

/// The frames of a capture in pcap format, of either byte order, up to where it is cut; none of another format.
fn frames_of(capture: &[u8]) -> Vec<Vec<u8>> {
    let word = |at: usize, is_big: bool| {
        let bytes = capture.get(at..at + 4)?.try_into().ok()?;
        Some(if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) } as usize)
    };
    let is_magic = |is_big| matches!(word(0, is_big), Some(0xa1b2_c3d4 | 0xa1b2_3c4d));
    let Some(is_big) = [false, true].into_iter().find(|is_big| is_magic(*is_big)) else {
        return Vec::new();
    };
    let (mut at, mut frames) = (24, Vec::new());
    while let Some(frame) = word(at + 8, is_big).and_then(|len| capture.get(at + 16..at + 16 + len))
    {
        frames.push(frame.to_vec());
        at += 16 + frame.len();
    }
    frames
}

/// All files below a folder, in order.
fn files_below(folder: &std::path::Path, files: &mut Vec<std::path::PathBuf>) {
    let mut entries: Vec<_> =
        folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { files_below(&path, files) } else { files.push(path) }
    }
}

/// The frames of all captures, and each of them with bytes changed.
#[test]
fn captured_frames_are_decoded_for_modules() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(64);
    let (mut files, mut frames) = (Vec::new(), Vec::new());
    let data = testkit::data::repository().join("../shared/data");
    files_below(&testkit::data::repository().join("tests/data"), &mut files);
    for folder in ["pcap-mixed", "pcap-tcp", "pcap-l7", "ids", "crypto", "ndn", "openflow"] {
        files_below(&data.join(folder), &mut files);
    }
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "pcap")) {
        for data in frames_of(&std::fs::read(file).unwrap()).into_iter().take(100) {
            let mut changed = data.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(changed.len().clamp(1, 90));
                if let Some(byte) = changed.get_mut(at) {
                    *byte = random.next() as u8;
                }
            }
            for frame in [data, changed] {
                let there = frame.len().min(1856);
                let has = if random.below(2) == 0 { layers::FORGIVEN } else { 0 };
                frames.push((frame, there, has));
            }
        }
    }
    assert!(frames.len() > 1000, "{} frames", frames.len());
    for frames in frames.chunks(20_000) {
        decode_and_compare(&mut bed, 256, frames);
    }
}

#[test]
fn modules_of_a_program_do_their_work() {
    let Some(mut bed) = Bed::open() else { return };
    for items in [32, 256] {
        program_over_frames(&mut bed, items);
    }
}
