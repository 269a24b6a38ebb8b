//! Pieces of streams as they are attached to packets ([`chunk::Attached`]), for kernels and for stages behind a device.
//!
//! ```text
//!  one entry a piece, 16 bytes, words in little endian          bytes, piece by piece
//!  │ at │ reply, length │ offset, low │ offset, high │ …next… │ … │
//!    └ where the piece is in its frame, or NOT_IN_PACKET
//! ```
//!
//! A UDP datagram that came in fragments is attached to the fragment that completes it:
//!
//! ```text
//!  │ offsets, layers: three words as in `decoded` │ length │ its frame, with the link header of a fragment │
//! ```
//!
//! Most packets have one piece, which is in their frame: columns say where, and nothing is attached. A list is there for
//! bytes that waited for the packet, that came in fragments, or that a Rust module behind a device reads.

use chunk::Attached;
use controlplane::module::{Joined, Piece};

use super::decoded;

/// In place of the place in a frame, for bytes that are not in it: no frame is so long.
pub const NOT_IN_PACKET: u32 = 1 << 31;

/// Set beside the length if the end that answers sent the piece.
const REPLY: u32 = 1 << 31;

/// Words of an entry.
const WORDS: usize = 4;

/// Attaches pieces to a row, each with its place in the frame; how many there are, 0 if they are too long for that.
pub fn attach<'p>(
    attached: &mut Attached,
    row: usize,
    pieces: impl Iterator<Item = (Piece<'p>, Option<usize>)> + Clone,
) -> u32 {
    let (mut count, mut bytes) = (0, 0);
    for (piece, _) in pieces.clone() {
        count += 1;
        bytes += piece.bytes.len();
    }
    if bytes >= REPLY as usize {
        return 0;
    }
    for (piece, at) in pieces.clone() {
        let at = at.and_then(|at| u32::try_from(at).ok()).filter(|at| *at < NOT_IN_PACKET);
        let reply = if piece.is_reply { REPLY } else { 0 };
        let [low, high] = [piece.offset as u32, (piece.offset >> 32) as u32];
        let entry = [at.unwrap_or(NOT_IN_PACKET), reply | piece.bytes.len() as u32, low, high];
        if !entry.iter().all(|word| attached.push(row, &word.to_le_bytes())) {
            return 0;
        }
    }
    let all = pieces.into_iter().all(|(piece, _)| attached.push(row, piece.bytes));
    if all { count } else { 0 }
}

/// The pieces of a row, of what is attached to it.
pub fn read(attached: &[u8], count: u32) -> impl Iterator<Item = Piece<'_>> {
    let (list, mut rest) =
        attached.split_at_checked(4 * WORDS * count as usize).unwrap_or_default();
    list.chunks_exact(4 * WORDS).map_while(move |entry| {
        let word = |i: usize| {
            let bytes = entry[4 * i..4 * i + 4].try_into().unwrap_or_default();
            u32::from_le_bytes(bytes)
        };
        let (bytes, behind) = rest.split_at_checked((word(1) & !REPLY) as usize)?;
        rest = behind;
        let offset = u64::from(word(2)) | u64::from(word(3)) << 32;
        Some(Piece { is_reply: word(1) & REPLY != 0, offset, bytes })
    })
}

/// Bytes before the frame of a datagram that came in fragments.
const JOINED_HEAD: usize = 4 * (decoded::WORDS + 1);

/// Attaches a datagram that came in fragments to a row; whether there was room.
pub fn attach_joined(attached: &mut Attached, row: usize, joined: Joined<'_>) -> bool {
    let frame = joined.frame;
    let words = decoded::words(joined.decoded, frame, 0);
    let words = words.into_iter().chain([frame.len() as u32]);
    words.into_iter().all(|word| attached.push(row, &word.to_le_bytes()))
        && attached.push(row, frame)
}

/// The frame of that datagram, of what is attached to its row.
pub fn joined_frame(attached: &[u8]) -> &[u8] {
    attached.get(JOINED_HEAD..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(own: &(bool, u64, Vec<u8>, Option<usize>)) -> (Piece<'_>, Option<usize>) {
        (Piece { is_reply: own.0, offset: own.1, bytes: &own.2 }, own.3)
    }

    proptest! {
        #[test]
        fn pieces_are_read_as_they_were_attached(
            rows in prop::collection::vec(
                prop::collection::vec(
                    (any::<bool>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..9), prop::option::of(0usize..99)),
                    0..4,
                ),
                1..6,
            ),
        ) {
            let mut attached = Attached::default();
            for (row, pieces) in rows.iter().enumerate() {
                let count = attach(&mut attached, row, pieces.iter().map(piece));
                prop_assert_eq!(count as usize, pieces.len());
            }
            for (row, pieces) in rows.iter().enumerate() {
                let own: Vec<_> = read(attached.of(row), pieces.len() as u32).collect();
                let expected: Vec<_> = pieces.iter().map(|own| piece(own).0).collect();
                prop_assert_eq!(own, expected);
            }
            // What is cut off is not there.
            prop_assert!(read(&attached.of(0)[..attached.of(0).len() / 2], 1 << 30).count() < 4);
        }
    }
}
