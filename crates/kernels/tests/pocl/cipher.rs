//! Ciphers and digests against crate `crypto` and the hashes under it: keys of all sizes side by side, texts of any length at
//! any place of a frame.

use chunk::Columns;
use crypto::modes::{Mode, Padding, RawKey};
use crypto::{Authentication, Encryption, Key, Request, Secret, Suite};
use kernels::cipher::{
    MODEXP_NUMBERS, aes_record, ghash_powers, mode, modexp_key, sha1_record, sha256_record,
};
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::{CipherColumns as C, Launch, Spec, files};
use sha1::Digest;

use crate::bed::{Bed, Memories};
use crate::random::Random;

/// Enough for a block of the frame beside the longest text.
const TEXT_MAX: usize = 2048;
const KEYS: usize = 5;
/// Fewer than the blocks of a long text.
const POWERS: usize = 33;
const ITEMS: u32 = 64;

/// Frames with their texts, and what they shall be.
struct Texts {
    keys: Vec<Vec<u8>>,
    rows: Vec<Row>,
}

#[derive(Clone)]
struct Row {
    key: usize,
    iv: [u8; 16],
    before: Vec<u8>,
    text: Vec<u8>,
}

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next() as u8).collect()
}

fn draw(random: &mut Random, rows: usize) -> Texts {
    let keys = (0..KEYS).map(|i| bytes(random, [16, 24, 32, 16, 32][i])).collect();
    let row = |_| {
        let len = match random.below(4) {
            0 => random.below(18),
            1 => random.below(TEXT_MAX + 1),
            2 => 16 * random.below(TEXT_MAX / 16 + 1),
            _ => random.below(130),
        };
        let before = [0, 4, 8, 42, random.below(50)][random.below(5)];
        let mut iv: [u8; 16] = bytes(random, 16).try_into().expect("16 bytes");
        if random.below(3) == 0 {
            iv[random.below(16)..].fill(0xff); // so that counters carry
        }
        // One row in a while names a key that is not there.
        let key = if random.below(20) == 0 { KEYS + 3 } else { random.below(KEYS) };
        Row { key, iv, before: bytes(random, before), text: bytes(random, len) }
    };
    let rows = (0..rows).map(row).collect();
    Texts { keys, rows }
}

impl Texts {
    /// Frames at multiples of 16, as blocks need it.
    fn payload(&self) -> (Vec<u8>, Vec<u32>) {
        let (mut payload, mut places) = (Vec::new(), Vec::new());
        for row in &self.rows {
            places.push(payload.len() as u32);
            payload.extend([&row.before[..], &row.text].concat());
            payload.resize(payload.len().next_multiple_of(16), 0xee);
        }
        payload.resize(payload.len() + 64, 0xee);
        (payload, places)
    }

    fn job(&self, places: &[u32]) -> JobBytes {
        let mut job = JobBytes::new(C::COLUMNS, self.rows.len());
        for (at, row) in self.rows.iter().enumerate() {
            let half =
                |half: usize| row.iv[8 * half..][..8].iter().fold(0, |n, b| n << 8 | u64::from(*b));
            job.put(C::PAYLOAD_AT, at, places[at]);
            job.put(C::PAYLOAD_LEN, at, (row.before.len() + row.text.len()) as u32);
            job.put(C::TEXT_AT, at, row.before.len() as u32);
            job.put(C::KEY, at, row.key as u32);
            job.put(C::IV, at, [half(0), half(1)]);
        }
        job
    }

    fn raw_key(&self, mode: Mode, key: usize) -> Option<RawKey> {
        let key = self.keys.get(key)?;
        Some(RawKey::new(mode, &Secret::new(key.clone())).expect("a key of AES"))
    }

    fn image(&self, records: Vec<u32>) -> Vec<u32> {
        let h = |key: &Vec<u8>| {
            let key =
                RawKey::new(Mode::Ecb(Padding::None), &Secret::new(key.clone())).expect("a key");
            let mut h = [0; 16];
            key.encrypt(&[], &[], &mut h, 16).expect("a block");
            h
        };
        let mut powers = vec![POWERS as u32, 0, 0, 0];
        powers.extend(self.keys.iter().flat_map(|key| ghash_powers(h(key), POWERS)));
        let layout = ImageLayout::new(&[(records.len(), 0), (powers.len(), 0)]);
        layout.write(1, &[&records, &powers])
    }

    /// Those of AES.
    fn records(&self) -> Vec<u32> {
        self.keys.iter().filter_map(|key| aes_record(key)).flatten().collect()
    }

