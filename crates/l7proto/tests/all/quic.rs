//! QUIC's Initial packets: the samples of RFC 9001 Appendix A and RFC 9369 Appendix A, and what goes wrong.

use crypto::Secret;
use crypto::modes::{Mode, Padding, RawKey};
use l7proto::quic::{InitialError, InitialReader, Progress, Version};
use l7proto::tls::Ja4Transport;
use l7proto::{Answer, Confidence, Direction, Identifier, Ports, Protocol, Transport};
use proptest::prelude::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// The CRYPTO frame of RFC 9001 A.2, which RFC 9369 A.2 has, too.
const CLIENT_FRAME: &str = "
    060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e868
    04fe3a47f06a2b69484c00000413011302010000c000000010000e00000b6578
    616d706c652e636f6dff01000100000a00080006001d00170018001000070005
    04616c706e000500050100000000003300260024001d00209370b2c9caa47fba
    baf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b000302030400
    0d0010000e0403050306030203080408050806002d00020101001c0002400100
    3900320408ffffffffffffffff05048000ffff07048000ffff08011001048000
    75300901100f088394c8f03e51570806048000ffff";

/// The whole packets of A.3.
const SERVER_V1: &str = "
    cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a
    5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3
    dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84
    022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc4
    2158407dd074ee";
const SERVER_V2: &str = "
    dc6b3343cf0008f067a5502a4262b5004075d92faaf16f05d8a4398c47089698
    baeea26b91eb761d9b89237bbf87263017915358230035f7fd3945d88965cf17
    f9af6e16886c61bfc703106fbaf3cb4cfa52382dd16a393e42757507698075b2
    c984c707f0a0812d8cd5a6881eaf21ceda98f4bd23f6fe1a3e2c43edd9ce7ca8
    4bed8521e2e140";

/// What seals packets in tests: keys as the RFCs print them, without our derivation.
struct Seal {
    key: RawKey,
    iv: Vec<u8>,
    header: RawKey,
}

impl Seal {
    fn new(key: &str, iv: &str, header: &str) -> Self {
        let raw = |mode, key| RawKey::new(mode, &Secret::new(bytes(key))).unwrap();
        Self {
            key: raw(Mode::Gcm, key),
            iv: bytes(iv),
            header: raw(Mode::Ecb(Padding::None), header),
        }
    }

    fn v1() -> Self {
        let key = "1f369613dd76d5467730efcbe3b1a22d";
        Self::new(key, "fa044b2f42a3fd3b46fb255c", "9f50449e04a0e810283a1e9933adedd2")
    }

    fn v2() -> Self {
        let key = "8b1a0bc121284290a29e0971b5cd045d";
        Self::new(key, "91f73e2351d8fa91660e909f", "45b95e15235d6f45a6b19cbcb0294ba9")
    }

    /// A packet of a header that ends with a packet number of four bytes.
    fn seal(&self, header: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut nonce = self.iv.clone();
        for (byte, number) in nonce[8..].iter_mut().zip(&header[header.len() - 4..]) {
            *byte ^= number;
        }
        let mut text = payload.to_vec();
        text.resize(payload.len() + 16, 0);
        self.key.encrypt(&nonce, header, &mut text, payload.len()).unwrap();
        let mut packet = [header, &text].concat();
        let number = header.len() - 4;
        let mut mask: [u8; 16] = packet[number + 4..number + 20].try_into().unwrap();
        self.header.encrypt(&[], &[], &mut mask, 16).unwrap();
        packet[0] ^= mask[0] & 15;
        for at in 0..4 {
            packet[number + at] ^= mask[1 + at];
        }
        packet
    }

    /// A packet of version 1 from the RFC's client with these frames.
    fn client(&self, number: u32, frames: &[u8]) -> Vec<u8> {
        let len = (0x4000 | (frames.len() as u16 + 20)).to_be_bytes();
        let start = bytes("c300000001088394c8f03e5157080000");
        self.seal(&[&start[..], &len, &number.to_be_bytes()].concat(), frames)
    }
}

fn client_v1() -> Vec<u8> {
    let mut payload = bytes(CLIENT_FRAME);
    payload.resize(1162, 0);
    Seal::v1().seal(&bytes("c300000001088394c8f03e5157080000449e00000002"), &payload)
}

fn client_v2() -> Vec<u8> {
    let mut payload = bytes(CLIENT_FRAME);
    payload.resize(1162, 0);
    Seal::v2().seal(&bytes("d36b3343cf088394c8f03e5157080000449e00000002"), &payload)
}

