//! The kernels of the encryption stage, whose CPU form is in [`shade`](super::shade), and the steps of a cipher.

mod known;

use chunk::Columns;
use crypto::modes::{Mode, Padding};
use device::accelerator::{PayloadUse, Step};
use engine::{KernelForm, KernelStep, Scratch};
use kernels::cipher::mode;
use kernels::files::headers;
use kernels::{KernelFile, KernelInfo};

use super::columns::CipherColumns;
use super::settings::{Direction, Vector};

/// All of them.
pub const FILES: &[&KernelFile] = &[&SECRETS];

/// Words of the record that each row of a job has on the device.
pub const RECORD_WORDS: usize = 168;
/// Work items that share the blocks of a row.
const PARTS: u32 = 16;
/// Work items of a group.
const ITEMS: u32 = 128;

/// The number of a launch: how it encrypts or decrypts. The mode is in the low four bits.
pub mod how {
    /// It decrypts.
    pub const OPENS: u32 = 0x10;
    /// Vectors are made of headers.
    pub const DERIVED: u32 = 0x20;
    /// Texts have padding.
    pub const PADDED: u32 = 0x40;
    /// Where the number of the image's region begins.
    pub const REGION_SHIFT: u32 = 8;
}

const HEADERS: &[&str] = &[
    "verdict",
    "cipher_frame_at",
    "cipher_frame_len",
    "cipher_at",
    "cipher_l3",
    "cipher_l4",
    "cipher_len",
    "cipher_protocol",
];

/// AES over the payload of TCP and UDP.
pub const SECRETS: KernelFile = KernelFile {
    name: "secrets",
    columns: CipherColumns::COLUMNS,
    text: include_str!("secrets.k"),
    headers: &[headers::AES, headers::GHASH, headers::SHA],
    constants: &[
        ("CIPHER_ECB", mode::ECB),
        ("CIPHER_CTR", mode::CTR),
        ("CIPHER_GCM", mode::GCM),
        ("CIPHER_CFB", mode::CFB),
        ("CIPHER_CBC", mode::CBC),
        ("CIPHER_OFB", mode::OFB),
        ("SECRETS_OPENS", how::OPENS),
        ("SECRETS_DERIVED", how::DERIVED),
        ("SECRETS_PADDED", how::PADDED),
        ("SECRETS_REGION_SHIFT", how::REGION_SHIFT),
        ("SECRETS_WORDS", RECORD_WORDS as u32),
        ("SECRETS_PARTS", PARTS),
    ],
    reasons: super::REASONS,
    kernels: &[
        KernelInfo::new("secrets_keys", HEADERS, ITEMS),
        KernelInfo::new("secrets_tags", &[], ITEMS),
        KernelInfo::new("secrets_chain", &[], ITEMS),
        KernelInfo::new("secrets_text", &[], ITEMS),
        KernelInfo::new("secrets_rows", &[], ITEMS),
        KernelInfo::new(
            "secrets_end",
            &["verdict", "cipher_at", "cipher_done", "cipher_sums"],
            ITEMS,
        ),
    ],
    known: known::secrets,
    ..KernelFile::NONE
};

/// The number of a launch for a cipher whose keys are in this region.
pub fn number(mode: Mode, direction: Direction, vector: Vector, region: usize) -> u32 {
    let own = match mode {
        Mode::Ecb(_) => mode::ECB,
        Mode::Ctr => mode::CTR,
        Mode::Gcm => mode::GCM,
        Mode::Cfb => mode::CFB,
        Mode::Cbc(_) => mode::CBC,
        Mode::Ofb => mode::OFB,
    };
    let is_padded = matches!(mode, Mode::Ecb(Padding::Pkcs7) | Mode::Cbc(Padding::Pkcs7));
    let flags = [
        (direction == Direction::Decrypt, how::OPENS),
        (vector == Vector::Derived, how::DERIVED),
        (is_padded, how::PADDED),
    ];
    let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag);
    flags.fold(own | (region as u32) << how::REGION_SHIFT, |number, flag| number | flag)
}

/// The kernels of a cipher, in order, and how many items each has for a row.
pub fn kernels_of(mode: Mode, direction: Direction) -> Vec<(&'static str, u32)> {
    let (tags, text, rows) = (("secrets_tags", 1), ("secrets_text", PARTS), ("secrets_rows", 1));
    let between = match (mode, direction) {
        (Mode::Gcm, Direction::Encrypt) => vec![text, tags],
        (Mode::Gcm, Direction::Decrypt) => vec![tags, text],
        (Mode::Ctr | Mode::Ecb(_), _) => vec![text],
        (Mode::Cbc(_) | Mode::Cfb, Direction::Decrypt) => vec![("secrets_chain", PARTS), text],
        (Mode::Cbc(_) | Mode::Cfb, Direction::Encrypt) | (Mode::Ofb, _) => vec![rows],
    };
    [vec![("secrets_keys", 1)], between, vec![("secrets_end", 1)]].concat()
}

/// What a device runs for a cipher whose keys are in this region of the image.
pub fn form(mode: Mode, direction: Direction, vector: Vector, region: usize) -> KernelForm {
    let number = number(mode, direction, vector, region);
    let step = |(kernel, per_row): (&'static str, u32)| {
        let step = match per_row {
            1 => Step::rows(kernel, ITEMS),
            _ => Step::list(kernel, ITEMS, 0, per_row),
        };
        KernelStep::from(step.with_job(number))
    };
    KernelForm {
        files: FILES,
        steps: kernels_of(mode, direction).into_iter().map(step).collect(),
        payload: Some(PayloadUse {
            at: CipherColumns::CIPHER_FRAME_AT,
            len: CipherColumns::CIPHER_FRAME_LEN,
            writes: true,
        }),
        // Area 0 of the job: the segment has no other stage with kernels.
        scratch: Some(Scratch {
            bytes: 0,
            bytes_per_row: 4 * RECORD_WORDS,
            is_zeroed: false,
            is_first: true,
        }),
        ..KernelForm::default()
    }
}
