//! Sealing and opening of packets in batches.
//!
//! A batch is worked on in groups that fit a stack frame. Within a group each step is done for all packets that want it,
//! whatever their suites and order: layouts are checked, texts encrypted, check values made and written; or check values
//! made and compared, and then the texts of those packets decrypted that are genuine. One packet's failure is written to
//! its own result, and nothing of another packet depends on it. Where GCM goes in one pass over a packet, its check value is
//! there when the text is decrypted; a text that is not genuine is encrypted again before anybody sees it.
//!
//! Check values are compared in constant time, and a packet that fails has one reason whatever byte is wrong. Lengths and
//! suites are no secrets.

use std::fmt;

use chacha20poly1305::aead::AeadInOut;
use subtle::ConstantTimeEq;

use crate::aes::{BLOCK, Block};
#[cfg(feature = "aws-lc-rs")]
use crate::aws_lc::AwsCipher;
use crate::chain;
use crate::gcm::GcmKey;
use crate::mac::{DIGEST_MAX, MacKey};
use crate::sha1;
use crate::stream::{self, CtrKey, Part};
use crate::suite::{CipherKey, Key};

/// Packets worked on together.
pub(crate) const GROUP: usize = 32;
/// Packets between one that is worked on in one pass and the one that is loaded meanwhile.
const AHEAD: usize = 2;
/// Bytes of text of one packet at most, far below the bound of every cipher.
pub const TEXT_MAX: usize = 1 << 30;
/// Bytes of ESP's header: SPI and sequence number.
const ESP_HEADER: usize = 8;

/// A packet to seal or to open in place.
///
/// ```text
///  buffer  │ header │ initialisation vector │ text        │ check value │ unused │
///          │ header_len │ suite's iv_len    │ text_len    │ suite's icv_len      │
///            authenticated                    encrypted
/// ```
pub struct Request<'a> {
    /// The keys, and by them the suite.
    pub key: &'a Key,
    /// What holds the packet, with room for all parts.
    pub buffer: &'a mut [u8],
    /// Bytes in front, which are authenticated and not encrypted.
    pub header_len: usize,
    /// Bytes of text, a multiple of the suite's block.
    pub text_len: usize,
    /// The initialisation vector: its first `iv_len` bytes, which no other packet of this key had, are written when
    /// sealing ([`Key::iv`] makes one), and found here after opening.
    pub iv: [u8; 16],
    /// The half of an extended sequence number that is authenticated and not sent (RFC 4303 §2.2.1). The header is then
    /// ESP's: SPI and the lower half.
    pub sequence_high: Option<u32>,
    /// What became of it. A packet that is not `Ok` before is left alone.
    pub result: Result<(), Failure>,
}

/// Why a packet was not sealed or opened. Its text is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The buffer is too short for header, initialisation vector, text and check value; or the text is longer than
    /// [`TEXT_MAX`]; or there is half a sequence number and the header is not 8 bytes long.
    Layout,
    /// The text is no multiple of the block.
    Length,
    /// The check value is not that of the packet.
    Authentication,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Layout => "the buffer has no room for the parts of the packet",
            Self::Length => "the length of the text is not a multiple of the cipher's block",
            Self::Authentication => "the integrity check value is wrong",
        })
    }
}

impl std::error::Error for Failure {}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, header_len, text_len, result, .. } = self;
        write!(f, "Request({key:?}, header {header_len}, text {text_len}, {result:?})")
    }
}

impl<'a> Request<'a> {
    /// A packet without half a sequence number. The initialisation vector is zero, to be set before sealing.
    #[inline]
    pub fn new(key: &'a Key, buffer: &'a mut [u8], header_len: usize, text_len: usize) -> Self {
        Self { key, buffer, header_len, text_len, iv: [0; 16], sequence_high: None, result: Ok(()) }
    }

    /// Whether everything fits.
    #[inline]
    fn check(&self) -> Result<(), Failure> {
        let suite = self.key.suite();
        let around = self.header_len.checked_add(suite.iv_len() + suite.icv_len());
        let len = around.and_then(|around| around.checked_add(self.text_len));
        let is_esp = self.header_len == ESP_HEADER;
        if len.is_none_or(|len| len > self.buffer.len())
            || self.text_len > TEXT_MAX
            || self.sequence_high.is_some() && !is_esp
        {
            return Err(Failure::Layout);
        }
        // Blocks have 1 or 16 bytes.
        match self.text_len & (suite.block_len() - 1) == 0 {
            true => Ok(()),
            false => Err(Failure::Length),
        }
    }

