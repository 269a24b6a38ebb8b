//! Ciphers and digests: the examples of NIST SP 800-38A appendix F, of the specification of GCM, of RFC 2202 and RFC 4231.

use chunk::Columns;

use super::{Known, Place, Sparse, bytes_of};
use crate::cipher::{
    MODEXP_NUMBERS, aes_record, ghash_powers, mode, modexp_key, sha1_record, sha256_record,
};
use crate::image::ImageLayout;
use crate::job::JobBytes;
use crate::{CipherColumns as C, Launch, files};

/// The keys of SP 800-38A, one of each size.
const KEYS: [&str; 3] = [
    "2b7e151628aed2a6abf7158809cf4f3c",
    "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
    "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
];
const TEXT: &str = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
     30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";
const IV: [u64; 2] = [0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f];
const COUNTER: [u64; 2] = [0xf0f1_f2f3_f4f5_f6f7, 0xf8f9_fafb_fcfd_feff];

const ECB: [&str; 3] = [
    "3ad77bb40d7a3660a89ecaf32466ef97f5d3d58503b9699de785895a96fdbaaf\
     43b1cd7f598ece23881b00e3ed0306887b0c785e27e8ad3f8223207104725dd4",
    "bd334f1d6e45f25ff712a214571fa5cc974104846d0ad3ad7734ecb3ecee4eef\
     ef7afd2270e2e60adce0ba2face6444e9a4b41ba738d6c72fb16691603c18e0e",
    "f3eed1bdb5d2a03c064b5a7e3db181f8591ccb10d410ed26dc5ba74a31362870\
     b6ed21b99ca6f4f9f153e7b1beafed1d23304b7a39f9f3ff067d8d8f9e24ecc7",
];
const CBC: [&str; 3] = [
    "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2\
     73bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7",
    "4f021db243bc633d7178183a9fa071e8b4d9ada9ad7dedf4e5e738763f69145a\
     571b242012fb7ae07fa9baac3df102e008b0e27988598881d920a9e64f5615cd",
    "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d\
     39f23369a9d9bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b",
];
const CFB: [&str; 3] = [
    "3b3fd92eb72dad20333449f8e83cfb4ac8a64537a0b3a93fcde3cdad9f1ce58b\
     26751f67a3cbb140b1808cf187a4f4dfc04b05357c5d1c0eeac4c66f9ff7f2e6",
    "cdc80d6fddf18cab34c25909c99a417467ce7f7f81173621961a2b70171d3d7a\
     2e1e8a1dd59b88b1c8e60fed1efac4c9c05f9f9ca9834fa042ae8fba584b09ff",
    "dc7e84bfda79164b7ecd8486985d386039ffed143b28b1c832113c6331e5407b\
     df10132415e54b92a13ed0a8267ae2f975a385741ab9cef82031623d55b1e471",
];
const OFB: [&str; 3] = [
    "3b3fd92eb72dad20333449f8e83cfb4a7789508d16918f03f53c52dac54ed825\
     9740051e9c5fecf64344f7a82260edcc304c6528f659c77866a510d9c1d6ae5e",
    "cdc80d6fddf18cab34c25909c99a4174fcc28b8d4c63837c09e81700c1100401\
     8d9a9aeac0f6596f559c6d4daf59a5f26d9f200857ca6c3e9cac524bd9acc92a",
    "dc7e84bfda79164b7ecd8486985d38604febdc6740d20b3ac88f6ad82a4fb08d\
     71ab47a086e86eedf39d1c5bba97c4080126141d67f37be8538f5a8be740e484",
];
const CTR: [&str; 3] = [
    "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff\
     5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee",
    "1abc932417521ca24f2b0459fe7e6e0b090339ec0aa6faefd5ccc2c6f4ce8e94\
     1e36b26bd1ebc670d1bd1d665620abf74f78a7f6d29809585a97daec58c6b050",
    "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5\
     2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6",
];

/// Test case 4 of the specification of GCM (McGrew, Viega 2005).
const GCM_KEY: &str = "feffe9928665731c6d6a8f9467308308";
const GCM_H: &str = "b83b533708bf535d0aa6e52980d53b78";
const GCM_COUNTER: [u64; 2] = [0xcafe_babe_face_dbad, 0xdeca_f888_0000_0001];
const GCM_AAD: &str = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
const GCM_TEXT: &str = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
     1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
