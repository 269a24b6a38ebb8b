//! The kernels of ESP, whose CPU form is in [`shade`](super::shade), and their steps.

mod known;

use chunk::Columns;
use device::accelerator::{PayloadUse, Step};
use engine::{KernelForm, KernelStep, Scratch};
use ipsec::Direction;
use kernels::files::headers;
use kernels::{KernelFile, KernelInfo};

use super::EspColumns;
use super::keys::{KEY_WORDS, POWERS, cipher, mac, word};

/// All of them.
pub const FILES: &[&KernelFile] = &[&ESP];

/// Words of the record that each row of a job has on the device.
pub const RECORD_WORDS: usize = 80;
/// Work items that share the blocks of a row where they do not stand alone.
const PARTS: u32 = POWERS as u32;
/// Work items of a group.
const ITEMS: u32 = 128;

/// The number of a launch.
pub mod how {
    /// It opens.
    pub const OPENS: u32 = 1;
    /// Where the number of the image's region begins.
    pub const REGION_SHIFT: u32 = 8;
}

const TEXT: &[&str] = &["esp_frame_at", "esp_frame_len"];

/// ESP.
pub const ESP: KernelFile = KernelFile {
    name: "esp",
    columns: EspColumns::COLUMNS,
    text: include_str!("esp.k"),
    headers: &[headers::AES, headers::GHASH, headers::SHA],
    constants: &[
        ("ESP_NULL", cipher::NULL),
        ("ESP_CTR", cipher::CTR),
        ("ESP_CBC", cipher::CBC),
        ("ESP_GCM", cipher::GCM),
        ("ESP_GMAC", cipher::GMAC),
        ("ESP_SHA1", mac::SHA1),
        ("ESP_SHA256", mac::SHA256),
        ("ESP_OPENS", how::OPENS),
        ("ESP_REGION_SHIFT", how::REGION_SHIFT),
        ("ESP_WORDS", RECORD_WORDS as u32),
        ("ESP_PARTS", PARTS),
        ("ESP_KEY_WORDS", KEY_WORDS as u32),
        ("ESP_KEY_CIPHER", word::CIPHER as u32),
        ("ESP_KEY_MAC", word::MAC as u32),
        ("ESP_KEY_SALT", word::SALT as u32),
        ("ESP_KEY_ICV", word::ICV as u32),
        ("ESP_KEY_EXTENDED", word::EXTENDED as u32),
        ("ESP_KEY_AES", word::AES as u32),
        ("ESP_KEY_HASH", word::HASH as u32),
    ],
    kernels: &[
        KernelInfo::new(
            "esp_begin",
            &[
                "verdict",
                "esp_frame_at",
                "esp_frame_len",
                "esp_key",
                "esp_at",
                "esp_len",
                "esp_high",
            ],
            ITEMS,
        ),
        KernelInfo::new("esp_text", TEXT, ITEMS),
        KernelInfo::new("esp_rows", &[], ITEMS),
        KernelInfo::new("esp_hash", &[], ITEMS),
        KernelInfo::new("esp_sha1", &[], ITEMS),
        KernelInfo::new("esp_sha256", &[], ITEMS),
        KernelInfo::new("esp_values", &[], ITEMS),
        KernelInfo::new("esp_before", &[], ITEMS),
        KernelInfo::new("esp_back", &[], ITEMS),
        KernelInfo::new("esp_end", &["esp_done"], ITEMS),
    ],
    known: known::esp,
    ..KernelFile::NONE
};

/// How the items of a kernel are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Items {
    /// One for each row.
    Rows,
    /// A fixed number of parts for each row.
    Parts,
    /// One for each block of 16 bytes of payload.
    Blocks,
}

/// The number of a launch for packets of a direction, whose keys are in this region.
pub fn number(direction: Direction, region: usize) -> u32 {
    let opens = if direction == Direction::In { how::OPENS } else { 0 };
    opens | (region as u32) << how::REGION_SHIFT
}

/// The kernels of a direction, in order.
pub fn kernels_of(direction: Direction) -> &'static [(&'static str, Items)] {
    match direction {
        Direction::Out => &[
            ("esp_begin", Items::Rows),
            ("esp_text", Items::Blocks),
            ("esp_rows", Items::Rows),
            ("esp_hash", Items::Parts),
            ("esp_sha1", Items::Rows),
            ("esp_sha256", Items::Rows),
            ("esp_values", Items::Rows),
            ("esp_end", Items::Rows),
        ],
        Direction::In => &[
            ("esp_begin", Items::Rows),
            ("esp_hash", Items::Parts),
            ("esp_sha1", Items::Rows),
            ("esp_sha256", Items::Rows),
            ("esp_values", Items::Rows),
            ("esp_text", Items::Blocks),
            ("esp_before", Items::Parts),
            ("esp_back", Items::Parts),
            ("esp_end", Items::Rows),
        ],
    }
}

/// What a device runs for packets of a direction, with keys in this region of the image.
pub fn form(direction: Direction, region: usize) -> KernelForm {
    let step = |(kernel, items): &(&'static str, Items)| {
        let step = match items {
            Items::Rows => Step::rows(*kernel, ITEMS),
            Items::Parts => Step::list(*kernel, ITEMS, 0, PARTS),
            Items::Blocks => Step::blocks(*kernel, ITEMS),
        };
        KernelStep::from(step.with_job(number(direction, region)))
    };
    KernelForm {
        files: FILES,
        steps: kernels_of(direction).iter().map(step).collect(),
        payload: Some(PayloadUse {
            at: EspColumns::ESP_FRAME_AT,
            len: EspColumns::ESP_FRAME_LEN,
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