    #[inline]
    fn text_at(&self) -> usize {
        self.header_len + self.key.suite().iv_len()
    }

    #[inline]
    fn icv_at(&self) -> usize {
        self.text_at() + self.text_len
    }

    #[inline]
    pub(crate) fn text(&self) -> &[u8] {
        &self.buffer[self.text_at()..self.icv_at()]
    }

    #[inline]
    pub(crate) fn text_mut(&mut self) -> &mut [u8] {
        let text = self.text_at()..self.icv_at();
        &mut self.buffer[text]
    }

    #[inline]
    fn icv(&self) -> &[u8] {
        let at = self.icv_at();
        &self.buffer[at..at + self.key.suite().icv_len()]
    }

    #[inline]
    fn icv_mut(&mut self) -> &mut [u8] {
        let icv = self.icv_at()..self.icv_at() + self.key.suite().icv_len();
        &mut self.buffer[icv]
    }

    #[inline]
    fn iv_in_buffer(&mut self) -> &mut [u8] {
        let iv = self.header_len..self.text_at();
        &mut self.buffer[iv]
    }

    /// Puts the initialisation vector into the packet, which has room.
    #[inline]
    pub(crate) fn write_iv(&mut self) {
        let iv = self.iv;
        copy_short(self.iv_in_buffer(), &iv);
    }

    /// Takes it from there.
    #[inline]
    pub(crate) fn read_iv(&mut self) {
        let found = &*self.iv_in_buffer();
        self.iv = match (found.len(), found.first_chunk()) {
            (8, Some(own)) => (u128::from(u64::from_be_bytes(*own)) << 64).to_be_bytes(),
            _ => {
                let mut iv = [0; 16];
                iv[..found.len()].copy_from_slice(found);
                iv
            }
        };
    }

    /// Counter block `number` of a mode that counts in the last 4 bytes.
    pub(crate) fn counter_block(&self, number: u32) -> Block {
        let mut block = Block::default();
        block[..12].copy_from_slice(&self.key.nonce(&self.iv));
        block[12..].copy_from_slice(&number.to_be_bytes());
        block
    }

    /// The whole sequence number between SPI and what follows, where it is extended (RFC 4303 §2.2.1).
    #[inline]
    fn high(&self) -> Option<[u8; 4]> {
        self.sequence_high.map(u32::to_be_bytes)
    }

    /// Check value of the modes with Galois' hash.
    fn gcm_tag(&self, mask: &Block) -> [u8; BLOCK] {
        // RFC 4543 §3.2: there the initialisation vector and the text are authenticated only.
        let (key, aad_len, text): (_, _, &[u8]) = match &self.key.cipher {
            CipherKey::Gcm(key) => (key, self.header_len, self.text()),
            CipherKey::Gmac(key) => (key, self.icv_at(), &[]),
            _ => return [0; BLOCK],
        };
        let aad = &self.buffer[..aad_len];
        match self.high() {
            None => key.tag(&[aad], text, mask),
            Some(high) => key.tag(&[&aad[..4], &high, &aad[4..]], text, mask),
        }
    }

    /// Galois/counter mode in one pass, where there is such a form: the check value of what is encrypted.
    fn gcm_pass<const SEALS: bool>(
        &mut self,
        key: &GcmKey,
        ahead: *const u8,
    ) -> Option<[u8; BLOCK]> {
        let nonce = self.key.nonce(&self.iv);
        let (text_at, icv_at, high) = (self.text_at(), self.icv_at(), self.high());
        let (header, rest) = self.buffer.split_at_mut(self.header_len);
        let text = &mut rest[text_at - self.header_len..icv_at - self.header_len];
        match high {
            None => key.pass::<SEALS>(&nonce, &[header], ahead, text),
            Some(high) => {
                let (spi, number) = header.split_at(4);
                key.pass::<SEALS>(&nonce, &[spi, &high, number], ahead, text)
            }
        }
    }

    /// Seals, where there is such a form.
    fn seal_gcm(&mut self, key: &GcmKey, ahead: *const u8) -> bool {
        let Some(tag) = self.gcm_pass::<true>(key, ahead) else { return false };
        copy_short(self.icv_mut(), &tag);
        true
    }

