//! The files of kernels of this crate.

use chunk::Columns;

use crate::cipher::mode;
use crate::columns::{
    CipherColumns, Classify4Columns, Classify12Columns, Classify32Columns, ExactColumns,
    HashColumns, LpmColumns, NameColumns, PayloadColumns, ScheduleColumns, WalkColumns,
};
use crate::known;
use crate::registry::{KernelFile, KernelInfo};

/// Functions that files of kernels share, as texts of their own: see [`KernelFile::headers`].
pub mod headers {
    /// Longest-prefix match in DIR-24-8 and by binary search on lengths.
    pub const LPM: &str = include_str!("c/lpm.h");
    /// Longest-prefix match in the tries.
    pub const TRIES: &str = include_str!("c/tries.h");
    /// Hashes.
    pub const HASH: &str = include_str!("c/hash.h");
    /// Longest-prefix match of names; behind [`HASH`].
    pub const NAMES: &str = include_str!("c/names.h");
    /// Exact match; behind [`HASH`].
    pub const CUCKOO: &str = include_str!("c/cuckoo.h");
    /// Prefix sums over a group.
    pub const SCAN: &str = include_str!("c/scan.h");
    /// A stable sort; behind [`SCAN`].
    pub const SORT: &str = include_str!("c/sort.h");
    /// What walks over payload share; with [`MATCH_WORDS_MAX`](super::MATCH_WORDS_MAX).
    pub const WALK: &str = include_str!("c/walk.h");
    /// The walk of Aho and Corasick; behind [`WALK`].
    pub const LITERALS: &str = include_str!("c/literals.h");
    /// The walk over tables of regular expressions; behind [`WALK`].
    pub const DFA: &str = include_str!("c/dfa.h");
    /// AES: the cipher on pairs of blocks, and blocks of texts.
    pub const AES: &str = include_str!("c/aes.h");
    /// GHASH; behind [`AES`].
    pub const GHASH: &str = include_str!("c/ghash.h");
    /// SHA-1, SHA-256 and HMAC.
    pub const SHA: &str = include_str!("c/sha.h");
    /// Montgomery's multiplication, and powers modulo odd numbers.
    pub const MODEXP: &str = include_str!("c/modexp.h");
    /// All searches through rules.
    pub const CLASSIFY: &[&str] = &[
        HASH,
        include_str!("c/classify.h"),
        include_str!("c/linear.h"),
        include_str!("c/tuple.h"),
        include_str!("c/reduction.h"),
        include_str!("c/cuts.h"),
    ];
}

/// All of them.
pub const ALL: &[&KernelFile] = &[
    &EMPTY,
    &LPM,
    &TRIES,
    &CUCKOO,
    &PATCH,
    &GATHER,
    &SELECT,
    &SORT,
    &ORDER,
    &AREAS,
    &HASH,
    &NAMES,
    &LITERALS,
    &DFA,
    &CLASSIFY4,
    &CLASSIFY12,
    &CLASSIFY32,
    &PAYLOAD,
    &CIPHER,
    &DIGEST,
    &MODEXP,
];

/// A kernel that does nothing.
pub const EMPTY: KernelFile = KernelFile {
    name: "empty",
    text: include_str!("c/empty.k"),
    kernels: &[KernelInfo::new("empty", &[], 64)],
    known: known::empty,
    ..KernelFile::NONE
};

/// Longest-prefix match in DIR-24-8 and by binary search on lengths.
pub const LPM: KernelFile = KernelFile {
    name: "lpm",
    columns: LpmColumns::COLUMNS,
    text: include_str!("c/lpm.k"),
    headers: &[headers::LPM],
    kernels: &[
        KernelInfo::new("lpm4", &["dst4", "result"], 256),
        KernelInfo::new("lpm6", &["dst6", "result"], 256),
    ],
    known: known::tables::lpm,
    ..KernelFile::NONE
};

/// Longest-prefix match in the tries.
pub const TRIES: KernelFile = KernelFile {
    name: "tries",
    columns: LpmColumns::COLUMNS,
    text: include_str!("c/tries.k"),
    headers: &[headers::LPM, headers::TRIES],
    kernels: &[
        KernelInfo::new("poptrie", &["dst4", "result"], 256),
        KernelInfo::new("mtrie6", &["dst6", "result"], 256),
    ],
    known: known::tries::all,
    ..KernelFile::NONE
};

