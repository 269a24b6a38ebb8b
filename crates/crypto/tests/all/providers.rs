//! AWS-LC beside RustCrypto: the same bytes of each suite, and each opens what the other has sealed.
#![cfg(feature = "aws-lc-rs")]

use crate::common::filled;
use crypto::{Failure, Key, Provider, Request, Secret, Suite, open_batch, seal_batch};
use proptest::prelude::*;

fn keys(suite: Suite, seed: u64) -> [Key; 2] {
    let encryption = Secret::new(filled(suite.encryption_key_len(), seed));
    let authentication = Secret::new(filled(suite.authentication_key_len(), seed + 1));
    [Provider::RustCrypto, Provider::AwsLc]
        .map(|provider| Key::by(provider, suite, &encryption, &authentication).unwrap())
}

#[test]
fn aws_lc_is_the_default_of_its_feature() {
    assert_eq!(Provider::default(), Provider::AwsLc);
}

/// What control and a device read of a key does not depend on the provider.
#[test]
fn a_key_shows_the_same() {
    for suite in Suite::all() {
        let [own, other] = keys(suite, 5);
        assert!(own.marks() == other.marks(), "{suite}");
        assert_eq!(own.iv(7, 1 << 33), other.iv(7, 1 << 33), "{suite}");
        let (a, b) = (own.expose(), other.expose());
        assert_eq!(
            (a.encryption, a.salt, a.authentication),
            (b.encryption, b.salt, b.authentication)
        );
        let hash = |own: &Option<Secret>| own.as_ref().map(|own| own.expose().to_vec());
        assert_eq!(hash(&a.hash), hash(&b.hash), "{suite}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() })]

    /// A batch of packets of a suite, as both seal it; then opened by the other one, some of them forged.
    #[test]
    fn both_seal_and_open_alike(
        packets in prop::collection::vec(
            (0usize..40, prop_oneof![0usize..100, 0usize..1500, Just(3000)], any::<Option<u32>>(), any::<u32>()), 1..40),
        forged in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u8..8), 0..5),
        seed in any::<u32>(),
    ) {
        for suite in Suite::all() {
            let keys = keys(suite, seed.into());
            let layout = |(header, text, high, _): &(usize, usize, Option<u32>, u32)| {
                let header = if high.is_some() { 8 } else { *header };
                (header, text / suite.block_len() * suite.block_len())
            };
            let plain: Vec<Vec<u8>> = packets.iter().map(|packet| {
                let (header, text) = layout(packet);
                filled(header + suite.iv_len() + text + suite.icv_len() + 3, packet.3.into())
            }).collect();
            let run = |key: &Key, all: &mut Vec<Vec<u8>>, batch: fn(&mut [Request<'_>])| {
                let mut requests: Vec<Request<'_>> = all.iter_mut().zip(&packets).enumerate()
                    .map(|(at, (buffer, packet))| {
                        let (header, text) = layout(packet);
                        let mut own = Request::new(key, buffer, header, text);
                        own.iv = key.iv(9, at as u64);
                        own.sequence_high = packet.2;
                        own
                    }).collect();
                batch(&mut requests);
                requests.iter().map(|own| own.result).collect::<Vec<_>>()
            };
            let sealed: Vec<Vec<Vec<u8>>> = keys.iter().map(|key| {
                let mut all = plain.clone();
                assert!(run(key, &mut all, seal_batch).iter().all(Result::is_ok));
                all
            }).collect();
            prop_assert_eq!(&sealed[0], &sealed[1], "{}", suite);

            let mut received = sealed[0].clone();
            let mut expected = vec![Ok(()); received.len()];
            for (packet, byte, bit) in &forged {
                let at = packet.index(received.len());
                let len = received[at].len() - 3;
                if len > 0 && expected[at].is_ok() {
                    received[at][byte.index(len)] ^= 1 << bit;
                    expected[at] = Err(Failure::Authentication);
                }
            }
            let opened: Vec<Vec<Vec<u8>>> = keys.iter().map(|key| {
                let mut all = received.clone();
                assert_eq!(run(key, &mut all, open_batch), expected, "{suite}");
                all
            }).collect();
            prop_assert_eq!(&opened[0], &opened[1], "{}", suite);
            for at in 0..received.len() {
                let (header, text) = layout(&packets[at]);
                let text = header + suite.iv_len()..header + suite.iv_len() + text;
                match expected[at] {
                    Ok(()) => prop_assert_eq!(&opened[1][at][text.clone()], &plain[at][text]),
                    Err(_) => prop_assert_eq!(&opened[1][at], &received[at], "stays as it came"),
                }
            }
        }
    }
}
