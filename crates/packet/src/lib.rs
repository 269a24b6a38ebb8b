//! Wire formats, checksums and flow keys.