/// Exact match.
pub const CUCKOO: KernelFile = KernelFile {
    name: "cuckoo",
    columns: ExactColumns::COLUMNS,
    text: include_str!("c/cuckoo.k"),
    headers: &[headers::HASH, headers::CUCKOO],
    kernels: &[
        KernelInfo::new("exact8", &["key8", "value8"], 256),
        KernelInfo::new("exact16", &["key16", "value16"], 256),
    ],
    known: known::exact::cuckoo,
    ..KernelFile::NONE
};

/// Changes of an image.
pub const PATCH: KernelFile = KernelFile {
    name: "patch",
    text: include_str!("c/patch.k"),
    kernels: &[KernelInfo::new("patch", &[], 256)],
    known: known::tables::patches,
    ..KernelFile::NONE
};

/// Frames from the cells to one memory.
pub const GATHER: KernelFile = KernelFile {
    name: "gather",
    text: include_str!("c/gather.k"),
    kernels: &[KernelInfo::new("gather", &[], 64)],
    known: known::packets::gathers,
    ..KernelFile::NONE
};

/// Rows of one context: [`SelectPlan`](crate::plan::SelectPlan).
pub const SELECT: KernelFile = KernelFile {
    name: "select",
    columns: ScheduleColumns::COLUMNS,
    text: include_str!("c/select.k"),
    headers: &[headers::SCAN],
    kernels: &[
        KernelInfo::new("select_count", &["verdict", "context"], 256),
        KernelInfo::new("select_scan", &[], 256),
        KernelInfo::new("select_write", &["verdict", "context"], 256),
    ],
    known: known::schedule::selects,
    ..KernelFile::NONE
};

/// Rows by protocol, context and length: [`SortPlan`](crate::plan::SortPlan).
pub const SORT: KernelFile = KernelFile {
    name: "sort",
    columns: ScheduleColumns::COLUMNS,
    text: include_str!("c/sort.k"),
    headers: &[headers::SCAN, headers::SORT],
    kernels: &[
        KernelInfo::new("sort_keys", &["context", "protocol", "payload_len"], 256),
        KernelInfo::new("sort_count", &[], 256),
        KernelInfo::new("sort_scan", &[], 256),
        KernelInfo::new("sort_scatter", &[], 256),
    ],
    known: known::schedule::sorts,
    ..KernelFile::NONE
};

/// Rows by columns: [`OrderPlan`](crate::plan::OrderPlan).
pub const ORDER: KernelFile = KernelFile {
    name: "order",
    text: include_str!("c/order.k"),
    headers: &[headers::SCAN, headers::SORT],
    kernels: &[
        KernelInfo::new("order_count", &[], 256),
        KernelInfo::new("order_scan", &[], 256),
        KernelInfo::new("order_scatter", &[], 256),
    ],
    known: known::schedule::orders,
    ..KernelFile::NONE
};

/// Areas of zeros, and where records start.
pub const AREAS: KernelFile = KernelFile {
    name: "areas",
    text: include_str!("c/areas.k"),
    headers: &[headers::SCAN],
    kernels: &[KernelInfo::new("clear_area", &[], 256), KernelInfo::new("output_scan", &[], 256)],
    known: known::schedule::all_areas,
    ..KernelFile::NONE
};

/// The hashes of [`hash`](crate::hash).
pub const HASH: KernelFile = KernelFile {
    name: "hash",
    columns: HashColumns::COLUMNS,
    text: include_str!("c/hash.k"),
    headers: &[headers::HASH],
    kernels: &[
        KernelInfo::new("hash_flow", &["src", "dst", "ports", "protocol", "flow"], 256),
        KernelInfo::new(
            "hash_words",
            &["src", "seed", "murmur", "shift", "prime", "fmix32", "fmix64"],
            256,
        ),
        KernelInfo::new("hash_payload", &["payload_at", "payload_len", "seed", "murmur"], 128),
    ],
    known: known::schedule::hashes,
    ..KernelFile::NONE
};

