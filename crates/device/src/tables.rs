//! One version of all tables on a device, while traffic flows.
//!
//! The host keeps two copies of its tables and changes the one without readers (`lookup::versions`).
//! A device does the same with two images. The first job of a new version finds the image that is not
//! the newest, lets the device wait until the jobs that use it have ended, and brings it up to date by
//! the changes since its own version; later jobs of that version use it as it is. A launch gets one
//! image, so it never mixes versions, and nothing waits on the host.
//!
//! The form of an image is [`kernels::image`]'s. A region has slack behind it, to grow in place. Where the changes
//! are no longer known, outgrow the slack, or are more work than a copy, the whole image is sent.
//!
//! **Keys** ([`TableSource::secrets`]) are not in lists of changes: they are copied to their region, from memory that is wiped then.
//! An image with keys that are no longer those of the newest one is wiped once no job uses it: as soon as the next job is sent. Both
//! are wiped at the end. If the image is needed again, it gets its keys again.
//!
//! Threads: belongs to its accelerator.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use kernels::image::{ImageLayout, Patches};
use kernels::{Spec, files};

use crate::DeviceError;
use crate::driver::{Arguments, Driver, Event, Kernel, Memory, Program, Queue, Shape};

/// Words of changes beyond which a whole image is sent: a list of them takes as long then.
const CHANGED_WORDS_MAX: usize = 8 << 20;

/// A change of one region. Offsets and counts are in words of 4 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Sets words from `at` on; beyond the end it lengthens the region.
    Write {
        /// First word.
        at: usize,
        /// What is written there.
        words: &'a [u32],
    },
    /// Sets `count` words from `at` on to `value`.
    Fill {
        /// First word.
        at: usize,
        /// Number of words.
        count: usize,
        /// What each becomes.
        value: u32,
    },
    /// Lengthens the region to this many words; the new ones are zero.
    Grow(usize),
    /// Replaces the region.
    Replace(&'a [u32]),
}

/// Where images come from.
pub trait TableSource<T>: Send {
    /// All regions of `tables`, at most [`kernels::image::REGIONS_MAX`]; none where kernels need no tables.
    fn regions<'a>(&self, tables: &'a T) -> Vec<Cow<'a, [u32]>>;

    /// Hands every change between two versions to `change`, by region, in order; `false` if they are
    /// not known any more (some may have been handed out then).
    fn changes(&self, from: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool;

    /// Numbers of the regions that hold keys. They are sent by themselves, and not kept where they have no use any more.
    fn secrets(&self, _tables: &T) -> Vec<usize> {
        Vec::new()
    }
}

/// For kernels without tables.
#[derive(Clone, Copy, Debug)]
pub struct NoTables;

impl<T> TableSource<T> for NoTables {
    fn regions<'a>(&self, _: &'a T) -> Vec<Cow<'a, [u32]>> {
        Vec::new()
    }
    fn changes(&self, _: u64, _: u64, _: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        false
    }
}

struct Image {
    memory: Memory,
    /// Bytes of `memory`.
    bytes: usize,
    layout: ImageLayout,
    version: Option<u64>,
    keys: Keys,
    /// Changes under way, and the list that is read meanwhile.
    ready: Option<(Event, Vec<u32>)>,
}

/// The keys in an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Keys {
    /// None, and the version has none.
    #[default]
    Without,
    /// Those of its version: the regions' numbers, and a hash of what is in them.
    There(Vec<usize>, u64),
    /// They are to be sent before the image is used.
    Missing,
}

/// Both images.
pub(crate) struct Images<T> {
    source: Box<dyn TableSource<T>>,
    images: [Option<Image>; 2],
    newest: usize,
    queue: Queue,
    /// The kernel that applies a list of changes, and the work items of its groups.
    patch: (Kernel, u32),
    /// Where lists of changes go, and its capacity in bytes.
    list: Option<(Memory, usize)>,
    patches: Patches,
    hasher: RandomState,
    sent_bytes: u64,
    sent_images: u64,
}

