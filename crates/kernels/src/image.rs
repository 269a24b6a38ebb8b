//! The table image: all tables of one version in one block of device memory.
//!
//! Kernels get one pointer to the tables, so the tables lie in one block, each a *region*, found by a
//! directory at its start. Regions have slack behind them, so that a table that grows is a patch and
//! only seldom a new image.
//!
//! ```text
//! words of the header (512 bytes)                     image
//! 0      magic                                        ┌────────┬──────────┬───────┬──────────┬───
//! 1      number of regions, at most 60                │ header │ region 0 │ slack │ region 1 │ …
//! 2, 3   version, low and high half                   └────────┴──────────┴───────┴──────────┴───
//! 8 + 2i offset of region i in units of 64 bytes                  at multiples of 64 bytes
//! 9 + 2i its length in words of 4 bytes
//! ```
//!
//! Each application has consecutive regions, its *part*, whose first region is numbered when the program starts: an
//! instance of a kernel gets that number as its job argument, and adds the application's own numbers, which begin at 0. So
//! one program holds several instances of one application, and a program's text does not depend on the order of the parts.
//!
//! Everything is little-endian, as devices are. This module is arithmetic: who holds the memory and
//! when it is swapped is the engine's. Changes are [`Patches`]: runs of words, cut into pieces that the
//! kernel `patch` spreads over the device, later ones over earlier ones.

use std::collections::BTreeMap;

/// First word of an image.
pub const MAGIC: u32 = 0x5348_4c49;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 512;
/// The most regions of an image.
pub const REGIONS_MAX: usize = 60;
/// Regions start at multiples of this.
pub const UNIT_BYTES: usize = 64;
pub(crate) const MAGIC_WORD: usize = 0;
pub(crate) const REGIONS_WORD: usize = 1;
const VERSION_WORD: usize = 2;
pub(crate) const DIRECTORY_WORD: usize = 8;
const UNIT_WORDS: usize = UNIT_BYTES / 4;

const _: () = assert!((DIRECTORY_WORD + 2 * REGIONS_MAX) * 4 <= HEADER_BYTES);

/// Where the regions of an image are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageLayout {
    regions: Vec<Region>,
    words: usize,
}

/// A region: offset, length and capacity, in words of 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where it starts, from the image's start.
    pub offset_words: usize,
    /// How long it is.
    pub len_words: usize,
    /// How long it may become.
    pub capacity_words: usize,
}

impl ImageLayout {
    /// An image of regions of these lengths, each with its second number as its capacity (at least its
    /// length).
    ///
    /// # Panics
    /// If there are more than [`REGIONS_MAX`] regions or the image would pass 16 GiB.
    pub fn new(regions: &[(usize, usize)]) -> Self {
        assert!(regions.len() <= REGIONS_MAX, "an image has at most {REGIONS_MAX} regions");
        let mut at = HEADER_BYTES / 4;
        let regions = regions
            .iter()
            .map(|&(len_words, capacity_words)| {
                let capacity_words = capacity_words.max(len_words).next_multiple_of(UNIT_WORDS);
                let region = Region { offset_words: at, len_words, capacity_words };
                at += capacity_words;
                region
            })
            .collect();
        assert!(u32::try_from(at).is_ok(), "offsets are words of four bytes, below 2^32");
        Self { regions, words: at }
    }

    /// Length of the image in bytes.
    pub fn bytes(&self) -> usize {
        self.words * 4
    }

    /// Length of the image in words of 4 bytes.
    pub fn words(&self) -> usize {
        self.words
    }

    /// A region.
    ///
    /// # Panics
    /// If there is none of that number.
    pub fn region(&self, index: usize) -> Region {
        self.regions[index]
    }

    /// How many regions there are.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there is no region.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Makes a region longer or shorter in place; `false`, and nothing changed, where it exceeds the capacity.
    /// The image follows by [`Patches::set_len`].
    #[must_use]
    pub fn resize(&mut self, index: usize, len_words: usize) -> bool {
        let region = &mut self.regions[index];
        let fits = len_words <= region.capacity_words;
        if fits {
            region.len_words = len_words;
        }
        fits
    }

    /// The header, for an upload.
    pub fn header(&self, version: u64) -> [u32; HEADER_BYTES / 4] {
        let mut header = [0; HEADER_BYTES / 4];
        header[MAGIC_WORD] = MAGIC;
        header[REGIONS_WORD] = self.regions.len() as u32;
        header[VERSION_WORD] = version as u32;
        header[VERSION_WORD + 1] = (version >> 32) as u32;
        for (entry, region) in header[DIRECTORY_WORD..].chunks_exact_mut(2).zip(&self.regions) {
            entry[0] = (region.offset_words / UNIT_WORDS) as u32;
            entry[1] = region.len_words as u32;
        }
        header
    }

