//! Texts of any keys in one call.
//!
//! A mode whose blocks wait for each other (CBC and CFB encryption, OFB) leaves the AES unit waiting if it has one text.
//! [`LANES`] texts of any keys go together here, block by block. Where the CPU has AVX-512, counter modes go text by text with the
//! key stream in registers, GCM in one pass ([`CtrKey::add`](crate::stream::CtrKey::add),
//! [`GcmKey::pass`]). Otherwise counter blocks of all texts of a key fill one run of blocks, so that short texts use the wide
//! instructions as well as long ones.

use subtle::ConstantTimeEq;

use super::{Cipher, Mode, ModeError, Padding, RawKey, run, unpadded};
use crate::aes::{Aes, BLOCK, Block, xor};
use crate::gcm::GcmKey;

/// Texts worked on together.
const GROUP: usize = 32;
/// Texts of modes that chain their blocks.
const LANES: usize = 8;
/// Counter blocks encrypted at once.
const RUN: usize = 64;

/// A text to encrypt or to decrypt in place.
pub struct Text<'a> {
    /// Its key, and by that the mode.
    pub key: &'a RawKey,
    /// The initialisation vector: the first [`Mode::iv_len`] bytes.
    pub iv: [u8; BLOCK],
    /// What GCM authenticates beside the text; other modes authenticate nothing.
    pub aad: &'a [u8],
    /// What holds the text, with room behind it for what is added.
    pub buffer: &'a mut [u8],
    /// Bytes of the text, from the start of the buffer.
    pub len: usize,
    /// How many bytes there are afterwards, or why nothing was done. A text that is not `Ok` before is left alone.
    pub result: Result<usize, ModeError>,
}

impl<'a> Text<'a> {
    /// A text without data that is authenticated beside it.
    pub fn new(key: &'a RawKey, iv: [u8; BLOCK], buffer: &'a mut [u8], len: usize) -> Self {
        Self { key, iv, aad: &[], buffer, len, result: Ok(0) }
    }

    fn aes(&self) -> Option<&'a Aes> {
        match &self.key.cipher {
            Cipher::Aes(aes) => Some(aes),
            Cipher::Ctr(_) | Cipher::Gcm(_) => None,
        }
    }

    /// The text without a tag.
    fn text_len(&self) -> usize {
        match (&self.key.cipher, self.result) {
            (_, Err(_)) => 0,
            (Cipher::Gcm(_), Ok(len)) => len - BLOCK,
            (Cipher::Aes(_) | Cipher::Ctr(_), Ok(len)) => len,
        }
    }

    /// The first counter block: with GCM the one of the tag.
    fn counter(&self) -> u128 {
        match &self.key.cipher {
            Cipher::Gcm(_) => u128::from_be_bytes(self.iv) & !0xffff_ffff | 1,
            Cipher::Aes(_) | Cipher::Ctr(_) => u128::from_be_bytes(self.iv),
        }
    }

    fn iv(&self) -> &[u8] {
        &self.iv[..self.key.mode.iv_len()]
    }

    /// Counter modes by vectors, a text for itself. False, and nothing is done, where there are none for it. Texts that are not
    /// genuine stay as they were.
    fn by_vectors(&mut self, is_encrypting: bool) -> bool {
        let len = self.text_len();
        match &self.key.cipher {
            Cipher::Aes(_) => false,
            Cipher::Ctr(key) => key.add(&self.iv, &mut self.buffer[..len]),
            Cipher::Gcm(key) => {
                let (text, tag) = self.buffer.split_at_mut(len);
                let tag = &mut tag[..BLOCK];
                let Some(nonce) = self.iv.first_chunk::<12>() else { return false };
                let aad = [self.aad];
                if is_encrypting {
                    let made = key.pass::<true>(nonce, &aad, text.as_ptr(), text);
                    return made.inspect(|made| tag.copy_from_slice(made)).is_some();
                }
                let Some(made) = key.pass::<false>(nonce, &aad, text.as_ptr(), text) else {
                    return false;
                };
                self.result = match bool::from(made.ct_eq(tag)) {
                    true => Ok(len),
                    false => {
                        let _ = key.pass::<true>(nonce, &aad, text.as_ptr(), text); // nobody has seen it
                        Err(ModeError::NotGenuine)
                    }
                };
                true
            }
        }
    }
}