impl<T> Images<T> {
    /// # Errors
    /// Whatever the driver refuses.
    pub(crate) fn new(
        source: Box<dyn TableSource<T>>,
        driver: &mut dyn Driver,
    ) -> Result<Self, DeviceError> {
        let queue = driver.queue()?;
        let spec = Spec::of_file(&files::PATCH);
        let program = Program {
            name: "patch".into(),
            source: kernels::source(&spec),
            defines: Vec::new(),
            ptx: None,
        };
        let kernel = driver.build(&program, &["patch"])?[0];
        Ok(Self {
            source,
            images: [None, None],
            newest: 0,
            queue,
            patch: (kernel, spec.group_items),
            list: None,
            patches: Patches::new(),
            hasher: RandomState::new(),
            sent_bytes: 0,
            sent_images: 0,
        })
    }

    /// Bytes sent, and how often a whole image was.
    pub(crate) fn sent(&self) -> (u64, u64) {
        (self.sent_bytes, self.sent_images)
    }

    /// Where images are sent.
    pub(crate) fn queue(&self) -> Queue {
        self.queue
    }

    /// Never frees what the device may still read.
    pub(crate) fn leak(&mut self) {
        for image in self.images.iter_mut().flatten() {
            std::mem::forget(image.ready.take());
        }
    }

    pub(crate) fn memory(&self, image: usize) -> Option<Memory> {
        self.images[image].as_ref().map(|image| image.memory)
    }

    /// The image of `version`, for a launch on `queue`; `None` where kernels need no tables. `users`
    /// are the events of the jobs in flight that use an image.
    pub(crate) fn bring(
        &mut self,
        driver: &mut dyn Driver,
        tables: &T,
        version: u64,
        queue: Queue,
        users: &dyn Fn(usize) -> Vec<Event>,
        patience: Duration,
    ) -> Result<Option<usize>, DeviceError> {
        for image in self.images.iter_mut().flatten() {
            let Some((event, _)) = &image.ready else { continue };
            match driver.is_done(*event) {
                Ok(false) => {}
                Ok(true) => image.ready = None,
                Err(error) => {
                    // Whatever the image holds, it is not its version.
                    image.version = None;
                    std::mem::forget(image.ready.take());
                    return Err(error);
                }
            }
        }
        let is_it =
            |image: &Option<Image>| image.as_ref().is_some_and(|i| i.version == Some(version));
        let found = match self.images.iter().position(is_it) {
            Some(found) => {
                if self.keys(found) == Some(&Keys::Missing) {
                    let regions = self.source.regions(tables);
                    self.send_keys(driver, found, &regions, self.source.secrets(tables), patience)?;
                }
                found
            }
            None => {
                let regions = self.source.regions(tables);
                if regions.is_empty() {
                    return Ok(None);
                }
                let other = 1 - self.newest;
                for event in users(other) {
                    driver.wait_for(self.queue, event)?;
                }
                // What an earlier update still sends must be there before this one.
                let from = self.images[other].as_ref().and_then(|image| image.version);
                let secrets = self.source.secrets(tables);
                let is_patched = match from {
                    Some(from) => self.patch(driver, other, (from, version), &secrets, patience)?,
                    None => false,
                };
                if !is_patched {
                    self.send_whole(driver, other, (&regions, &secrets), version, patience)?;
                }
                if self.keys(other) == Some(&Keys::Missing) {
                    self.send_keys(driver, other, &regions, secrets, patience)?;
                }
                self.newest = other;
                other
            }
        };
        if let Some(Image { ready: Some((event, _)), .. }) = &self.images[found] {
            driver.wait_for(queue, *event)?;
        }
        // What the image before it has of keys that have changed goes once nobody uses it.
        let before = 1 - self.newest;
        if let Some(Keys::There(..)) = self.keys(before)
            && found != before
            && self.keys(before) != self.keys(self.newest)
            && users(before).is_empty()
        {
            self.wipe(driver, before, patience)?;
        }
        Ok(Some(found))
    }

    fn keys(&self, image: usize) -> Option<&Keys> {
        self.images[image].as_ref().map(|image| &image.keys)
    }

