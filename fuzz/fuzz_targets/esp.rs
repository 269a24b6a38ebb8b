//! Bytes as an ESP packet, as the text of one, and as the payload of one that is sealed, changed and opened.
//!
//! Suite, form of numbers and length of the window, the place of a changed bit (2), TFC padding; then bytes.
#![no_main]

use std::sync::LazyLock;

use crypto::esp::{self, Inbound, OpenError, Outbound, Trailer};
use crypto::{Key, Secret, Suite};
use libfuzzer_sys::fuzz_target;

static SUITES: LazyLock<Vec<Suite>> = LazyLock::new(|| Suite::all().collect());

fn key(suite: Suite) -> Key {
    let bytes = |len: usize| Secret::new((0..len).map(|at| at as u8).collect());
    let (encryption, authentication) = (suite.encryption_key_len(), suite.authentication_key_len());
    Key::new(suite, &bytes(encryption), &bytes(authentication)).expect("keys of its length")
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first_chunk::<5>() else { return };
    let [suite, form, high, low, tfc] = *choice;
    let suite = SUITES[usize::from(suite) % SUITES.len()];
    let is_extended = form & 1 != 0;
    let window = 1 + u32::from(form >> 1) * 32;
    let spi = bytes.first_chunk().map_or(0, |spi| u32::from_be_bytes(*spi)).max(esp::SPI_MIN);
    let receiving = Inbound::new(key(suite), spi, is_extended, window).expect("an association");

    // As it comes. A seed may be genuine.
    let mut packet = bytes.to_vec();
    let mut opens = [receiving.open(&mut packet)];
    esp::open_batch(&mut opens);
    let result = opens[0].result();
    let top = receiving.window().map(|window| window.top());
    match &result {
        Ok(opened) => {
            assert_eq!(top, Some(opened.number));
            assert!(packet.get(opened.payload.clone()).is_some());
        }
        Err(OpenError::Padding) => {}
        Err(_) => assert_eq!(top, Some(0), "what is not genuine moves the window"),
    }
    if let Some(trailer) = Trailer::parse(bytes) {
        assert!(trailer.payload_len + esp::TRAILER_LEN <= bytes.len());
    }

    // As a payload.
    let next = u64::from(u32::from_be_bytes([high, low, tfc, form])) << 8 | 1;
    let next = if is_extended { next } else { next & u64::from(u32::MAX) };
    let Ok(sending) = Outbound::resume(key(suite), spi, is_extended, next) else { return };
    let receiving = Inbound::new(key(suite), spi, is_extended, window).expect("an association");
    let Some(number) = sending.take(1).next() else { return };
    let value = number.value();
    if is_extended {
        // As if it had followed so far.
        receiving.accept(value - 1).unwrap_or_default();
    }
    let front = esp::front_len(suite);
    let len = bytes.len() + usize::from(tfc);
    let mut buffer = vec![0; front];
    buffer.extend_from_slice(bytes);
    buffer.resize(front + len + esp::back_len(suite, len), 0);
    let mut seals = [number.seal(&mut buffer, front..front + bytes.len(), 4, tfc.into())];
    esp::seal_batch(&mut seals);
    let sealed = seals[0].result().expect("a packet");
    let packet = &mut buffer[sealed];
    let bit = usize::from(u16::from_be_bytes([high, low])) % (packet.len() * 8);
    packet[bit / 8] ^= 1 << (bit % 8);
    let mut opens = [receiving.open(packet)];
    esp::open_batch(&mut opens);
    assert!(opens[0].result().is_err(), "a changed bit is not seen");
    packet[bit / 8] ^= 1 << (bit % 8);
    let mut opens = [receiving.open(packet)];
    esp::open_batch(&mut opens);
    let opened = opens[0].result().expect("a genuine packet");
    assert_eq!((opened.number, opened.next_header), (value, 4));
    let payload = &packet[opened.payload];
    assert_eq!(payload[..bytes.len()], *bytes);
    assert_eq!(payload[bytes.len()..], vec![0; tfc.into()]);
});
