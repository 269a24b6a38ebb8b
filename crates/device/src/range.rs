//! Whether a copy stays within memory: asked before the library is, which may not ask.

use crate::DeviceError;

/// Bytes `at..at + bytes` of memory of `size` bytes.
pub(crate) fn check(what: &str, at: usize, bytes: usize, size: usize) -> Result<(), DeviceError> {
    if at.checked_add(bytes).is_some_and(|end| end <= size) {
        return Ok(());
    }
    let problem = format!("{what}: {bytes} bytes at {at} of memory of {size} bytes");
    Err(DeviceError::Copy(problem))
}

/// A copy within the same memory must not read what it writes.
pub(crate) fn check_apart(from: usize, to: usize, bytes: usize) -> Result<(), DeviceError> {
    if from.abs_diff(to) >= bytes {
        return Ok(());
    }
    let problem = format!("copy: {bytes} bytes at {from} and at {to} of the same memory overlap");
    Err(DeviceError::Copy(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_within_memory() {
        for (at, bytes, size, good) in [
            (0, 8, 8, true),
            (8, 0, 8, true),
            (1, 8, 8, false),
            (9, 0, 8, false),
            (usize::MAX, 2, 8, false),
        ] {
            assert_eq!(check("upload", at, bytes, size).is_ok(), good, "{at} {bytes} {size}");
        }
    }

    #[test]
    fn copies_within_memory_are_apart() {
        assert!(check_apart(0, 4, 4).is_ok() && check_apart(4, 0, 4).is_ok());
        assert!(check_apart(0, 3, 4).is_err() && check_apart(2, 0, 4).is_err());
        assert!(check_apart(5, 5, 0).is_ok());
    }
}
