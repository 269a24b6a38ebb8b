//! Whole ESP packets of others: RFC 3602's, RFC 7634's, and tcpdump's captures.

use crate::common::{bytes, key, values};
use crypto::esp::{self, Inbound, OpenError, Outbound, Trailer};
use crypto::modes::{Mode, Padding, RawKey};
use crypto::window::Replay;
use crypto::{Authentication, Encryption, Key, KeySize, Secret, Suite};
use des::cipher::{Array, BlockCipherDecrypt, KeyInit};

/// RFC 3602 §4, case 5: an echo request, encrypted and not authenticated. We do not offer that (RFC 8221 §5), so the cipher
/// and the form of the text are looked at.
#[test]
fn rfc3602_packet() {
    let Some(file) = testdata::bytes("crypto/rfc3602-case5-esp-transport.txt") else { return };
    let text = String::from_utf8(file).unwrap();
    let value = |name| bytes(values(&text, name)[0]);
    let raw = RawKey::new(Mode::Cbc(Padding::None), &Secret::new(value("key"))).unwrap();
    let encrypted = value("ciphertext");
    let mut buffer = encrypted.clone();
    assert_eq!(raw.decrypt(&value("iv"), &[], &mut buffer, encrypted.len()), Ok(80));
    let trailer = Trailer::parse(&buffer).unwrap();
    assert_eq!((trailer.payload_len, trailer.next_header), (64, 1));
    assert_eq!(buffer[..64], value("orig_data"));
    assert_eq!(buffer[64..78], value("pad"));

    // The text that we make of the payload is the same.
    let suite =
        Suite::new(Encryption::AesCbc(KeySize::Bits128), Authentication::HmacSha1_96).unwrap();
    let key = Key::new(suite, &Secret::new(value("key")), &Secret::new(vec![0; 20])).unwrap();
    let sending = Outbound::new(key, 0x4321, false).unwrap();
    let mut packet = [vec![0; 24], value("orig_data"), vec![0; 40]].concat();
    let mut seals = [sending.take(1).next().unwrap().seal(&mut packet, 24..88, 1, 0)];
    esp::seal_batch(&mut seals);
    assert_eq!(seals[0].result(), Ok(0..24 + 80 + 12));
    assert_eq!(packet[..8], [value("spi"), value("seq")].concat());
    let mut own = packet[24..104].to_vec();
    assert_eq!(raw.decrypt(&packet[8..24], &[], &mut own, 80), Ok(80));
    assert_eq!(own, buffer);
}

/// RFC 7634, appendix A: a tunnel packet with ChaCha20-Poly1305.
#[test]
fn rfc7634_packet() {
    let payload = bytes(
        "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec10\
         0007362708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223\
         2425262728292a2b2c2d2e2f3031323334353637",
    );
    let packet = bytes(
        "0102030400000005101112131415161724039428b97f417e3c13753a4f05087b\
         67c352e6a7fab1b982d466ef407ae5c614ee8099d52844eb61aa95dfab4c02f7\
         2aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb94e664da\
         9165b82829f641e076aaa8266b7fb0f7b11b369907e1ad43",
    );
    let suite = Suite::new(Encryption::ChaCha20Poly1305, Authentication::None).unwrap();
    let secret: Vec<u8> = (0x80..0xa0).chain(0xa0..0xa4).collect();
    let key = || Key::new(suite, &Secret::new(secret.clone()), &Secret::none()).unwrap();
    let receiving = Inbound::new(key(), 0x0102_0304, false, 64).unwrap();
    let mut received = packet.clone();
    let mut opens = [receiving.open(&mut received)];
    esp::open_batch(&mut opens);
    let opened = opens[0].result().unwrap();
    assert_eq!((opened.next_header, opened.number), (4, 5));
    assert_eq!(received[opened.payload], payload);

    // The RFC's initialisation vector is not the sequence number, as ours is.
    let mut buffer = [&packet[..16], &payload, &[1, 2, 2, 4], &[0; 16]].concat();
    let key = key();
    let mut requests = [crypto::Request::new(&key, &mut buffer, 8, payload.len() + 4)];
    requests[0].iv[..8].copy_from_slice(&packet[8..16]);
    crypto::seal_batch(&mut requests);
    assert_eq!(buffer, packet);

    // Our own way through, with the same association.
    let sending = Outbound::resume(key, 0x0102_0304, false, 6).unwrap();
    let mut buffer = [vec![0; 16], payload.clone(), vec![0; 20]].concat();
    let mut seals = [sending.take(1).next().unwrap().seal(&mut buffer, 16..100, 4, 0)];
    esp::seal_batch(&mut seals);
    assert_eq!(seals[0].result(), Ok(0..120));
    let mut opens = [receiving.open(&mut buffer)];
    esp::open_batch(&mut opens);
    assert_eq!(opens[0].result().map(|opened| opened.number), Ok(6));
    let mut again = packet;
    let mut opens = [receiving.open(&mut again)];
    esp::open_batch(&mut opens);
    assert_eq!(opens[0].result(), Err(OpenError::Replay(Replay::Seen)));
}

