//! Two copies of all tables: readers never block, a change is seen whole.
//!
//! A job must see one version of *all* tables from its lookup to its post-shade, however long that
//! takes, and taking it must cost a worker nothing. So there are two copies (left-right):
//!
//! ```text
//! reader.pin()   count itself into the active copy; look again whether it is still the active one
//! writer.publish wait until the idle copy has no pin · bring it up to date · apply the patches ·
//!                make it the active one
//! writer.settle  wait until the other copy has no pin · apply the same patches to it
//! ```
//!
//! A pin costs atomic additions on a cache line that only this reader's pins write. A reader looks
//! again at most once for each publish that falls between its two steps. The writer is the one that
//! waits, sleeping, so a job that keeps its pin delays changes and nothing else.
//!
//! Why no reader sees a write: the writer writes a copy only after it has made the other one active
//! and has then seen no pin on this one. A reader that counts itself in later looks at the active
//! copy after counting, sees the other one, and takes its count back without touching the data.
//! A sequentially consistent fence is between the two steps on both sides, so one of the two sees
//! the other.
//!
//! Thread rule: one [`Writer`]; one [`Reader`] per thread (clone it); pins may travel.

use std::collections::VecDeque;
use std::ops::Deref;
use std::time::Duration;

use sync::{Arc, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, fence};

/// loom's twins of the std types, under the model checker.
mod sync {
    #[cfg(loom)]
    pub(super) use loom::{
        sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
        sync::{Arc, Mutex, MutexGuard},
    };
    #[cfg(not(loom))]
    pub(super) use std::{
        sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
        sync::{Arc, Mutex, MutexGuard},
    };
}

/// Data that a patch changes. Both copies see the same patches in the same order.
pub trait Patchable {
    /// A change.
    type Patch;

    /// Applies one change. Must be a function of the two arguments alone, so that the copies agree.
    /// Should it panic, the copies are in an unknown state and so is the writer.
    fn apply(&mut self, patch: &Self::Patch);
}

/// A table by itself.
impl Patchable for crate::Blob {
    type Patch = crate::Patch;

    fn apply(&mut self, patch: &crate::Patch) {
        self.apply(std::slice::from_ref(patch));
    }
}

struct Shared<T> {
    active: AtomicUsize, // 0 or 1
    copies: [Copy<T>; 2],
    readers: Mutex<Vec<Arc<Pins>>>, // never touched by a pin
}

struct Copy<T> {
    version: AtomicU64, // written with the data
    data: std::cell::UnsafeCell<T>,
}

/// How many pins a reader has on each copy; alone on its cache lines (two, because processors fetch
/// them in pairs).
#[repr(align(128))]
struct Pins([AtomicU32; 2]);

// SAFETY: `data` is written only by the one `Writer`, only while no pin is on that copy (module
// docs), and read through pins and by the writer's own thread; so readers on several threads share
// `&T` (T: Sync) and the writer's thread may change and drop what another made (T: Send).
unsafe impl<T: Send + Sync> Sync for Shared<T> {}
// SAFETY: as above; moving it moves the two T.
unsafe impl<T: Send + Sync> Send for Shared<T> {}

/// The only one that changes the tables.
pub struct Writer<T: Patchable> {
    shared: Arc<Shared<T>>,
    pending: std::sync::Arc<[T::Patch]>, // applied to the active copy, not yet to the idle one
    version: u64,
    log: std::sync::Arc<Log<T::Patch>>,
}

/// Versions whose patches are kept for followers. A follower further behind copies the tables.
const LOG_VERSIONS: usize = 256;

/// The last changes, kept only while there are followers.
struct Log<P>(std::sync::Mutex<VecDeque<Change<P>>>);

/// The patches that made a version.
type Change<P> = (u64, std::sync::Arc<[P]>);

/// What changed from version to version, for copies of the tables elsewhere: on a device. Nothing is
/// kept before the first [`Writer::changes`].
pub struct Changes<P> {
    log: std::sync::Arc<Log<P>>,
}

impl<P> Changes<P> {
    /// The patches that lead from version `from` to version `to`, oldest first; `None` when they are
    /// no longer (or were never) kept.
    pub fn between(&self, from: u64, to: u64) -> Option<Vec<std::sync::Arc<[P]>>> {
        let log = self.log.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let wanted = log.iter().filter(|(version, _)| (from + 1..=to).contains(version));
        let patches: Vec<_> = wanted.map(|(_, patches)| patches.clone()).collect();
        (patches.len() as u64 == to.checked_sub(from)?).then_some(patches)
    }
}

impl<P> Clone for Changes<P> {
    fn clone(&self) -> Self {
        Self { log: self.log.clone() }
    }
}

impl<P> std::fmt::Debug for Changes<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}

