//! Batches against one packet at a time and against another implementation, and packets that are not genuine.

use crate::common::{filled, key};
use aes_gcm::aead::AeadInOut;
use aes_gcm::{AesGcm, KeyInit};
use crypto::esp::{self, Inbound, OpenError, Outbound};
use crypto::modes::{self, Mode, ModeError, RawKey, Text};
use crypto::window::Replay;
use crypto::{
    Authentication, Encryption, Failure, Icv, Key, KeySize, Request, Secret, Suite, open_batch,
    seal_batch,
};
use proptest::prelude::*;

fn suites() -> Vec<Suite> {
    Suite::all().collect()
}

/// A packet of a batch.
#[derive(Debug, Clone)]
struct Packet {
    /// Which of the keys.
    key: usize,
    header_len: usize,
    text_len: usize,
    high: Option<u32>,
    seed: u64,
}

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    let len = prop_oneof![0usize..100, 0usize..1500, Just(1024), Just(3000)];
    let packet = (0usize..6, 0usize..40, len, any::<Option<u32>>(), any::<u32>());
    let packet = packet.prop_map(|(key, header_len, text_len, high, seed)| {
        let header_len = if high.is_some() { 8 } else { header_len };
        Packet { key, header_len, text_len, high, seed: seed.into() }
    });
    prop::collection::vec(packet, 1..80)
}

/// A packet with its text, not yet sealed.
fn buffer(packet: &Packet, suite: Suite) -> (Vec<u8>, usize) {
    let text_len = packet.text_len / suite.block_len() * suite.block_len();
    let spare = packet.seed as usize % 3;
    let len = packet.header_len + suite.iv_len() + text_len + suite.icv_len() + spare;
    (filled(len, packet.seed), text_len)
}