    /// What the launches make of the payload and the job.
    fn run(
        &self,
        bed: &mut Bed,
        mut job: JobBytes,
        launches: &[(&'static str, u32)],
    ) -> (Vec<u8>, JobBytes) {
        let (mut payload, _) = self.payload();
        let spec = Spec::of_file(&files::CIPHER).with_group_items(ITEMS);
        let memories = Memories {
            arena: bed.memory(job.bytes()),
            payload: bed.memory(&payload),
            tables: bed.memory_of_words(&self.image(self.records())),
            state: bed.memory(&vec![0; payload.len()]),
        };
        let blocks = payload.len().div_ceil(16) as u32;
        let groups = |kernel| match kernel {
            "aes_blocks" | "aes_blocks_back" => blocks.div_ceil(2).div_ceil(ITEMS),
            "blocks_copy" | "ghash_blocks" => blocks.div_ceil(ITEMS),
            _ => (self.rows.len() as u32).div_ceil(ITEMS),
        };
        let launches: Vec<Launch> = launches
            .iter()
            .map(|(kernel, job)| Launch {
                kernel,
                groups: groups(*kernel),
                items: ITEMS,
                job: *job,
            })
            .collect();
        bed.run(&spec, memories, &launches);
        bed.read(memories.payload, &mut payload);
        bed.read(memories.arena, job.bytes_mut());
        for memory in [memories.arena, memories.payload, memories.tables, memories.state] {
            bed.free(memory);
        }
        (payload, job)
    }

    /// The same after each text went through the mode on the CPU, if it fits.
    fn on_the_cpu(&self, mode: Mode, is_encrypting: bool) -> Texts {
        let rows = self.rows.iter().cloned().map(|mut row| {
            if let Some(key) = self.raw_key(mode, row.key) {
                let (iv, len) = (&row.iv[..mode.iv_len()], row.text.len());
                // A text that does not fit stays as it is, here and there.
                let _ = match is_encrypting {
                    true => key.encrypt(iv, &[], &mut row.text, len),
                    false => key.decrypt(iv, &[], &mut row.text, len),
                };
            }
            row
        });
        Texts { keys: self.keys.clone(), rows: rows.collect() }
    }
}

/// Kernels, each with its job number.
type Steps = &'static [(&'static str, u32)];

/// Each mode, in each form, with the job number of its kernels.
const FORMS: &[(Mode, bool, Steps)] = &[
    (Mode::Ecb(Padding::None), true, &[("aes_blocks", mode::ECB)]),
    (Mode::Ecb(Padding::None), false, &[("aes_blocks_back", mode::ECB)]),
    (Mode::Ctr, true, &[("aes_blocks", mode::CTR)]),
    (Mode::Cfb, true, &[("aes_rows", mode::CFB)]),
    (Mode::Cfb, false, &[("aes_rows", mode::CFB_BACK)]),
    (Mode::Cfb, false, &[("aes_blocks", mode::CFB), ("blocks_copy", mode::CFB)]),
    (Mode::Cbc(Padding::None), true, &[("aes_rows", mode::CBC)]),
    (
        Mode::Cbc(Padding::None),
        false,
        &[("aes_blocks_back", mode::CBC), ("blocks_copy", mode::CBC)],
    ),
    (Mode::Ofb, true, &[("aes_rows", mode::OFB)]),
];

/// As many rows as there are is none, one, and more than a group.
const ROWS: [usize; 4] = [0, 1, 30, 70];

#[test]
fn modes_are_those_of_the_cpu() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random::from_time();
    for rows in ROWS {
        let seed = random.0;
        let texts = draw(&mut random, rows);
        let (before, places) = texts.payload();
        let mut has_changed = false;
        for (mode, is_encrypting, launches) in FORMS {
            let job = texts.job(&places);
            let (found, after) = texts.run(&mut bed, job.clone(), launches);
            let (expected, _) = texts.on_the_cpu(*mode, *is_encrypting).payload();
            assert!(found == expected, "seed {seed}: {rows} rows, {launches:?}");
            assert!(after == job, "seed {seed}: {launches:?} changes columns");
            has_changed |= expected != before;
        }
        assert!(has_changed || rows < 2);
    }
}