/// Takes pins for one thread. Clone it for another thread: each clone has its own counter.
pub struct Reader<T> {
    home: Arc<Home<T>>,
}

/// What a reader's pins keep alive, apart from every other reader's, so that pinning touches no
/// shared cache line but that of `active`.
struct Home<T> {
    pins: Arc<Pins>,
    shared: Arc<Shared<T>>,
}

/// One version, which stays as it is until the pin is dropped. Derefs to the tables.
pub struct Pin<T> {
    home: Arc<Home<T>>,
    copy: usize,
    version: u64,
}

/// A writer and a first reader over `tables` and a second copy of it, at version 0.
pub fn versions<T: Patchable + Clone>(tables: T) -> (Writer<T>, Reader<T>) {
    let second = tables.clone();
    versions_of(tables, second)
}

/// As [`versions`], where the caller makes the second copy; both must be equal.
pub fn versions_of<T: Patchable>(left: T, right: T) -> (Writer<T>, Reader<T>) {
    let copy = |data| Copy { version: AtomicU64::new(0), data: std::cell::UnsafeCell::new(data) };
    let shared = Arc::new(Shared {
        active: AtomicUsize::new(0),
        copies: [copy(left), copy(right)],
        readers: Mutex::new(Vec::new()),
    });
    let log = std::sync::Arc::new(Log(std::sync::Mutex::default()));
    let writer = Writer { shared, pending: [].into(), version: 0, log };
    let reader = writer.reader();
    (writer, reader)
}

impl<T: Patchable> Writer<T> {
    /// Applies `patches` in order and makes them visible as a whole; the new version's number.
    /// Waits, sleeping, until nothing pins the version before the current one.
    pub fn publish(&mut self, patches: Vec<T::Patch>) -> u64 {
        self.wait_for_idle();
        self.publish_now(patches)
    }

    /// As [`Writer::publish`], but gives the patches back when it would have to wait.
    pub fn try_publish(&mut self, patches: Vec<T::Patch>) -> Result<u64, Vec<T::Patch>> {
        if self.idle_is_pinned() {
            return Err(patches);
        }
        Ok(self.publish_now(patches))
    }

    /// Brings the idle copy up to date now, so that the next publish need not; waits for its pins.
    pub fn settle(&mut self) {
        if !self.pending.is_empty() {
            self.wait_for_idle();
            self.catch_up();
        }
    }

    /// As [`Writer::settle`] without waiting; whether both copies are equal now.
    pub fn try_settle(&mut self) -> bool {
        if !self.pending.is_empty() && !self.idle_is_pinned() {
            self.catch_up();
        }
        self.pending.is_empty()
    }

    /// The current tables.
    pub fn current(&self) -> &T {
        // SAFETY: only this writer writes, through `&mut self`, and then only the idle copy; the
        // borrow of `self` keeps this one active and unwritten.
        unsafe { &*self.shared.copies[self.active()].data.get() }
    }

    /// The current version's number: how often was published.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A further reader.
    pub fn reader(&self) -> Reader<T> {
        Reader::register(&self.shared)
    }

    /// The changes from now on, for a copy of the tables elsewhere.
    pub fn changes(&self) -> Changes<T::Patch> {
        Changes { log: self.log.clone() }
    }

    /// Keeps the patches of a version for those who follow.
    fn record(&self, patches: &std::sync::Arc<[T::Patch]>) {
        let mut log = self.log.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if std::sync::Arc::strong_count(&self.log) == 1 {
            return log.clear();
        }
        if log.len() == LOG_VERSIONS {
            log.pop_front();
        }
        log.push_back((self.version, patches.clone()));
    }

    /// Precondition: the idle copy has no pin.
    fn publish_now(&mut self, patches: Vec<T::Patch>) -> u64 {
        self.catch_up();
        let patches: std::sync::Arc<[T::Patch]> = patches.into();
        let idle = 1 - self.active();
        self.apply_to_idle(&patches);
        self.version += 1;
        // Before a reader can see the version.
        self.record(&patches);
        self.shared.copies[idle].version.store(self.version, Ordering::Relaxed);
        self.shared.active.store(idle, Ordering::Release);
        self.pending = patches;
        self.version
    }

    /// Precondition: the idle copy has no pin.
    fn catch_up(&mut self) {
        let pending = std::mem::replace(&mut self.pending, [].into());
        self.apply_to_idle(&pending);
    }

    /// Precondition: the idle copy has no pin, and none was seen since it became idle.
    fn apply_to_idle(&mut self, patches: &[T::Patch]) {
        if patches.is_empty() {
            return;
        }
        let idle = 1 - self.active();
        // SAFETY: the callers have seen every reader's count for this copy at zero after it became
        // idle (module docs), so no pin refers to it and none can until it is active again, which
        // only this `&mut self` does. `current` borrows `self`.
        let data = unsafe { &mut *self.shared.copies[idle].data.get() };
        for patch in patches {
            data.apply(patch);
        }
    }