fn request<'a>(
    packet: &Packet,
    key: &'a Key,
    buffer: &'a mut [u8],
    number: usize,
    text_len: usize,
) -> Request<'a> {
    let mut request = Request::new(key, buffer, packet.header_len, text_len);
    request.iv = key.iv(packet.key as u32, number as u64);
    request.sequence_high = packet.high;
    request
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() })]

    /// Packets of several suites and keys, mixed: as if each were alone; then opened, some of them forged.
    #[test]
    fn a_batch_is_its_packets(
        packets in packets(),
        chosen in prop::array::uniform6(0usize..41),
        forged in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u8..8), 0..9),
    ) {
        let suites = suites();
        let keys: Vec<Key> =
            chosen.iter().zip(1..).map(|(suite, seed)| key(suites[*suite], seed)).collect();
        let plain: Vec<(Vec<u8>, usize)> =
            packets.iter().map(|packet| buffer(packet, keys[packet.key].suite())).collect();
        let make = |buffers: &mut Vec<Vec<u8>>, size: usize, run: fn(&mut [Request<'_>])| {
            let mut requests: Vec<Request<'_>> = buffers
                .iter_mut()
                .enumerate()
                .map(|(at, buffer)| {
                    let packet = &packets[at];
                    request(packet, &keys[packet.key], buffer, at, plain[at].1)
                })
                .collect();
            requests.chunks_mut(size).for_each(run);
            requests.iter().map(|request| request.result).collect::<Vec<_>>()
        };
        let mut sealed: Vec<Vec<u8>> = plain.iter().map(|(buffer, _)| buffer.clone()).collect();
        let mut alone = sealed.clone();
        let results = make(&mut sealed, usize::MAX, seal_batch);
        prop_assert!(results.iter().all(Result::is_ok));
        make(&mut alone, 1, seal_batch);
        prop_assert_eq!(&sealed, &alone);

        let mut expected = vec![Ok(()); sealed.len()];
        let mut received = sealed.clone();
        for (packet, byte, bit) in &forged {
            let at = packet.index(received.len());
            let spare = packets[at].seed as usize % 3;
            let len = received[at].len() - spare;
            if len > 0 && expected[at].is_ok() {
                received[at][byte.index(len)] ^= 1 << bit;
                expected[at] = Err(Failure::Authentication);
            }
        }
        let before = received.clone();
        let results = make(&mut received, usize::MAX, open_batch);
        prop_assert_eq!(&results, &expected);
        for at in 0..received.len() {
            let packet = &packets[at];
            let suite = keys[packet.key].suite();
            if expected[at].is_err() {
                prop_assert_eq!(&received[at], &before[at], "what is not genuine stays as it was");
                continue;
            }
            let text = packet.header_len + suite.iv_len();
            let text = text..text + plain[at].1;
            prop_assert_eq!(&received[at][text.clone()], &plain[at].0[text]);
        }
        make(&mut alone, 1, open_batch);
        for at in (0..received.len()).filter(|at| expected[*at].is_ok()) {
            prop_assert_eq!(&received[at], &alone[at]);
        }
    }

    /// The crate that takes one packet at a time, and text longer than a run of counter blocks.
    #[test]
    fn gcm_agrees_with_its_crate(text_len in 0usize..2500, header_len in 0usize..70, seed in any::<u32>()) {
        let gcm = |icv| Encryption::AesGcm(KeySize::Bits256, icv);
        let secret = filled(36, seed.into());
        for icv in [Icv::Bytes12, Icv::Bytes16] {
            let suite = Suite::new(gcm(icv), Authentication::None).unwrap();
            let key = Key::new(suite, &Secret::new(secret.clone()), &Secret::none()).unwrap();
            let mut own = filled(header_len + 8 + text_len + icv.bytes(), seed.into());
            let mut other = own.clone();
            let mut requests = [Request::new(&key, &mut own, header_len, text_len)];
            requests[0].iv = filled(16, 9).try_into().unwrap();
            let iv = requests[0].iv;
            seal_batch(&mut requests);

            let nonce: [u8; 12] = [&secret[32..], &iv[..8]].concat().try_into().unwrap();
            let (header, rest) = other.split_at_mut(header_len);
            let text = &mut rest[8..8 + text_len];
            type Gcm = AesGcm<aes_gcm::aes::Aes256, aes_gcm::aead::consts::U12>;
            let tag = Gcm::new_from_slice(&secret[..32])
                .unwrap()
                .encrypt_inout_detached(&nonce.into(), header, text.into())
                .unwrap();
            let own = &own[header_len + 8..];
            prop_assert_eq!(&own[..text_len], &rest[8..8 + text_len]);
            prop_assert_eq!(&own[text_len..], &tag[..icv.bytes()]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 100, ..ProptestConfig::default() })]

    /// Texts of all modes and of several keys: a batch does to each what one call does, also to those that have a wrong
    /// length or tag.
    #[test]
    fn texts_in_a_batch_agree_with_one_by_one(
        texts in prop::collection::vec(
            (0usize..20, prop_oneof![0usize..100, 0usize..1500, Just(1024)], any::<u32>(), 0usize..4), 1..80),
    ) {
        let keys: Vec<RawKey> = (0..20).map(|at| {
            let len = [16, 24, 32][at % 3];
            RawKey::new(Mode::ALL[at % 8], &Secret::new(filled(len, at as u64))).unwrap()
        }).collect();
        let iv = |seed: u32| <[u8; 16]>::try_from(filled(16, seed.into())).unwrap();
        let mut alone: Vec<Vec<u8>> = texts.iter()
            .map(|(_, len, seed, spare)| filled(len + 12 * spare, u64::from(*seed) + 1)).collect();
        let mut together = alone.clone();
        let mut batch: Vec<Text<'_>> = texts.iter().zip(&mut together)
            .map(|((key, len, seed, _), buffer)| Text {
                aad: &[9; 20][..*seed as usize % 20],
                ..Text::new(&keys[*key], iv(*seed), buffer, *len)
            }).collect();
        modes::encrypt_batch(&mut batch);
        let results: Vec<_> = batch.iter().map(|text| text.result).collect();
        for (((key, len, seed, _), own), result) in texts.iter().zip(&mut alone).zip(&results) {
            let key = &keys[*key];
            let aad = &[9; 20][..*seed as usize % 20];
            let iv = iv(*seed);
            let expected = key.encrypt(&iv[..key.mode().iv_len()], aad, own, *len);
            prop_assert_eq!(*result, expected, "{}", key.mode());
        }
        prop_assert_eq!(&alone, &together);
        // Back, with a flipped bit in some.
        let lens: Vec<usize> = results.iter().map(|result| result.unwrap_or(5)).collect();
        for all in [&mut alone, &mut together] {
            for ((own, len), (_, _, seed, _)) in all.iter_mut().zip(&lens).zip(&texts) {
                if seed % 5 == 0 && *len > 0 {
                    own.resize(own.len().max(*len), 0);
                    own[len - 1] ^= 1;
                }
            }
        }
        let mut batch: Vec<Text<'_>> = texts.iter().zip(&mut together).zip(&lens)
            .map(|(((key, _, seed, _), buffer), len)| Text {
                aad: &[9; 20][..*seed as usize % 20],
                ..Text::new(&keys[*key], iv(*seed), buffer, *len)
            }).collect();
        modes::decrypt_batch(&mut batch);
        let results: Vec<_> = batch.iter().map(|text| text.result).collect();
        for (((key, _, seed, _), own), (result, len)) in texts.iter().zip(&mut alone).zip(results.iter().zip(&lens)) {
            let key = &keys[*key];
            let aad = &[9; 20][..*seed as usize % 20];
            let iv = iv(*seed);
            let expected = key.decrypt(&iv[..key.mode().iv_len()], aad, own, *len);
            prop_assert_eq!(*result, expected, "{}", key.mode());
            if key.mode() == Mode::Gcm && seed % 5 == 0 && *len >= 16 {
                prop_assert_eq!(*result, Err(ModeError::NotGenuine));
            }
        }
        prop_assert_eq!(&alone, &together);
    }
}