    /// Header and regions, whole: for small images and tests. Large ones are uploaded region by region.
    ///
    /// # Panics
    /// If `contents` are not as many and as long as the regions.
    pub fn write(&self, version: u64, contents: &[&[u32]]) -> Vec<u32> {
        assert_eq!(contents.len(), self.regions.len());
        let mut image = vec![0; self.words];
        image[..HEADER_BYTES / 4].copy_from_slice(&self.header(version));
        for (region, content) in self.regions.iter().zip(contents) {
            image[region.offset_words..][..region.len_words].copy_from_slice(content);
        }
        image
    }
}

/// Words of a piece: one group of the kernel `patch` writes it.
pub const PIECE_WORDS: usize = 256;
const LIST_HEADER_WORDS: usize = 4;
const RECORD_WORDS: usize = 4;
const FILL: u32 = 0;
const WRITE: u32 = 1;

/// Changes of an image, gathered in order. What comes later lies over what came before; the list that is
/// made of it has no two records for one word, so that the device may apply it in any order.
#[derive(Clone, Debug, Default)]
pub struct Patches {
    /// By first word; they never overlap.
    runs: BTreeMap<u32, Run>,
    content: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    len: u32,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// A value for each word.
    Fill(u32),
    /// From this place of `content` on.
    Write(u32),
}

impl Run {
    /// What is left of it behind its first `skip` words.
    fn behind(self, skip: u32) -> Run {
        let what = match self.what {
            What::Fill(value) => What::Fill(value),
            What::Write(at) => What::Write(at + skip),
        };
        Run { len: self.len - skip, what }
    }
}

