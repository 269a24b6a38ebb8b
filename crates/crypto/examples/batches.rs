//! What batches give: throughput of packets sealed in batches and one at a time, of three streams of SHA-1 and one, and of
//! OpenSSL in the same run where the command `openssl` is there. All on one core.
//!
//! `cargo run --release -p crypto --example batches [-- SECONDS [PEER]]`: SECONDS for each figure (0.2); PEER is the program
//! made of `bench/peers/ipsec_mb_peer.c`, which does cipher and HMAC of the same packets with intel-ipsec-mb. A figure is the best of
//! several rounds that take turns, in processor time, so that what else the machine does meets all of them alike. OpenSSL
//! works on the same bytes again and again, without headers, numbers or a change of keys.

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use crypto::esp::{self, Inbound, Outbound};
use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, Suite};

/// Packets of a batch, as a chunk has.
const BATCH: usize = 256;
const ROUNDS: usize = 5;

fn suite(encryption: Encryption, authentication: Authentication) -> Suite {
    Suite::new(encryption, authentication).expect("a suite")
}

fn key(suite: Suite, seed: usize) -> Key {
    let bytes = |len: usize| Secret::new((0..len).map(|at| (at * 7 + seed) as u8).collect());
    let (encryption, authentication) = (suite.encryption_key_len(), suite.authentication_key_len());
    Key::new(suite, &bytes(encryption), &bytes(authentication)).expect("keys of its length")
}

/// Associations and buffers.
struct Bench {
    sending: Vec<Outbound>,
    receiving: Vec<Inbound>,
    payload_len: usize,
    buffers: Vec<Vec<u8>>,
}

impl Bench {
    fn new(suite: Suite, payload_len: usize, associations: usize) -> Self {
        let spi = |at: usize| 0x1000 + at as u32;
        let sending =
            (0..associations).map(|at| Outbound::new(key(suite, at), spi(at), true).expect("SPI"));
        // Without a window, so that the same packets may come again.
        let receiving = (0..associations)
            .map(|at| Inbound::new(key(suite, at), spi(at), false, 0).expect("SPI"));
        let len = esp::front_len(suite) + payload_len + esp::back_len(suite, payload_len);
        Self {
            sending: sending.collect(),
            receiving: receiving.collect(),
            payload_len,
            buffers: vec![vec![1; len]; BATCH],
        }
    }

    /// One batch, in calls of `size` packets. The order of associations is a mixture.
    fn seal(&mut self, size: usize) {
        let Self { sending, payload_len, buffers, .. } = self;
        let count = sending.len();
        let mut seals: Vec<_> = buffers
            .iter_mut()
            .enumerate()
            .map(|(at, buffer)| {
                let association = &sending[at * 7919 % count];
                let front = esp::front_len(association.suite());
                let number = association.take(1).next().expect("a number");
                number.seal(buffer, front..front + *payload_len, 4, 0)
            })
            .collect();
        seals.chunks_mut(size).for_each(esp::seal_batch);
        assert!(seals.iter().all(|seal| seal.result().is_ok()));
    }

    /// The same of packets that are received. They are not genuine (their numbers are extended), unless `is_genuine`.
    fn open(&mut self, size: usize) {
        let Self { receiving, buffers, .. } = self;
        let count = receiving.len();
        let mut opens: Vec<_> = buffers
            .iter_mut()
            .enumerate()
            .map(|(at, buffer)| receiving[at * 7919 % count].open(buffer))
            .collect();
        opens.chunks_mut(size).for_each(esp::open_batch);
        black_box(&opens);
    }
}

