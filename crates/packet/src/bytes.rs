//! Big-endian loads and stores at constant offsets of arrays: the checks fold away.

#[inline(always)]
pub(crate) fn be16<const N: usize>(b: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

#[inline(always)]
pub(crate) fn be32<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

#[inline(always)]
pub(crate) fn be64<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    (u64::from(be32(b, at)) << 32) | u64::from(be32(b, at + 4))
}

/// `N` bytes at a constant offset.
#[inline(always)]
pub(crate) fn array<const N: usize, const M: usize>(b: &[u8; M], at: usize) -> [u8; N] {
    // By reference: a copy of a slice may become a call.
    b[at..].first_chunk().copied().unwrap_or([0; N])
}

/// Stores `value` at `at`; the caller has checked the length.
#[inline(always)]
pub(crate) fn put<const N: usize>(b: &mut [u8], at: usize, value: [u8; N]) {
    b[at..at + N].copy_from_slice(&value);
}
