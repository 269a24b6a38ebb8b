//! What a segment launches, and the memory beside the columns that its kernels work in.
//!
//! ```text
//!  arena on the device │ header │ list of areas │ columns │ area 0 │ area 1 │ …
//!                          └────────▶ for each area: byte offset, bytes
//! ```
//!
//! Areas belong to the job: they are scratch, and stay on the device but for those of an [`Output`].

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use chunk::JobHeader;

use crate::driver::Shape;

/// Bytes of a block of payload.
const BLOCK_BYTES: usize = 16;
/// Where areas start.
const AREA_ALIGN: usize = 64;
/// Words before the starts of an output: see [`Output`].
const OUTPUT_HEAD_BYTES: usize = 16;

/// What the work items of a launch share out. Items beyond the work are there: a group is launched whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The rows.
    Rows {
        /// Work items that one row may have, 1 for most kernels: a launch with fewer rows than fill the device gets
        /// up to so many times the groups that its rows need, and the kernel shares the work of a row out.
        items_per_row: u32,
    },
    /// The rows, so many to a group.
    Tiles {
        /// Rows of a group.
        rows: u32,
    },
    /// Blocks of 16 bytes of the payload, an item each. Payload is packed or gathered for such a kernel.
    Blocks,
    /// Entries of a list that an earlier kernel made, an item each: as many as there can be, for the number itself is
    /// on the device.
    List {
        /// Entries at most, whatever the rows,
        fixed: u32,
        /// and for each row.
        per_row: u32,
    },
    /// One group does it all.
    Group,
}

/// A kernel of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub kernel: Cow<'static, str>,
    /// Work items of a group.
    pub items: u32,
    /// What they share out.
    pub work: Work,
    /// Whether it gets the payload. Others get memory of zeros: in place, payload is what all packets lie in.
    pub has_payload: bool,
    /// What it gets in place of the job's number.
    pub job: Option<u32>,
    /// How long it may run. A kernel that is seen to run for longer, from the end of what comes before it in its
    /// queue, ends its segment's use of the device, or its own as a [`Part`]; the time until the device takes it up counts.
    pub limit: Option<Duration>,
    /// It belongs to the sort of a job's rows: left out for a job that is not scheduled.
    pub schedules: bool,
    /// The stage that it belongs to, for messages.
    pub stage: &'static str,
    /// A part of its stage without which the others go on: if its kernel is too slow, that alone is used no more. Its kernel gets as
    /// `job` how many groups the device runs at once, so that it can bound its work.
    pub part: Option<Part>,
}

/// See [`Step::part`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name, for messages.
    pub name: Cow<'static, str>,
    /// The kernel that is launched in place of its own from then on, with the same work items.
    pub instead: Cow<'static, str>,
}

impl Step {
    fn new(kernel: impl Into<Cow<'static, str>>, items: u32, work: Work) -> Self {
        let (kernel, has_payload) = (kernel.into(), true);
        Self {
            kernel,
            items,
            work,
            has_payload,
            job: None,
            limit: None,
            schedules: false,
            stage: "",
            part: None,
        }
    }

    /// A kernel over the rows, in groups of `items`.
    pub fn rows(kernel: impl Into<Cow<'static, str>>, items: u32) -> Self {
        Self::new(kernel, items, Work::Rows { items_per_row: 1 })
    }

    /// A kernel over the rows, up to `items_per_row` work items to a row.
    pub fn shared(kernel: impl Into<Cow<'static, str>>, items: u32, items_per_row: u32) -> Self {
        Self::new(kernel, items, Work::Rows { items_per_row })
    }

    /// A kernel of which a group works on `rows` rows.
    pub fn tiles(kernel: impl Into<Cow<'static, str>>, items: u32, rows: u32) -> Self {
        Self::new(kernel, items, Work::Tiles { rows })
    }

    /// A kernel over the blocks of 16 bytes of all payload.
    pub fn blocks(kernel: impl Into<Cow<'static, str>>, items: u32) -> Self {
        Self::new(kernel, items, Work::Blocks)
    }

    /// A kernel over a list of at most `fixed` entries and `per_row` more for each row.
    pub fn list(
        kernel: impl Into<Cow<'static, str>>,
        items: u32,
        fixed: u32,
        per_row: u32,
    ) -> Self {
        Self::new(kernel, items, Work::List { fixed, per_row })
    }

    /// A kernel that is one group of `items`.
    pub fn group(kernel: impl Into<Cow<'static, str>>, items: u32) -> Self {
        Self::new(kernel, items, Work::Group)
    }

    /// The same with this number in place of the job's.
    #[must_use]
    pub fn with_job(self, job: u32) -> Self {
        Self { job: Some(job), ..self }
    }

    /// The same as a part of its stage, with a limit of its own.
    #[must_use]
    pub fn with_part(self, part: Part, limit: Duration) -> Self {
        Self { part: Some(part), limit: Some(limit), ..self }
    }

