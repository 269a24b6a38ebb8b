//! Frozen tables as bytes, and the patches that change them.
//!
//! A table must lie in the memory of a worker and of a device alike, so it holds offsets and no
//! pointers. A [`Blob`] is that memory: zeroed, aligned to 64 bytes (a cache line), on huge pages
//! where the system grants them, because a lookup in 64 MB of 4 KB pages spends 40 % on address
//! translation. A builder writes a blob once. After that it emits [`Patch`]es, which are applied in
//! the same order to every copy, on the host and on devices.
//!
//! Address space is reserved beyond the length, so that a table grows in place.
//!
//! Thread rule: a blob is plain memory; `&mut` writes, `&` reads.

use std::io;
use std::ptr::NonNull;

/// One change of a blob. Offsets and counts are in words of 4 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patch {
    /// Sets `count` words from `offset_words` to `value`.
    Fill {
        /// First word.
        offset_words: usize,
        /// Number of words.
        count: usize,
        /// What each becomes.
        value: u32,
    },
    /// Copies `words` to `offset_words`.
    Write {
        /// First word.
        offset_words: usize,
        /// New content.
        words: Vec<u32>,
    },
    /// Copies `words` to many places, in order: of each its first word, and how many words go there.
    Writes {
        /// First word and number of words of each place.
        spans: Vec<(u32, u32)>,
        /// New content of all places, one after the other.
        words: Vec<u32>,
    },
    /// Lengthens the blob to `len_words`; the new words are zero.
    Grow {
        /// The new length.
        len_words: usize,
    },
    /// Replaces the whole content.
    Replace(Vec<u32>),
}

/// Zeroed memory for one table, aligned to 64 bytes, readable as words of 4 or 8 bytes.
pub struct Blob {
    base: NonNull<u8>,   // of the mapping, for munmap
    mapped_bytes: usize, // 0: there is no mapping
    words: NonNull<u32>, // aligned to HUGE within the mapping
    len_words: usize,
    reserved_words: usize,
}

const HUGE: usize = 2 << 20;

/// What a table's memory is mapped with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pages {
    /// Pages of 2 MB, where the system grants them.
    #[default]
    Huge,
    /// Pages of 4 KB, to measure what the others save.
    Small,
}

impl Blob {
    /// `len_words` zeroed words, with address space for `reserve_words` in all (memory is used when
    /// touched). Both are rounded up to whole cache lines.
    pub fn zeroed(len_words: usize, reserve_words: usize) -> io::Result<Self> {
        Self::zeroed_on(Pages::Huge, len_words, reserve_words)
    }

    /// The same on pages of a kind.
    pub fn zeroed_on(pages: Pages, len_words: usize, reserve_words: usize) -> io::Result<Self> {
        let len_words = len_words.next_multiple_of(16);
        let reserved_words = reserve_words.max(len_words).max(16).next_multiple_of(16);
        let bytes = reserved_words
            .checked_mul(4)
            .and_then(|bytes| bytes.checked_next_multiple_of(4096))
            .filter(|bytes| *bytes <= isize::MAX as usize - HUGE)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // Small tables need no huge page; large ones start on one.
        let slack = if bytes >= HUGE { HUGE } else { 0 };
        let mapped_bytes = bytes + slack;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
        // memory that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = base.cast::<u8>();
        let skip = if slack > 0 { base.align_offset(HUGE) } else { 0 };
        // SAFETY: `skip` < HUGE = slack, so the pointer stays inside the mapping and `bytes` fit
        // behind it.
        let start = unsafe { base.add(skip) };
        if slack > 0 {
            let advice = match pages {
                Pages::Huge => libc::MADV_HUGEPAGE,
                Pages::Small => libc::MADV_NOHUGEPAGE,
            };
            // SAFETY: the range is inside the mapping just made. The call is advice: a kernel
            // without huge pages refuses it and nothing else changes.
            unsafe { libc::madvise(start.cast(), bytes, advice) };
        }
        let (Some(base), Some(words)) = (NonNull::new(base), NonNull::new(start.cast::<u32>()))
        else {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        };
        Ok(Self { base, mapped_bytes, words, len_words, reserved_words })
    }

