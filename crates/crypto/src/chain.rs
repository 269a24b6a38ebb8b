//! Cipher block chaining.
//!
//! A block of a packet is encrypted when the one before is, so one packet leaves the AES unit waiting for its own result.
//! Packets do not depend on each other: [`LANES`] of them are encrypted together, block by block. Blocks of one key go to
//! the crate in one call; those of several keys in one call each, which overlap as far as the CPU looks ahead.

use cbc::{Decryptor, Encryptor};
use cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};

use crate::aes::{Aes, BLOCK, Block, with_cipher, xor};
use crate::batch::{Carries, Set};
use crate::suite::CipherKey;

/// Packets encrypted together.
const LANES: usize = 8;

/// A packet on its way: its previous block is in the same place of another array.
#[derive(Clone, Copy)]
struct Lane<'a> {
    at: usize,
    /// In its text.
    offset: usize,
    aes: &'a Aes,
}

/// Encrypts the texts of those packets of a set that have CBC. They are whole blocks.
pub(crate) fn encrypt<'a, T: Carries<'a>>(group: &mut [T], set: Set) {
    let mut packets = set.iter();
    let mut chain = [Block::default(); LANES];
    let mut lanes: [Option<Lane<'a>>; LANES] = [None; LANES];
    let mut active = 0;
    loop {
        while active < LANES
            && let Some(at) = packets.next()
        {
            let request = group[at].request();
            let key: &'a _ = request.key;
            if let CipherKey::Cbc(aes, _) = &key.cipher
                && request.text_len > 0
            {
                chain[active] = request.iv.into();
                lanes[active] = Some(Lane { at, offset: 0, aes });
                active += 1;
            }
        }
        let Some(first) = lanes[0].filter(|_| active > 0) else { return };
        let mut is_one_key = true;
        for (block, lane) in chain.iter_mut().zip(lanes[..active].iter().flatten()) {
            xor(block, &group[lane.at].request().text()[lane.offset..lane.offset + BLOCK]);
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
            let text = group[lane.at].request_mut().text_mut();
            text[lane.offset..lane.offset + BLOCK].copy_from_slice(&chain[place]);
            lane.offset += BLOCK;
            if lane.offset == text.len() {
                active -= 1;
                lanes.swap(place, active);
                chain.swap(place, active);
            }
        }
    }
}

/// Encrypts one text of whole blocks; what is behind them stays as it is.
pub(crate) fn encrypt_one(aes: &Aes, iv: &[u8; BLOCK], text: &mut [u8]) {
    let (blocks, _) = Block::slice_as_chunks_mut(text);
    with_cipher!(Aes, aes, cipher => {
        Encryptor::inner_iv_init(cipher, iv.into()).encrypt_blocks(blocks);
    });
}

/// Decrypts one text of whole blocks, whose blocks do not wait for each other.
pub(crate) fn decrypt(aes: &Aes, iv: &[u8; BLOCK], text: &mut [u8]) {
    let (blocks, _) = Block::slice_as_chunks_mut(text);
    with_cipher!(Aes, aes, cipher => {
        Decryptor::inner_iv_init(cipher, iv.into()).decrypt_blocks(blocks);
    });
}
