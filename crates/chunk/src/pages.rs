//! Huge pages for large arrays.

use std::mem::MaybeUninit;

/// What huge pages begin at multiples of, and their size, in bytes.
const HUGE: usize = 2 << 20;

/// Advises the kernel to use huge pages for memory that has not been used yet, such as the spare capacity of a vector: a
/// large array that is read at random then misses the TLB less often. Advice only: contents stay as they are, and a kernel
/// without huge pages ignores it. Memory smaller than a huge page stays as it is.
pub fn prefer_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    let bytes = size_of_val(memory);
    let start = memory.as_mut_ptr().cast::<u8>();
    let skip = start.align_offset(HUGE);
    let Some(inside) = bytes.checked_sub(skip).map(|bytes| bytes & !(HUGE - 1)) else { return };
    if inside == 0 || cfg!(miri) {
        return;
    }
    // SAFETY: `skip + inside <= bytes`, so the range lies within memory that is borrowed here. The advice changes no contents.
    unsafe { libc::madvise(start.wrapping_add(skip).cast(), inside, libc::MADV_HUGEPAGE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_changes_nothing() {
        for bytes in [0, 1, 4096, HUGE - 1, HUGE, 3 * HUGE + 5] {
            let mut array: Vec<u8> = Vec::with_capacity(bytes);
            prefer_huge_pages(array.spare_capacity_mut());
            array.resize(bytes, 7);
            // Once more over bytes that are in use.
            let mut used: Vec<MaybeUninit<u8>> =
                array.iter().map(|byte| MaybeUninit::new(*byte)).collect();
            prefer_huge_pages(&mut used);
            // SAFETY: all of them were written above.
            assert!(used.iter().all(|byte| unsafe { byte.assume_init() } == 7));
        }
    }
}
