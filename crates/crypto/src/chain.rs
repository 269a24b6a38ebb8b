//! Cipher block chaining.
//!
//! A block of a packet is encrypted when the one before is, so one packet leaves the AES unit waiting for its own result.
//! Packets of a key do not depend on each other: [`LANES`] of them are encrypted together, block by block.

use cbc::{Decryptor, Encryptor};
use cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};

use crate::aes::{Aes, BLOCK, Block, with_cipher, xor};
use crate::batch::{Carries, Set};

/// Packets encrypted together.
const LANES: usize = 8;

/// Encrypts the texts of a set, which have whole blocks.
pub(crate) fn encrypt<'a, T: Carries<'a>>(group: &mut [T], set: Set, aes: &Aes) {
    let mut packets = set.iter().filter({
        let group = &*group;
        let lens: [bool; crate::batch::GROUP] =
            std::array::from_fn(|at| group.get(at).is_some_and(|c| c.request().text_len > 0));
        move |at| lens[*at]
    });
    // Lane n has the previous block of its packet in `chain[n]`.
    let mut chain = [Block::default(); LANES];
    let mut lanes = [(0, 0); LANES]; // packet, offset in its text
    let mut active = 0;
    loop {
        while active < LANES
            && let Some(at) = packets.next()
        {
            chain[active] = group[at].request().iv.into();
            lanes[active] = (at, 0);
            active += 1;
        }
        if active == 0 {
            return;
        }
        for (block, (at, offset)) in chain.iter_mut().zip(&lanes[..active]) {
            xor(block, &group[*at].request().text()[*offset..*offset + BLOCK]);
        }
        aes.encrypt_blocks(&mut chain[..active]);
        for lane in (0..active).rev() {
            let (at, offset) = lanes[lane];
            let text = group[at].request_mut().text_mut();
            text[offset..offset + BLOCK].copy_from_slice(&chain[lane]);
            lanes[lane].1 += BLOCK;
            if offset + BLOCK == text.len() {
                active -= 1;
                lanes.swap(lane, active);
                chain.swap(lane, active);
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