    /// Opens, where there is such a form. The text of a packet that is not genuine is encrypted again: nobody has seen it.
    fn open_gcm(&mut self, key: &GcmKey, ahead: *const u8) -> bool {
        let Some(tag) = self.gcm_pass::<false>(key, ahead) else { return false };
        let icv = self.icv();
        if !is_same(icv, &tag[..icv.len()]) {
            let _ = self.gcm_pass::<true>(key, ahead);
            self.result = Err(Failure::Authentication);
        }
        true
    }

    /// Adds the key stream of RFC 3686, where there is such a form for one packet.
    fn add_stream(&mut self, key: &CtrKey, ahead: *const u8) -> bool {
        let nonce = self.key.nonce(&self.iv);
        key.add_numbered(&nonce, 1, ahead, self.text_mut())
    }

    /// The header with the whole sequence number, where that is extended: its two halves together.
    fn extended_header(header: &[u8], high: [u8; 4]) -> [u8; ESP_HEADER + 4] {
        let mut extended = [0; ESP_HEADER + 4];
        extended[..4].copy_from_slice(&header[..4]);
        extended[4..8].copy_from_slice(&high);
        extended[8..].copy_from_slice(&header[4..8]);
        extended
    }

    /// What AWS-LC does of a packet before check values of HMAC are looked at.
    #[cfg(feature = "aws-lc-rs")]
    fn run_aws(&mut self, cipher: &AwsCipher, is_sealing: bool) -> Result<(), Failure> {
        let nonce = self.key.nonce(&self.iv);
        let (text_at, icv_at, high) = (self.text_at(), self.icv_at(), self.high());
        match cipher {
            AwsCipher::Ctr(_) | AwsCipher::Cbc(..) if is_sealing => self.turn_aws(cipher, true),
            AwsCipher::Ctr(_) | AwsCipher::Cbc(..) => Ok(()),
            AwsCipher::Aead(_) => {
                let (header, rest) = self.buffer.split_at_mut(self.header_len);
                let extended = high.map(|high| Self::extended_header(header, high));
                let aad = extended.as_ref().map_or(&*header, |all| all);
                let (front, icv) = rest.split_at_mut(icv_at - self.header_len);
                let text = &mut front[text_at - self.header_len..];
                let icv = &mut icv[..crate::aws_lc::TAG];
                if is_sealing {
                    let tag = cipher.seal(nonce, aad, text).map_err(|_| Failure::Layout)?;
                    icv.copy_from_slice(&tag);
                    return Ok(());
                }
                cipher.open(nonce, aad, text, icv).map_err(|_| Failure::Authentication)
            }
            AwsCipher::Gmac(_) => {
                let all = &self.buffer[..icv_at];
                let tag = match high {
                    None => cipher.tag(nonce, &[all]),
                    Some(high) => cipher.tag(nonce, &[&all[..4], &high, &all[4..]]),
                };
                let tag = tag.map_err(|_| Failure::Layout)?;
                if is_sealing {
                    self.icv_mut().copy_from_slice(&tag);
                    return Ok(());
                }
                if is_same(self.icv(), &tag) { Ok(()) } else { Err(Failure::Authentication) }
            }
        }
    }

    /// Has AWS-LC encrypt, or decrypt, a text whose check value is another's.
    #[cfg(feature = "aws-lc-rs")]
    fn turn_aws(&mut self, cipher: &AwsCipher, is_sealing: bool) -> Result<(), Failure> {
        let (iv, first) = (self.iv, self.counter_block(1));
        let text = self.text_mut();
        let done = match (cipher, is_sealing) {
            (AwsCipher::Ctr(_), _) => cipher.add_stream(&first, text),
            (AwsCipher::Cbc(..), true) => cipher.chain(&iv, text),
            (AwsCipher::Cbc(..), false) => cipher.unchain(&iv, text),
            _ => Ok(()),
        };
        done.map_err(|_| Failure::Length)
    }