fn check_client(datagram: &[u8], version: Version) {
    let mut reader = InitialReader::new(Direction::Opener);
    assert_eq!(reader.feed(Direction::Opener, datagram), Progress::Done);
    assert_eq!(reader.version(), Some(version));
    assert_eq!(reader.message(), Some(&bytes(CLIENT_FRAME)[4..]));
    let hello = reader.client_hello().unwrap();
    assert_eq!(hello.server_name(), Some(b"example.com".as_slice()));
    assert_eq!(hello.alpn().collect::<Vec<_>>(), [b"alpn"]);
    assert_eq!(hello.supported_versions().collect::<Vec<_>>(), [0x0304]);
    assert!(hello.ja4(Ja4Transport::Quic).starts_with("q13d0211an_"));
    let ports = Ports { opener: 50_000, responder: 12_345 };
    let answer = Identifier::new(Transport::Datagram).feed(Direction::Opener, datagram, ports);
    let label = answer.label().unwrap();
    assert_eq!((label.protocol, label.confidence), (Protocol::Quic, Confidence::High));
}

#[test]
fn the_client_of_rfc_9001_a_2() {
    let packet = client_v1();
    // The packet is the RFC's: its beginning is, and so is the tag over all of it.
    let start = "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11";
    assert!(packet.starts_with(&bytes(start)) && packet.len() == 1200);
    assert!(packet.ends_with(&bytes("e221af44860018ab0856972e194cd934")));
    check_client(&packet, Version::V1);
}

#[test]
fn the_client_of_rfc_9369_a_2() {
    let packet = client_v2();
    let start = "d76b3343cf088394c8f03e5157080000449ea0c95e82ffe67b6abcdb4298b485";
    assert!(packet.starts_with(&bytes(start)) && packet.len() == 1200);
    assert!(packet.ends_with(&bytes("a18b2faa745b6fe189cf772a9f84cbfc")));
    check_client(&packet, Version::V2);
}

#[test]
fn the_servers_of_a_3() {
    for (client, server, version) in
        [(client_v1(), SERVER_V1, Version::V1), (client_v2(), SERVER_V2, Version::V2)]
    {
        let mut reader = InitialReader::new(Direction::Responder);
        assert_eq!(reader.feed(Direction::Opener, &client), Progress::More);
        assert_eq!(reader.version(), Some(version));
        assert_eq!(reader.feed(Direction::Responder, &bytes(server)), Progress::Done);
        let hello = reader.server_hello().unwrap();
        assert_eq!((hello.legacy_version, hello.version(), hello.cipher), (0x0303, 0x0304, 0x1301));
        assert_eq!(reader.client_hello(), None);
    }
}

#[test]
fn wrong_tags_and_strangers() {
    let whole = client_v1();
    let changed = |at: usize| {
        let mut packet = whole.clone();
        packet[at] ^= 1;
        packet
    };
    // What a server discards does not hide what follows, whatever connection ID it has.
    for at in [8, 30, 600, 1199] {
        let mut reader = InitialReader::new(Direction::Opener);
        assert_eq!(reader.feed(Direction::Opener, &changed(at)), Progress::More);
        assert_eq!((reader.version(), reader.message()), (None, None));
        assert_eq!(reader.feed(Direction::Opener, &whole), Progress::Done);
    }
    let many = |datagram: &[u8]| {
        let mut reader = InitialReader::new(Direction::Opener);
        let last = (0..100).map(|_| reader.feed(Direction::Opener, datagram)).last();
        // It stays so.
        assert_eq!(Some(reader.feed(Direction::Opener, &whole)), last);
        last
    };
    assert_eq!(many(&changed(600)), Some(Progress::Failed(InitialError::WrongTag)));
    for strange in [&b"\x40 short header"[..], b"", &[0xff; 1200], &whole[..1199], &whole[..20]] {
        assert_eq!(many(strange), Some(Progress::Failed(InitialError::NotInitial)));
    }
    // Without the client's, the server's packets have no keys.
    let mut reader = InitialReader::new(Direction::Responder);
    assert_eq!(reader.feed(Direction::Responder, &bytes(SERVER_V1)), Progress::More);
    assert_eq!(reader.feed(Direction::Opener, &whole), Progress::More);
    assert_eq!(reader.feed(Direction::Responder, &bytes(SERVER_V1)), Progress::Done);
}

/// Behind a Retry the client has another connection ID, and so other keys.
#[test]
fn keys_follow_a_retry() {
    let mut reader = InitialReader::new(Direction::Opener);
    let half = crypto_frame(0, &bytes(CLIENT_FRAME)[4..100]);
    assert_eq!(reader.feed(Direction::Opener, &Seal::v1().client(0, &half)), Progress::More);
    assert_eq!(reader.version(), Some(Version::V1));
    // Version 2 stands for it: keys that differ, from a packet of its own.
    assert_eq!(reader.feed(Direction::Opener, &client_v2()), Progress::Done);
    assert_eq!(reader.version(), Some(Version::V2));
    assert_eq!(reader.message(), Some(&bytes(CLIENT_FRAME)[4..]));
}