    fn active(&self) -> usize {
        self.shared.active.load(Ordering::Relaxed) // written by this thread alone
    }

    /// Whether a reader counts a pin on the idle copy. Forgets readers that are gone.
    fn idle_is_pinned(&self) -> bool {
        let idle = 1 - self.active();
        fence(Ordering::SeqCst); // after the store that made it idle, before the counts
        let mut readers = lock(&self.shared.readers);
        let mut pinned = false;
        readers.retain(|pins| {
            let count = pins.0[idle].load(Ordering::Acquire);
            pinned |= count != 0;
            // The list's own reference and no other: no reader and no pin can come back.
            Arc::strong_count(pins) > 1 || count != 0
        });
        pinned
    }

    fn wait_for_idle(&self) {
        let mut round = 0_u32;
        while self.idle_is_pinned() {
            pause(round);
            round = round.saturating_add(1);
        }
    }
}

impl<T> Reader<T> {
    fn register(shared: &Arc<Shared<T>>) -> Self {
        let pins = Arc::new(Pins([AtomicU32::new(0), AtomicU32::new(0)]));
        lock(&shared.readers).push(pins.clone());
        Self { home: Arc::new(Home { pins, shared: shared.clone() }) }
    }

    /// Pins the current version. Never blocks, never allocates.
    pub fn pin(&self) -> Pin<T> {
        let Home { pins, shared } = &*self.home;
        loop {
            let copy = shared.active.load(Ordering::Relaxed);
            pins.0[copy].fetch_add(1, Ordering::Acquire);
            fence(Ordering::SeqCst); // after the count, before the second look
            if shared.active.load(Ordering::Acquire) == copy {
                let version = shared.copies[copy].version.load(Ordering::Relaxed);
                return Pin { home: self.home.clone(), copy, version };
            }
            pins.0[copy].fetch_sub(1, Ordering::Release); // a publish came between
        }
    }
}

/// A reader with a counter of its own.
impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        Self::register(&self.home.shared)
    }
}

impl<T> Pin<T> {
    /// The version's number.
    pub fn version(&self) -> u64 {
        self.version
    }
}

impl<T> Deref for Pin<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this pin is counted on `copy` and was counted while that copy was active; the
        // writer writes it only after it has seen the count at zero (module docs).
        unsafe { &*self.home.shared.copies[self.copy].data.get() }
    }
}

/// A second pin of the same version, whatever is current now.
impl<T> Clone for Pin<T> {
    fn clone(&self) -> Self {
        // Counted from 1 upwards: the writer cannot have seen zero.
        self.home.pins.0[self.copy].fetch_add(1, Ordering::Relaxed);
        Self { home: self.home.clone(), copy: self.copy, version: self.version }
    }
}

impl<T> Drop for Pin<T> {
    fn drop(&mut self) {
        self.home.pins.0[self.copy].fetch_sub(1, Ordering::Release);
    }
}

impl<T: Patchable + std::fmt::Debug> std::fmt::Debug for Writer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("version", &self.version).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Pin<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pin").field("version", &self.version).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> sync::MutexGuard<'_, T> {
    // The list is whole at every step; a panic elsewhere does not spoil it.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Waits a little: a job lives for microseconds, so look a few times, then sleep.