/// Longest-prefix match of names.
pub const NAMES: KernelFile = KernelFile {
    name: "names",
    columns: NameColumns::COLUMNS,
    text: include_str!("c/names.k"),
    headers: &[headers::HASH, headers::NAMES],
    kernels: &[KernelInfo::new("names", &["payload_at", "payload_len", "result"], 128)],
    known: known::names::all_names,
    ..KernelFile::NONE
};

/// Words of the matches of a row, at most: its job is repeated on the CPU if a row has more. A match is two words: the place
/// behind its last byte, counted from the row's first one, and the pattern.
pub const MATCH_WORDS_MAX: u32 = 1 << 13;

/// Literals in payload, over the image of `automata::Automaton`.
pub const LITERALS: KernelFile = KernelFile {
    name: "literals",
    columns: WalkColumns::COLUMNS,
    text: include_str!("c/literals.k"),
    headers: &[headers::WALK, headers::LITERALS],
    constants: &[("MATCH_WORDS_MAX", MATCH_WORDS_MAX)],
    kernels: &[
        KernelInfo::new("literals_count", WALK, 128),
        KernelInfo::new("literals_write", &["payload_at", "payload_len", "walk_from"], 128),
    ],
    known: known::walks::literals,
    ..KernelFile::NONE
};

/// Regular expressions in payload, over the image of `automata::Regexes`.
pub const DFA: KernelFile = KernelFile {
    name: "dfa",
    columns: WalkColumns::COLUMNS,
    text: include_str!("c/dfa.k"),
    headers: &[headers::WALK, headers::DFA],
    constants: &[("MATCH_WORDS_MAX", MATCH_WORDS_MAX)],
    kernels: &[
        KernelInfo::new("dfa_count", WALK, 128),
        KernelInfo::new("dfa_write", &["payload_at", "payload_len", "walk_from"], 128),
    ],
    known: known::walks::dfa,
    ..KernelFile::NONE
};

/// Classification of headers of up to 4 words.
pub const CLASSIFY4: KernelFile = KernelFile {
    name: "classify4",
    columns: Classify4Columns::COLUMNS,
    text: include_str!("c/classify4.k"),
    headers: headers::CLASSIFY,
    kernels: &[
        KernelInfo::new("linear4", &["head0", "found"], 256),
        KernelInfo::new("tuple2", &["head0", "found"], 256),
        KernelInfo::new("tuple4", &["head0", "found"], 256),
        KernelInfo::new("rfc", &["head0", "found"], 256),
        KernelInfo::new("tic", &["head0", "found"], 256),
        KernelInfo::new("cuts", &["head0", "found"], 256),
    ],
    known: known::classify::of_4_words,
    ..KernelFile::NONE
};

/// Classification of headers of up to 12 words.
pub const CLASSIFY12: KernelFile = KernelFile {
    name: "classify12",
    columns: Classify12Columns::COLUMNS,
    side_by_side: &[&["head0", "head1", "head2"]],
    text: include_str!("c/classify12.k"),
    headers: headers::CLASSIFY,
    kernels: &[
        KernelInfo::new("linear12", HEAD_12, 256),
        KernelInfo::new("tuple9", HEAD_12, 256),
        KernelInfo::new("tuple10", HEAD_12, 256),
        KernelInfo::new("cuts12", HEAD_12, 256),
    ],
    known: known::classify::of_12_words,
    ..KernelFile::NONE
};

/// Classification of headers of up to 32 words.
pub const CLASSIFY32: KernelFile = KernelFile {
    name: "classify32",
    columns: Classify32Columns::COLUMNS,
    side_by_side: &[HEADS_32],
    text: include_str!("c/classify32.k"),
    headers: headers::CLASSIFY,
    kernels: &[
        KernelInfo::new("linear32", HEAD_32, 256),
        KernelInfo::new("tuple16", &["head0", "head1", "head2", "head3", "found"], 256),
        KernelInfo::new("tuple32", HEAD_32, 256),
        KernelInfo::new("cuts16", &["head0", "head1", "head2", "head3", "found"], 256),
    ],
    known: known::classify::of_32_words,
    ..KernelFile::NONE
};