#[test]
fn gcm_is_that_of_the_cpu() {
    const SEAL: [Steps; 2] =
        [&[("gcm_rows", 0)], &[("aes_blocks", mode::GCM), ("ghash_blocks", 0), ("gcm_tags", 0)]];
    const OPEN: [Steps; 2] = [
        &[("gcm_rows", mode::GENUINE)],
        &[
            ("ghash_blocks", 0),
            ("gcm_tags", mode::GENUINE),
            ("aes_blocks", mode::GCM | mode::GENUINE),
        ],
    ];
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random::from_time();
    for rows in ROWS {
        let seed = random.0;
        let mut plain = draw(&mut random, rows);
        for row in &mut plain.rows {
            row.iv[12..].copy_from_slice(&[0, 0, 0, 1]); // a nonce of 12 bytes
        }
        let mut sealed = Texts { keys: plain.keys.clone(), rows: plain.rows.clone() };
        let (_, places) = plain.payload();
        let mut tags = vec![[0u8; 16]; rows];
        for (row, tag) in sealed.rows.iter_mut().zip(&mut tags) {
            let Some(key) = plain.raw_key(Mode::Gcm, row.key) else { continue };
            let len = row.text.len();
            row.text.resize(len + 16, 0);
            key.encrypt(&row.iv[..12], &row.before, &mut row.text, len).expect("sealed");
            tag.copy_from_slice(&row.text.split_off(len));
        }
        let numbers = |tag: &[u8; 16]| {
            let half = |half: usize| {
                tag[8 * half..][..8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
            };
            [half(0), half(1)]
        };
        let job = || {
            let mut job = plain.job(&places);
            job.add_areas(&[16 * rows.max(1)]);
            job
        };
        for launches in SEAL {
            let (found, after) = plain.run(&mut bed, job(), launches);
            assert!(found == sealed.payload().0, "seed {seed}: {rows} rows, {launches:?}");
            for (row, tag) in tags.iter().enumerate() {
                assert_eq!(
                    after.get::<[u64; 2]>(C::TAG, row),
                    numbers(tag),
                    "seed {seed}: {launches:?}"
                );
                let is_done = plain.rows[row].key < KEYS;
                assert_eq!(after.get::<u32>(C::DONE, row), u32::from(is_done));
            }
        }
        // Every third one has a bit that is wrong: of its tag, its text or what is before it.
        let mut damaged = Texts { keys: plain.keys.clone(), rows: sealed.rows.clone() };
        let mut wrong = tags.clone();
        let mut expected = Texts { keys: plain.keys.clone(), rows: plain.rows.clone() };
        for row in (0..rows).step_by(3) {
            let own = &mut damaged.rows[row];
            let place = match random.below(3) {
                0 => own.text.last_mut(),
                1 => own.before.last_mut(),
                _ => None,
            };
            *place.unwrap_or(&mut wrong[row][random.below(16)]) ^= 1 << random.below(8);
            expected.rows[row] = own.clone();
        }
        for launches in OPEN {
            let mut job = job();
            for (row, tag) in wrong.iter().enumerate() {
                job.put(C::TAG, row, numbers(tag));
            }
            let (found, after) = damaged.run(&mut bed, job, launches);
            assert!(found == expected.payload().0, "seed {seed}: {rows} rows, {launches:?}");
            for (row, own) in plain.rows.iter().enumerate() {
                let is_genuine = own.key < KEYS && row % 3 != 0;
                assert_eq!(after.get::<u32>(C::DONE, row), u32::from(is_genuine), "seed {seed}");
            }
        }
    }
}

/// The check value of one text on the CPU.
fn mac(authentication: Authentication, key: &[u8], text: &[u8]) -> Vec<u8> {
    let suite = Suite::new(Encryption::Null, authentication).expect("a suite");
    let key = Key::new(suite, &Secret::none(), &Secret::new(key.to_vec())).expect("a key");
    let mut buffer = [text, &[0; 16]].concat();
    let mut requests = [Request::new(&key, &mut buffer, 0, text.len())];
    crypto::seal_batch(&mut requests);
    assert_eq!(requests[0].result, Ok(()));
    buffer.split_off(text.len())
}

/// Keys have the length of a digest: those are what suites take.
#[test]
fn digests_are_those_of_the_cpu() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random::from_time();
    for (kernel, key_len, mac_len, authentication) in [
        ("sha1_rows", 20, 12, Authentication::HmacSha1_96),
        ("sha256_rows", 32, 16, Authentication::HmacSha256_128),
    ] {
        let seed = random.0;
        let mut texts = draw(&mut random, 150);
        // Each length around the end of a block, and those of up to two blocks.
        for (len, row) in texts.rows.iter_mut().take(130).enumerate() {
            row.text = bytes(&mut random, len);
        }
        let mut keys: Vec<_> = (1..KEYS).map(|_| Some(bytes(&mut random, key_len))).collect();
        keys.push(None); // a plain hash
        let record = |key: &Option<Vec<u8>>| match kernel {
            "sha1_rows" => sha1_record(key.as_deref()),
            _ => sha256_record(key.as_deref()),
        };
        let records: Vec<u32> = keys.iter().filter_map(record).flatten().collect();
        let (payload, places) = texts.payload();
        let mut job = texts.job(&places);
        let spec = Spec::of_file(&files::DIGEST).with_group_items(ITEMS);
        let memories = Memories {
            arena: bed.memory(job.bytes()),
            payload: bed.memory(&payload),
            tables: bed.memory_of_words(&texts.image(records)),
            ..bed.memories()
        };
        bed.run(&spec, memories, &[crate::bed::over_rows(kernel, texts.rows.len(), ITEMS)]);
        bed.read(memories.arena, job.bytes_mut());
        for (row, own) in texts.rows.iter().enumerate() {
            let halves = [C::DIGEST0, C::DIGEST1].map(|column| job.get::<[u64; 2]>(column, row));
            let found: Vec<u8> =
                halves.as_flattened().iter().flat_map(|n| n.to_le_bytes()).collect();
            let expected = match keys.get(own.key) {
                None => vec![0; 32],
                Some(Some(key)) => mac(authentication, key, &own.text)[..mac_len].to_vec(),
                Some(None) if key_len == 20 => sha1::Sha1::digest(&own.text).to_vec(),
                Some(None) => sha2::Sha256::digest(&own.text).to_vec(),
            };
            assert_eq!(found[..expected.len()], expected, "seed {seed}: {kernel}, row {row}");
        }
        for memory in [memories.arena, memories.payload, memories.tables] {
            bed.free(memory);
        }
    }
}