/// Link type and frames of a classic capture, as tcpdump's are: little-endian.
fn frames(file: &[u8]) -> Vec<&[u8]> {
    assert_eq!(file[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
    let mut frames = Vec::new();
    let mut rest = &file[24..];
    while let Some((record, behind)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(record[8..12].try_into().unwrap()) as usize;
        let (frame, behind) = behind.split_at(len);
        frames.push(frame);
        rest = behind;
    }
    frames
}

/// What follows the IPv4 header in a frame of Ethernet.
fn behind_ipv4(frame: &[u8]) -> &[u8] {
    let packet = &frame[14..];
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    &packet[usize::from(packet[0] & 15) * 4..total]
}

/// tcpdump decrypts these with its option `-E`; its expected lines say what is inside. Triple DES is of this test only.
#[test]
fn tcpdump_tunnel() {
    let Some(file) = testdata::bytes("crypto/tcpdump-esp/02-sunrise-sunset-esp.pcap") else {
        return;
    };
    let Some(expected) = testdata::bytes("crypto/tcpdump-esp/esp1.out") else { return };
    let expected = String::from_utf8(expected).unwrap();
    let cipher =
        des::TdesEde3::new_from_slice(&bytes("0x4043434545464649494a4a4c4c4f4f515152525454575758"))
            .unwrap();
    let frames = frames(&file);
    assert_eq!((frames.len(), expected.lines().count()), (8, 8));
    for (frame, line) in frames.iter().zip(expected.lines()) {
        let packet = behind_ipv4(frame);
        let header = esp::Header::parse(packet).unwrap();
        // 8 bytes of initialisation vector, 12 of check value.
        let (iv, rest) = packet[esp::HEADER_LEN..].split_at(8);
        let encrypted = &rest[..rest.len() - 12];
        let (mut text, mut before) = (Vec::new(), iv);
        for chunk in encrypted.chunks_exact(8) {
            let mut block = Array::try_from(chunk).unwrap();
            cipher.decrypt_block(&mut block);
            text.extend(block.iter().zip(before).map(|(a, b)| a ^ b));
            before = chunk;
        }
        let trailer = Trailer::parse(&text).unwrap();
        assert_eq!(trailer.next_header, 4);
        let inner = &text[..trailer.payload_len];
        let at = |from: usize| u16::from_be_bytes([inner[from], inner[from + 1]]);
        let address = |from: usize| {
            inner[from..from + 4].iter().map(u8::to_string).collect::<Vec<_>>().join(".")
        };
        assert_eq!((usize::from(at(2)), inner[20]), (inner.len(), 8), "echo request");
        let found = format!(
            "ESP(spi={:#010x},seq={:#x}), length {}: IP {} > {}: ICMP echo request, id {}, seq {}, length {}",
            header.spi,
            header.number,
            packet.len(),
            address(12),
            address(16),
            at(24),
            at(26),
            inner.len() - 20,
        );
        assert!(line.ends_with(&found), "{line}\n{found}");
    }
}

/// The same traffic in UDP: its key is not published, so the envelope is looked at, and our check refuses it.
#[test]
fn tcpdump_udp() {
    let Some(file) = testdata::bytes("crypto/tcpdump-esp/espudp1.pcap") else { return };
    let Some(expected) = testdata::bytes("crypto/tcpdump-esp/espudp1.out") else { return };
    let expected = String::from_utf8(expected).unwrap();
    let frames = frames(&file);
    assert_eq!(frames.len(), 8);
    let suite = Suite::new(Encryption::Null, Authentication::HmacSha1_96).unwrap();
    let receiving = Inbound::new(key(suite, 1), 0x1234_5678, false, 64).unwrap();
    for (frame, line) in frames.iter().zip(expected.lines()) {
        let mut packet = behind_ipv4(frame)[8..].to_vec();
        let header = esp::Header::parse(&packet).unwrap();
        let found = format!(
            "ESP(spi={:#010x},seq={:#x}), length {}",
            header.spi,
            header.number,
            packet.len()
        );
        assert!(line.contains(&found), "{line}\n{found}");
        let mut opens = [receiving.open(&mut packet)];
        esp::open_batch(&mut opens);
        assert_eq!(opens[0].result(), Err(OpenError::Authentication));
    }
    assert_eq!(receiving.window().unwrap().top(), 0);
}