/// Seconds that this thread has had a processor, as `openssl speed` counts them: what other programs take away does not
/// count. Without `/proc`, seconds since `begun`.
fn cpu_seconds(begun: Instant) -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.map_or_else(|| begun.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

/// Calls a second, for so many seconds.
fn rate(seconds: f64, mut call: impl FnMut()) -> f64 {
    let begun = Instant::now();
    let start = cpu_seconds(begun);
    let mut calls = 0;
    loop {
        (0..8).for_each(|_| call());
        calls += 8;
        let spent = cpu_seconds(begun) - start;
        if spent > seconds {
            return f64::from(calls) / spent;
        }
    }
}

/// Check value of the first packet that the peer makes, by our own hand.
fn first_tag(suite: Suite, payload_len: usize) -> String {
    let sending = Outbound::new(key(suite, 0), 0x1000, false).expect("SPI");
    let front = esp::front_len(suite);
    let mut buffer = vec![1; front + payload_len + esp::back_len(suite, payload_len)];
    let number = sending.take(1).next().expect("a number");
    let mut seals = [number.seal(&mut buffer, front..front + payload_len, 4, 0)];
    esp::seal_batch(&mut seals);
    buffer[buffer.len() - suite.icv_len()..].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Megabytes a second of `bench/peers/ipsec_mb_peer.c`, whose packets are the same.
fn ipsec_mb(
    path: Option<&str>,
    name: Option<&str>,
    bench: (Suite, usize, usize),
    seconds: f64,
) -> Option<f64> {
    let (suite, payload_len, associations) = bench;
    let numbers = [payload_len.to_string(), associations.to_string(), seconds.to_string()];
    let output = Command::new(path?).arg(name?).args(numbers).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (rate, tag) = text.trim().split_once(' ')?;
    // In CBC each side makes initialisation vectors of its own.
    let is_comparable = !matches!(suite.encryption(), Encryption::AesCbc(_));
    assert!(!is_comparable || tag == first_tag(suite, payload_len), "the peer has another result");
    rate.parse().ok()
}

/// Megabytes a second that `openssl speed` does with one cipher.
fn openssl(cipher: &str, bytes: usize) -> Option<f64> {
    let bytes = bytes.to_string();
    let args = ["speed", "-mr", "-seconds", "1", "-bytes", &bytes, "-evp", cipher];
    let output = Command::new("openssl").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // +F:22:aes-128-ctr:1234567890.12
    let line = text.lines().find(|line| line.starts_with("+F"))?;
    let rate: f64 = line.rsplit(':').next()?.trim().parse().ok()?;
    Some(rate / 1e6)
}

fn main() {
    let path = std::env::args().nth(2);
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0.2);
    let seconds: f64 = seconds;
    let seconds = (seconds / ROUNDS as f64).max(0.02); // the kernel's count goes in steps
    let ctr = Encryption::AesCtr(KeySize::Bits128);
    let cbc = Encryption::AesCbc(KeySize::Bits128);
    let gcm = Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16);
    let (none, sha1) = (Authentication::None, Authentication::HmacSha1_96);
    let cases = [
        (suite(ctr, sha1), None, Some("ctr-sha1")),
        (suite(cbc, sha1), None, Some("cbc-sha1")),
        (suite(Encryption::Null, sha1), None, None),
        (suite(ctr, Authentication::HmacSha256_128), None, None),
        (suite(gcm, none), Some("aes-128-gcm"), Some("gcm")),
        (suite(Encryption::ChaCha20Poly1305, none), Some("chacha20-poly1305"), None),
    ];
    println!(
        "| suite | payload, bytes | associations | batch, Mbyte/s | one by one | ratio | openssl | ipsec-mb |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (suite, peer, other) in cases {
        for payload_len in [64, 1420] {
            let peer = peer.and_then(|name| openssl(name, payload_len));
            for associations in [1, 64] {
                let mut bench = Bench::new(suite, payload_len, associations);
                let mut best = [0f64; 2];
                for _ in 0..ROUNDS {
                    for (best, size) in best.iter_mut().zip([BATCH, 1]) {
                        *best = best.max(rate(seconds, || bench.seal(size)));
                    }
                }
                let bytes = (BATCH * payload_len) as f64 / 1e6;
                let [batch, alone] = best.map(|rate| rate * bytes);
                let peer = peer.map_or("–".to_string(), |peer| format!("{peer:.0}"));
                let ratio = batch / alone;
                let case = (suite, payload_len, associations);
                let other = ipsec_mb(path.as_deref(), other, case, seconds * ROUNDS as f64);
                let other = other.map_or("–".to_string(), |other| format!("{other:.0}"));
                println!(
                    "| {suite} | {payload_len} | {associations} | {batch:.0} | {alone:.0} | {ratio:.2} | {peer} | {other} |"
                );
            }
        }
    }
    let mut bench = Bench::new(suite(ctr, sha1), 1420, 1);
    bench.seal(BATCH);
    let refused = rate(seconds * ROUNDS as f64, || bench.open(BATCH));
    println!("\nforged packets of 1420 bytes refused: {:.2} M/s", refused * BATCH as f64 / 1e6);
    if let Some(ctr) = openssl("aes-128-ctr", 1420) {
        println!("openssl aes-128-ctr alone, 1420 bytes: {ctr:.0} Mbyte/s");
    }
    if let Some(sha1) = openssl("sha1", 1420) {
        println!("openssl sha1 alone, 1420 bytes: {sha1:.0} Mbyte/s");
    }
}