/// Counter mode of a whole block, block by block.
fn counted(key: &[u8], iv: [u8; 16], text: &mut [u8]) {
    fn run<C: cipher::BlockCipherEncrypt + cipher::KeyInit>(
        key: &[u8],
        iv: [u8; 16],
        text: &mut [u8],
    ) {
        let cipher = C::new_from_slice(key).unwrap();
        for (part, at) in text.chunks_mut(16).zip(0u128..) {
            let counter = u128::from_be_bytes(iv).wrapping_add(at).to_be_bytes();
            let mut block = cipher::Block::<C>::default();
            block.copy_from_slice(&counter);
            cipher.encrypt_block(&mut block);
            part.iter_mut().zip(&block).for_each(|(byte, with)| *byte ^= with);
        }
    }
    match key.len() {
        16 => run::<aes::Aes128>(key, iv, text),
        24 => run::<aes::Aes192>(key, iv, text),
        _ => run::<aes::Aes256>(key, iv, text),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 100, ..ProptestConfig::default() })]

    /// Counter modes of texts that end anywhere in a block, a vector and a turn, beside block after block and beside another crate:
    /// with counters that pass the border of their last four bytes, and of all.
    #[test]
    fn counter_modes_agree_with_plain_ones(
        size in prop_oneof![Just(16usize), Just(24), Just(32)],
        seed in any::<u32>(),
        high in prop_oneof![Just([0xff; 12]), any::<[u8; 12]>()],
        low in prop_oneof![Just(0u32), (0u32..120).prop_map(|by| u32::MAX - by), any::<u32>()],
        lens in prop::collection::vec(
            prop_oneof![0usize..100, 0usize..1700, (0usize..4, 0usize..40).prop_map(|(turns, more)| turns * 512 + more)], 1..5),
        aad in prop_oneof![Just(0usize), 0usize..20],
        bit in any::<prop::sample::Index>(),
    ) {
        let bytes = filled(size, seed.into());
        let key = |mode| RawKey::new(mode, &Secret::new(bytes.clone())).unwrap();
        let mut iv = [0; 16];
        iv[..12].copy_from_slice(&high);
        iv[12..].copy_from_slice(&low.to_be_bytes());
        let (counting, gcm) = (key(Mode::Ctr), key(Mode::Gcm));
        let plain: Vec<Vec<u8>> = lens.iter().map(|len| filled(len + 16, u64::from(seed) + 1)).collect();
        let aad = &[5; 20][..aad];
        for (key, mode) in [(&counting, Mode::Ctr), (&gcm, Mode::Gcm)] {
            let mut all = plain.clone();
            let mut texts: Vec<Text<'_>> = all.iter_mut().zip(&lens)
                .map(|(buffer, len)| Text { aad, ..Text::new(key, iv, buffer, *len) }).collect();
            modes::encrypt_batch(&mut texts);
            let made: Vec<usize> = texts.iter().map(|text| text.result.unwrap()).collect();
            for ((own, plain), len) in all.iter().zip(&plain).zip(&lens) {
                let mut expected = plain.clone();
                let mut alone = plain.clone();
                let iv = &iv[..mode.iv_len()];
                key.encrypt(iv, aad, &mut alone, *len).unwrap();
                if mode == Mode::Ctr {
                    counted(&bytes, iv.try_into().unwrap(), &mut expected[..*len]);
                } else {
                    let (text, tag) = expected.split_at_mut(*len);
                    let nonce: [u8; 12] = iv.try_into().unwrap();
                    let own = match size {
                        16 => AesGcm::<aes::Aes128, aes_gcm::aead::consts::U12>::new_from_slice(&bytes).unwrap()
                            .encrypt_inout_detached(&nonce.into(), aad, text.into()),
                        24 => AesGcm::<aes::Aes192, aes_gcm::aead::consts::U12>::new_from_slice(&bytes).unwrap()
                            .encrypt_inout_detached(&nonce.into(), aad, text.into()),
                        _ => AesGcm::<aes::Aes256, aes_gcm::aead::consts::U12>::new_from_slice(&bytes).unwrap()
                            .encrypt_inout_detached(&nonce.into(), aad, text.into()),
                    };
                    tag.copy_from_slice(&own.unwrap());
                }
                prop_assert_eq!(own, &expected, "{} {}", mode, len);
                prop_assert_eq!(own, &alone, "{} {}", mode, len);
            }
            // Back; and once more with a bit flipped.
            let sealed = all.clone();
            let back = |all: &mut Vec<Vec<u8>>| -> Vec<_> {
                let mut texts: Vec<Text<'_>> = all.iter_mut().zip(&made)
                    .map(|(buffer, len)| Text { aad, ..Text::new(key, iv, buffer, *len) }).collect();
                modes::decrypt_batch(&mut texts);
                texts.iter().map(|text| text.result).collect()
            };
            let opened: Vec<_> = back(&mut all).into_iter().map(Result::unwrap).collect();
            prop_assert_eq!(&opened, &lens);
            for ((own, plain), len) in all.iter().zip(&plain).zip(&lens) {
                prop_assert_eq!(&own[..*len], &plain[..*len]);
            }
            if mode == Mode::Gcm {
                let mut forged = sealed;
                forged.iter_mut().zip(&made).for_each(|(own, len)| own[bit.index(*len)] ^= 4);
                let mut found = forged.clone();
                prop_assert!(back(&mut found).iter().all(|own| *own == Err(ModeError::NotGenuine)));
                prop_assert_eq!(found, forged, "what is not genuine stays as it was");
            }
        }
    }
}