impl Patches {
    /// No change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Forgets all changes and keeps the memory.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.content.clear();
    }

    /// Sets `count` words from `offset_words` of the image on.
    ///
    /// # Panics
    /// If that reaches beyond 2^32 words.
    pub fn fill(&mut self, offset_words: usize, count: usize, value: u32) {
        self.put(offset_words, count, What::Fill(value));
    }

    /// Writes words from `offset_words` of the image on.
    ///
    /// # Panics
    /// If that reaches beyond 2^32 words.
    pub fn write(&mut self, offset_words: usize, words: &[u32]) {
        let at = self.content.len();
        self.content.extend_from_slice(words);
        self.put(offset_words, words.len(), What::Write(at as u32));
    }

    /// A region's new length.
    pub fn set_len(&mut self, region: usize, len_words: usize) {
        self.fill(DIRECTORY_WORD + 2 * region + 1, 1, len_words as u32);
    }

    /// The image's new version.
    pub fn set_version(&mut self, version: u64) {
        self.write(VERSION_WORD, &[version as u32, (version >> 32) as u32]);
    }

    fn put(&mut self, offset_words: usize, count: usize, what: What) {
        let end = u32::try_from(offset_words + count).expect("an image is below 2^32 words");
        let start = offset_words as u32;
        if start == end {
            return;
        }
        // What lies under the new run goes; what sticks out on either side stays.
        let before = self.runs.range(..start).next_back().map(|(&at, &run)| (at, run));
        if let Some((at, run)) = before
            && at + run.len > start
        {
            self.runs.insert(at, Run { len: start - at, ..run });
            if at + run.len > end {
                self.runs.insert(end, run.behind(end - at));
            }
        }
        while let Some((&at, &run)) = self.runs.range(start..end).next() {
            self.runs.remove(&at);
            if at + run.len > end {
                self.runs.insert(end, run.behind(end - at));
            }
        }
        self.runs.insert(start, Run { len: end - start, what });
    }

    /// How many records the list has: groups of the kernel `patch` to be launched, at least one.
    pub fn records(&self) -> usize {
        self.runs.values().map(|run| (run.len as usize).div_ceil(PIECE_WORDS)).sum()
    }

    /// Length of the list in words of 4 bytes, at most.
    pub fn list_words(&self) -> usize {
        LIST_HEADER_WORDS + RECORD_WORDS * self.records() + self.content.len()
    }

    /// Writes the list that the kernel `patch` reads from its arena, for an image of `image_words`.
    pub fn list(&self, image_words: usize, list: &mut Vec<u32>) {
        list.clear();
        let records = self.records();
        list.extend([records as u32, image_words as u32, 0, 0]);
        let content_at = (LIST_HEADER_WORDS + RECORD_WORDS * records) as u32;
        for (&start, &run) in &self.runs {
            let mut done = 0;
            while done < run.len {
                let len = (run.len - done).min(PIECE_WORDS as u32);
                let (kind, value) = match run.behind(done).what {
                    What::Fill(value) => (FILL, value),
                    What::Write(at) => (WRITE, content_at + at),
                };
                list.extend([kind, start + done, len, value]);
                done += len;
            }
        }
        list.extend(&self.content);
    }

    /// Does to an image in host memory what the kernel does.
    ///
    /// # Panics
    /// If a change reaches beyond the image.
    pub fn apply(&self, image: &mut [u32]) {
        for (&start, run) in &self.runs {
            let place = &mut image[start as usize..][..run.len as usize];
            match run.what {
                What::Fill(value) => place.fill(value),
                What::Write(at) => {
                    place.copy_from_slice(&self.content[at as usize..][..run.len as usize]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn regions_start_at_units_and_have_slack() {
        let mut layout = ImageLayout::new(&[(1, 0), (16, 17), (0, 0), (5, 100)]);
        let at: Vec<usize> = (0..4).map(|i| layout.region(i).offset_words).collect();
        assert_eq!(at, [128, 144, 176, 176]);
        assert_eq!(layout.bytes(), 4 * (176 + 112));
        assert!(layout.resize(1, 32) && !layout.resize(1, 33) && layout.resize(3, 112));
        let header = layout.header(7 << 32 | 5);
        assert_eq!(header[..5], [MAGIC, 4, 5, 7, 0]);
        assert_eq!(header[8..16], [8, 1, 9, 32, 11, 0, 11, 112]);
        assert!(header[16..].iter().all(|word| *word == 0));
        let layout = ImageLayout::new(&[(2, 2), (1, 1)]);
        let image = layout.write(1, &[&[8, 9], &[10]]);
        assert_eq!((&image[128..130], image[144], image.len()), (&[8, 9][..], 10, 160));
    }

    #[test]
    fn a_long_fill_is_cut_into_pieces() {
        let mut patches = Patches::new();
        patches.fill(100, 65_536, 3);
        patches.write(7, &[1, 2]);
        assert_eq!(patches.records(), 257);
        let mut list = Vec::new();
        patches.list(1 << 20, &mut list);
        assert_eq!(list.len(), patches.list_words());
        assert_eq!(list[..8], [257, 1 << 20, 0, 0, 1, 7, 2, 4 + 4 * 257]);
        assert_eq!(list[8..12], [0, 100, 256, 3]);
        assert_eq!(list[list.len() - 2..], [1, 2]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Fill(usize, usize, u32),
        Write(usize, Vec<u32>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let fill =
            (0usize..900, 0usize..600, any::<u32>()).prop_map(|(a, n, v)| Step::Fill(a, n, v));
        let write = (0usize..900, prop::collection::vec(any::<u32>(), 0..600))
            .prop_map(|(a, words)| Step::Write(a, words));
        prop::collection::vec(prop_oneof![fill, write], 0..12)
    }

    proptest! {
        /// Gathered changes do what the single ones do in their order, and never touch a word twice.
        #[test]
        fn later_changes_lie_over_earlier_ones(steps in steps()) {
            let (mut plain, mut gathered) = (vec![7u32; 1500], vec![7u32; 1500]);
            let mut patches = Patches::new();
            for step in &steps {
                match step {
                    Step::Fill(at, count, value) => {
                        plain[*at..][..*count].fill(*value);
                        patches.fill(*at, *count, *value);
                    }
                    Step::Write(at, words) => {
                        plain[*at..][..words.len()].copy_from_slice(words);
                        patches.write(*at, words);
                    }
                }
            }
            patches.apply(&mut gathered);
            prop_assert_eq!(&gathered, &plain);
            let mut list = Vec::new();
            patches.list(1500, &mut list);
            let mut touched = vec![false; 1500];
            let mut listed = vec![7u32; 1500];
            for record in list[4..4 + 4 * list[0] as usize].chunks_exact(4) {
                let (at, len) = (record[1] as usize, record[2] as usize);
                prop_assert!(len <= PIECE_WORDS);
                for i in 0..len {
                    prop_assert!(!std::mem::replace(&mut touched[at + i], true));
                    let write = record[0] == WRITE;
                    listed[at + i] = if write { list[record[3] as usize + i] } else { record[3] };
                }
            }
            prop_assert_eq!(&listed, &plain);
        }
    }
}
