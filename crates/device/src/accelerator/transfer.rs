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
    }
    sent?;
    if ended? { Ok(()) } else { Err(DeviceError::Hang(patience)) }
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