    /// The shape of its launch for a job of `rows` rows and `payload` bytes of payload.
    pub fn shape(&self, rows: usize, payload: usize, groups_at_once: u32) -> Shape {
        match self.work {
            Work::Rows { items_per_row } => {
                Shape::of_rows(rows, self.items).shared(items_per_row, groups_at_once)
            }
            Work::Tiles { rows: each } => {
                Shape { items: self.items.max(1), ..Shape::of_rows(rows, each) }
            }
            Work::Blocks => Shape::of_rows(payload.div_ceil(BLOCK_BYTES), self.items),
            Work::List { fixed, per_row } => {
                Shape::of_rows(fixed as usize + per_row as usize * rows, self.items)
            }
            Work::Group => Shape { groups: 1, items: self.items.max(1) },
        }
    }
}

/// Memory of a job on the device, for its kernels alone; its content is anything at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// Bytes, whatever the rows,
    pub fixed: usize,
    /// and for each row,
    pub per_row: usize,
    /// but no more than this; 0: no bound.
    pub max: usize,
}

impl Area {
    /// Its bytes in a job of `rows` rows: a multiple of four.
    pub fn bytes(&self, rows: usize) -> usize {
        let bytes = self.fixed + self.per_row * rows;
        let bytes = if self.max > 0 { bytes.min(self.max) } else { bytes };
        bytes.next_multiple_of(4)
    }
}

/// Records of any length that kernels write for rows, which come back to the host.
///
/// Two areas hold them: the starts ([`Output::STARTS`]), and behind it the words. In words of four bytes, the starts
/// are: how many words there are in all; whether they exceed the capacity; two that are zero; then for
/// each row where its words start, and where the last one's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Number of the area of the starts; the next one has the words.
    pub area: usize,
    /// Which of the segment's shades gets the records.
    pub shade: usize,
    /// Its stage, for messages.
    pub stage: &'static str,
}

impl Output {
    /// The area of the starts.
    pub const STARTS: Area = Area { fixed: OUTPUT_HEAD_BYTES + 4, per_row: 4, max: 0 };

    /// The area of the words: as many as each row may have, `words_per_row`, and a job, `words_per_job`.
    pub fn words(words_per_row: usize, words_per_job: usize) -> Area {
        Area { fixed: 0, per_row: 4 * words_per_row, max: (4 * words_per_job).max(4) }
    }
}

/// The records of a job's rows, as they came back.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    /// Starts of all rows, and the end of the last one's, in words.
    starts: &'a [u8],
    words: &'a [u8],
}

impl<'a> Records<'a> {
    /// From the bytes of both areas, for `rows` rows; `None` if the words exceeded the capacity, or the
    /// starts are invalid.
    pub(super) fn new(starts: &'a [u8], words: &'a [u8], rows: usize) -> Option<Self> {
        let total = word(starts, 0)? as usize;
        let is_over = word(starts, 1)? != 0;
        let starts = starts.get(OUTPUT_HEAD_BYTES..)?.get(..4 * (rows + 1))?;
        let words = words.get(..4 * total)?;
        (!is_over && word(starts, rows)? as usize == total).then_some(Self { starts, words })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        (self.starts.len() / 4).saturating_sub(1)
    }

    /// Words of all rows.
    pub fn words(&self) -> usize {
        self.words.len() / 4
    }

    /// The words of a row of the job, numbered in the order in which the job hands out its rows.
    pub fn row(&self, row: usize) -> impl Iterator<Item = u32> + 'a {
        let place = |row| word(self.starts, row).map(|start| 4 * start as usize);
        let range = place(row).zip(place(row + 1)).map(|(start, end)| start..end);
        let words = range.and_then(|range| self.words.get(range)).unwrap_or_default();
        words.chunks_exact(4).filter_map(|bytes| word(bytes, 0))
    }
}

