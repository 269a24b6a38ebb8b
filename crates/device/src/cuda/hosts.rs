//! What of the host's memory is page-locked for CUDA, and by how many drivers of this process.
//!
//! CUDA takes a piece of memory once, for all contexts: a second time is an error, also from another device's driver. So
//! two devices that reach the same cells count here, and the last one that goes gives the memory back. Until then the contexts
//! of those that went before it stay, for the memory may have been taken in one of them.
//!
//! Threads: any.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::CUdevice;

/// A piece of memory that is page-locked.
struct Host {
    bytes: usize,
    users: usize,
    /// Devices whose contexts are kept for it.
    kept: Vec<CUdevice>,
}

/// By their first byte's address.
pub(super) struct Hosts(Mutex<BTreeMap<usize, Host>>);

/// Those of the process.
pub(super) static HOSTS: Hosts = Hosts::new();

impl Hosts {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Has one more user for a piece; the first one of it calls `lock`.
    ///
    /// # Errors
    /// That of `lock`; then there is no user more.
    pub(super) fn register<E>(
        &self,
        start: *mut u8,
        bytes: usize,
        lock: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(&start.addr()) {
            Some(host) if host.bytes == bytes => host.users += 1,
            // Of another length: CUDA is to say what it thinks of that.
            _ => {
                lock()?;
                all.insert(start.addr(), Host { bytes, users: 1, kept: Vec::new() });
            }
        }
        Ok(())
    }

    /// Has one user less for a piece. If there are others, `keep` keeps its context; the last one calls `unlock` with those
    /// that were kept, to give them back.
    pub(super) fn unregister<R>(
        &self,
        start: *mut u8,
        keep: impl FnOnce() -> Option<CUdevice>,
        unlock: impl FnOnce(&[CUdevice]) -> R,
    ) -> Option<R> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let host = all.get_mut(&start.addr())?;
        host.users -= 1;
        if host.users > 0 {
            host.kept.extend(keep());
            return None;
        }
        all.remove(&start.addr()).map(|host| unlock(&host.kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_user_locks_and_the_last_one_unlocks() {
        let hosts = Hosts::new();
        let mut bytes = [0u8; 2];
        let (one, other) = (&raw mut bytes[0], &raw mut bytes[1]);
        assert_eq!(hosts.register(one, 1, || Err("no room")), Err("no room"));
        assert_eq!(hosts.register(one, 1, || Ok::<_, &str>(())), Ok(()));
        assert_eq!(hosts.register(one, 1, || Err("twice")), Ok(()));
        assert_eq!(hosts.register(one, 2, || Err("it overlaps")), Err("it overlaps"));
        assert_eq!(hosts.register(other, 1, || Err("another piece")), Err("another piece"));
        assert_eq!(hosts.unregister(one, || Some(7), <[CUdevice]>::to_vec), None);
        assert_eq!(hosts.unregister(one, || Some(8), <[CUdevice]>::to_vec), Some(vec![7]));
        assert_eq!(hosts.unregister(one, || Some(9), <[CUdevice]>::to_vec), None, "nobody has it");
        assert_eq!(hosts.register(one, 1, || Err("again")), Err("again"));
    }
}