    /// What Poly1305 authenticates beside the text is the header, with the whole sequence number.
    fn run_chacha(&mut self, is_sealing: bool) -> Result<(), Failure> {
        let CipherKey::ChaCha(cipher) = &self.key.cipher else { return Ok(()) };
        let nonce = self.key.nonce(&self.iv).into();
        let (text_at, icv_at) = (self.text_at(), self.icv_at());
        let high = self.high();
        let (header, rest) = self.buffer.split_at_mut(self.header_len);
        let extended = high.map(|high| Self::extended_header(header, high));
        let aad = extended.as_ref().map_or(&*header, |all| all);
        let (front, icv) = rest.split_at_mut(icv_at - self.header_len);
        let text = &mut front[text_at - self.header_len..];
        let icv = &mut icv[..16];
        if is_sealing {
            let tag = cipher.encrypt_inout_detached(&nonce, aad, text.into());
            icv.copy_from_slice(&tag.map_err(|_| Failure::Layout)?);
            return Ok(());
        }
        let mut tag = chacha20poly1305::Tag::default();
        tag.copy_from_slice(icv);
        // Decrypts a text only if it is genuine.
        let opened = cipher.decrypt_inout_detached(&nonce, aad, text.into(), &tag);
        opened.map_err(|_| Failure::Authentication)
    }
}

/// Encrypts and authenticates packets in place, each by its own key.
///
/// The caller answers for unique initialisation vectors.
pub fn seal_batch(requests: &mut [Request<'_>]) {
    seal_all(requests);
}

/// Authenticates and decrypts packets in place. The text of a packet that is not genuine stays as it came.
pub fn open_batch(requests: &mut [Request<'_>]) {
    open_all(requests);
}

/// Whether two check values are the same, in a time that does not depend on where they differ: their words' differences come
/// together, and the sum is compared once.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let (words, rest) = one.as_chunks::<4>();
    let (others, other_rest) = other.as_chunks::<4>();
    let differ = |(a, b): (&[u8; 4], &[u8; 4])| u32::from_ne_bytes(*a) ^ u32::from_ne_bytes(*b);
    let sum = words.iter().zip(others).map(differ).fold(0, |all, own| all | own);
    // Lengths are no secrets, and those of ESP are whole words.
    let is_rest = rest.is_empty() && other_rest.is_empty() || bool::from(rest.ct_eq(other_rest));
    bool::from(sum.ct_eq(&0)) & is_rest && words.len() == others.len()
}

/// Copies the front of `from`. The lengths of initialisation vectors and check values are few, and a copy of constant length is
/// a move or two.
#[inline]
fn copy_short(to: &mut [u8], from: &[u8]) {
    fn copy<const N: usize>(to: &mut [u8], from: &[u8]) {
        if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk::<N>()) {
            *to = *from;
        }
    }
    match to.len() {
        8 => copy::<8>(to, from),
        12 => copy::<12>(to, from),
        16 => copy::<16>(to, from),
        len => to.copy_from_slice(&from[..len]),
    }
}

/// What has a request in it.
pub(crate) trait Carries<'a> {
    fn request(&self) -> &Request<'a>;
    fn request_mut(&mut self) -> &mut Request<'a>;
}

impl<'a> Carries<'a> for Request<'a> {
    fn request(&self) -> &Request<'a> {
        self
    }

    fn request_mut(&mut self) -> &mut Request<'a> {
        self
    }
}

/// Where the packet begins that is loaded while the one at a place is encrypted or decrypted; its own where there is none.
#[inline]
pub(crate) fn ahead_of<'a, T: Carries<'a>>(group: &[T], at: usize) -> *const u8 {
    let carrier = group.get(at + AHEAD).unwrap_or(&group[at]);
    carrier.request().buffer.as_ptr()
}

pub(crate) fn seal_all<'a, T: Carries<'a>>(carriers: &mut [T]) {
    for group in carriers.chunks_mut(GROUP) {
        for carrier in group.iter_mut() {
            let request = carrier.request_mut();
            if request.result.is_err() {
                continue;
            }
            request.result = request.check();
            if request.result.is_ok() {
                request.write_iv();
            }
        }
        let mut live = Set::of(group, |request| request.result.is_ok());
        // Where vectors take a packet at a time, nothing is gained by packets of one key together.
        let (mut done, mut encrypted) = (Set::NONE, Set::NONE);
        for at in live.iter() {
            let ahead = ahead_of(group, at);
            let request = group[at].request_mut();
            match &request.key.cipher {
                CipherKey::Gcm(key) if request.seal_gcm(key, ahead) => done.insert(at),
                CipherKey::Ctr(key) if request.add_stream(key, ahead) => encrypted.insert(at),
                _ => {}
            }
        }
        let mut masks = [Block::default(); GROUP];
        let mut left = live.without(done).without(encrypted);
        while let Some((same, key)) = next_key(group, &mut left) {
            match &key.cipher {
                CipherKey::Ctr(aes) => stream::run(group, same, aes, Part::Text, 1, &mut masks),
                CipherKey::Gcm(key) => {
                    stream::run(group, same, &key.aes, Part::Both, 2, &mut masks);
                }
                CipherKey::Gmac(key) => {
                    stream::run(group, same, &key.aes, Part::Mask, 2, &mut masks);
                }
                CipherKey::ChaCha(_) => same.iter().for_each(|at| {
                    let request = group[at].request_mut();
                    request.result = request.run_chacha(true);
                }),
                #[cfg(feature = "aws-lc-rs")]
                CipherKey::AwsLc(own) => same.iter().for_each(|at| {
                    let request = group[at].request_mut();
                    request.result = request.run_aws(own, true);
                }),
                CipherKey::Null | CipherKey::Cbc(..) => {}
            }
        }
        live = live.without(done);
        chain::encrypt(group, live);
        let mut icvs = [[0; DIGEST_MAX]; GROUP];
        for at in check_values(group, live, &masks, &mut icvs).iter() {
            copy_short(group[at].request_mut().icv_mut(), &icvs[at]);
        }
    }
}