/// What modules use: keys of AES-128 that an item has expanded, and bytes of a key stream. `tables`: keys; `state`: 64 bytes
/// for each item, two blocks encrypted and decrypted again.
const OWN_KEYS: &str = "
KERNEL(own_keys)
{
    GLOBAL const uint *words = (GLOBAL const uint *)tables + 4u * GLOBAL_ID;
    GLOBAL uchar *to = state + 64u * GLOBAL_ID;
    uint key[AES_KEY_WORDS];
    aes_expand_own(key, words[0], words[1], words[2], words[3]);
    aes_pair_t pair;
    pair.a = aes_counter32(ulong2_of(job, 0xffffffffUL), GLOBAL_ID);
    pair.b = aes_counter32(ulong2_of(job, 0xffffffffUL), GLOBAL_ID + 1u);
    pair = aes_encrypt_own(key, pair);
    for (uint i = 0u; i < 32u; i++)
        to[i] = (uchar)aes_byte(pair, i);
    pair = aes_decrypt_own(key, pair);
    for (uint i = 0u; i < 32u; i++)
        to[32u + i] = (uchar)aes_byte(pair, i);
}
";

#[test]
fn keys_that_items_expand_are_those_of_the_host() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random::from_time();
    let seed = random.0;
    let keys = bytes(&mut random, 16 * ITEMS as usize);
    let spec = Spec::of_file(&files::CIPHER).with_group_items(ITEMS);
    bed.build("own keys", kernels::source_with(&spec, OWN_KEYS), vec!["own_keys"]);
    let (tables, state) = (bed.memory(&keys), bed.memory(&vec![0; 4 * keys.len()]));
    let nonce = random.next() as u32;
    let launch = Launch { kernel: "own_keys", groups: 1, items: ITEMS, job: nonce };
    bed.launch("own keys", Memories { tables, state, ..bed.memories() }, &[launch]);
    let mut found = vec![0; 4 * keys.len()];
    bed.read(state, &mut found);
    for (item, (key, found)) in keys.chunks(16).zip(found.chunks(64)).enumerate() {
        let counter = |n: u32| {
            let low = u32::MAX.wrapping_add(item as u32 + n); // goes over without a carry
            [&u64::from(nonce).to_be_bytes()[..], &[0; 4], &low.to_be_bytes()].concat()
        };
        let plain = [counter(0), counter(1)].concat();
        let mut text = plain.clone();
        let key = RawKey::new(Mode::Ecb(Padding::None), &Secret::new(key.to_vec())).expect("a key");
        key.encrypt(&[], &[], &mut text, 32).expect("two blocks");
        assert_eq!(found, [text, plain].concat(), "seed {seed}, item {item}");
    }
}

