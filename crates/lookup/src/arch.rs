//! Processor instructions that the tables use where they are there.

/// Asks for the cache line of `element`; has no effect on the result of anything.
#[inline(always)]
pub(crate) fn prefetch<T>(element: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch neither faults nor changes memory.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = element;
}