/// A server answers in version 2 a client that began in version 1: its keys follow from the same connection ID.
#[test]
fn a_server_may_change_the_version() {
    let mut reader = InitialReader::new(Direction::Responder);
    assert_eq!(reader.feed(Direction::Opener, &client_v1()), Progress::More);
    assert_eq!(reader.feed(Direction::Responder, &bytes(SERVER_V2)), Progress::Done);
    assert_eq!(reader.server_hello().map(|hello| hello.cipher), Some(0x1301));
}

#[test]
fn frames_that_do_not_belong() {
    let cases: [(&[u8], InitialError); 6] = [
        (&[0x08, 0, 0, 0], InitialError::Frame),
        (&[0x06, 0, 0x7f, 0xff, 0], InitialError::Frame),
        (&[0x02, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0], InitialError::Frame),
        (&[0x06, 0, 4, 2, 0, 0, 0], InitialError::NotHello),
        (&[0x06, 0, 4, 1, 0xff, 0xff, 0xff], InitialError::TooLong),
        (&[0x06, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0], InitialError::TooLong),
    ];
    for (frame, error) in cases {
        let packet = Seal::v1().client(0, frame);
        let mut reader = InitialReader::new(Direction::Opener);
        assert_eq!(
            reader.feed(Direction::Opener, &packet),
            Progress::Failed(error),
            "{frame:02x?}"
        );
    }
    // Scattered bytes, and more packets than a hello needs.
    let frame = |at: u16| [&[6][..], &(0x4000 | at).to_be_bytes(), &[1, 0]].concat();
    let scattered: Vec<u8> = (1..40).flat_map(|n| frame(2 * n)).collect();
    let mut reader = InitialReader::new(Direction::Opener);
    let progress = reader.feed(Direction::Opener, &Seal::v1().client(0, &scattered));
    assert_eq!(progress, Progress::Failed(InitialError::TooLong));
    let mut reader = InitialReader::new(Direction::Opener);
    let ping = [1, 0, 0, 0];
    let many =
        (0..100).map(|number| reader.feed(Direction::Opener, &Seal::v1().client(number, &ping)));
    assert_eq!(many.last(), Some(Progress::Failed(InitialError::TooLong)));
}

fn crypto_frame(offset: usize, data: &[u8]) -> Vec<u8> {
    let word = |value: usize| (0x4000 | value as u16).to_be_bytes();
    [&[6][..], &word(offset), &word(data.len()), data].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// The hello comes in pieces, in any order, some twice, some overlapping, in one packet or several, in one datagram or
    /// several.
    #[test]
    fn pieces_in_any_order(
        cuts in prop::collection::btree_set(1_usize..241, 0..12),
        order in any::<prop::sample::Index>(),
        rotations in prop::collection::vec(any::<prop::sample::Index>(), 12),
        per_packet in 1_usize..6,
        overlap in 0_usize..20,
        coalesced in any::<bool>(),
    ) {
        let message = bytes(CLIENT_FRAME)[4..].to_vec();
        let edges: Vec<usize> = [0].into_iter().chain(cuts).chain([message.len()]).collect();
        let mut frames: Vec<Vec<u8>> = edges
            .windows(2)
            .map(|edge| {
                let start = edge[0].saturating_sub(overlap);
                crypto_frame(start, &message[start..edge[1]])
            })
            .collect();
        for (at, rotation) in rotations.iter().enumerate() {
            let (a, b) = (at % frames.len(), rotation.index(frames.len()));
            frames.swap(a, b);
        }
        frames.push(frames[order.index(frames.len())].clone());
        let packets: Vec<Vec<u8>> = frames
            .chunks(per_packet)
            .enumerate()
            .map(|(number, frames)| {
                let acknowledgement = [2, 5, 0, 1, 0, 1, 1];
                let payload = [&acknowledgement[..], &frames.concat(), &[1], &[0; 30]].concat();
                Seal::v1().client(number as u32, &payload)
            })
            .collect();
        let datagrams = if coalesced { vec![packets.concat()] } else { packets };
        let mut reader = InitialReader::new(Direction::Opener);
        let mut last = Progress::More;
        for datagram in &datagrams {
            last = reader.feed(Direction::Opener, datagram);
        }
        prop_assert_eq!(last, Progress::Done);
        prop_assert_eq!(reader.message(), Some(&message[..]));
    }

    #[test]
    fn no_bytes_are_harmful(datagram in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..1200, bit in 0_u8..8) {
        let mut reader = InitialReader::new(Direction::Opener);
        reader.feed(Direction::Responder, &datagram);
        let mut changed = client_v1();
        changed[at] ^= 1_u8 << bit;
        reader.feed(Direction::Opener, &changed);
        reader.feed(Direction::Opener, &datagram);
        let answer = Identifier::new(Transport::Datagram).feed(Direction::Opener, &datagram, Ports::default());
        prop_assert!(answer != Answer::NotYet || datagram.is_empty());
    }
}
