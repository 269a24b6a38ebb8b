//! There and back: what is encrypted and decrypted is what it was, byte for byte, whatever it is.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use chunk::{
    Arena, Chunk, Columns, DropReason, HugePages, Layout, Packet, Pool, Region, Verdict,
    VerdictKind,
};
use control::config::section::{self, SectionValue, Word};
use controlplane::{PartId, Tables};
use crypto::Secret;
use engine::{Context, Stage};
use lookup::versions::Patchable;
use packet::checksum::{finish, partial_sum};
use packet::{Decoded, IpProtocol};
use proptest::prelude::*;
use testkit::Scratch;

use super::columns::CipherColumns;
use super::keys::Master;
use super::reasons;
use super::settings::{Algorithm, Direction, Fill, Keys, Settings, Vector};
use super::shade::Counters;
use super::stage::Cipher;
use super::table::{KeyPart, KeyPatch, KeyTable};

fn pool() -> Pool {
    Pool::new(Region::new(4096, HugePages::Off).expect("memory").1, 1024)
}

/// A stage and the tables that have its key.
struct Own {
    stage: Cipher,
    tables: Tables,
    part: PartId<KeyPart>,
    /// A change only knows where the key is.
    master: Arc<Master>,
}

fn master(settings: &Settings, key: u8) -> Arc<Master> {
    let len = if settings.keys == Keys::Static { settings.key_len() } else { 32 };
    Arc::new(Master::new(settings, &Secret::new(vec![key; len])).expect("a key"))
}

impl Own {
    fn new(settings: &Settings, key: u8, counters: Arc<Counters>) -> Self {
        let (mut tables, master) = (Tables::default(), master(settings, key));
        let part = tables.add::<KeyPart>(KeyTable(master.clone()));
        let stage = Cipher::new("own", settings, part, master.clone(), counters);
        Self { stage, tables, part, master }
    }

    fn set_key(&mut self, master: Arc<Master>) {
        self.tables.apply(&self.part.patch(vec![KeyPatch::new(&master)]));
        self.master = master;
    }
}

fn stage(settings: &Settings, key: u8) -> Own {
    Own::new(settings, key, Arc::default())
}

fn chunk_of(frames: &[Vec<u8>], pool: &mut Pool) -> Chunk {
    let arena = Arena::new(Layout::new(CipherColumns::COLUMNS, 256));
    let mut chunk = Chunk::new(arena.reserve(256).expect("room"), 0);
    for frame in frames {
        chunk.packets.push(Packet::copy_from(pool, frame).expect("cells"));
    }
    chunk.rows.set_len(frames.len());
    chunk.rows.verdicts().fill(Verdict::NEXT.0);
    chunk
}

/// What a stage does with a chunk, step by step as an engine does.
fn run(own: &mut Own, chunk: &mut Chunk, pool: &mut Pool) {
    let (mut dropped, mut released) = (Vec::new(), Vec::new());
    let Own { stage, tables, .. } = own;
    let mut cx = Context::detached(pool, tables, 0, &mut dropped, &mut released);
    stage.pre_shade(chunk, &mut cx);
    let Chunk { rows, packets, .. } = &mut *chunk;
    stage.shader().expect("a shade").shade_packets(rows, packets, tables);
    stage.post_shade(chunk, &mut cx);
}

fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// The frames that go on, or why not.
fn results(chunk: &mut Chunk) -> Vec<Result<Vec<u8>, DropReason>> {
    let verdicts: Vec<u32> = chunk.rows.verdicts().to_vec();
    let all = verdicts.iter().zip(&chunk.packets);
    all.map(|(verdict, packet)| match Verdict(*verdict).kind() {
        VerdictKind::Drop => Err(Verdict(*verdict).reason()),
        _ => Ok(bytes_of(packet)),
    })
    .collect()
}

fn end(chunk: Chunk, pool: &mut Pool) {
    chunk.packets.into_iter().for_each(|packet| packet.free(pool));
}