/// x y modulo n by doubling and adding: the plain form. Lowest words first, x below n.
fn product(x: &[u32], y: &[u32], n: &[u32]) -> Vec<u32> {
    let mut sum = vec![0; n.len()];
    // sum = sum + other, less n if that is not below n.
    let add = |sum: &mut Vec<u32>, other: &[u32]| {
        let mut carry = 0;
        for (word, other) in sum.iter_mut().zip(other) {
            carry += u64::from(*word) + u64::from(*other);
            *word = carry as u32;
            carry >>= 32;
        }
        if carry == 1 || sum.iter().rev().ge(n.iter().rev()) {
            let mut borrow = 0;
            for (word, own) in sum.iter_mut().zip(n) {
                let differ = i64::from(*word) - i64::from(*own) - borrow;
                (*word, borrow) = (differ as u32, i64::from(differ < 0));
            }
        }
    };
    for bit in (0..32 * y.len()).rev() {
        let own = sum.clone();
        add(&mut sum, &own);
        if y[bit / 32] >> (bit % 32) & 1 == 1 {
            add(&mut sum, x);
        }
    }
    sum
}

fn power(x: &[u32], exponent: &[u32], n: &[u32]) -> Vec<u32> {
    let mut one = vec![0; n.len()];
    one[0] = 1;
    let x = product(&one, x, n); // below n
    (0..32 * exponent.len()).rev().fold(one, |power, bit| {
        let square = product(&power, &power, n);
        if exponent[bit / 32] >> (bit % 32) & 1 == 1 { product(&square, &x, n) } else { square }
    })
}

#[test]
fn powers_are_those_of_plain_arithmetic() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random::from_time();
    let seed = random.0;
    let words = |random: &mut Random, count: usize| -> Vec<u32> {
        (0..count).map(|_| random.next() as u32).collect()
    };
    // RSA-1024 and RSA-2048 with a public exponent, and a long one of a prime's length for CRT; others.
    const SIZES: [(usize, usize); 6] = [(64, 1), (32, 1), (32, 2), (3, 3), (1, 1), (16, 16)];
    let most = SIZES[0].0;
    let (mut region, mut firsts, mut moduli) = (Vec::new(), Vec::new(), Vec::new());
    for (len, exponent_len) in SIZES {
        let mut n = words(&mut random, len);
        n[0] |= 1;
        // Words of ones at either end reach carries and the last subtraction.
        n[len - 1] |= if random.below(2) == 0 { 0x8000_0000 } else { u32::MAX };
        let mut exponent = words(&mut random, exponent_len);
        if exponent_len == 1 {
            exponent = vec![65_537];
        }
        firsts.push(region.len() as u32);
        region.extend(modexp_key(&n, &exponent).expect("an odd modulus"));
        moduli.push((n, exponent));
    }
    const ROWS_OF_KEY: usize = 3;
    let rows = ROWS_OF_KEY * SIZES.len();
    let (mut payload, mut expected) = (Vec::new(), Vec::new());
    let mut job = JobBytes::new(C::COLUMNS, rows);
    for row in 0..rows {
        let (n, exponent) = &moduli[row % SIZES.len()];
        let mut x = words(&mut random, n.len());
        match row / SIZES.len() {
            0 => x.fill(u32::MAX), // above n
            1 => x.fill(0),
            _ => {}
        }
        let before = bytes(&mut random, row % 7);
        job.put(C::PAYLOAD_AT, row, payload.len() as u32);
        job.put(C::PAYLOAD_LEN, row, (before.len() + 4 * n.len()) as u32);
        job.put(C::TEXT_AT, row, before.len() as u32);
        job.put(C::KEY, row, firsts[row % SIZES.len()]);
        for (to, number) in [(&mut payload, x.clone()), (&mut expected, power(&x, exponent, n))] {
            to.extend(&before);
            to.extend(number.iter().rev().flat_map(|word| word.to_be_bytes()));
            to.resize(to.len().next_multiple_of(4), 0x77);
        }
    }
    let layout = ImageLayout::new(&[(region.len(), 0)]);
    let spec = Spec::of_file(&files::MODEXP).with_group_items(32);
    let memories = Memories {
        arena: bed.memory(job.bytes()),
        payload: bed.memory(&payload),
        tables: bed.memory_of_words(&layout.write(1, &[&region])),
        state: bed.memory(&vec![0; 4 * most * MODEXP_NUMBERS * rows]),
    };
    let launch = Launch { kernel: "modexp_rows", groups: 1, items: 32, job: most as u32 };
    bed.run(&spec, memories, &[launch]);
    let mut found = vec![0; payload.len()];
    bed.read(memories.payload, &mut found);
    assert!(found == expected, "seed {seed}");
}