const GCM_SEALED: &str = "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
     21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091";
const GCM_TAG: &str = "5bc94fbc3221a5db94fae95ae7121a47";

pub(crate) fn ciphers(_: u32) -> Vec<Known> {
    let launch = |kernel, job| Launch { kernel, groups: 2, items: 0, job };
    let whole = [48, 64, 64]; // so that two keys meet in a pair of blocks
    let any = [47, 64, 17];
    let by_blocks = |kernel, mode| vec![launch(kernel, mode), launch("blocks_copy", mode)];
    vec![
        texts(vec![launch("aes_blocks", mode::ECB)], IV, whole, &[TEXT; 3], &ECB),
        texts(vec![launch("aes_blocks_back", mode::ECB)], IV, whole, &ECB, &[TEXT; 3]),
        texts(vec![launch("aes_blocks", mode::CTR)], COUNTER, any, &[TEXT; 3], &CTR),
        texts(vec![launch("aes_rows", mode::CFB)], IV, any, &[TEXT; 3], &CFB),
        texts(vec![launch("aes_rows", mode::CFB_BACK)], IV, any, &CFB, &[TEXT; 3]),
        texts(by_blocks("aes_blocks", mode::CFB), IV, any, &CFB, &[TEXT; 3]),
        texts(vec![launch("aes_rows", mode::CBC)], IV, whole, &[TEXT; 3], &CBC),
        texts(by_blocks("aes_blocks_back", mode::CBC), IV, whole, &CBC, &[TEXT; 3]),
        texts(vec![launch("aes_rows", mode::OFB)], IV, any, &[TEXT; 3], &OFB),
        gcm(vec![launch("gcm_rows", 0)], false),
        gcm(vec![launch("gcm_rows", mode::GENUINE)], true),
        gcm(
            vec![launch("aes_blocks", mode::GCM), launch("ghash_blocks", 0), launch("gcm_tags", 0)],
            false,
        ),
        gcm(
            vec![
                launch("ghash_blocks", 0),
                launch("gcm_tags", mode::GENUINE),
                launch("aes_blocks", mode::GCM | mode::GENUINE),
            ],
            true,
        ),
    ]
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |c: &u8| (*c as char).to_digit(16).unwrap_or(0) as u8;
    text.as_bytes().chunks(2).map(|pair| digit(&pair[0]) << 4 | digit(&pair[1])).collect()
}

/// An image of regions of these words.
fn image(regions: &[Vec<u32>]) -> Sparse {
    let lengths: Vec<_> = regions.iter().map(|words| (words.len(), 0)).collect();
    let layout = ImageLayout::new(&lengths);
    let contents: Vec<&[u32]> = regions.iter().map(Vec::as_slice).collect();
    Sparse { bytes: layout.bytes(), parts: vec![(0, bytes_of(&layout.write(1, &contents)))] }
}

/// Frames, each at a multiple of 16: so many bytes before each text, and the text.
struct Frames {
    payload: Vec<u8>,
    places: Vec<(u32, u32, u32)>,
}

impl Frames {
    fn new() -> Self {
        Self { payload: Vec::new(), places: Vec::new() }
    }

    fn push(&mut self, before: &[u8], text: &[u8]) {
        let at = self.payload.len() as u32;
        let len = (before.len() + text.len()) as u32;
        self.payload.extend([before, text].concat());
        self.payload.resize(self.payload.len().next_multiple_of(16), 0xee);
        self.places.push((at, len, before.len() as u32));
    }

    /// A job of these frames.
    fn job(&self, columns: chunk::Declaration) -> JobBytes {
        let mut job = JobBytes::new(columns, self.places.len());
        for (row, (at, len, before)) in self.places.iter().enumerate() {
            job.put(C::PAYLOAD_AT, row, *at);
            job.put(C::PAYLOAD_LEN, row, *len);
            job.put(C::TEXT_AT, row, *before);
        }
        job
    }
}