#[test]
fn requests_that_do_not_fit() {
    for suite in suites() {
        let key = key(suite, 1);
        let around = 8 + suite.iv_len() + suite.icv_len();
        let mut buffer = vec![7; around + 32];
        let mut result = |header_len, text_len, high| {
            let mut request = Request::new(&key, &mut buffer, header_len, text_len);
            request.sequence_high = high;
            let mut requests = [request];
            seal_batch(&mut requests);
            let sealed = requests[0].result;
            requests[0].result = Ok(());
            open_batch(&mut requests);
            (sealed, requests[0].result)
        };
        let layout = (Err(Failure::Layout), Err(Failure::Layout));
        assert_eq!(result(8, 33, None), layout);
        assert_eq!(result(8, usize::MAX, None), layout);
        assert_eq!(result(usize::MAX, 16, None), layout);
        assert_eq!(result(12, 16, Some(1)), layout);
        assert_eq!(result(8, 32, Some(1)), (Ok(()), Ok(())));
        let odd = if suite.block_len() > 1 { Err(Failure::Length) } else { Ok(()) };
        assert_eq!(result(8, 17, None), (odd, odd));
    }
    // What failed before is left alone.
    let key = key(suites()[0], 1);
    let mut buffer = [7; 100];
    let mut requests = [Request::new(&key, &mut buffer, 8, 16)];
    requests[0].result = Err(Failure::Length);
    seal_batch(&mut requests);
    assert_eq!(requests[0].result, Err(Failure::Length));
    assert_eq!(buffer, [7; 100]);
}