    /// Sends the keys of an image's version, and waits until they are there.
    fn send_keys(
        &mut self,
        driver: &mut dyn Driver,
        at: usize,
        regions: &[Cow<'_, [u32]>],
        secrets: Vec<usize>,
        patience: Duration,
    ) -> Result<(), DeviceError> {
        let Some(image) = &mut self.images[at] else { return Ok(()) };
        let place = |region: usize| 4 * image.layout.region(region).offset_words;
        let own = || secrets.iter().filter_map(|region| Some((*region, regions.get(*region)?)));
        let parts: Vec<_> = own().map(|(region, words)| (as_bytes(words), place(region))).collect();
        crate::upload_keys(driver, self.queue, image.memory, &parts, patience)?;
        self.sent_bytes += parts.iter().map(|(bytes, _)| bytes.len() as u64).sum::<u64>();
        let words: Vec<_> = own().collect();
        image.keys = match secrets.is_empty() {
            true => Keys::Without,
            false => Keys::There(secrets.clone(), self.hasher.hash_one(&words)),
        };
        Ok(())
    }

    /// Overwrites the keys of an image that no job uses.
    fn wipe(
        &mut self,
        driver: &mut dyn Driver,
        at: usize,
        patience: Duration,
    ) -> Result<(), DeviceError> {
        let Some(image) = &mut self.images[at] else { return Ok(()) };
        let Keys::There(regions, _) = &image.keys else { return Ok(()) };
        let zeros: Vec<_> = regions
            .iter()
            .map(|region| image.layout.region(*region))
            .map(|own| (vec![0; 4 * own.len_words], 4 * own.offset_words))
            .collect();
        let parts: Vec<_> = zeros.iter().map(|(bytes, place)| (&bytes[..], *place)).collect();
        crate::upload_all(driver, self.queue, image.memory, &parts, patience)?;
        image.keys = Keys::Missing;
        Ok(())
    }

    /// Whether there are keys on the device, or were.
    pub(crate) fn has_keys(&self) -> bool {
        self.images.iter().flatten().any(|image| image.keys != Keys::Without)
    }

    /// Overwrites all keys. Nothing may be under way.
    pub(crate) fn wipe_all(&mut self, driver: &mut dyn Driver, patience: Duration) {
        for image in [0, 1] {
            // A device that does not take that takes nothing else either.
            let _ = self.wipe(driver, image, patience);
        }
    }

    /// Brings an image from one version to another by the changes; `false` if a copy is better.
    fn patch(
        &mut self,
        driver: &mut dyn Driver,
        at: usize,
        (from, to): (u64, u64),
        secrets: &[usize],
        patience: Duration,
    ) -> Result<bool, DeviceError> {
        let Some(image) = &mut self.images[at] else { return Ok(false) };
        let mut layout = image.layout.clone();
        let patches = &mut self.patches;
        patches.clear();
        let (mut fits, mut other_keys) = (true, false);
        let known = self.source.changes(from, to, &mut |region, change| {
            fits = fits && region < layout.len();
            if secrets.contains(&region) {
                other_keys = true;
                if let Change::Replace(words) = change {
                    fits = fits && layout.resize(region, words.len().next_multiple_of(16).max(16));
                }
            } else {
                fits = fits && add(patches, &mut layout, region, &change);
            }
        });
        let had_keys = matches!(&image.keys, Keys::There(own, _) if own == secrets);
        let keeps_keys =
            !other_keys && (had_keys || secrets.is_empty() && image.keys == Keys::Without);
        if !known || !fits || patches.list_words() > CHANGED_WORDS_MAX {
            return Ok(false);
        }
        if let Some((event, _)) = &image.ready
            && !driver.wait(*event, patience)?
        {
            return Err(DeviceError::Hang(patience));
        }
        image.ready = None;
        image.version = None; // until all of it is on its way
        for region in 0..layout.len() {
            patches.set_len(region, layout.region(region).len_words);
        }
        patches.set_version(to);
        let mut list = Vec::new();
        patches.list(image.bytes / 4, &mut list);
        image.layout = layout;
        let bytes = size_of_val(&*list);
        let memory = match self.list {
            Some((memory, capacity)) if capacity >= bytes => memory,
            old => {
                if let Some((memory, _)) = old {
                    // The other image's changes may still be read from there.
                    let event = driver.event(self.queue)?;
                    if !driver.wait(event, patience)? {
                        return Err(DeviceError::Hang(patience));
                    }
                    driver.free(memory);
                }
                let capacity = bytes.next_power_of_two().max(1 << 16);
                let memory = driver.allocate(capacity)?;
                self.list.insert((memory, capacity)).0
            }
        };
        let words = as_bytes(&list);
        let groups = u32::try_from(patches.records()).unwrap_or(u32::MAX).clamp(1, 65_535);
        let shape = Shape { groups, items: self.patch.1 };
        let arguments = Arguments {
            arena: memory,
            payload: memory,
            tables: image.memory,
            state: memory,
            job: 0,
        };
        // SAFETY: the list is kept in `ready` until the event behind the copy is done; if a step in
        // between fails, it is kept for good.
        let sent = unsafe { driver.upload(self.queue, &raw const *words, memory, 0) }
            .and_then(|()| driver.launch(self.queue, self.patch.0, shape, &arguments))
            .and_then(|()| driver.event(self.queue));
        self.sent_bytes += bytes as u64;
        match sent {
            Ok(event) => image.ready = Some((event, list)),
            Err(error) => {
                std::mem::forget(list);
                return Err(error);
            }
        }
        if !keeps_keys {
            image.keys = Keys::Missing;
        }
        image.version = Some(to);
        Ok(true)
    }

    fn send_whole(
        &mut self,
        driver: &mut dyn Driver,
        at: usize,
        (regions, secrets): (&[Cow<'_, [u32]>], &[usize]),
        version: u64,
        patience: Duration,
    ) -> Result<(), DeviceError> {
        // Another place, perhaps, or other memory.
        self.wipe(driver, at, patience)?;
        // A quarter of slack, and 16 KB at least.
        let capacity = |len: usize| len + (len / 4).max(4096);
        let lens: Vec<_> = regions.iter().map(|r| (r.len(), capacity(r.len()))).collect();
        let layout = ImageLayout::new(&lens);
        let bytes = layout.bytes();
        let image = match &mut self.images[at] {
            Some(image) if image.bytes >= bytes => {
                image.version = None;
                image
            }
            old => {
                if old.is_some() {
                    // Jobs that use it, and patches on their way to it, must be over before it goes.
                    let event = driver.event(self.queue)?;
                    if !driver.wait(event, patience)? {
                        return Err(DeviceError::Hang(patience));
                    }
                }
                if let Some(image) = old.take() {
                    driver.free(image.memory);
                }
                let memory = driver.allocate(bytes)?;
                let layout = layout.clone();
                let keys = Keys::Without;
                old.insert(Image { memory, bytes, layout, version: None, keys, ready: None })
            }
        };
        image.layout = layout;
        let head = image.layout.header(version).to_vec();
        let mut parts = vec![(as_bytes(&head), 0)];
        for (i, words) in regions.iter().enumerate().filter(|(i, _)| !secrets.contains(i)) {
            parts.push((as_bytes(words), 4 * image.layout.region(i).offset_words));
        }
        // Copies of its own, waited for also where one fails: the tables are their owner's again.
        crate::upload_all(driver, self.queue, image.memory, &parts, patience)?;
        self.sent_bytes += parts.iter().map(|(bytes, _)| bytes.len() as u64).sum::<u64>();
        image.version = Some(version);
        image.keys = if secrets.is_empty() { Keys::Without } else { Keys::Missing };
        image.ready = None;
        self.sent_images += 1;
        Ok(())
    }
}

/// Adds the change of a region to the list; `false` if it exceeds the region's capacity.
fn add(
    patches: &mut Patches,
    layout: &mut ImageLayout,
    region: usize,
    change: &Change<'_>,
) -> bool {
    let place = layout.region(region).offset_words;
    match *change {
        Change::Write { at, words } => {
            if !lengthen(patches, layout, region, at + words.len()) {
                return false;
            }
            patches.write(place + at, words);
        }
        Change::Fill { at, count, value } => {
            if !lengthen(patches, layout, region, at + count) {
                return false;
            }
            patches.fill(place + at, count, value);
        }
        Change::Grow(len) => return lengthen(patches, layout, region, len.next_multiple_of(16)),
        Change::Replace(words) => {
            let len = words.len().next_multiple_of(16).max(16);
            if !layout.resize(region, len) {
                return false;
            }
            patches.fill(place, len, 0);
            patches.write(place, words);
        }
    }
    true
}

/// Makes a region at least `len` words long, the new ones zero.
fn lengthen(patches: &mut Patches, layout: &mut ImageLayout, region: usize, len: usize) -> bool {
    let old = layout.region(region);
    if len <= old.len_words {
        return true;
    }
    if !layout.resize(region, len) {
        return false;
    }
    patches.fill(old.offset_words + old.len_words, len - old.len_words, 0);
    true
}

fn as_bytes(words: &[u32]) -> &[u8] {
    // SAFETY: the words are initialised, and `u8` has no alignment to miss.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

#[cfg(test)]
mod tests;