/// A text with each key, and a row whose key is not there.
fn texts(
    launches: Vec<Launch>,
    iv: [u64; 2],
    lens: [usize; 3],
    from: &[&str; 3],
    to: &[&str; 3],
) -> Known {
    let (mut before, mut after) = (Frames::new(), Frames::new());
    for (row, len) in lens.into_iter().enumerate() {
        let front = &[0x5a; 7][..[0, 4, 7][row]];
        before.push(front, &hex(from[row])[..len]);
        after.push(front, &hex(to[row])[..len]);
    }
    for frames in [&mut before, &mut after] {
        frames.push(&[], &[7; 16]);
    }
    let mut job = before.job(C::COLUMNS);
    for row in 0..4 {
        job.put(C::KEY, row, row as u32);
        job.put(C::IV, row, iv);
    }
    let keys: Vec<u32> = KEYS.iter().filter_map(|key| aes_record(&hex(key))).flatten().collect();
    known(launches, &before, [&job, &job], vec![keys]).expect(Place::Payload, 0, after.payload)
}

fn known(
    launches: Vec<Launch>,
    frames: &Frames,
    jobs: [&JobBytes; 2],
    regions: Vec<Vec<u32>>,
) -> Known {
    let kernels: Vec<_> = launches.iter().map(|launch| launch.kernel).collect();
    let mut known = Known::new("cipher", &[&files::CIPHER], &kernels, C::COLUMNS);
    known.launches = launches;
    known.tables = image(&regions);
    known.payload = frames.payload.clone();
    known.state = vec![0; frames.payload.len()];
    known.job(jobs[0], jobs[1])
}

/// A text with its tag, one whose tag is wrong or that is empty, and one without a key.
fn gcm(launches: Vec<Launch>, is_opening: bool) -> Known {
    let (text, sealed, aad) = (hex(GCM_TEXT), hex(GCM_SEALED), hex(GCM_AAD));
    let (from, to) = if is_opening { (&sealed, &text) } else { (&text, &sealed) };
    let (mut before, mut after) = (Frames::new(), Frames::new());
    for (frames, text) in [(&mut before, from), (&mut after, to)] {
        frames.push(&aad, text);
        // A damaged one stays as it is.
        frames.push(&aad, if is_opening { &sealed } else { text });
        frames.push(&aad, &text[..0]);
    }
    let by_blocks = launches.len() > 1;
    let mut job = before.job(C::COLUMNS);
    let sums = by_blocks.then(|| job.add_areas(&[16 * 3])[0]);
    for row in 0..3 {
        job.put(C::KEY, row, row as u32 / 2 * 9);
        job.put(C::IV, row, GCM_COUNTER);
        job.put(C::DONE, row, 1u32);
    }
    let tag = hex(GCM_TAG);
    let half =
        |at: usize| tag[at..at + 8].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let tag = [half(0), half(8)];
    let mut done = job.clone();
    for row in 0..2 {
        if is_opening {
            job.put(C::TAG, row, [tag[0], tag[1] ^ row as u64]);
            done.put(C::TAG, row, [tag[0], tag[1] ^ row as u64]);
            done.put(C::DONE, row, 1 - row as u32);
        } else {
            done.put(C::TAG, row, tag);
        }
    }
    done.put(C::DONE, 2, 0u32);
    if let Some(at) = sums {
        let sum = sum_of_blocks(&sealed);
        for row in 0..2 {
            done.bytes_mut()[at + 16 * row..][..16].copy_from_slice(&bytes_of(&sum));
        }
    }
    let key = aes_record(&hex(GCM_KEY)).into_iter().flatten().collect();
    let mut h = [0; 16];
    h.copy_from_slice(&hex(GCM_H));
    // Fewer powers than there are blocks.
    let powers = [vec![3, 0, 0, 0], ghash_powers(h, 3)].concat();
    known(launches, &before, [&job, &done], vec![key, powers]).expect(
        Place::Payload,
        0,
        after.payload,
    )
}

/// What the blocks of a text of the example add to the hash: each times a power, the last one the second.
fn sum_of_blocks(text: &[u8]) -> [u32; 4] {
    let mut h = [0; 16];
    h.copy_from_slice(&hex(GCM_H));
    let mut sum = 0u128;
    for block in text.chunks(16) {
        let mut whole = [0; 16];
        whole[..block.len()].copy_from_slice(block);
        sum =
            crate::cipher::ghash_multiply(sum ^ u128::from_be_bytes(whole), u128::from_be_bytes(h));
    }
    let sum = crate::cipher::ghash_multiply(sum, u128::from_be_bytes(h));
    [(sum >> 64) as u32, (sum >> 96) as u32, sum as u32, (sum >> 32) as u32]
}

