//! Binary search on prefix lengths for IPv6 (signatures; the body follows).

use crate::rib::Rib;
use crate::{Blob, Key6, Lpm, NextHopId, Patch, Prefix, TableError};

/// Builder: the RIB and a working copy of the table.
#[derive(Debug)]
pub struct BsplBuilder {
    rib: Rib<u128>,
}

impl BsplBuilder {
    /// Builds the table of `rib`.
    pub fn build(rib: Rib<u128>) -> Result<(Self, Blob), TableError> {
        let _ = rib;
        todo!()
    }

    /// Adds or replaces a route, appending the patches to `patches`; the next hop that stood there.
    pub fn insert(
        &mut self,
        prefix: Prefix<u128>,
        next_hop: NextHopId,
        patches: &mut Vec<Patch>,
    ) -> Result<Option<NextHopId>, TableError> {
        let _ = (prefix, next_hop, patches);
        todo!()
    }

    /// Removes a route, appending the patches to `patches`; its next hop, `None` when it was not there.
    pub fn remove(&mut self, prefix: Prefix<u128>, patches: &mut Vec<Patch>) -> Option<NextHopId> {
        let _ = (prefix, patches);
        todo!()
    }

    /// The routes in the table.
    pub fn rib(&self) -> &Rib<u128> {
        &self.rib
    }
}

/// A view over the blob of a [`BsplBuilder`].
#[derive(Debug, Clone, Copy)]
pub struct Bspl<'a> {
    _words: &'a [u64],
}

impl<'a> Bspl<'a> {
    /// Views `blob`; `None` when it is no such table.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        let _ = blob;
        todo!()
    }

    /// The next hop of one address.
    pub fn lookup_one(&self, key: Key6) -> NextHopId {
        let _ = key;
        todo!()
    }
}

impl Lpm<Key6> for Bspl<'_> {
    fn lookup(&self, keys: &[Key6], out: &mut [NextHopId]) {
        let _ = (keys, out);
        todo!()
    }
}