    /// A second copy, with the same reserve.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.copy_on(Pages::Huge)
    }

    /// A second copy on pages of a kind, with the same reserve.
    pub fn copy_on(&self, pages: Pages) -> io::Result<Self> {
        let mut copy = Self::zeroed_on(pages, self.len_words, self.reserved_words)?;
        copy.words_mut().copy_from_slice(self.words());
        Ok(copy)
    }

    /// The content as words of 4 bytes in host order.
    #[inline]
    pub fn words(&self) -> &[u32] {
        // SAFETY: `words` starts `reserved_words` mapped, initialised (zeroed by the kernel) and
        // aligned words, of which `len_words` ≤ `reserved_words` are shown; they live as long as
        // `self`, and `&self` excludes writers. Without a mapping both are 0 and the pointer is aligned.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len_words) }
    }

    /// The content as words of 8 bytes in host order.
    #[inline]
    pub fn words64(&self) -> &[u64] {
        // SAFETY: as in `words`; the start is aligned to at least 4096 and `len_words` is a
        // multiple of 16, and every bit pattern is a u64.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len_words / 2) }
    }

    /// The content as words of 4 bytes, to write. For the first build; later changes are patches.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u32] {
        // SAFETY: as in `words`; `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_ptr(), self.len_words) }
    }

    /// The content as words of 8 bytes, to write.
    #[inline]
    pub fn words64_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words64`; `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_ptr().cast(), self.len_words / 2) }
    }

    /// Length in words of 4 bytes.
    pub fn len_words(&self) -> usize {
        self.len_words
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_words * 4
    }

    /// How far it can grow in place, in words of 4 bytes.
    pub fn reserved_words(&self) -> usize {
        self.reserved_words
    }

    /// Lengthens to `len_words` with zeros, in place within the reserve, else by moving.
    pub fn grow(&mut self, len_words: usize) -> io::Result<()> {
        let len_words = len_words.next_multiple_of(16);
        if len_words > self.reserved_words {
            let mut moved = Self::zeroed(len_words, len_words + len_words / 2)?;
            moved.words_mut()[..self.len_words].copy_from_slice(self.words());
            *self = moved;
        }
        // Words beyond the old length have never been written: `words_mut` did not show them.
        self.len_words = self.len_words.max(len_words);
        Ok(())
    }

    /// Applies patches in order.
    ///
    /// # Panics
    /// When a patch reaches beyond the blob (a builder's patches, applied in order to a copy of its
    /// blob, never do), or when the system has no memory to grow.
    pub fn apply(&mut self, patches: &[Patch]) {
        for patch in patches {
            match patch {
                Patch::Fill { offset_words, count, value } => {
                    self.words_mut()[*offset_words..][..*count].fill(*value);
                }
                Patch::Write { offset_words, words } => {
                    self.words_mut()[*offset_words..][..words.len()].copy_from_slice(words);
                }
                Patch::Writes { .. } => {
                    let mine = self.words_mut();
                    patch.writes().for_each(|(at, words)| {
                        mine[at..][..words.len()].copy_from_slice(words);
                    });
                }
                Patch::Grow { len_words } => {
                    self.grow(*len_words).expect("memory for a growing table");
                }
                Patch::Replace(words) => {
                    let mut next =
                        Self::zeroed(words.len(), words.len()).expect("memory for a growing table");
                    next.words_mut()[..words.len()].copy_from_slice(words);
                    *self = next;
                }
            }
        }
    }
}

impl Patch {
    /// The places of [`Patch::Writes`], and what is copied there; of other patches none.
    pub fn writes(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let (spans, mut rest) = match self {
            Self::Writes { spans, words } => (&spans[..], &words[..]),
            _ => (&[][..], &[][..]),
        };
        spans.iter().map(move |(at, count)| {
            let (words, behind) = rest.split_at(*count as usize);
            rest = behind;
            (*at as usize, words)
        })
    }

    /// Bytes that the patch writes, for statistics.
    pub fn bytes(&self) -> usize {
        4 * match self {
            Self::Fill { count, .. } => *count,
            Self::Write { words, .. } | Self::Writes { words, .. } | Self::Replace(words) => {
                words.len()
            }
            Self::Grow { .. } => 0,
        }
    }
}

// SAFETY: a blob owns its mapping alone, as a Vec does; nothing in it is tied to a thread.
unsafe impl Send for Blob {}
// SAFETY: `&Blob` only reads plain memory that `&mut Blob` alone can write.
unsafe impl Sync for Blob {}

impl Drop for Blob {
    fn drop(&mut self) {
        if self.mapped_bytes == 0 {
            return; // made by `default`
        }
        // SAFETY: `base` and `mapped_bytes` are the mapping made in `zeroed`, unmapped once, here.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// A blob of no words, without a mapping: the table of a part that is not in use.
impl Default for Blob {
    fn default() -> Self {
        let (base, words) = (NonNull::dangling(), NonNull::<Line>::dangling().cast());
        Self { base, mapped_bytes: 0, words, len_words: 0, reserved_words: 0 }
    }
}

/// For its alignment.
#[repr(align(64))]
struct Line;

/// As [`Blob::try_clone`].
///
/// # Panics
/// When the system has no memory.
impl Clone for Blob {
    fn clone(&self) -> Self {
        self.try_clone().expect("memory for a second copy of a table")
    }
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blob").field("len_bytes", &self.len_bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_of_nothing_grows_and_is_copied() {
        let mut blob = Blob::default();
        assert_eq!((blob.words().len(), blob.words64().len(), blob.len_bytes()), (0, 0, 0));
        assert_eq!(blob.clone().len_words(), 0);
        blob.apply(&[Patch::Grow { len_words: 16 }]);
        assert_eq!(blob.words(), [0; 16]);
        blob.apply(&[Patch::Replace(vec![3; 16])]);
        assert_eq!(blob.clone().words(), [3; 16]);
    }

    #[test]
    fn is_zeroed_aligned_and_grows() {
        for (len, reserve) in [(1, 0), (1000, 5000), (1 << 20, 1 << 22)] {
            let mut blob = Blob::zeroed(len, reserve).unwrap();
            assert_eq!(blob.words().as_ptr() as usize % 64, 0);
            assert!(blob.words().iter().all(|w| *w == 0));
            let len = blob.len_words();
            blob.apply(&[
                Patch::Fill { offset_words: 0, count: len, value: 7 },
                Patch::Grow { len_words: len * 8 },
                Patch::Write { offset_words: len * 8 - 2, words: vec![1, 2] },
            ]);
            assert_eq!(blob.len_words(), len * 8);
            assert!(blob.words()[..len].iter().all(|w| *w == 7));
            assert!(blob.words()[len..len * 8 - 2].iter().all(|w| *w == 0));
            assert_eq!(blob.clone().words(), blob.words());
            assert_eq!(blob.copy_on(Pages::Small).unwrap().words(), blob.words());
            blob.apply(&[Patch::Replace(vec![5; 32])]);
            assert_eq!(blob.words(), [5; 32]);
            assert_eq!(blob.words64(), [5 << 32 | 5; 16]);
        }
    }
}