/// Digests of a text that fills two blocks with its padding, and of others; MACs of RFC 2202 §3 and RFC 4231 §4, cases 1
/// and 2.
pub(crate) fn digests(_: u32) -> Vec<Known> {
    let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    let texts: [&[u8]; 4] = [b"Hi There", b"what do ya want for nothing?", b"abc", long];
    let keys = [Some(&[0x0b; 20][..]), Some(&b"Jefe"[..]), None];
    let of_sha1 = [
        "b617318655057264e28bc0b6fb378c8ef146be00",
        "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
        "a9993e364706816aba3e25717850c26c9cd0d89d",
        "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
    ];
    let of_sha256 = [
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
    ];
    let digests = |kernel, expected: [&str; 4], records: Vec<u32>| {
        let mut frames = Frames::new();
        for (row, text) in texts.into_iter().enumerate() {
            frames.push(&[1; 3][..row], text);
        }
        let mut job = frames.job(C::COLUMNS);
        let mut done = job.clone();
        for (row, expected) in expected.into_iter().enumerate() {
            let mut digest = hex(expected);
            digest.resize(32, 0);
            let number =
                |i: usize| digest[8 * i..][..8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
            for job in [&mut job, &mut done] {
                job.put(C::KEY, row, row.min(2) as u32);
            }
            done.put(C::DIGEST0, row, [number(0), number(1)]);
            done.put(C::DIGEST1, row, [number(2), number(3)]);
        }
        let mut known = Known::new("digest", &[&files::DIGEST], &[kernel], C::COLUMNS);
        known.tables = image(&[records]);
        known.payload = frames.payload.clone();
        known.job(&job, &done)
    };
    let records = |of: fn(Option<&[u8]>) -> Option<[u32; 32]>| {
        keys.iter().filter_map(|key| of(*key)).flatten().collect::<Vec<u32>>()
    };
    vec![
        digests("sha1_rows", of_sha1, records(sha1_record)),
        digests("sha256_rows", of_sha256, records(sha256_record)),
    ]
}

/// Powers modulo a number of 256 bits, worked out by another program, and of 5 modulo 2^31 - 1; one text is too short.
pub(crate) fn powers(_: u32) -> Vec<Known> {
    let modulus = [
        0x7852_b855,
        0xa495_991b,
        0x649b_934c,
        0x27ae_41e4,
        0x996f_b924,
        0x9afb_f4c8,
        0x98fc_1c14,
        0xe3b0_c442,
    ];
    let exponent = [0xc55a_d015, 0x9a2f_eaa0, 0x884c_7d65, 0x9f86_d081];
    let cases = [
        (
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b853",
            "b4940fd749a37983e97f96bcabc645253a790167b7e241276027198ff2fa21e9",
        ),
        (
            "000000000000000000000000000000001234567890abcdef00000000ffffffff",
            "0c8c39c9accd2393101fb8e0a71f45216b0da974211ca3fcbac5be624cee6c05",
        ),
        (
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
            "b7fc19f2c76fe638057e5cd6b416b8a650c4c655883ed5bb2dbcc58556a40214",
        ),
    ];
    let mut keys = modexp_key(&modulus, &exponent).unwrap_or_default();
    let second = keys.len() as u32;
    keys.extend(modexp_key(&[0x7fff_ffff], &[31]).unwrap_or_default());
    let (mut before, mut after) = (Frames::new(), Frames::new());
    for (row, (from, to)) in cases.into_iter().enumerate() {
        before.push(&[3; 5][..row], &hex(from));
        after.push(&[3; 5][..row], &hex(to));
    }
    before.push(&[1], &5u32.to_be_bytes());
    after.push(&[1], &1612389065u32.to_be_bytes());
    for frames in [&mut before, &mut after] {
        frames.push(&[], &[9; 28]);
    }
    let mut job = before.job(C::COLUMNS);
    job.put(C::KEY, 3, second);
    let mut known = Known::new("modexp", &[&files::MODEXP], &["modexp_rows"], C::COLUMNS);
    known.launches[0].job = 8;
    known.tables = image(&[keys]);
    known.payload = before.payload;
    known.state = vec![0; 4 * 8 * MODEXP_NUMBERS * 5];
    vec![known.job(&job, &job).expect(Place::Payload, 0, after.payload)]
}
