//! Longest-prefix match of names, component by component, in a table of hashed prefixes.
//!
//! A named-data forwarder asks of `/org/example/video/7/3` which of ten million prefixes, cut between
//! components, is the longest that begins it (Named Data Networking; RFC 8793, "longest prefix matching").
//! Names have no fixed length and no order that helps, so each depth, that is, number of components, is one
//! question to a hash table. The art is to ask at few depths:
//!
//! - the hashes of all prefixes of a name come out of one pass ([`NameHasher`]);
//! - from the deepest depth to the shallowest, the first answer is the longest match, and no entry
//!   needs to know of another: a change touches one entry;
//! - but only where a prefix can be. A *hint* for the first few components lists the depths at which
//!   prefixes below them exist, as the two-stage search of So, Narayanan and Oran (Named Data Networking on a
//!   Router: Fast and DoS-resistant Forwarding with Hash Tables, ANCS 2013) keeps the greatest of them.
//!   A name that no prefix covers is done after one line.
//!
//! ```text
//! /org/example ─→ hint: depths 2, 4 ──4?─→ bucket: no tag fits ──2?─→ bucket: tag fits ─→ name: equal → next hop
//! ```
//!
//! Whatever hashes collide, the answer is right: an entry is compared byte by byte. A name of 10,000
//! components costs what one of [`DEPTH_MAX`] does.
//!
//! The table is a [`Blob`] of hints, buckets of one cache line, and names; [`NameFibBuilder`] makes it and
//! turns changes into patches. The layout is in `layout`. The walk (`find`) is written once and runs
//! one by one, switched, or as a machine. [`ReferenceNames`] is the reference.
//!
//! Two other searches were considered. On a million prefixes made of real names and names inside them, asking at each
//! depth in use from the longest on reads 3.8 lines a lookup, binary search over the depths with markers (Waldvogel
//! et al., SIGCOMM 1997) 3.8 too, and this one 3.9, all with the name that is compared. What decides is the rest: a
//! change touches one entry, where markers would have to learn of it; and a long name that no prefix covers costs one
//! line, not one for each depth in use.
//!
//! Thread rule: the builder has one owner; the view only reads.

mod builder;
mod find;
mod hash;
mod layout;
mod reference;
mod store;
mod table;

pub use builder::{NameFibBuilder, NameLimits, NameRouteError, PREFIX_BYTES_MAX};
pub use hash::{DEPTH_MAX, Name, NameHash, NameHasher, NameKey, NameList, NamePrefixes, PrefixKey};
pub use reference::ReferenceNames;

use crate::{Blob, NextHopId};
use layout::*;

/// A view over the blob of a [`NameFibBuilder`].
#[derive(Debug, Clone, Copy)]
pub struct NameFib<'a> {
    lines: &'a [Line],
    shape: Shape,
    always: u32, // depths to ask whatever the hint says
    hint_depth: usize,
    default: NextHopId,
    hasher: NameHasher,
}

/// Tables up to this size stay in a core's own cache, where taking turns costs more than it gains.
const CACHED_BYTES: usize = 1 << 20;

/// Lookups in flight.
const TURNS: usize = 32;

impl<'a> NameFib<'a> {
    /// Views `blob`; `None` when it is not such a table.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        let lines = blob.words64().as_chunks::<8>().0;
        let header = lines.first()?;
        if header[HEADER_MAGIC] != MAGIC {
            return None;
        }
        let count = |word: u64| u32::try_from(word).ok().filter(|count| *count > 0);
        let shape =
            Shape { hints: count(header[HEADER_HINTS])?, buckets: count(header[HEADER_BUCKETS])? };
        if lines.len() < shape.name_line() as usize {
            return None;
        }
        Some(Self {
            lines,
            shape,
            always: header[HEADER_DEPTHS] as u32,
            hint_depth: (header[HEADER_DEPTHS] >> 32) as usize,
            default: header[HEADER_DEFAULT] as NextHopId,
            hasher: NameHasher::new(header[HEADER_SEED]),
        })
    }

    /// The hash that the table was made with.
    pub fn hasher(&self) -> &NameHasher {
        &self.hasher
    }

    /// Writes the next hop of the longest prefix of `keys[i]`, or [`crate::NO_ROUTE`], to `out[i]`, in
    /// the form that measured best for a table of this size.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn lookup<'k>(&self, keys: &'k [NameKey<'k>], out: &mut [NextHopId]) {
        if size_of_val(self.lines) <= CACHED_BYTES {
            self.lookup_direct(keys, out);
        } else {
            self.lookup_machine::<TURNS>(keys, out);
        }
    }
}
