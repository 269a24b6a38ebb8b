//! Known answers of the kernels of ESP: packets as the worker makes them, and as `crypto::esp` seals them, whose own known answers
//! are published ones. Opened, the same backwards; and one with a byte changed, which stays as it is.

use chunk::{Columns, Verdict};
use crypto::esp::seal_batch;
use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, SecretWords, Suite};
use ipsec::{Association, Direction, Parameters};
use kernels::Launch;
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::known::samples::frames;
use kernels::known::{Known, Place, Sparse, bytes_of};

use super::{ESP, Items, PARTS, RECORD_WORDS, kernels_of, number};
use crate::ipsec::device::EspColumns as C;
use crate::ipsec::device::keys::{KEY_WORDS, write_record};

/// Bytes in front of ESP.
const FRONT: usize = 34;
/// Where the keys are: one place is free.
const REGION: usize = 1;
const PLACE: usize = 1;

/// Each cipher and each hash, with both kinds of numbers.
fn suites() -> Vec<(Suite, bool)> {
    use Authentication::{HmacSha1_96, HmacSha256_128, None};
    use KeySize::{Bits128, Bits192, Bits256};
    let all = [
        (Encryption::AesCtr(Bits128), HmacSha1_96, false),
        (Encryption::AesCbc(Bits256), HmacSha256_128, true),
        (Encryption::AesGcm(Bits128, Icv::Bytes16), None, true),
        (Encryption::AesGcm(Bits256, Icv::Bytes8), None, false),
        (Encryption::AesGmac(Bits192), None, true),
        (Encryption::Null, HmacSha1_96, true),
    ];
    let of = |(encryption, authentication, extended)| {
        Suite::new(encryption, authentication).ok().map(|suite| (suite, extended))
    };
    all.into_iter().filter_map(of).collect()
}

fn association(direction: Direction, suite: Suite, is_extended: bool) -> Option<Association> {
    let of =
        |len: usize| Secret::new((0..len as u8).map(|byte| byte.wrapping_mul(7) ^ 0x6b).collect());
    let (encryption, authentication) =
        (of(suite.encryption_key_len()), of(suite.authentication_key_len()));
    let key = Key::new(suite, &encryption, &authentication).ok()?;
    let ends = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let parameters = Parameters {
        is_extended,
        first_number: if is_extended { 0x7_0000_0009 } else { 9 },
        ..Parameters::new(direction, 0x1001, ends, 1)
    };
    Association::new(parameters, key, 0).ok()
}

pub(super) fn esp(items: u32) -> Vec<Known> {
    let cases = suites().into_iter().flat_map(|own| [(Direction::Out, own), (Direction::In, own)]);
    cases
        .filter_map(|(direction, (suite, extended))| case(items, direction, suite, extended))
        .collect()
}

/// A packet of some length, prepared and sealed, with the upper half of its number.
fn packet(own: &Association, len: usize) -> Option<(Vec<u8>, Vec<u8>, u32)> {
    let sealer = own.sealer()?;
    let mut buffer = vec![0xee; FRONT + 24 + len + 64];
    let payload = FRONT + 24..FRONT + 24 + len;
    buffer[payload.clone()]
        .iter_mut()
        .zip(0u32..)
        .for_each(|(byte, at)| *byte = (at * at + 5) as u8);
    let prepared = sealer.take(1).next()?.prepare(&mut buffer, payload, 4, 0).ok()?;
    let mut before = buffer[prepared.packet.start - FRONT..prepared.packet.end].to_vec();
    let value = before.len() - own.suite().icv_len();
    before[value..].fill(0xee);
    let mut after = before.clone();
    let mut seals = [sealer.encrypt(&mut after[FRONT..], prepared.high)];
    seal_batch(&mut seals);
    Some((before, after, prepared.high))
}

fn case(items: u32, direction: Direction, suite: Suite, is_extended: bool) -> Option<Known> {
    let own = association(Direction::Out, suite, is_extended)?;
    // Longer than a turn of all parts, one that the worker has settled, and a short one.
    let made = [packet(&own, 301)?, packet(&own, 40)?, packet(&own, 3)?];
    let opens = direction == Direction::In;
    let icv = suite.icv_len();
    let (mut given, mut expected) = (Vec::new(), Vec::new());
    for (row, (plain, sealed, _)) in made.iter().enumerate() {
        let mut open = plain.clone();
        let value = open.len() - icv;
        open[value..].copy_from_slice(&sealed[value..]);
        let (mut from, mut to) =
            if opens { (sealed.clone(), open) } else { (plain.clone(), sealed.clone()) };
        if opens && row == 2 {
            from[value + 1] ^= 0x20;
        }
        if row == 1 || opens && row == 2 {
            to = from.clone();
        }
        given.push(from);
        expected.push(to);
    }
    let slices = |all: &[Vec<u8>]| -> (Vec<u8>, Vec<(u32, u32)>) {
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        frames(&all)
    };
    let (from, places) = slices(&given);
    let (to, _) = slices(&expected);
    let mut job = JobBytes::new(C::COLUMNS, places.len());
    for (row, (at, len)) in places.into_iter().enumerate() {
        job.put(C::ESP_FRAME_AT, row, at);
        job.put(C::ESP_FRAME_LEN, row, len);
        job.put(C::ESP_KEY, row, PLACE as u32 + 1);
        job.put(C::ESP_AT, row, FRONT as u16);
        job.put(C::ESP_LEN, row, len - FRONT as u32);
        job.put(C::ESP_HIGH, row, made[row].2);
    }
    job.put(C::VERDICT, 1, Verdict::DUMP.0);
    let bytes = 4 * RECORD_WORDS * made.len();
    let records = job.add_areas(&[bytes])[0];
    let mut done = job.clone();
    job.bytes_mut()[records..][..bytes].fill(0xee); // it is wiped, whatever was there
    done.put(C::ESP_DONE, 0, 1u32);
    done.put(C::ESP_DONE, 2, u32::from(!opens));
    let mut words = SecretWords::zeros((PLACE + 1) * KEY_WORDS);
    write_record(&mut words, PLACE * KEY_WORDS, Some(&own));
    let words = words.expose();
    let layout = ImageLayout::new(&[(1, 0), (words.len(), 0)]);
    let image = bytes_of(&layout.write(1, &[&[7], words]));
    let kernels = kernels_of(direction);
    let names: Vec<_> = kernels.iter().map(|(name, _)| *name).collect();
    let mut known = Known::new("esp", &[&ESP], &names, C::COLUMNS);
    known.launches = kernels
        .iter()
        .map(|(kernel, of)| {
            let count = match of {
                Items::Rows => made.len() as u32,
                Items::Parts => made.len() as u32 * PARTS,
                Items::Blocks => from.len().div_ceil(16) as u32,
            };
            let groups = count.div_ceil(items.max(1));
            Launch { kernel, groups, items: 0, job: number(direction, REGION) }
        })
        .collect();
    known.tables = Sparse { bytes: layout.bytes(), parts: vec![(0, image)] };
    known.payload = from;
    Some(known.job(&job, &done).expect(Place::Payload, 0, to))
}