/// Uses of payload and state, for self-tests and measurements.
pub const PAYLOAD: KernelFile = KernelFile {
    name: "payload",
    columns: PayloadColumns::COLUMNS,
    text: include_str!("c/payload.k"),
    kernels: &[
        KernelInfo::new("payload_sum", &["payload_at", "payload_len", "sum"], 128),
        KernelInfo::new("payload_xor", &["payload_at", "payload_len", "key"], 128),
        KernelInfo::new("flow_count", &["slot"], 128),
        KernelInfo::new("payload_blocks", &["payload_at", "payload_len"], 128),
        KernelInfo::new("payload_count", &["payload_len"], 128),
        KernelInfo::new("payload_words", &["payload_at", "payload_len"], 128),
        KernelInfo::new("payload_clear", &["payload_at", "payload_len"], 128),
    ],
    known: known::packets::payloads,
    ..KernelFile::NONE
};

const WALK: &[&str] = &["payload_at", "payload_len", "walk_from", "walk_to"];

/// AES over texts in frames, by block of 16 bytes and by row.
pub const CIPHER: KernelFile = KernelFile {
    name: "cipher",
    columns: CipherColumns::COLUMNS,
    text: include_str!("c/cipher.k"),
    headers: &[headers::AES, headers::GHASH],
    constants: &[
        ("CIPHER_ECB", mode::ECB),
        ("CIPHER_CTR", mode::CTR),
        ("CIPHER_GCM", mode::GCM),
        ("CIPHER_CFB", mode::CFB),
        ("CIPHER_CFB_BACK", mode::CFB_BACK),
        ("CIPHER_CBC", mode::CBC),
        ("CIPHER_OFB", mode::OFB),
        ("CIPHER_GENUINE", mode::GENUINE),
    ],
    kernels: &[
        KernelInfo::new("aes_blocks", OF_TEXTS, 128),
        KernelInfo::new("aes_blocks_back", OF_TEXTS, 128),
        KernelInfo::new("blocks_copy", OF_TEXTS, 128),
        KernelInfo::new("aes_rows", OF_TEXTS, 128),
        KernelInfo::new("gcm_rows", OF_TAGS, 128),
        KernelInfo::new("ghash_blocks", OF_TEXTS, 128),
        KernelInfo::new("gcm_tags", OF_TAGS, 128),
    ],
    known: known::cipher::ciphers,
    ..KernelFile::NONE
};

/// SHA-1, SHA-256 and HMAC over texts in frames, by row.
pub const DIGEST: KernelFile = KernelFile {
    name: "digest",
    columns: CipherColumns::COLUMNS,
    text: include_str!("c/digest.k"),
    headers: &[headers::SHA],
    kernels: &[
        KernelInfo::new("sha1_rows", OF_DIGESTS, 128),
        KernelInfo::new("sha256_rows", OF_DIGESTS, 128),
    ],
    known: known::cipher::digests,
    ..KernelFile::NONE
};

/// Powers of texts in frames, for RSA, by row.
pub const MODEXP: KernelFile = KernelFile {
    name: "modexp",
    columns: CipherColumns::COLUMNS,
    text: include_str!("c/modexp.k"),
    headers: &[headers::MODEXP],
    kernels: &[KernelInfo::new(
        "modexp_rows",
        &["payload_at", "payload_len", "text_at", "key"],
        64,
    )],
    known: known::cipher::powers,
    ..KernelFile::NONE
};

const OF_TEXTS: &[&str] = &["payload_at", "payload_len", "text_at", "key", "iv", "done"];

const OF_TAGS: &[&str] = &["payload_at", "payload_len", "text_at", "key", "iv", "done", "tag"];

const OF_DIGESTS: &[&str] = &["payload_at", "payload_len", "text_at", "key", "digest0", "digest1"];

const HEAD_12: &[&str] = &["head0", "head1", "head2", "found"];

const HEADS_32: &[&str] = &["head0", "head1", "head2", "head3", "head4", "head5", "head6", "head7"];

const HEAD_32: &[&str] =
    &["head0", "head1", "head2", "head3", "head4", "head5", "head6", "head7", "found"];
