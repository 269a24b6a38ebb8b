//! `bench crypto`: AES over batches of packets on one core, beside `openssl speed` and intel-ipsec-mb.
//!
//! Packets of one size, 256 in a batch, each in a buffer of its own, under one key and under 64. A round runs each cipher of
//! ours, `openssl speed` over one buffer of the same size, and intel-ipsec-mb over the same packets of ESP. All count the time
//! that the processor worked for them. What is encrypted is decrypted once, untimed, and must be what it was; the check value
//! of the peer's first packet must be ours.

use std::process::Command;

use crypto::esp::{self, Outbound};
use crypto::modes::{Mode, RawKey, Text, decrypt_batch, encrypt_batch};
use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, Suite};

use crate::forms::{ratio, thread_seconds};
use crate::{Args, Report, Row, lpm};

/// Packets of a batch.
const BATCH: usize = 256;
/// Bytes of payload.
const SIZES: [usize; 5] = [64, 256, 576, 1024, 1420];
/// Keys of a batch.
const KEYS: [usize; 2] = [1, 64];
/// Room for a tag.
const ROOM: usize = 16;
/// Time of one figure of ours.
const SECONDS: f64 = 0.3;

pub(crate) fn run(args: &Args) -> Result<Report, String> {
    let data = format!("batches of {BATCH} packets; 1 or {} keys", KEYS[1]);
    let mut report = Report::new("crypto", data);
    for (mode, name) in [(Mode::Ctr, "aes-128-ctr"), (Mode::Gcm, "aes-128-gcm")] {
        for size in SIZES {
            measure(args, mode, name, size, &mut report)?;
        }
    }
    Ok(report)
}

fn measure(
    args: &Args,
    mode: Mode,
    name: &str,
    size: usize,
    report: &mut Report,
) -> Result<(), String> {
    let of = |count: usize| (0..count).map(|seed| key(mode, seed)).collect::<Result<Vec<_>, _>>();
    let keys = [of(KEYS[0])?, of(KEYS[1])?];
    let mut ours = [Vec::new(), Vec::new()];
    let (mut openssl, mut ipsec_mb) = (Vec::new(), Vec::new());
    let mut why = String::new();
    for _ in 0..args.rounds.max(1) {
        for (keys, rates) in keys.iter().zip(&mut ours) {
            rates.push(rate(keys, size)?);
        }
        match openssl_rate(name, size) {
            Some(rate) => openssl.push(rate),
            None => why = "not compared with OpenSSL: no `openssl speed`".to_owned(),
        }
        if mode == Mode::Gcm {
            ipsec_mb.extend(ipsec_mb_rate(size)?);
        }
    }
    let row = |what: &str| format!("{}, {size} bytes, {what}", name.to_uppercase());
    // What the issue of the work asks for, of the longest packets.
    let aimed = |row: Row| if size == SIZES[SIZES.len() - 1] { row.at_least(0.9) } else { row };
    for (count, rates) in KEYS.iter().zip(&ours) {
        let what = format!("{count} key{}", if *count == 1 { "" } else { "s" });
        report.rows.push(Row::new(row(&what), "MB/s", rates.clone()));
        if openssl.len() == rates.len() {
            report.rows.push(aimed(ratio(row(&format!("{what} / openssl")), rates, &openssl)));
        }
        if ipsec_mb.len() == rates.len() {
            report.rows.push(ratio(row(&format!("{what} / ipsec-mb")), rates, &ipsec_mb));
        }
    }
    report.rows.push(Row::new(row("openssl speed"), "MB/s", openssl).note(why));
    if mode == Mode::Gcm {
        let note = match ipsec_mb.is_empty() {
            true => "not compared: `cargo xtask peers` builds ipsec_mb_peer, with libipsec-mb-dev",
            false => "ESP: with 8 bytes of header",
        };
        report.rows.push(Row::new(row("ipsec-mb"), "MB/s", ipsec_mb).note(note));
    }
    Ok(())
}