fn pause(round: u32) {
    #[cfg(loom)]
    {
        let _ = (round, Duration::ZERO);
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    match round {
        0..64 => std::hint::spin_loop(),
        64..72 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(20)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// A table whose every cell must hold the same number in each version.
    #[derive(Clone)]
    struct Uniform(Vec<u64>);

    impl Patchable for Uniform {
        type Patch = (usize, u64);

        fn apply(&mut self, (index, value): &(usize, u64)) {
            self.0[*index] = *value;
        }
    }

    fn all(value: u64) -> Vec<(usize, u64)> {
        (0..256).map(|index| (index, value)).collect()
    }

    #[test]
    fn a_pin_keeps_its_version_and_the_writer_says_so() {
        let (mut writer, reader) = versions(Uniform(vec![0; 256]));
        let old = reader.pin();
        assert_eq!(writer.publish(all(1)), 1); // the idle copy was free
        let new = reader.pin();
        assert_eq!((old.version(), old.0[0]), (0, 0));
        assert_eq!((new.version(), new.0[255]), (1, 1));
        assert!(!writer.try_settle());
        let patches = writer.try_publish(all(2)).unwrap_err();
        let second = old.clone();
        drop(old);
        assert!(!writer.try_settle());
        drop(second);
        assert!(writer.try_settle());
        assert_eq!(writer.try_publish(patches), Ok(2));
        assert_eq!((new.version(), new.0[0]), (1, 1));
        assert_eq!(writer.current().0, [2; 256]);
        drop(new);
        writer.settle();
        assert_eq!(writer.publish(Vec::new()), 3);
        assert_eq!(writer.current().0, [2; 256]);
    }

    #[test]
    fn changes_are_kept_for_those_who_follow() {
        let (mut writer, _reader) = versions(Uniform(vec![0; 256]));
        writer.publish(all(1));
        let changes = writer.changes();
        assert!(changes.between(0, 1).is_none(), "there was no follower then");
        assert_eq!(changes.between(1, 1).map(|list| list.len()), Some(0));
        for value in 2..=5 {
            writer.publish(vec![(3, value)]);
        }
        let list = changes.between(2, 4).expect("kept");
        assert_eq!(list.iter().map(|p| p[0]).collect::<Vec<_>>(), [(3, 3), (3, 4)]);
        assert!(changes.between(2, 6).is_none() && changes.between(3, 2).is_none());
        for _ in 0..LOG_VERSIONS {
            writer.publish(Vec::new());
        }
        assert!(changes.between(4, 6).is_none(), "too long ago");
        drop(changes);
        writer.publish(Vec::new());
        assert!(writer.log.0.lock().unwrap().is_empty());
    }

    #[test]
    fn readers_that_are_gone_are_forgotten() {
        let (writer, reader) = versions(Uniform(vec![0; 1]));
        for _ in 0..100 {
            drop(reader.clone().pin());
        }
        writer.idle_is_pinned();
        assert_eq!(lock(&writer.shared.readers).len(), 1);
        let pin = reader.pin();
        drop(reader);
        writer.idle_is_pinned();
        assert_eq!(lock(&writer.shared.readers).len(), 1);
        drop(pin);
        writer.idle_is_pinned();
        assert!(lock(&writer.shared.readers).is_empty());
    }

    /// Versions that a reader sees are whole and never go back; pins end on another thread.
    #[test]
    fn threads_see_whole_versions() {
        let (mut writer, reader) = versions(Uniform(vec![0; 256]));
        let stop = AtomicBool::new(false);
        let (send, master) = std::sync::mpsc::sync_channel::<Pin<Uniform>>(8);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (reader, send, stop) = (reader.clone(), send.clone(), &stop);
                scope.spawn(move || {
                    let mut last = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let pin = reader.pin();
                        assert!(pin.version() >= last);
                        last = pin.version();
                        assert!(pin.0.iter().all(|v| *v == last));
                        if last % 3 == 0 && send.send(pin).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(send);
            scope.spawn(move || {
                for pin in master {
                    assert!(pin.0.iter().all(|v| *v == pin.version()));
                }
            });
            for version in 1..=2000 {
                assert_eq!(writer.publish(all(version)), version);
                if version % 2 == 0 {
                    writer.settle();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p lookup --lib loom`
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;

    /// Loom reports an access to the cell that races with another.
    struct Cell(UnsafeCell<u64>);

    // SAFETY: under test is exactly that accesses never race; loom checks each.
    unsafe impl Sync for Cell {}

    impl Patchable for Cell {
        type Patch = u64;

        fn apply(&mut self, value: &u64) {
            // SAFETY: loom checks that nothing else accesses the cell meanwhile.
            self.0.with_mut(|cell| unsafe { *cell = *value });
        }
    }

    impl Cell {
        fn get(&self) -> u64 {
            // SAFETY: loom checks that nothing writes meanwhile.
            self.0.with(|cell| unsafe { *cell })
        }
    }

    #[test]
    fn loom_a_pin_never_races_with_a_publish() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (mut writer, reader) =
                versions_of(Cell(UnsafeCell::new(0)), Cell(UnsafeCell::new(0)));
            let thread = loom::thread::spawn(move || {
                let mut last = 0;
                for _ in 0..2 {
                    let pin = reader.pin();
                    assert_eq!(pin.get(), pin.version());
                    assert!(pin.version() >= last);
                    last = pin.version();
                }
            });
            writer.publish(vec![1]);
            writer.publish(vec![2]);
            thread.join().unwrap();
            assert_eq!(writer.current().get(), 2);
        });
    }

    #[test]
    fn loom_a_pin_may_end_elsewhere() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (mut writer, reader) =
                versions_of(Cell(UnsafeCell::new(0)), Cell(UnsafeCell::new(0)));
            let pin = reader.pin();
            let master = loom::thread::spawn(move || {
                assert_eq!(pin.get(), pin.version());
            });
            let worker = loom::thread::spawn(move || {
                let pin = reader.pin();
                assert_eq!(pin.get(), pin.version());
            });
            writer.publish(vec![1]);
            writer.settle();
            master.join().unwrap();
            worker.join().unwrap();
        });
    }
}
