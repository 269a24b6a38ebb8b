//! Synchronous copies.

use std::time::Duration;

use crate::DeviceError;
use crate::driver::{Driver, Memory, Queue};

/// Copies `parts`, each to its byte offset in `to`, and waits until they are there.
///
/// # Errors
/// The driver's; [`DeviceError::Hang`] after `patience`.
pub fn upload_all(
    driver: &mut dyn Driver,
    queue: Queue,
    to: Memory,
    parts: &[(&[u8], usize)],
    patience: Duration,
) -> Result<(), DeviceError> {
    upload(driver, queue, to, parts, patience).map(drop)
}

/// The same for keys: what they are copied from is wiped.
///
/// # Errors
/// As [`upload_all`].
pub fn upload_keys(
    driver: &mut dyn Driver,
    queue: Queue,
    to: Memory,
    parts: &[(&[u8], usize)],
    patience: Duration,
) -> Result<(), DeviceError> {
    let mut copies = upload(driver, queue, to, parts, patience)?;
    copies.iter_mut().for_each(|(bytes, _)| wipe(bytes));
    Ok(())
}

/// Gives back the copies from which the device was sent.
fn upload(
    driver: &mut dyn Driver,
    queue: Queue,
    to: Memory,
    parts: &[(&[u8], usize)],
    patience: Duration,
) -> Result<Vec<(Vec<u8>, usize)>, DeviceError> {
    // Copies of its own: should the device hang, they are never freed, and nothing else is touched.
    let parts: Vec<(Vec<u8>, usize)> = parts.iter().map(|(b, at)| (b.to_vec(), *at)).collect();
    let mut sent = Ok(());
    for (bytes, at) in &parts {
        // SAFETY: `parts` lives until the event below is done, or for good.
        sent = sent.and_then(|()| unsafe { driver.upload(queue, &raw const bytes[..], to, *at) });
    }
    let ended = driver.event(queue).and_then(|event| driver.wait(event, patience));
    if !matches!(ended, Ok(true)) {
        std::mem::forget(parts);
        sent?;
        return ended.and(Err(DeviceError::Hang(patience)));
    }
    sent.map(|()| parts)
}

/// Copies from `at` bytes into `from` and waits until it is there.
///
/// # Errors
/// As [`upload_all`].
pub fn download_all(
    driver: &mut dyn Driver,
    queue: Queue,
    from: Memory,
    at: usize,
    to: &mut [u8],
    patience: Duration,
) -> Result<(), DeviceError> {
    let mut bytes = vec![0u8; to.len()];
    // SAFETY: `bytes` is touched again only when the event below is done; otherwise it stays for good.
    let sent = unsafe { driver.download(queue, from, at, &raw mut bytes[..]) };
    let ended = driver.event(queue).and_then(|event| driver.wait(event, patience));
    if !matches!(ended, Ok(true)) {
        std::mem::forget(bytes);
        sent?;
        return ended.and(Err(DeviceError::Hang(patience)));
    }
    sent?;
    to.copy_from_slice(&bytes);
    Ok(())
}

/// Overwrites bytes that nobody reads again.
fn wipe(bytes: &mut [u8]) {
    for byte in bytes.iter_mut() {
        // SAFETY: a byte of the slice. A plain write before the end of its memory may be left out.
        unsafe { std::ptr::write_volatile(byte, 0) };
    }
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}