/// Two ends of an association, by the same keys.
fn ends(suite: Suite, is_extended: bool, next: u64) -> (Outbound, Inbound) {
    let sending = Outbound::resume(key(suite, 5), 0x1000, is_extended, next).unwrap();
    (sending, Inbound::new(key(suite, 5), 0x1000, is_extended, 128).unwrap())
}

/// A packet of `payload`, alone.
fn sealed(sending: &Outbound, payload: &[u8], tfc_len: usize) -> Vec<u8> {
    let front = esp::front_len(sending.suite());
    let behind = tfc_len + esp::back_len(sending.suite(), payload.len() + tfc_len);
    let mut buffer = [&vec![0xee; front + 3], payload, &vec![0xee; behind + 2]].concat();
    let number = sending.take(1).next().unwrap();
    let place = front + 3..front + 3 + payload.len();
    let mut seals = [number.seal(&mut buffer, place, 4, tfc_len)];
    esp::seal_batch(&mut seals);
    let packet = seals[0].result().unwrap();
    assert_eq!(packet, 3..buffer.len() - 2);
    assert!(buffer[..3].iter().chain(&buffer[packet.end..]).all(|byte| *byte == 0xee));
    buffer[packet].to_vec()
}

fn opened(receiving: &Inbound, packet: &mut [u8]) -> Result<esp::Opened, OpenError> {
    let mut opens = [receiving.open(packet)];
    assert!(opens[0].result().is_err(), "not opened yet");
    esp::open_batch(&mut opens);
    let result = opens[0].result();
    esp::open_batch(&mut opens);
    assert_eq!(opens[0].result(), result, "a second time changes nothing");
    result
}