fn word(bytes: &[u8], index: usize) -> Option<u32> {
    bytes.get(4 * index..4 * index + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Where areas lie.
#[derive(Clone, Debug, Default)]
pub(super) struct Areas {
    pub(super) all: Vec<Area>,
    pub(super) outputs: Vec<Output>,
}

impl Areas {
    /// Bytes of the list behind the header.
    pub(super) fn list_bytes(&self) -> usize {
        (8 * self.all.len()).next_multiple_of(AREA_ALIGN)
    }

    /// Bytes of all areas of a job of `rows` rows.
    pub(super) fn bytes(&self, rows: usize) -> usize {
        self.all.iter().map(|area| area.bytes(rows).next_multiple_of(AREA_ALIGN)).sum()
    }

    /// Byte offset and bytes of each, for areas that begin at `start` bytes.
    pub(super) fn places(
        &self,
        rows: usize,
        start: usize,
    ) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut at = start;
        self.all.iter().map(move |area| {
            let (place, bytes) = (at, area.bytes(rows));
            at += bytes.next_multiple_of(AREA_ALIGN);
            (place, bytes)
        })
    }

    /// Bytes of all records of a job of `rows` rows, with their starts.
    pub(super) fn record_bytes(&self, rows: usize) -> usize {
        self.records(rows, 0).map(|(_, bytes)| bytes).sum()
    }

    /// Where the records of each output lie, starts and words in one piece, for areas that begin at `start` bytes,
    /// and how many bytes they have.
    pub(super) fn records(
        &self,
        rows: usize,
        start: usize,
    ) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.outputs.iter().filter_map(move |output| {
            let mut places = self.places(rows, start).skip(output.area);
            let ((first, _), (second, bytes)) = (places.next()?, places.next()?);
            Some((first, second + bytes - first))
        })
    }

    /// Each output, and where its starts and its words are in what [`Areas::records`] brings down.
    pub(super) fn outputs_of(
        &self,
        rows: usize,
    ) -> impl Iterator<Item = (Output, [Range<usize>; 2])> + '_ {
        let starts_bytes = Output::STARTS.bytes(rows).next_multiple_of(AREA_ALIGN);
        let places = self.records(rows, 0).scan(0, move |at, (_, bytes)| {
            let (start, words) = (*at, *at + starts_bytes);
            *at += bytes;
            Some([start..words, words..*at])
        });
        self.outputs.iter().copied().zip(places)
    }

    /// Writes the list behind the header of `header_bytes`, and its place into the header. The areas `without` are shown
    /// with no bytes.
    pub(super) fn write(
        &self,
        head: &mut [u8],
        header_bytes: usize,
        rows: usize,
        (start, without): (usize, &[usize]),
    ) {
        if self.all.is_empty() {
            return;
        }
        let (header, list) = head.split_at_mut(header_bytes);
        JobHeader::write_areas(header, header_bytes as u32);
        let places = self.places(rows, start).enumerate();
        for (to, (number, (place, bytes))) in list.chunks_exact_mut(8).zip(places) {
            let bytes = if without.contains(&number) { 0 } else { bytes };
            to[..4].copy_from_slice(&(place as u32).to_ne_bytes());
            to[4..].copy_from_slice(&(bytes as u32).to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_follow_from_what_is_shared_out() {
        let groups = |step: Step| step.shape(1000, 4100, 16).groups;
        assert_eq!(groups(Step::rows("k", 64)), 16);
        assert_eq!(groups(Step::shared("k", 256, 8)), 16);
        assert_eq!(groups(Step::tiles("k", 64, 512)), 2);
        assert_eq!(groups(Step::blocks("k", 64)), 5, "257 blocks");
        assert_eq!(groups(Step::list("k", 64, 24, 1)), 16);
        assert_eq!(groups(Step::group("k", 64)), 1);
        assert_eq!(Step::tiles("k", 64, 512).shape(1000, 0, 16).items, 64);
        assert_eq!(Step::blocks("k", 64).shape(0, 0, 16).groups, 1);
    }

    #[test]
    fn areas_follow_one_another() {
        let area = |fixed, per_row, max| Area { fixed, per_row, max };
        let areas =
            Areas { all: vec![area(5, 0, 0), area(0, 8, 100), area(4, 4, 0)], outputs: Vec::new() };
        let places: Vec<_> = areas.places(20, 1024).collect();
        assert_eq!(places, [(1024, 8), (1088, 100), (1216, 84)]);
        assert_eq!(areas.bytes(20), 64 + 128 + 128);
        assert_eq!(areas.list_bytes(), 64);
        let list = |without: &[usize]| {
            let mut head = vec![0xee; 64 + areas.list_bytes()];
            areas.write(&mut head, 64, 20, (1024, without));
            (0..6).map(|i| word(&head[64..], i).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(list(&[]), [1024, 8, 1088, 100, 1216, 84]);
        assert_eq!(list(&[1]), [1024, 8, 1088, 0, 1216, 84], "no bytes are shown");
    }

    #[test]
    fn records_are_read_by_row_and_a_count_too_many_is_none() {
        let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<_>>();
        let (starts, words) = (bytes(&[3, 0, 0, 0, 0, 1, 1, 3, 9]), bytes(&[7, 8, 9, 1, 1]));
        let records = Records::new(&starts, &words, 3).unwrap();
        let rows: Vec<Vec<u32>> = (0..4).map(|row| records.row(row).collect()).collect();
        assert_eq!(rows, [vec![7], vec![], vec![8, 9], vec![]]);
        assert_eq!((records.rows(), records.words()), (3, 3));
        assert!(Records::new(&bytes(&[3, 1, 0, 0, 0, 1, 1, 3]), &words, 3).is_none());
        assert!(Records::new(&bytes(&[6, 0, 0, 0, 0, 1, 1, 6]), &words, 3).is_none());
        assert!(Records::new(&starts[..24], &words, 3).is_none());
    }
}