pub(crate) fn open_all<'a, T: Carries<'a>>(carriers: &mut [T]) {
    for group in carriers.chunks_mut(GROUP) {
        for carrier in group.iter_mut() {
            let request = carrier.request_mut();
            if request.result.is_err() {
                continue;
            }
            request.result = request.check();
            if request.result.is_ok() {
                request.read_iv();
            }
        }
        let mut live = Set::of(group, |request| request.result.is_ok());
        // As above. Counter mode has to wait until the packets are known to be genuine.
        let mut done = Set::NONE;
        for at in live.iter() {
            let ahead = ahead_of(group, at);
            let request = group[at].request_mut();
            if let CipherKey::Gcm(key) = &request.key.cipher
                && request.open_gcm(key, ahead)
            {
                done.insert(at);
            }
        }
        let mut masks = [Block::default(); GROUP];
        let mut left = live.without(done);
        while let Some((same, key)) = next_key(group, &mut left) {
            match &key.cipher {
                CipherKey::Gcm(key) => {
                    stream::run(group, same, &key.aes, Part::Mask, 2, &mut masks);
                }
                CipherKey::Gmac(key) => {
                    stream::run(group, same, &key.aes, Part::Mask, 2, &mut masks);
                }
                CipherKey::ChaCha(_) => same.iter().for_each(|at| {
                    let request = group[at].request_mut();
                    request.result = request.run_chacha(false);
                }),
                #[cfg(feature = "aws-lc-rs")]
                CipherKey::AwsLc(own) => same.iter().for_each(|at| {
                    let request = group[at].request_mut();
                    request.result = request.run_aws(own, false);
                }),
                CipherKey::Ctr(_) | CipherKey::Cbc(..) | CipherKey::Null => {}
            }
        }
        live = live.without(done);
        let mut icvs = [[0; DIGEST_MAX]; GROUP];
        for at in check_values(group, live, &masks, &mut icvs).iter() {
            let request = group[at].request_mut();
            let icv = request.icv();
            if !is_same(icv, &icvs[at][..icv.len()]) {
                request.result = Err(Failure::Authentication);
            }
        }
        let mut genuine = Set::of(group, |request| request.result.is_ok()).without(done);
        let mut decrypted = Set::NONE;
        for at in genuine.iter() {
            let ahead = ahead_of(group, at);
            let request = group[at].request_mut();
            if let CipherKey::Ctr(key) = &request.key.cipher
                && request.add_stream(key, ahead)
            {
                decrypted.insert(at);
            }
        }
        genuine = genuine.without(decrypted);
        while let Some((same, key)) = next_key(group, &mut genuine) {
            match &key.cipher {
                CipherKey::Ctr(aes) => stream::run(group, same, aes, Part::Text, 1, &mut masks),
                CipherKey::Gcm(key) => {
                    stream::run(group, same, &key.aes, Part::Text, 2, &mut masks);
                }
                CipherKey::Cbc(aes, _) => {
                    for at in same.iter() {
                        let request = group[at].request_mut();
                        let iv = request.iv;
                        chain::decrypt(aes, &iv, request.text_mut());
                    }
                }
                #[cfg(feature = "aws-lc-rs")]
                CipherKey::AwsLc(own) => same.iter().for_each(|at| {
                    let request = group[at].request_mut();
                    request.result = request.turn_aws(own, false);
                }),
                CipherKey::Gmac(_) | CipherKey::ChaCha(_) | CipherKey::Null => {}
            }
        }
    }
}

