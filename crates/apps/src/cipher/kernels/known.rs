//! Known answers of the kernels of encryption: packets that carry the texts of NIST SP 800-38A appendix F and of the specification
//! of GCM, decrypted; and one that is encrypted with a key of its connection, as the CPU does it.

use chunk::{Columns, Verdict};
use crypto::Secret;
use crypto::modes::{Mode, Text, encrypt_batch};
use kernels::Launch;
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::known::samples::frames;
use kernels::known::{Known, Place, Sparse, bytes_of};
use packet::checksum::{finish, partial_sum};

use super::{RECORD_WORDS, SECRETS, kernels_of, number};
use crate::cipher::columns::CipherColumns as C;
use crate::cipher::keys::{Connections, Master, NAME};
use crate::cipher::reasons;
use crate::cipher::settings::{Algorithm, Direction, Fill, Keys, Settings};

const KEY_128: &str = "2b7e151628aed2a6abf7158809cf4f3c";
const KEY_256: &str = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4";
const IV: &str = "000102030405060708090a0b0c0d0e0f";
const COUNTER: &str = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";
const TEXT: &str = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
     30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";
const ECB: &str = "f3eed1bdb5d2a03c064b5a7e3db181f8591ccb10d410ed26dc5ba74a31362870\
     b6ed21b99ca6f4f9f153e7b1beafed1d23304b7a39f9f3ff067d8d8f9e24ecc7";
const CBC: &str = "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d\
     39f23369a9d9bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b";
const CFB: &str = "3b3fd92eb72dad20333449f8e83cfb4ac8a64537a0b3a93fcde3cdad9f1ce58b\
     26751f67a3cbb140b1808cf187a4f4dfc04b05357c5d1c0eeac4c66f9ff7f2e6";
const OFB: &str = "3b3fd92eb72dad20333449f8e83cfb4a7789508d16918f03f53c52dac54ed825\
     9740051e9c5fecf64344f7a82260edcc304c6528f659c77866a510d9c1d6ae5e";
const CTR: &str = "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff\
     5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee";

/// Test case 3 of the specification of GCM (McGrew, Viega 2005).
const GCM_KEY: &str = "feffe9928665731c6d6a8f9467308308";
const GCM_IV: &str = "cafebabefacedbaddecaf888";
const GCM_TEXT: &str = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
     1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255";
const GCM_SEALED: &str = "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
     21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985";
const GCM_TAG: &str = "4d5c2af327cd64a62cf35abd2ba6fab4";

/// 192.0.2.1 to 198.51.100.9, UDP 1,000 to 53, without the lengths: kernels do not read them.
const HEADERS: [u8; 42] = [
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, // Ethernet
    0x45, 0, 0, 0, 0, 7, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 9, // IPv4
    3, 232, 0, 53, 0, 0, 0, 0, // UDP
];
const L3: usize = 14;
const L4: usize = 34;

fn hex(text: &str) -> Vec<u8> {
    let digit = |c: &u8| (*c as char).to_digit(16).unwrap_or(0) as u8;
    text.as_bytes().chunks(2).map(|pair| digit(&pair[0]) << 4 | digit(&pair[1])).collect()
}

pub(super) fn secrets(items: u32) -> Vec<Known> {
    let cases = [
        (Algorithm::Ecb256, KEY_256, "", ECB),
        (Algorithm::Cbc256, KEY_256, IV, CBC),
        (Algorithm::Cfb128, KEY_128, IV, CFB),
        (Algorithm::Ofb128, KEY_128, IV, OFB),
        (Algorithm::Ctr128, KEY_128, COUNTER, CTR),
    ];
    let opened = cases.map(|(algorithm, key, iv, text)| {
        let settings = Settings {
            algorithm,
            direction: Direction::Decrypt,
            keys: Keys::Static,
            padding: Fill::None,
            ..Settings::default()
        };
        packet(items, &settings, &hex(key), &[hex(iv), hex(text)].concat(), &hex(TEXT))
    });
    let settings = Settings {
        algorithm: Algorithm::Gcm128,
        direction: Direction::Decrypt,
        keys: Keys::Static,
        ..Settings::default()
    };
    let sealed = [GCM_IV, GCM_SEALED, GCM_TAG].concat();
    let gcm = packet(items, &settings, &hex(GCM_KEY), &hex(&sealed), &hex(GCM_TEXT));
    opened.into_iter().chain([gcm, of_connection(items)]).collect()
}

