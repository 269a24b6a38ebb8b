//! Host memory that a device copies from and to.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::DeviceError;
use crate::driver::{Driver, Queue};

const PAGE_BYTES: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Whole pages of its own, locked for the device where its driver does that: copies from ordinary memory
/// go through the library's own buffers, and the call may wait for them. Never moved, and left alone for
/// good when the device hangs.
#[derive(Default)]
pub(super) struct Staging {
    pages: Box<[Page]>,
    is_registered: bool,
}

impl Staging {
    /// Memory of at least `bytes`, zero, known to `driver`. `what` is for the log.
    pub(super) fn new(driver: &mut dyn Driver, bytes: usize, what: &'static str) -> Self {
        let mut made = Self {
            pages: vec![Page([0; PAGE_BYTES]); bytes.div_ceil(PAGE_BYTES)].into(),
            is_registered: false,
        };
        if bytes > 0 {
            // SAFETY: the pages are not moved, and go when they are unregistered (`grow`) or their
            // driver has ended; they are read and written under the rules of each copy.
            let registered = unsafe { driver.register(made.bytes_mut()) };
            made.is_registered = is_taken(driver, what, registered);
        }
        made
    }

    /// At least `bytes`, their content anything. Nothing under way may use the memory.
    ///
    /// # Errors
    /// As [`Quiet::wait`].
    pub(super) fn grow(
        &mut self,
        driver: &mut dyn Driver,
        quiet: &Quiet,
        bytes: usize,
        what: &'static str,
    ) -> Result<(), DeviceError> {
        if self.pages.len() * PAGE_BYTES >= bytes {
            return Ok(());
        }
        quiet.wait(driver)?;
        if self.is_registered && driver.unregister(self.bytes_mut().as_mut_ptr()).is_err() {
            // Whatever the library still knows of it stays.
            std::mem::forget(std::mem::take(self));
        }
        *self = Self::new(driver, bytes.next_power_of_two(), what);
        Ok(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        let (ptr, len) = (self.pages.as_ptr().cast::<u8>(), self.pages.len() * PAGE_BYTES);
        // SAFETY: pages are bytes without gaps, and the borrow of `self` covers the slice.
        unsafe { std::slice::from_raw_parts(ptr, len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let (ptr, len) = (self.pages.as_mut_ptr().cast::<u8>(), self.pages.len() * PAGE_BYTES);
        // SAFETY: pages are bytes without gaps, and the borrow of `self` covers the slice.
        unsafe { std::slice::from_raw_parts_mut(ptr, len) }
    }
}

/// All queues of an accelerator. Libraries may wait for what is under way before they give memory back, take
/// more, or lock it, and for ever where that hangs; so all of it is waited for first, with patience.
pub(super) struct Quiet {
    pub(super) queues: Vec<Queue>,
    pub(super) patience: Duration,
}

impl Quiet {
    /// Waits until nothing is under way.
    ///
    /// # Errors
    /// A hang, or what the driver says.
    pub(super) fn wait(&self, driver: &mut dyn Driver) -> Result<(), DeviceError> {
        for queue in &self.queues {
            let event = driver.event(*queue)?;
            if !driver.wait(event, self.patience)? {
                return Err(DeviceError::Hang(self.patience));
            }
        }
        Ok(())
    }
}

/// Whether memory was registered. Where the driver refuses, it is said what that costs, once for each `what`
/// in the life of the process.
pub(super) fn is_taken<T>(
    driver: &dyn Driver,
    what: &'static str,
    registered: Result<T, crate::DeviceError>,
) -> bool {
    static WARNED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let Err(error) = registered else { return true };
    if !WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(what) {
        return false;
    }
    tracing::warn!(
        "{}: {what}: not page-locked ({error}); copies go through the driver's own buffers, are slower, and may not overlap with kernels",
        driver.info().name
    );
    false
}
