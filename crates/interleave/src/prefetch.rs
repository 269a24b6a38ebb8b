//! The hint that starts a load.

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Starts loading every line of `place` into the nearest cache; only a hint, reads nothing.
#[inline(always)]
pub fn prefetch<T: ?Sized>(place: &T) {
    let start: *const u8 = core::ptr::from_ref(place).cast();
    let bytes = size_of_val(place);
    prefetch_at(start);
    let mut at = LINE_BYTES;
    while at < bytes {
        prefetch_at(start.wrapping_add(at));
        at += LINE_BYTES;
    }
}

/// Starts loading the line at an address, which may be any: a hint faults nowhere.
#[inline(always)]
pub fn prefetch_at<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads no memory that a program could observe and raises no fault, whatever the
    // address (Intel SDM volume 2, PREFETCHh; AMD APM volume 3, PREFETCHlevel); SSE is part of x86-64.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: PRFM is a hint that raises no fault (Arm ARM, C6.2 PRFM); nothing but the register is read.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = address;
}