fn key(mode: Mode, seed: usize) -> Result<RawKey, String> {
    let bytes = (0..16).map(|at: usize| (at * 7 + seed) as u8).collect();
    RawKey::new(mode, &Secret::new(bytes)).map_err(|error| error.to_string())
}

fn texts<'a>(keys: &'a [RawKey], buffers: &'a mut [Vec<u8>], len: usize) -> Vec<Text<'a>> {
    let buffers = buffers.iter_mut().enumerate();
    let text = |(at, buffer): (usize, &'a mut Vec<u8>)| {
        let mut iv = [0; 16];
        iv[..8].copy_from_slice(&(at as u64).to_be_bytes());
        Text::new(&keys[at * 7919 % keys.len()], iv, buffer, len)
    };
    buffers.map(text).collect()
}

/// Megabytes of payload a second.
fn rate(keys: &[RawKey], size: usize) -> Result<f64, String> {
    let before: Vec<Vec<u8>> = (0..BATCH).map(|at| vec![at as u8; size + ROOM]).collect();
    let mut buffers = before.clone();
    let mut all = texts(keys, &mut buffers, size);
    encrypt_batch(&mut all);
    let len = all[0].result.map_err(|error| error.to_string())?;
    decrypt_batch(&mut texts(keys, &mut buffers, len));
    if buffers.iter().zip(&before).any(|(now, was)| now[..size] != was[..size]) {
        return Err("what was encrypted and decrypted is not what it was".to_owned());
    }
    let mut all = texts(keys, &mut buffers, size);
    let (begun, mut batches) = (thread_seconds(), 0u32);
    loop {
        for _ in 0..8 {
            encrypt_batch(&mut all);
        }
        batches += 8;
        let seconds = thread_seconds() - begun;
        if seconds > SECONDS {
            return Ok(f64::from(batches) * (BATCH * size) as f64 / seconds / 1e6);
        }
    }
}

/// Megabytes a second of `openssl speed` over one buffer.
fn openssl_rate(cipher: &str, size: usize) -> Option<f64> {
    let size = size.to_string();
    let args = ["speed", "-mr", "-seconds", "1", "-bytes", &size, "-evp", cipher];
    let output = Command::new("openssl").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // +F:22:aes-128-ctr:1234567890.12
    let line = text.lines().find(|line| line.starts_with("+F"))?;
    let rate: f64 = line.rsplit(':').next()?.trim().parse().ok()?;
    Some(rate / 1e6)
}

/// Megabytes a second of intel-ipsec-mb with AES-128-GCM over ESP; `None` where it is not built.
fn ipsec_mb_rate(size: usize) -> Result<Option<f64>, String> {
    let Some(binary) = lpm::binary("ipsec_mb_peer") else { return Ok(None) };
    let (bytes, seconds) = (size.to_string(), SECONDS.to_string());
    let output = Command::new(binary).args(["gcm", &bytes, "1", &seconds]).output();
    let text = output.map_err(|error| error.to_string())?.stdout;
    let text = String::from_utf8_lossy(&text);
    let Some((rate, tag)) = text.trim().split_once(' ') else { return Ok(None) };
    match tag == first_tag(size).ok_or("no check value")? {
        true => Ok(rate.parse().ok()),
        false => Err("intel-ipsec-mb has another check value".to_owned()),
    }
}

/// Check value of the first packet that the peer makes, by our own hand.
fn first_tag(size: usize) -> Option<String> {
    let gcm = Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16);
    let suite = Suite::new(gcm, Authentication::None).ok()?;
    let bytes = (0..20).map(|at: usize| (at * 7) as u8).collect();
    let key = Key::new(suite, &Secret::new(bytes), &Secret::none()).ok()?;
    let sending = Outbound::new(key, 0x1000, false).ok()?;
    let front = esp::front_len(suite);
    let mut buffer = vec![1; front + size + esp::back_len(suite, size)];
    let number = sending.take(1).next()?;
    let mut seals = [number.seal(&mut buffer, front..front + size, 4, 0)];
    esp::seal_batch(&mut seals);
    let tag = &buffer[buffer.len() - suite.icv_len()..];
    Some(tag.iter().map(|byte| format!("{byte:02x}")).collect())
}