#[test]
fn every_flipped_bit_is_found_and_no_cut_is_genuine() {
    for suite in suites() {
        for is_extended in [false, true] {
            let (sending, receiving) = ends(suite, is_extended, 7);
            let packet = sealed(&sending, b"the payload", 0);
            for bit in 0..packet.len() * 8 {
                let mut forged = packet.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                let error = opened(&receiving, &mut forged).unwrap_err();
                match bit / 8 {
                    0..4 => assert_eq!(error, OpenError::Spi),
                    _ => assert_eq!(error, OpenError::Authentication, "{suite} bit {bit}"),
                }
            }
            for len in 0..packet.len() {
                let error = opened(&receiving, &mut packet[..len].to_vec()).unwrap_err();
                let whole = (packet.len() - len).is_multiple_of(suite.block_len().max(4));
                assert!(
                    matches!(error, OpenError::Truncated | OpenError::Length) || whole,
                    "{suite}: {len} {error}"
                );
            }
            let mut longer = [&packet[..], &[0; 4]].concat();
            assert!(opened(&receiving, &mut longer).is_err());
            // None of them moved the window.
            assert_eq!(receiving.window().unwrap().top(), 0);
            let found = opened(&receiving, &mut packet.clone()).unwrap();
            assert_eq!((found.next_header, found.number), (4, 7));
            let error = opened(&receiving, &mut packet.clone()).unwrap_err();
            assert_eq!(error, OpenError::Replay(Replay::Seen));
        }
    }
}

#[test]
fn payloads_of_all_lengths_with_and_without_tfc_padding() {
    for suite in suites() {
        let (sending, receiving) = ends(suite, false, 1);
        let align = suite.block_len().max(4);
        for len in 0..40 {
            for tfc_len in [0, 1, 300] {
                let payload = filled(len, 3);
                let mut packet = sealed(&sending, &payload, tfc_len);
                let around = esp::front_len(suite) + suite.icv_len();
                let text = packet.len() - around;
                assert!(text.is_multiple_of(align) && text < len + tfc_len + 2 + align);
                let found = opened(&receiving, &mut packet).unwrap();
                let inside = &packet[found.payload];
                assert_eq!(inside[..len], payload);
                assert_eq!(inside[len..], vec![0; tfc_len]);
            }
        }
    }
}

/// Genuine packets of a peer with other habits, in a text of 16 bytes.
#[test]
fn padding_is_looked_at() {
    let suite = Suite::new(Encryption::AesCbc(KeySize::Bits192), Authentication::HmacSha512_256);
    let suite = suite.unwrap();
    let (_, receiving) = ends(suite, false, 1);
    let key = key(suite, 5);
    let right = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 14, 4];
    let mut wrong_byte = right;
    wrong_byte[3] = 0;
    let mut too_long = right;
    too_long[14] = 15;
    let mut longest = right;
    longest[14] = 255;
    let texts = [(right, true), (wrong_byte, false), (too_long, false), (longest, false)];
    for ((text, is_right), number) in texts.into_iter().zip(1u32..) {
        let mut packet =
            [&[0, 0, 16, 0][..], &number.to_be_bytes(), &[0; 16], &text, &[0; 32]].concat();
        let mut requests = [Request::new(&key, &mut packet, 8, 16)];
        seal_batch(&mut requests);
        let result = opened(&receiving, &mut packet.clone());
        let payload = result.clone().map(|opened| opened.payload);
        assert_eq!(payload, if is_right { Ok(24..24) } else { Err(OpenError::Padding) });
        // It was genuine, so its number is used.
        let again = opened(&receiving, &mut packet);
        assert_eq!(again, Err(OpenError::Replay(Replay::Seen)));
    }
    // Up to 255 bytes of padding (RFC 4303 §2.4).
    let text: Vec<u8> = [9].into_iter().chain(1..=255).chain(1..=15).collect();
    let longest = [&text[..256], &[255, 6]].concat();
    let trailer = esp::Trailer::parse(&longest).unwrap();
    assert_eq!((trailer.payload_len, trailer.next_header), (1, 6));
}

