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
//! A pin costs one atomic addition on a cache line that only this reader writes. The writer is the
//! one that waits, sleeping, so a job that keeps its pin delays changes and nothing else.
//!
//! Thread rule: one [`Writer`]; one [`Reader`] per thread (clone it); pins may travel.

use std::ops::Deref;

/// Data that a patch changes. Both copies see the same patches in the same order.
pub trait Patchable {
    /// A change.
    type Patch;

    /// Applies one change. Must be a function of the two arguments alone, so that the copies agree.
    fn apply(&mut self, patch: &Self::Patch);
}

/// The only one that changes the tables.
pub struct Writer<T: Patchable> {
    _t: std::marker::PhantomData<T>,
}

/// Takes pins for one thread. Clone it for another thread: each clone has its own counter.
pub struct Reader<T> {
    _t: std::marker::PhantomData<T>,
}

/// One version, which stays as it is until the pin is dropped. Derefs to the tables.
pub struct Pin<T> {
    t: T,
}

/// A writer and a first reader over `tables` and a second copy of it, at version 0.
pub fn versions<T: Patchable + Clone>(tables: T) -> (Writer<T>, Reader<T>) {
    let _ = tables;
    todo!()
}

/// As [`versions`], where the caller makes the second copy; both must be equal.
pub fn versions_of<T: Patchable>(left: T, right: T) -> (Writer<T>, Reader<T>) {
    let _ = (left, right);
    todo!()
}

impl<T: Patchable> Writer<T> {
    /// Applies `patches` in order and makes them visible as a whole; the new version's number.
    /// Waits, sleeping, until nothing pins the version before the current one.
    pub fn publish(&mut self, patches: Vec<T::Patch>) -> u64 {
        let _ = patches;
        todo!()
    }

    /// As [`Writer::publish`], but gives the patches back when it would have to wait.
    pub fn try_publish(&mut self, patches: Vec<T::Patch>) -> Result<u64, Vec<T::Patch>> {
        let _ = patches;
        todo!()
    }

    /// Brings the idle copy up to date now, so that the next publish need not; waits for its pins.
    pub fn settle(&mut self) {
        todo!()
    }

    /// As [`Writer::settle`] without waiting; whether both copies are equal now.
    pub fn try_settle(&mut self) -> bool {
        todo!()
    }

    /// The current tables.
    pub fn current(&self) -> &T {
        todo!()
    }

    /// The current version's number: how often was published.
    pub fn version(&self) -> u64 {
        todo!()
    }

    /// A further reader.
    pub fn reader(&self) -> Reader<T> {
        todo!()
    }
}

impl<T> Reader<T> {
    /// Pins the current version. Never blocks.
    pub fn pin(&self) -> Pin<T> {
        todo!()
    }
}

impl<T> Pin<T> {
    /// The version's number.
    pub fn version(&self) -> u64 {
        todo!()
    }
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        todo!()
    }
}

impl<T> Deref for Pin<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.t
    }
}
