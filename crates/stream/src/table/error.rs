//! What may fail when a table is created.

use std::fmt;

/// Why there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// A capacity of 0 flows.
    Zero,
    /// A capacity beyond [`CAPACITY_MAX`](super::CAPACITY_MAX).
    TooLarge {
        /// Flows that were requested.
        capacity: usize,
    },
    /// The memory could not be allocated.
    Memory {
        /// Bytes that were requested at once.
        bytes: usize,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => write!(f, "the flow table has a capacity of 0 flows"),
            Self::TooLarge { capacity } => {
                let max = super::CAPACITY_MAX;
                write!(f, "the flow table has a capacity of {capacity} flows; the limit is {max}")
            }
            Self::Memory { bytes } => {
                write!(f, "failed to allocate {bytes} bytes for the flow table")
            }
        }
    }
}

impl std::error::Error for TableError {}

/// `len` default values, all of whose memory is written, so that none of it is missing later.
pub(super) fn zeroed<T: Copy + Default>(len: usize) -> Result<Vec<T>, TableError> {
    let mut values = reserved(len)?;
    values.resize(len, T::default());
    Ok(values)
}

/// Room for `len` values, in huge pages where there are such: flows are looked up at random.
pub(crate) fn reserved<T>(len: usize) -> Result<Vec<T>, TableError> {
    let mut values = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>());
    values.try_reserve_exact(len).map_err(|_| TableError::Memory { bytes })?;
    chunk::prefer_huge_pages(values.spare_capacity_mut());
    Ok(values)
}