/// The upper half is not sent, and both ends count it.
#[test]
fn extended_numbers_pass_the_lower_half() {
    for suite in suites() {
        let (sending, receiving) = ends(suite, true, (1 << 32) - 40);
        // The receiver has followed so far.
        receiving.accept((1 << 32) - 41).unwrap();
        let mut packets: Vec<Vec<u8>> = (0..80).map(|_| sealed(&sending, b"x", 0)).collect();
        assert_eq!(packets[41][4..8], [0, 0, 0, 1]);
        packets.reverse();
        packets.swap(3, 70);
        let mut opens: Vec<_> = packets.iter_mut().map(|packet| receiving.open(packet)).collect();
        esp::open_batch(&mut opens);
        let numbers: Vec<u64> = opens.iter().map(|open| open.result().unwrap().number).collect();
        let mut expected: Vec<u64> = ((1 << 32) - 40..(1 << 32) + 40).rev().collect();
        expected.swap(3, 70);
        assert_eq!(numbers, expected);
        // Of another upper half it is not genuine: 2^32 later.
        let (later, _) = ends(suite, true, (1 << 33) + 50);
        let mut packet = sealed(&later, b"x", 0);
        assert_eq!(opened(&receiving, &mut packet), Err(OpenError::Authentication));
    }
}

#[test]
fn numbers_end() {
    let suite = suites()[0];
    let (sending, _) = ends(suite, false, (1 << 32) - 2);
    assert_eq!(sending.take(10).count(), 2);
    assert_eq!(sending.take(1).count(), 0);
    assert_eq!(sending.sequence().left(), 0);
}

#[test]
fn one_packet_is_accepted_once_of_a_batch() {
    let (sending, receiving) = ends(suites()[0], false, 1);
    let packet = sealed(&sending, b"twice", 0);
    let mut copies = [packet.clone(), packet.clone(), packet];
    let mut opens: Vec<_> = copies.iter_mut().map(|copy| receiving.open(copy)).collect();
    esp::open_batch_deferred(&mut opens);
    assert!(opens.iter().all(|open| open.result().is_ok()));
    esp::open_batch(&mut opens);
    let results: Vec<_> = opens.iter().map(|open| open.result().map(|o| o.number)).collect();
    let seen = Err(OpenError::Replay(Replay::Seen));
    assert_eq!(results, [Ok(1), seen, seen]);
}

proptest! {
    /// Whatever is late, twice or damaged, and wherever batches end: the same answers and bytes as one after the other.
    #[test]
    fn a_batch_answers_as_one_packet_after_the_other(
        suite in prop::sample::select(suites()),
        is_extended in any::<bool>(),
        window in prop::sample::select(vec![1u32, 5, 64, 100]),
        first in prop::sample::select(vec![1, (1 << 31) + 7, (1u64 << 32) - 30]),
        jump in prop::sample::select(vec![0, 300, (1u64 << 31) - 20, (1 << 31) + 20, 1 << 32]),
        order in prop::collection::vec((0usize..300, 0usize..40, prop::option::weighted(0.2, any::<u16>())), 1..120),
        cuts in prop::collection::vec(1usize..40, 1..8),
    ) {
        let first = if is_extended { first } else { first.min(1 << 31) };
        // Numbers jump so far that the upper half of a number is another one by and by.
        let senders: Vec<Outbound> = (0..3).map(|n| first + n * jump)
            .filter(|first| is_extended || first + 200 < 1 << 32)
            .map(|first| ends(suite, is_extended, first).0)
            .collect();
        let sender = |at: usize| &senders[at * senders.len() / order.len()];
        let sent: Vec<Vec<u8>> = (0..order.len()).map(|at| sealed(sender(at), b"one of many", 0)).collect();
        // Most in order, some from far back or ahead.
        let came = order.iter().enumerate().map(|(at, (far, near, damage))| {
            let from = if far % 10 == 0 { *far } else { at + 3 - near.min(&3) };
            let mut packet = sent[from % sent.len()].clone();
            if let Some(bit) = damage {
                let bit = 32 + usize::from(*bit) % (packet.len() * 8 - 32);
                packet[bit / 8] ^= 1 << (bit % 8);
            }
            packet
        });
        let came: Vec<Vec<u8>> = came.collect();
        let receiver = || {
            let own = Inbound::new(key(suite, 5), 0x1000, is_extended, window).unwrap();
            if first > 1 {
                own.accept(first - 1).unwrap(); // it has followed so far
            }
            own
        };
        let (one, many, steps) = (receiver(), receiver(), receiver());
        let (mut alone, mut shaded) = (came.clone(), came.clone());
        let expected: Vec<_> = alone.iter_mut().map(|packet| opened(&one, packet)).collect();
        let mut together = came;
        let (mut rest, mut answers) = (&mut together[..], Vec::new());
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at_mut((*cut).min(rest.len()));
            let mut opens: Vec<_> = now.iter_mut().map(|packet| many.open(packet)).collect();
            esp::open_batch(&mut opens);
            answers.extend(opens.iter().map(|open| open.result()));
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&answers, &expected);
        prop_assert_eq!(&together, &alone);
        prop_assert_eq!(one.window().unwrap().top(), many.window().unwrap().top());
        // In two steps: a batch by the numbers of its start, and then what the window says in the order of packets.
        let (mut rest, mut answers) = (&mut shaded[..], Vec::new());
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at_mut((*cut).min(rest.len()));
            let numbers: Vec<_> = now.iter().map(|packet| steps.number(packet)).collect();
            let mut opens: Vec<_> = now
                .iter_mut()
                .zip(&numbers)
                .filter_map(|(packet, number)| Some(steps.open_as(packet, *number.as_ref().ok()?)))
                .collect();
            esp::open_batch_deferred(&mut opens);
            let mut genuine = opens.iter().map(|open| open.is_genuine()).collect::<Vec<_>>().into_iter();
            for (packet, number) in now.iter_mut().zip(numbers) {
                answers.push(match number {
                    Ok(number) => steps.settle(packet, number, genuine.next().unwrap()),
                    Err(_) => opened(&steps, packet),
                });
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&answers, &expected);
        prop_assert_eq!(&shaded, &alone);
    }
}

