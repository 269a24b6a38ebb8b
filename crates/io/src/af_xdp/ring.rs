//! The rings shared with the kernel: single producer, single consumer.
//!
//! ```text
//!   producer (u32) │ consumer (u32) │ flags (u32) │ slot 0 │ slot 1 │ …     counts that wrap at 2^32
//! ```

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::Mapping;

/// Whose ring it is: we put in (fill, transmit) or take out (receive, completion).
#[derive(Debug)]
struct Ring<T> {
    _mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    mask: u32,
}

// SAFETY: the pointers lead into the mapping that the ring owns; nothing is tied to a thread.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `slots` slots, a power of two.
    fn new(
        fd: RawFd,
        page_offset: i64,
        offsets: &libc::xdp_ring_offset,
        slots: u32,
    ) -> io::Result<Self> {
        let len = offsets.desc as usize + slots as usize * size_of::<T>();
        let mapping = Mapping::new(fd, len, page_offset)?;
        let at = |offset: u64, bytes: usize, align: usize| {
            let offset = offset as usize;
            if offset + bytes > len || !offset.is_multiple_of(align) {
                return Err(io::Error::other("the kernel's ring offsets do not fit"));
            }
            // SAFETY: just checked to lie within the mapping.
            Ok(unsafe { mapping.start().add(offset) })
        };
        let (word, align) = (size_of::<AtomicU32>(), align_of::<AtomicU32>());
        Ok(Self {
            producer: at(offsets.producer, word, align)?.cast(),
            consumer: at(offsets.consumer, word, align)?.cast(),
            flags: at(offsets.flags, word, align)?.cast(),
            slots: at(offsets.desc, slots as usize * size_of::<T>(), align_of::<T>())?.cast(),
            mask: slots - 1,
            _mapping: mapping,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: in the mapping, aligned, and only ever used as an atomic.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn slot(&self, index: u32) -> NonNull<T> {
        // SAFETY: the mask keeps it below the number of slots, which `new` checked to fit.
        unsafe { self.slots.add((index & self.mask) as usize) }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as for `producer`.
        let flags = unsafe { self.flags.as_ref() }.load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that we put into.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Where the next goes; ahead of the shared count until `publish`.
    head: u32,
    /// The kernel's count when we last looked.
    tail: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn new(
        fd: RawFd,
        page_offset: i64,
        offsets: &libc::xdp_ring_offset,
        slots: u32,
    ) -> io::Result<Self> {
        Ok(Self { ring: Ring::new(fd, page_offset, offsets, slots)?, head: 0, tail: 0 })
    }

    /// Free slots; looks at the kernel's count if fewer than `enough` are known.
    pub(super) fn free(&mut self, enough: u32) -> u32 {
        let free = |tail: u32| (self.ring.mask + 1).saturating_sub(self.head.wrapping_sub(tail));
        if free(self.tail) < enough {
            self.tail = self.ring.consumer().load(Ordering::Acquire);
        }
        free(self.tail)
    }

    /// Puts `value` in; there must be a free slot. The kernel sees it after `publish`.
    pub(super) fn push(&mut self, value: T) {
        debug_assert!(self.head.wrapping_sub(self.tail) <= self.ring.mask);
        // SAFETY: a slot of the ring; the kernel reads only those below the published count and
        // not yet consumed, and this one is free.
        unsafe { self.ring.slot(self.head).write(value) };
        self.head = self.head.wrapping_add(1);
    }

    pub(super) fn publish(&mut self) {
        self.ring.producer().store(self.head, Ordering::Release);
    }

    /// How many the kernel has not consumed yet.
    pub(super) fn waiting(&self) -> u32 {
        self.head.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }

    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that we take out of.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Next to take; ahead of the shared count until `release`.
    tail: u32,
    /// The kernel's count when we last looked.
    head: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn new(
        fd: RawFd,
        page_offset: i64,
        offsets: &libc::xdp_ring_offset,
        slots: u32,
    ) -> io::Result<Self> {
        Ok(Self { ring: Ring::new(fd, page_offset, offsets, slots)?, tail: 0, head: 0 })
    }

    /// How many there are to take, never more than the ring has slots.
    pub(super) fn available(&mut self) -> u32 {
        if self.head == self.tail {
            self.head = self.ring.producer().load(Ordering::Acquire);
        }
        self.head.wrapping_sub(self.tail).min(self.ring.mask + 1)
    }

    /// Takes the next one; there must be one. Its slot is the kernel's again after `release`.
    pub(super) fn pop(&mut self) -> T {
        debug_assert!(self.head != self.tail);
        // SAFETY: a slot of the ring, below the kernel's published count (acquired) and not yet
        // released, so it is not written now.
        let value = unsafe { self.ring.slot(self.tail).read() };
        self.tail = self.tail.wrapping_add(1);
        value
    }

    pub(super) fn release(&mut self) {
        self.ring.consumer().store(self.tail, Ordering::Release);
    }
}