/// Encrypts texts in place, each by its own key: what [`RawKey::encrypt`] does to each.
///
/// The caller answers for initialisation vectors that no other text of the key has.
pub fn encrypt_batch(texts: &mut [Text<'_>]) {
    for group in texts.chunks_mut(GROUP) {
        let mut left = 0;
        for (at, text) in group.iter_mut().enumerate().filter(|(_, text)| text.result.is_ok()) {
            text.result = prepare(text);
            if text.result.is_ok() && !text.by_vectors(true) {
                left |= 1 << at;
            }
        }
        if left == 0 {
            continue;
        }
        let of = |group: &[Text<'_>], test: fn(Mode) -> bool| {
            left & set_of(group, |text| test(text.key.mode))
        };
        let counting = of(group, |mode| matches!(mode, Mode::Ctr | Mode::Gcm));
        let masks = streams(group, counting, Part::All);
        let chained = of(group, |mode| matches!(mode, Mode::Cbc(_) | Mode::Cfb | Mode::Ofb));
        chains(group, chained);
        while let Some(at) = next(left) {
            left &= left - 1;
            let (text, mask) = (&mut group[at], &masks[at]);
            let len = text.text_len();
            match &text.key.cipher {
                Cipher::Gcm(key) => {
                    let (text_bytes, tag) = text.buffer.split_at_mut(len);
                    tag[..BLOCK].copy_from_slice(&key.tag(&[text.aad], text_bytes, mask));
                }
                Cipher::Aes(aes) if matches!(text.key.mode, Mode::Ecb(_)) => {
                    run(text.key.mode, aes, &text.iv, &mut text.buffer[..len], true);
                }
                Cipher::Aes(_) | Cipher::Ctr(_) => {}
            }
        }
    }
}

/// Decrypts texts in place, each by its own key: what [`RawKey::decrypt`] does to each.
pub fn decrypt_batch(texts: &mut [Text<'_>]) {
    for group in texts.chunks_mut(GROUP) {
        let mut left = 0;
        for (at, text) in group.iter_mut().enumerate().filter(|(_, text)| text.result.is_ok()) {
            text.result = prepare_encrypted(text);
            if text.result.is_ok() && !text.by_vectors(false) {
                left |= 1 << at;
            }
        }
        if left == 0 {
            continue;
        }
        let tagged = left & set_of(group, |text| text.key.mode == Mode::Gcm);
        let masks = streams(group, tagged, Part::Mask);
        let mut rest = tagged;
        while let Some(at) = next(rest) {
            rest &= rest - 1;
            let text = &mut group[at];
            if let Cipher::Gcm(key) = &text.key.cipher {
                let (bytes, tag) = text.buffer[..text.len].split_at(text.text_len());
                if !bool::from(key.tag(&[text.aad], bytes, &masks[at]).ct_eq(tag)) {
                    text.result = Err(ModeError::NotGenuine);
                    left &= !(1 << at);
                }
            }
        }
        let of = |group: &[Text<'_>], test: fn(Mode) -> bool| {
            left & set_of(group, |text| test(text.key.mode))
        };
        let counting = of(group, |mode| matches!(mode, Mode::Ctr | Mode::Gcm));
        streams(group, counting, Part::Text);
        let chained = of(group, |mode| mode == Mode::Ofb);
        chains(group, chained);
        while let Some(at) = next(left) {
            left &= left - 1;
            let text = &mut group[at];
            let (mode, len) = (text.key.mode, text.text_len());
            let Some(aes) = text.aes() else {
                text.result = Ok(len);
                continue;
            };
            if matches!(mode, Mode::Ecb(_) | Mode::Cbc(_) | Mode::Cfb) {
                run(mode, aes, &text.iv, &mut text.buffer[..len], false);
            }
            if mode.padding() == Padding::Pkcs7 {
                text.result = unpadded(&text.buffer[..len]).ok_or(ModeError::NotGenuine);
            }
        }
    }
}

/// Checks lengths and writes padding. Returns how many bytes there will be.
fn prepare(text: &mut Text<'_>) -> Result<usize, ModeError> {
    let (key, mode) = (text.key, text.key.mode);
    key.check(text.iv(), text.buffer, text.len, mode.padding() == Padding::None)?;
    let (needed, found) = (mode.encrypted_len(text.len), text.buffer.len());
    if needed > found {
        return Err(ModeError::NoRoom { needed, found });
    }
    if mode.padding() == Padding::Pkcs7 {
        let count = (needed - text.len) as u8; // 1 to 16
        text.buffer[text.len..needed].fill(count);
    }
    Ok(needed)
}

/// Checks lengths. Returns how many bytes there are.
fn prepare_encrypted(text: &Text<'_>) -> Result<usize, ModeError> {
    let (key, mode) = (text.key, text.key.mode);
    key.check(text.iv(), text.buffer, text.len, true)?;
    if text.len < mode.encrypted_len(0) {
        return Err(ModeError::TextLength { mode, found: text.len });
    }
    Ok(text.len)
}

/// Which counter blocks of GCM; of CTR there are those of the text only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// That of the tag.
    Mask,
    /// Those of the text.
    Text,
    All,
}

/// Blocks of one text in the run: the number of the first, counted from [`Text::counter`].
#[derive(Clone, Copy, Default)]
struct Span {
    at: usize,
    first: usize,
    blocks: usize,
}

/// Adds key streams to texts, a bit each; returns the encrypted counter blocks of tags, by text.
fn streams(group: &mut [Text<'_>], mut left: u32, part: Part) -> [Block; GROUP] {
    let mut masks = [Block::default(); GROUP];
    while let Some(first) = next(left) {
        let key = group[first].key;
        let same = left & set_of(group, |text| std::ptr::eq(text.key, key));
        left &= !same;
        let mut blocks = [Block::default(); RUN];
        let mut spans = [Span::default(); RUN];
        let (mut used, mut count) = (0, 0);
        let mut rest = same;
        while let Some(at) = next(rest) {
            rest &= rest - 1;
            let text = &group[at];
            let (counter, has_mask) = (text.counter(), usize::from(key.mode == Mode::Gcm));
            let end = has_mask + text.text_len().div_ceil(BLOCK);
            let (mut number, end) = match part {
                Part::Mask => (0, has_mask),
                Part::Text => (has_mask, end),
                Part::All => (0, end),
            };
            while number < end {
                let take = (RUN - used).min(end - number);
                for (offset, block) in (number as u128..).zip(&mut blocks[used..used + take]) {
                    *block = counter.wrapping_add(offset).to_be_bytes().into();
                }
                spans[count] = Span { at, first: number, blocks: take };
                (used, count, number) = (used + take, count + 1, number + take);
                if used == RUN {
                    key.encrypt_blocks(&mut blocks);
                    apply(group, &blocks, &spans[..count], has_mask, &mut masks);
                    (used, count) = (0, 0);
                }
            }
        }
        key.encrypt_blocks(&mut blocks[..used]);
        let has_mask = usize::from(key.mode == Mode::Gcm);
        apply(group, &blocks[..used], &spans[..count], has_mask, &mut masks);
    }
    masks
}

fn apply(
    group: &mut [Text<'_>],
    blocks: &[Block],
    spans: &[Span],
    has_mask: usize,
    masks: &mut [Block; GROUP],
) {
    let mut rest = blocks;
    for span in spans {
        let (mut own, behind) = rest.split_at(span.blocks);
        rest = behind;
        let mut first = span.first;
        if first < has_mask {
            masks[span.at] = own[0];
            (own, first) = (&own[1..], first + 1);
        }
        if !own.is_empty() {
            let text = &mut group[span.at];
            let (from, to) = ((first - has_mask) * BLOCK, text.text_len());
            xor(&mut text.buffer[from..to], Block::slice_as_flattened(own));
        }
    }
}

/// A text on its way; its previous block is in the same place of another array.
#[derive(Clone, Copy)]
struct Lane<'a> {
    at: usize,
    /// In its text.
    offset: usize,
    aes: &'a Aes,
}

/// Encrypts texts, a bit each, in a mode that chains its blocks, or applies the key stream of OFB.
fn chains<'a>(group: &mut [Text<'a>], mut left: u32) {
    let mut chain = [Block::default(); LANES];
    let mut lanes: [Option<Lane<'a>>; LANES] = [None; LANES];
    let mut active = 0;
    loop {
        while active < LANES
            && let Some(at) = next(left)
        {
            left &= left - 1;
            if let Some(aes) = group[at].aes()
                && group[at].text_len() > 0
            {
                chain[active] = group[at].iv.into();
                lanes[active] = Some(Lane { at, offset: 0, aes });
                active += 1;
            }
        }
        let Some(first) = lanes[0].filter(|_| active > 0) else { return };
        let mut is_one_key = true;
        for (block, lane) in chain.iter_mut().zip(lanes[..active].iter().flatten()) {
            if matches!(group[lane.at].key.mode, Mode::Cbc(_)) {
                xor(block, &group[lane.at].buffer[lane.offset..lane.offset + BLOCK]);
            }
            is_one_key &= std::ptr::eq(lane.aes, first.aes);
        }
        if is_one_key {
            first.aes.encrypt_blocks(&mut chain[..active]);
        } else {
            for (block, lane) in chain.iter_mut().zip(lanes[..active].iter().flatten()) {
                lane.aes.encrypt_block(block);
            }
        }
        // From the last, so that one that takes a free place has been here.
        for place in (0..active).rev() {
            let Some(lane) = &mut lanes[place] else { continue };
            let text = &mut group[lane.at];
            let len = text.text_len();
            let now = &mut text.buffer[lane.offset..len.min(lane.offset + BLOCK)];
            match text.key.mode {
                Mode::Cbc(_) => now.copy_from_slice(&chain[place]),
                Mode::Cfb => {
                    xor(now, &chain[place]);
                    chain[place][..now.len()].copy_from_slice(now);
                }
                _ => xor(now, &chain[place]),
            }
            lane.offset += now.len();
            if lane.offset == len {
                active -= 1;
                lanes.swap(place, active);
                chain.swap(place, active);
            }
        }
    }
}

/// The texts of a group, a bit each.
fn set_of<'a>(group: &[Text<'a>], test: impl Fn(&Text<'a>) -> bool) -> u32 {
    const { assert!(GROUP <= u32::BITS as usize) }
    let bits = group.iter().enumerate().map(|(at, text)| u32::from(test(text)) << at);
    bits.fold(0, |all, bit| all | bit)
}

fn next(set: u32) -> Option<usize> {
    (set != 0).then(|| set.trailing_zeros() as usize)
}

impl RawKey {
    fn encrypt_blocks(&self, blocks: &mut [Block]) {
        match &self.cipher {
            Cipher::Aes(aes) => aes.encrypt_blocks(blocks),
            Cipher::Ctr(aes) | Cipher::Gcm(GcmKey { aes, .. }) => aes.encrypt_blocks(blocks),
        }
    }
}