#[test]
fn associations_and_buffers_that_do_not_fit() {
    let suite = suites()[0];
    let error = Outbound::new(key(suite, 1), 255, false).unwrap_err();
    assert_eq!(error.to_string(), "SPI 255 is reserved: use 256 or more");
    let inbound = |is_extended, window| Inbound::new(key(suite, 1), 256, is_extended, window);
    assert!(inbound(true, 0).is_err() && inbound(false, 4097).is_err());
    let open_ended = inbound(false, 0).unwrap();
    assert!(open_ended.window().is_none());
    let sending = Outbound::new(key(suite, 1), 256, false).unwrap();
    // Without a window a packet is accepted again.
    let packet = sealed(&sending, b"again", 0);
    for _ in 0..2 {
        assert!(opened(&open_ended, &mut packet.clone()).is_ok());
    }
    let (front, back) = (esp::front_len(suite), esp::back_len(suite, 5));
    let fits = |len: usize, payload: std::ops::Range<usize>, tfc_len| {
        let mut buffer = vec![1; len];
        let mut seals = [sending.take(1).next().unwrap().seal(&mut buffer, payload, 4, tfc_len)];
        esp::seal_batch(&mut seals);
        seals[0].result().map_err(|error| error.to_string())
    };
    assert_eq!(fits(front + 5 + back, front..front + 5, 0), Ok(0..front + 5 + back));
    let error = fits(front + 5 + back, front - 1..front + 4, 0).unwrap_err();
    assert!(error.contains("in front of the payload"), "{error}");
    for (len, payload, tfc_len) in [
        (front + 5 + back - 1, front..front + 5, 0),
        (front + 5 + back, front..front + 5, 300),
        (front + 5 + back, front..front + 5, usize::MAX),
        (front, front..front + 5, 0),
        (front, usize::MAX - 1..usize::MAX, 0),
    ] {
        let error = fits(len, payload, tfc_len).unwrap_err();
        assert!(error.contains("behind the payload"), "{error}");
    }
}