/// What a frame is made of.
#[derive(Debug, Clone)]
struct Made {
    is_v6: bool,
    is_tcp: bool,
    tags: usize,
    options: usize,
    payload: usize,
    trailer: usize,
    /// Bytes of an IP packet behind a datagram of UDP.
    surplus: usize,
    connection: u8,
    checksum: u8,
    seed: u32,
}

fn made() -> impl Strategy<Value = Made> {
    let payload = prop_oneof![0usize..100, 0usize..1440, Just(64), 1400usize..4000, Just(9000)];
    let lens = (0usize..3, 0usize..6, payload, prop_oneof![Just(0usize), 0usize..50], 0usize..4);
    (any::<(bool, bool)>(), lens, 0u8..40, 0u8..6, any::<u32>()).prop_map(
        |(
            (is_v6, is_tcp),
            (tags, options, payload, trailer, surplus),
            connection,
            checksum,
            seed,
        )| Made {
            is_v6,
            is_tcp,
            tags,
            options,
            payload,
            trailer,
            surplus: if is_tcp || surplus < 3 { 0 } else { 5 },
            connection,
            checksum,
            seed,
        },
    )
}

/// Checksums that were right are right, and others are wrong as before: 0 for UDP is none.
fn frame(made: &Made) -> Vec<u8> {
    let mut state = made.seed | 1;
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let mut frame = vec![2; 12];
    for _ in 0..made.tags {
        frame.extend([0x81, 0, 0, 5]);
    }
    frame.extend(if made.is_v6 { [0x86, 0xdd] } else { [8, 0] });
    let l3 = frame.len();
    let (options, header) = match made.is_tcp {
        true => (4 * made.options, 20),
        false => (0, 8),
    };
    let upper_len = header + options + made.payload;
    let protocol = if made.is_tcp { 6 } else { 17 };
    if made.is_v6 {
        frame.extend([0x60, 0, 0, 0]);
        frame.extend(((upper_len + made.surplus) as u16).to_be_bytes());
        frame.extend([protocol, 64]);
        for end in [1, made.connection] {
            frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
        }
    } else {
        frame.extend([0x45, 0]);
        frame.extend(((20 + upper_len + made.surplus) as u16).to_be_bytes());
        frame.extend([random(), random(), 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 1]);
        frame.push(made.connection);
        let checksum = finish(partial_sum(&frame[l3..]));
        frame[l3 + 10..l3 + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    let l4 = frame.len();
    frame.extend([0x10, made.connection, 0, 80]);
    if made.is_tcp {
        frame.extend([random(), random(), random(), random(), 0, 0, 0, 0]);
        frame.extend([(16 * (5 + options / 4)) as u8, 0x10, 1, 0, 0, 0, 0, 0]);
        frame.extend(std::iter::repeat_n(1, options));
    } else {
        frame.extend((upper_len as u16).to_be_bytes());
        frame.extend([0, 0]);
    }
    frame.extend(std::iter::repeat_with(&mut random).take(made.payload));
    let field = l4 + if made.is_tcp { 16 } else { 6 };
    let right = match transport_sum(&frame, l3, l4, frame.len()) {
        0 if !made.is_tcp => 0xffff,
        sum => sum,
    };
    let checksum = match made.checksum {
        0 => u16::from(random()) << 8 | 0x55, // neither form of zero
        1 if !made.is_tcp && !made.is_v6 => 0,
        _ => right,
    };
    frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(std::iter::repeat_n(7, made.surplus + made.trailer));
    frame
}

/// The checksum of TCP or UDP in a frame whose field counts too: 0 or 0xffff where it is right.
fn transport_sum(frame: &[u8], l3: usize, l4: usize, end: usize) -> u16 {
    let addresses = if frame[l3] >> 4 == 4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    let protocol = if frame[l3] >> 4 == 4 { frame[l3 + 9] } else { frame[l3 + 6] };
    let sum = partial_sum(&frame[addresses]) + u32::from(protocol) + (end - l4) as u32;
    finish(sum + partial_sum(&frame[l4..end]))
}

fn settings() -> impl Strategy<Value = Settings> {
    let words = Algorithm::WORDS.iter().map(|(_, algorithm)| *algorithm).collect::<Vec<_>>();
    (prop::sample::select(words), any::<(bool, bool, bool)>()).prop_map(
        |(algorithm, (is_static, is_derived, is_padded))| {
            let mut own = Settings {
                algorithm,
                keys: if is_static { Keys::Static } else { Keys::Connection },
                iv: if is_derived { Vector::Derived } else { Vector::Carried },
                padding: if is_padded { Fill::Pkcs7 } else { Fill::None },
                mtu: 9050,
                connections: 64,
                ..Settings::default()
            };
            if own.check().is_err() {
                own.iv = Vector::Carried;
            }
            own
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encrypted_and_decrypted_is_what_it_was(
        settings in settings(),
        made in prop::collection::vec(made(), 1..80),
    ) {
        let frames: Vec<Vec<u8>> = made.iter().map(frame).collect();
        let mut pool = pool();
        let mut chunk = chunk_of(&frames, &mut pool);
        run(&mut stage(&settings, 5), &mut chunk, &mut pool);
        let encrypted = results(&mut chunk);
        for ((made, before), after) in made.iter().zip(&frames).zip(&encrypted) {
            let mode = settings.mode();
            let is_dropped = match after {
                Ok(after) => {
                    let headers = before.len() - made.payload - made.surplus - made.trailer;
                    let now = &after[headers..after.len() - made.surplus - made.trailer];
                    let was = &before[headers..headers + made.payload];
                    prop_assert!(made.payload < 16 || now != was, "it is secret");
                    let added = match made.payload {
                        0 => 0,
                        len => settings.iv_len() + mode.encrypted_len(len) - len,
                    };
                    prop_assert_eq!(after.len(), before.len() + added);
                    prop_assert_eq!(&after[after.len() - made.surplus - made.trailer..],
                        &before[headers + made.payload..], "what is behind stays");
                    check(before, after)?;
                    false
                }
                Err(reason) => {
                    let is_long = *reason == reasons::CIPHER_MTU;
                    let is_odd = *reason == reasons::CIPHER_NOT_WHOLE;
                    prop_assert!(is_odd && made.payload % 16 != 0 || is_long && made.payload > 8900);
                    true
                }
            };
            let needs_blocks = settings.padding == Fill::None && mode.iv_len() != 12
                && mode.encrypted_len(1) == 1 && matches!(mode, crypto::modes::Mode::Ecb(_) | crypto::modes::Mode::Cbc(_));
            prop_assert!(is_dropped || !needs_blocks || made.payload % 16 == 0);
        }
        let back = Settings { direction: Direction::Decrypt, ..settings.clone() };
        run(&mut stage(&back, 5), &mut chunk, &mut pool);
        for ((before, encrypted), after) in frames.iter().zip(&encrypted).zip(results(&mut chunk)) {
            if encrypted.is_ok() {
                prop_assert_eq!(&after.expect("a packet"), before);
            }
        }
        end(chunk, &mut pool);
    }

    /// Frames with flipped bits, cut off, and decrypted without ever having been encrypted: no panic, and GCM lets nothing pass.
    #[test]
    fn no_frame_does_harm(
        settings in settings(),
        made in prop::collection::vec(made(), 1..40),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 40),
        is_encrypting in any::<bool>(),
    ) {
        let mut frames: Vec<Vec<u8>> = made.iter().map(frame).collect();
        for (frame, (at, bit)) in frames.iter_mut().zip(&flips) {
            let at = at.index(frame.len().min(90));
            frame[at] ^= 1 << bit;
            if *bit == 0 {
                frame.truncate(at);
            }
        }
        let direction = if is_encrypting { Direction::Encrypt } else { Direction::Decrypt };
        let mut pool = pool();
        let mut chunk = chunk_of(&frames, &mut pool);
        let settings = Settings { direction, ..settings };
        run(&mut stage(&settings, 5), &mut chunk, &mut pool);
        for (before, after) in frames.iter().zip(results(&mut chunk)) {
            let d = packet::decode::decode(before, before.len());
            let is_transport = d.protocol == IpProtocol::TCP || d.protocol == IpProtocol::UDP;
            if let Ok(after) = after
                && (!is_encrypting && settings.mode() == crypto::modes::Mode::Gcm || !is_transport)
            {
                prop_assert_eq!(&after, before);
            }
        }
        end(chunk, &mut pool);
    }
}

/// Lengths and checksums of a frame after another one.
fn check(before: &[u8], after: &[u8]) -> Result<(), TestCaseError> {
    let [was, now] = [before, after].map(|frame| packet::decode::decode(frame, frame.len()));
    prop_assert!(now.is_ip() && now.anomaly == packet::Anomaly::None, "{:?}", now);
    prop_assert_eq!(now.ip_total_len - was.ip_total_len, (after.len() - before.len()) as u32);
    let sum = |d: &Decoded, frame: &[u8]| {
        let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
        let (end, field) = match d.protocol {
            IpProtocol::UDP => {
                let len = u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]);
                (l4 + usize::from(len), l4 + 6)
            }
            _ => (d.l3_end(), l4 + 16),
        };
        let is_none = d.protocol == IpProtocol::UDP && frame[field..field + 2] == [0, 0];
        (is_none, transport_sum(frame, l3, l4, end) % 0xffff)
    };
    let ((was_none, old), (is_none, new)) = (sum(&was, before), sum(&now, after));
    prop_assert_eq!(was_none, is_none);
    prop_assert!(is_none || old == new, "the checksum is right or wrong as before");
    Ok(())
}

fn plain(payload: usize, connection: u8) -> Vec<u8> {
    frame(&Made {
        is_v6: false,
        is_tcp: false,
        tags: 0,
        options: 0,
        payload,
        trailer: 0,
        surplus: 0,
        connection,
        checksum: 2,
        seed: 3,
    })
}

/// More connections than slots: keys are forgotten and derived again, and a key of the file that a reload replaces is used.
#[test]
fn keys_come_and_go() {
    let settings = Settings { connections: 64, ..Settings::default() };
    let counters = Arc::new(Counters::default());
    let mut own = Own::new(&settings, 1, counters.clone());
    let frames: Vec<_> = (0..200).map(|connection| plain(40, connection)).collect();
    let mut pool = pool();
    let mut encrypt = |own: &mut Own| {
        let mut chunk = chunk_of(&frames, &mut pool);
        run(own, &mut chunk, &mut pool);
        let all = results(&mut chunk).into_iter().map(Result::unwrap).collect::<Vec<_>>();
        end(chunk, &mut pool);
        all
    };
    let first = encrypt(&mut own);
    assert_eq!(encrypt(&mut own), first, "the same input has the same output");
    assert_eq!((counters.packets.get(), counters.bytes.get()), (400, 16_000));
    assert!(counters.derived.get() > 200, "{counters:?}");
    let distinct: std::collections::HashSet<_> = first.iter().map(|frame| &frame[42..]).collect();
    assert_eq!(distinct.len(), 200, "the same text is another one for each connection");
    let (first_key, second_key) = (Arc::downgrade(&own.master), master(&settings, 2));
    own.set_key(second_key);
    let second = encrypt(&mut own);
    assert!(first.iter().zip(&second).all(|(a, b)| a[42..] != b[42..]));
    assert_eq!(encrypt(&mut own), second);
    assert!(first_key.upgrade().is_none(), "a key that was replaced is gone");
}

/// Two pipelines with one `[stage.x]`: each worker has two stages that count together.
#[test]
fn stages_of_a_name_count_together() {
    let settings = Settings::default();
    let counters = Arc::new(Counters::default());
    let make = || Own::new(&settings, 1, counters.clone());
    let (mut one, mut other) = (make(), make());
    let mut pool = pool();
    let mut send = |own: &mut Own, connections: std::ops::Range<u8>| {
        let frames: Vec<_> = connections.map(|connection| plain(40, connection)).collect();
        let mut chunk = chunk_of(&frames, &mut pool);
        run(own, &mut chunk, &mut pool);
        end(chunk, &mut pool);
    };
    send(&mut one, 0..5);
    send(&mut other, 5..8);
    send(&mut one, 0..5);
    assert_eq!((counters.packets.get(), counters.derived.get()), (13, 8));
}

#[test]
fn fragments_and_what_has_no_payload() {
    let settings = Settings::default();
    let mut fragment = plain(64, 1);
    fragment[20] = 0x20; // more fragments
    let sum = finish(partial_sum(&[&fragment[14..24], &[0, 0], &fragment[26..34]].concat()));
    fragment[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut icmp = plain(64, 2);
    icmp[23] = 1;
    let arp = [vec![0xff; 12], vec![8, 6], vec![0; 46]].concat();
    let frames = vec![fragment, icmp, arp, plain(0, 3), plain(1471, 4), plain(1472 - 28, 5)];
    let mut pool = pool();
    let mut chunk = chunk_of(&frames, &mut pool);
    let mut own = stage(&settings, 1);
    run(&mut own, &mut chunk, &mut pool);
    let found = results(&mut chunk);
    assert_eq!(found[0], Err(reasons::CIPHER_FRAGMENT));
    // Its header checksum is wrong now, and nobody asked.
    assert_eq!(found[1..4], frames[1..4].iter().cloned().map(Ok).collect::<Vec<_>>());
    assert_eq!(found[4], Err(reasons::CIPHER_MTU));
    assert_eq!(found[5].as_ref().map(Vec::len), Ok(1500 + 14));
    let Own { stage, tables, .. } = &own;
    assert_eq!(stage.describe(&mut chunk, 3, tables), "no payload of TCP or UDP");
    assert_eq!(stage.describe(&mut chunk, 5, tables), "1444 bytes encrypted to 1472");
    end(chunk, &mut pool);
}

/// An IPv6 packet: next headers with their bytes, then what is behind them.
fn ipv6(first: u8, behind: &[u8]) -> Vec<u8> {
    let mut frame = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend((behind.len() as u16).to_be_bytes());
    frame.extend([first, 64]);
    for end in [1, 2] {
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
    }
    frame.extend(behind);
    frame
}

/// A later fragment may begin in the middle of anything: what it says about what follows need not be TCP or UDP itself.
#[test]
fn fragments_whose_protocol_is_not_known() {
    const FRAGMENT: u8 = 44;
    const ICMP: u8 = 58;
    let later =
        |next: u8| ipv6(FRAGMENT, &[&[next, 0, 0, 8, 0, 0, 0, 7][..], &[0x5e; 64]].concat());
    let first = ipv6(
        FRAGMENT,
        &[&[60, 0, 0, 1, 0, 0, 0, 7][..], &[17, 0, 1, 4, 0, 0, 0, 0], &[0x5e; 64]].concat(),
    );
    let mut authenticated = plain(64, 1);
    authenticated[20..22].copy_from_slice(&[0, 9]);
    authenticated[23] = IpProtocol::AH.0;
    let mut frames: Vec<_> = [60, 43, 51, 0, 6, 17, 140].map(later).into();
    frames.extend([first, authenticated]);
    let dropped = frames.len();
    frames.push(later(ICMP));
    let mut pool = pool();
    for direction in [Direction::Encrypt, Direction::Decrypt] {
        let settings = Settings { direction, ..Settings::default() };
        let mut chunk = chunk_of(&frames, &mut pool);
        run(&mut stage(&settings, 1), &mut chunk, &mut pool);
        let found = results(&mut chunk);
        for (at, found) in found[..dropped].iter().enumerate() {
            assert_eq!(found, &Err(reasons::CIPHER_FRAGMENT), "{direction:?}, frame {at}");
        }
        assert_eq!(found[dropped].as_ref(), Ok(&frames[dropped]));
        end(chunk, &mut pool);
    }
}

/// Headers behind which TCP or UDP may be, but out of reach: nothing of it leaves as it came.
#[test]
fn what_cannot_be_reached_is_dropped() {
    let whole = plain(64, 1);
    let tags = |count: usize| [&whole[..12], &[0x81, 0, 0, 5].repeat(count), &whole[12..]].concat();
    let mut authenticated = whole.clone();
    authenticated[23] = IpProtocol::AH.0;
    let mut shim = ipv6(140, &[0x5e; 64]);
    shim[54..58].copy_from_slice(&[17, 0, 0x80, 0]);
    let behind_snap = |protocol: [u8; 2], packet: &[u8]| {
        let llc = [&[0xaa, 0xaa, 3, 0, 0, 0][..], &protocol, packet].concat();
        [&whole[..12], &(llc.len() as u16).to_be_bytes(), &llc].concat()
    };
    let dropped = [
        tags(3),
        tags(7),
        [&whole[..12], &[0x92, 0, 0, 5], &whole[12..]].concat(),
        authenticated,
        shim,
        behind_snap([8, 0], &whole[14..]),
        behind_snap([0x86, 0xdd], &ipv6(17, &[0x5e; 64])[14..]),
        // An 802.1Q tag before the length.
        [&tags(1)[..16], &behind_snap([8, 0], &whole[14..])[12..]].concat(),
    ];
    // A bridge's BPDU, one of Cisco's, and what has no IP at all.
    let bpdu = [&whole[..12], &[0, 38, 0x42, 0x42, 3], &[0; 43]].concat();
    let passed =
        [bpdu, behind_snap([1, 0x0b], &[0; 40]), [&[0xff; 12][..], &[8, 6], &[0; 46]].concat()];
    let frames = [&dropped[..], &passed].concat();
    let mut pool = pool();
    let mut chunk = chunk_of(&frames, &mut pool);
    run(&mut stage(&Settings::default(), 1), &mut chunk, &mut pool);
    let found = results(&mut chunk);
    for (at, (found, frame)) in found.iter().zip(&frames).enumerate() {
        match at < dropped.len() {
            true => assert_eq!(found, &Err(reasons::CIPHER_ENCAPSULATED), "frame {at}"),
            false => assert_eq!(found.as_ref(), Ok(frame), "frame {at}"),
        }
    }
    end(chunk, &mut pool);
}

#[test]
fn nothing_is_allocated_for_packets() {
    let mut pool = pool();
    for (name, algorithm) in Algorithm::WORDS {
        let settings =
            Settings { algorithm: *algorithm, connections: 64, mtu: 9500, ..Settings::default() };
        let frames: Vec<_> = (0..100).map(|at| plain(16 * usize::from(at), at)).collect();
        let back = Settings { direction: Direction::Decrypt, ..settings.clone() };
        let (mut there, mut back) = (stage(&settings, 1), stage(&back, 1));
        let mut chunk = chunk_of(&frames, &mut pool);
        let count = allocation_counter::measure(|| {
            run(&mut there, &mut chunk, &mut pool);
            run(&mut back, &mut chunk, &mut pool);
        });
        // `Tables::default()` and the handle of the shade may cost some for the whole chunk.
        assert!(count.count_total < 10, "{name}: {count:?}");
        assert_eq!(results(&mut chunk), frames.into_iter().map(Ok).collect::<Vec<_>>());
        end(chunk, &mut pool);
    }
}

/// Files that others may read, that are no key, or of another length; and no message shows what is in them.
#[test]
fn key_files() {
    let folder = Scratch::new();
    let pipe = folder.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let file = |text: &str, mode: u32| {
        let path = folder.join("key");
        // Another mode than the one before.
        let _ = std::fs::remove_file(&path);
        let mut out = std::fs::File::create(&path).unwrap();
        out.write_all(text.as_bytes()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Settings { key_file: path, ..Settings::default() }
    };
    const KEY: &str = "c0ffee0102030405060708090a0b0c0d0e0f";
    assert!(Master::open(&file(&format!(" {KEY}\n"), 0o400)).is_ok());
    let fixed = |settings: Settings| Settings { keys: Keys::Static, ..settings };
    let cases = [
        (file(KEY, 0o640), "gives others access"),
        (file(KEY, 0o604), "expected 600 or 400"),
        (file("c0ffe", 0o600), "an odd number of hexadecimal digits (5)"),
        (file("c0ffeex0", 0o600), "character 7 of the key is not a hexadecimal digit"),
        (file("c0ffee", 0o600), "the key has 3 bytes: expected 16 to 64"),
        (file(&KEY.repeat(20), 0o600), "the key has 360 bytes"),
        (file(&KEY.repeat(40), 0o600), "longer than 1024 bytes"),
        (file("c0ff\u{e9}", 0o600), "not a hexadecimal digit"),
        (
            fixed(file(KEY, 0o600)),
            "the key has 18 bytes: AES-128-GCM with `keys = \"static\"` needs 16",
        ),
        (Settings { key_file: folder.join(""), ..Settings::default() }, "not a regular file"),
        (Settings { key_file: pipe, ..Settings::default() }, "not a regular file"),
        (Settings { key_file: "/dev/zero".into(), ..Settings::default() }, "not a regular file"),
        (Settings { key_file: folder.join("none"), ..Settings::default() }, "No such file"),
        (Settings::default(), "`key_file` is missing"),
        (Settings { iv: Vector::Derived, ..Settings::default() }, "not possible with GCM"),
    ];
    // Each case makes the same file anew, so it is made when it is looked at.
    for (at, (settings, expected)) in cases.into_iter().enumerate() {
        let texts =
            [(KEY, 0o640), (KEY, 0o604), ("c0ffe", 0o600), ("c0ffeex0", 0o600), ("c0ffee", 0o600)];
        let long = [KEY.repeat(20), KEY.repeat(40), "c0ff\u{e9}".to_owned(), KEY.to_owned()];
        match at {
            0..5 => drop(file(texts[at].0, texts[at].1)),
            5..9 => drop(file(&long[at - 5], 0o600)),
            _ => {}
        }
        let error = Master::open(&settings).map(drop).expect_err(expected);
        assert!(error.contains(expected), "{error}");
        assert!(!error.to_lowercase().contains("c0ff"), "{error}");
    }
}

#[test]
fn settings_are_read() {
    let mut own = Settings::default();
    let folder = Scratch::new();
    let path = folder.write("key", "00");
    let text = format!(
        "[stage.x]\ndirection = \"decrypt\"\nalgorithm = \"aes-192-cbc\"\nkey_file = \"{}\"\npadding = \"none\"",
        path.display()
    );
    assert_eq!(section::read(&text, "stage.x", &mut own), []);
    assert_eq!((own.direction, own.name().as_str()), (Direction::Decrypt, "AES-192-CBC"));
    assert_eq!((own.iv_len(), own.weakness()), (16, None));
    let unpadded = Settings { padding: Fill::None, ..Settings::default() };
    assert!(
        unpadded.weakness().is_some_and(|weakness| weakness.contains("`padding` has no effect"))
    );
    let mut values = Vec::new();
    own.settings("stage.x", &mut values);
    assert!(values.iter().any(|value| value.text == "aes-192-cbc"));
    for (word, algorithm) in Algorithm::WORDS {
        let own = Settings { algorithm: *algorithm, ..Settings::default() };
        assert_eq!(own.name().to_lowercase(), *word);
    }
    let missing = section::read("[stage.x]\n", "stage.x", &mut own);
    assert_eq!(missing.len(), 2, "{missing:?}");
}
