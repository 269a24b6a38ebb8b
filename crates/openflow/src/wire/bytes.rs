//! Reading and writing of numbers in network order.

use std::time::Duration;

use crate::error::ErrorCode;

/// What is left of a message. Every read past the end is `OFPBRC_BAD_LEN`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

type Read<T> = Result<T, ErrorCode>;

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Read<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(ErrorCode::BadRequestLen)?;
        self.rest = tail;
        Ok(head)
    }

    /// All that is left, which stays.
    pub(crate) const fn all_ahead(&self) -> &'a [u8] {
        self.rest
    }

    /// All that is left.
    pub(crate) fn all(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// The next `len` bytes on their own; `error` where there are fewer.
    pub(crate) fn part(&mut self, len: usize, error: ErrorCode) -> Read<Self> {
        self.take(len).map(Self::new).map_err(|_| error)
    }

    pub(crate) fn skip(&mut self, len: usize) -> Read<()> {
        self.take(len).map(|_| ())
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self) -> Read<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Read<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Read<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A number of up to 16 bytes.
    pub(crate) fn number(&mut self, len: usize) -> Read<u128> {
        Ok(self.take(len)?.iter().fold(0, |n, byte| n << 8 | u128::from(*byte)))
    }

    /// Seconds and nanoseconds, 32 bits each.
    pub(crate) fn duration(&mut self) -> Read<Duration> {
        let (seconds, nanoseconds) = (self.u32()?, self.u32()?);
        // More than a second of nanoseconds is refused rather than carried over: it would not be the same bytes.
        if nanoseconds >= 1_000_000_000 {
            return Err(ErrorCode::BadRequestLen);
        }
        Ok(Duration::new(u64::from(seconds), nanoseconds))
    }

    /// Text in a field of `len` bytes, up to its first zero; the last byte is one. What is not UTF-8 becomes `?`.
    pub(crate) fn text(&mut self, len: usize) -> Read<String> {
        let bytes = &self.take(len)?[..len - 1];
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        let mut text = String::with_capacity(end);
        for chunk in bytes[..end].utf8_chunks() {
            text.push_str(chunk.valid());
            chunk.invalid().iter().for_each(|_| text.push('?'));
        }
        Ok(text)
    }
}

/// Writing at the end of a message.
pub(crate) trait Put {
    fn bytes(&mut self, bytes: &[u8]);
    fn len_now(&self) -> usize;
    fn set_u16(&mut self, at: usize, value: u16);

    fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }
    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }
    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }
    fn number(&mut self, value: u128, len: usize) {
        self.bytes(&value.to_be_bytes()[16 - len..]);
    }
    fn zeros(&mut self, len: usize) {
        self.bytes(&[0; 64][..len]);
    }
    fn duration(&mut self, value: Duration) {
        self.u32(u32::try_from(value.as_secs()).unwrap_or(u32::MAX));
        self.u32(value.subsec_nanos());
    }
    /// Text in a field of `len` bytes, with at least one zero behind it; cut between characters.
    fn text(&mut self, text: &str, len: usize) {
        let mut end = text.len().min(len - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes(&text.as_bytes()[..end]);
        (end..len).for_each(|_| self.u8(0));
    }
    /// Zeros up to a multiple of eight bytes from `start` on.
    fn pad8(&mut self, start: usize) {
        let len = self.len_now() - start;
        self.zeros(len.next_multiple_of(8) - len);
    }
}

impl Put for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
    fn len_now(&self) -> usize {
        self.len()
    }
    fn set_u16(&mut self, at: usize, value: u16) {
        self[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// The bytes from `start` on, as a length field counts them.
pub(crate) fn len16(out: &[u8], start: usize) -> Result<u16, super::Unencodable> {
    u16::try_from(out.len() - start).map_err(|_| super::Unencodable::TooLong)
}

/// Writes the length of what is from `start` on into the field at `at`.
pub(crate) fn close(out: &mut Vec<u8>, start: usize, at: usize) -> Result<(), super::Unencodable> {
    let len = len16(out, start)?;
    out.set_u16(at, len);
    Ok(())
}