/// AES-192-GCM with a key of the connection.
fn of_connection(items: u32) -> Known {
    let settings = Settings { algorithm: Algorithm::Gcm192, ..Settings::default() };
    let key = [0x6d; 32];
    let mut name = [0; NAME];
    (name[0], name[1]) = (4, 17);
    name[14..18].copy_from_slice(&HEADERS[L3 + 12..L3 + 16]);
    name[30..34].copy_from_slice(&HEADERS[L3 + 16..L3 + 20]);
    name[34..].copy_from_slice(&HEADERS[L4..L4 + 4]);
    let text = hex(&TEXT[..74]);
    let mut sealed = [text.as_slice(), &[0; 16]].concat();
    let mut iv = [0; 16];
    if let Ok(master) = Master::new(&settings, &Secret::new(key.to_vec())) {
        let mut keys = Connections::new(1);
        let slot = keys.find(&name, &master);
        if let Some(pair) = slot.and_then(|slot| keys.pair(slot, &master)) {
            iv[..12].copy_from_slice(&pair.vector.of(&name, &text)[..12]);
            encrypt_batch(&mut [Text::new(&pair.text, iv, &mut sealed, text.len())]);
        }
    }
    packet(items, &settings, &key, &text, &[&iv[..12], &sealed].concat())
}

/// A packet whose payload becomes another one, one that is settled, and one whose last byte is changed, which only GCM detects.
fn packet(items: u32, settings: &Settings, key: &[u8], from: &[u8], to: &[u8]) -> Known {
    let is_opening = settings.direction == Direction::Decrypt;
    let room = from.len().max(to.len());
    let in_room = |bytes: &[u8]| {
        let mut frame = [&HEADERS, bytes].concat();
        frame.resize(HEADERS.len() + room, 0xee);
        frame
    };
    let front = settings.iv_len();
    // The worker has made room for the vector.
    let before = match is_opening {
        true => in_room(from),
        false => in_room(&[&vec![0xee; front], from].concat()),
    };
    // What is decrypted stays where it was, behind the vector.
    let after = match is_opening {
        true => {
            let mut frame = in_room(from);
            frame[HEADERS.len() + front..][..to.len()].copy_from_slice(to);
            frame
        }
        false => in_room(to),
    };
    let rejects = is_opening && settings.mode() == Mode::Gcm;
    let mut changed = before.clone();
    if rejects {
        changed[HEADERS.len() + from.len() - 1] ^= 1;
    }
    let last = if rejects { &changed } else { &after };
    let (given, places) = frames(&[&before, &before, &changed]);
    let (payload, _) = frames(&[&after, &before, last]);
    let mut job = JobBytes::new(C::COLUMNS, places.len());
    for (row, (at, len)) in places.into_iter().enumerate() {
        job.put(C::CIPHER_FRAME_AT, row, at);
        job.put(C::CIPHER_FRAME_LEN, row, len);
        job.put(C::CIPHER_AT, row, HEADERS.len() as u16);
        job.put(C::CIPHER_L3, row, L3 as u8);
        job.put(C::CIPHER_L4, row, L4 as u16);
        job.put(C::CIPHER_PROTOCOL, row, 17u8);
        job.put(C::CIPHER_LEN, row, from.len() as u32);
    }
    job.put(C::VERDICT, 1, Verdict::DUMP.0);
    let bytes = 4 * RECORD_WORDS * 3;
    let records = job.add_areas(&[bytes])[0];
    let mut done = job.clone();
    job.bytes_mut()[records..][..bytes].fill(0xee); // keys are wiped, whatever was there
    let sum = |bytes: &[u8]| u32::from(!finish(partial_sum(bytes)));
    for row in [0, 2] {
        done.put(C::CIPHER_DONE, row, to.len() as u32);
        done.put(C::CIPHER_SUMS, row, sum(from) | sum(to) << 16);
    }
    if rejects {
        done.put(C::CIPHER_DONE, 2, 0u32);
        done.put(C::CIPHER_SUMS, 2, 0u32);
        done.put(C::VERDICT, 2, Verdict::drop(reasons::CIPHER_NOT_GENUINE).0);
    }
    let words = match Master::new(settings, &Secret::new(key.to_vec())) {
        Ok(master) => master.words().to_vec(),
        Err(_) => Vec::new(),
    };
    let layout = ImageLayout::new(&[(1, 0), (words.len(), 0)]);
    let image = bytes_of(&layout.write(1, &[&[7], &words]));
    let kernels = kernels_of(settings.mode(), settings.direction);
    let names: Vec<_> = kernels.iter().map(|(name, _)| *name).collect();
    let mut known = Known::new("secrets", &[&SECRETS], &names, C::COLUMNS);
    let number = number(settings.mode(), settings.direction, settings.iv, 1);
    known.launches = kernels
        .into_iter()
        .map(|(kernel, per_row)| {
            let groups = (3 * per_row).div_ceil(items.max(1));
            Launch { kernel, groups, items: 0, job: number }
        })
        .collect();
    known.tables = Sparse { bytes: layout.bytes(), parts: vec![(0, image)] };
    known.payload = given;
    known.job(&job, &done).expect(Place::Payload, 0, payload)
}
