//! A place in bytes that never runs over their end.

/// Reads from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(crate) fn u24(&mut self) -> Option<u32> {
        self.take(3).map(|bytes| u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Bytes behind a length of one byte.
    pub(crate) fn vector8(&mut self) -> Option<&'a [u8]> {
        let len = self.u8()?;
        self.take(usize::from(len))
    }

    /// Bytes behind a length of two bytes.
    pub(crate) fn vector16(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    /// Tag and length in BER; tags of one byte, lengths below 2^24.
    pub(crate) fn ber(&mut self) -> Option<(u8, usize)> {
        let tag = self.u8()?;
        let len = match self.u8()? {
            len @ 0..=0x7f => usize::from(len),
            count @ 0x81..=0x84 => {
                let bytes = self.take(usize::from(count & 7))?;
                bytes.iter().try_fold(0_usize, |len, byte| {
                    (len >> 16 == 0).then_some(len << 8 | usize::from(*byte))
                })?
            }
            _ => return None,
        };
        Some((tag, len))
    }

    /// An integer of RFC 9000 §16.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let first = *self.rest.first()?;
        let bytes = self.take(1 << (first >> 6))?;
        let value = bytes.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        Some(value & (u64::MAX >> (66 - 8 * bytes.len() as u32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_rfc_9000_a_1() {
        let cases: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in cases {
            assert_eq!(Cursor::new(bytes).varint(), Some(value));
            assert_eq!(Cursor::new(&bytes[..bytes.len() - 1]).varint(), None);
        }
    }

    #[test]
    fn lengths_of_ber_are_bounded() {
        assert_eq!(Cursor::new(&[0x30, 0x81, 0x80]).ber(), Some((0x30, 128)));
        assert_eq!(Cursor::new(&[0x30, 0x83, 1, 0, 0]).ber(), Some((0x30, 65536)));
        assert_eq!(Cursor::new(&[0x30, 0x84, 0xff, 0, 0, 0]).ber(), None);
        assert_eq!(Cursor::new(&[0x30, 0x80]).ber(), None);
        assert_eq!(Cursor::new(&[0x30, 0x82, 1]).ber(), None);
    }
}