/// Check values of the packets of a set, in front of their places of `icvs`. Returns whose there are: those of ChaCha20
/// are made with the text.
fn check_values<'a, T: Carries<'a>>(
    group: &[T],
    live: Set,
    masks: &[Block; GROUP],
    icvs: &mut [[u8; DIGEST_MAX]; GROUP],
) -> Set {
    let mut made = Set::NONE;
    let mut by_sha1 = Set::NONE;
    for at in live.iter() {
        let request = group[at].request();
        match (&request.key.mac, &request.key.cipher) {
            (MacKey::Sha1(_), _) => by_sha1.insert(at),
            (MacKey::None, CipherKey::Gcm(_) | CipherKey::Gmac(_)) => {
                icvs[at][..BLOCK].copy_from_slice(&request.gcm_tag(&masks[at]));
            }
            (MacKey::None, _) => continue,
            (mac, _) => {
                let high = request.high();
                let tail = high.as_ref().map_or(&[][..], |high| high);
                mac.digest([&request.buffer[..request.icv_at()], tail], &mut icvs[at]);
            }
        }
        made.insert(at);
    }
    let highs: [[u8; 4]; GROUP] = std::array::from_fn(|at| {
        group.get(at).and_then(|c| c.request().high()).unwrap_or_default()
    });
    let job = |at: usize| {
        let request = group[at].request();
        let MacKey::Sha1(key) = &request.key.mac else { return None };
        let tail = &highs[at][..4 * usize::from(request.sequence_high.is_some())];
        Some(key.job(&request.buffer[..request.icv_at()], tail))
    };
    if let Some(any) = by_sha1.iter().next().and_then(job) {
        let mut jobs = [any; GROUP];
        let mut count = 0;
        for (place, job) in jobs.iter_mut().zip(by_sha1.iter().filter_map(job)) {
            *place = job;
            count += 1;
        }
        let mut digests = [[0; 20]; GROUP];
        sha1::digests(&jobs[..count], &mut digests);
        for (at, digest) in by_sha1.iter().zip(&digests) {
            icvs[at][..20].copy_from_slice(digest);
        }
    }
    made
}

/// Some packets of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Set(u32);

const _: () = assert!(GROUP <= u32::BITS as usize);

impl Set {
    const NONE: Self = Self(0);

    fn of<'a, T: Carries<'a>>(group: &[T], test: impl Fn(&Request<'a>) -> bool) -> Self {
        let mut set = Self::NONE;
        for (at, carrier) in group.iter().enumerate() {
            if test(carrier.request()) {
                set.insert(at);
            }
        }
        set
    }

    fn insert(&mut self, at: usize) {
        self.0 |= 1 << at;
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> + Clone {
        let mut bits = self.0;
        std::iter::from_fn(move || {
            let at = bits.trailing_zeros() as usize;
            bits &= bits.checked_sub(1)?;
            Some(at)
        })
    }
}

/// Takes the packets of the first one's key out of a set.
#[inline]
fn next_key<'a, T: Carries<'a>>(group: &[T], left: &mut Set) -> Option<(Set, &'a Key)> {
    let key = group[left.iter().next()?].request().key;
    let mut same = Set::NONE;
    for at in left.iter().filter(|at| std::ptr::eq(group[*at].request().key, key)) {
        same.insert(at);
    }
    *left = left.without(same);
    Some((same, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_are_compared_whole() {
        for len in [0, 1, 4, 8, 12, 15, 16, 24, 32] {
            let one: Vec<u8> = (0..len as u8).collect();
            assert!(is_same(&one, &one));
            for at in 0..len {
                for bit in 0..8 {
                    let mut other = one.clone();
                    other[at] ^= 1 << bit;
                    assert!(!is_same(&one, &other), "{len} {at} {bit}");
                }
                assert!(!is_same(&one, &one[..at]));
            }
        }
    }

    #[test]
    fn sets_have_each_member_once() {
        let mut set = Set::NONE;
        [0, 5, 31].iter().for_each(|at| set.insert(*at));
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 5, 31]);
        assert_eq!(Set(u32::MAX).iter().count(), 32);
        assert_eq!(Set::NONE.iter().count(), 0);
    }
}
