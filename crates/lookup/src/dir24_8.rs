//! DIR-24-8 for IPv4 (signatures; the body follows).

use crate::rib::Rib;
use crate::{Blob, Lpm, NextHopId, Patch, Prefix, TableError};

/// Builder: the RIB and the allocation of extension groups.
#[derive(Debug)]
pub struct Dir24_8Builder {
    rib: Rib<u32>,
}

/// How large a table may grow.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Extension groups of 1 KB, one for each /24 that has longer prefixes.
    pub groups: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { groups: 1 << 18 }
    }
}

impl Dir24_8Builder {
    /// Builds the table of `rib`.
    pub fn build(rib: Rib<u32>, limits: Limits) -> Result<(Self, Blob), TableError> {
        let _ = (rib, limits);
        todo!()
    }

    /// Adds or replaces a route, appending the patches to `patches`; the next hop that stood there.
    pub fn insert(
        &mut self,
        prefix: Prefix<u32>,
        next_hop: NextHopId,
        patches: &mut Vec<Patch>,
    ) -> Result<Option<NextHopId>, TableError> {
        let _ = (prefix, next_hop, patches);
        todo!()
    }

    /// Removes a route, appending the patches to `patches`; its next hop, `None` when it was not there.
    pub fn remove(&mut self, prefix: Prefix<u32>, patches: &mut Vec<Patch>) -> Option<NextHopId> {
        let _ = (prefix, patches);
        todo!()
    }

    /// The routes in the table.
    pub fn rib(&self) -> &Rib<u32> {
        &self.rib
    }
}

/// A view over the blob of a [`Dir24_8Builder`].
#[derive(Debug, Clone, Copy)]
pub struct Dir24_8<'a> {
    _words: &'a [u32],
}

impl<'a> Dir24_8<'a> {
    /// Views `blob`; `None` when it is no such table.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        let _ = blob;
        todo!()
    }

    /// The next hop of one address.
    pub fn lookup_one(&self, key: u32) -> NextHopId {
        let _ = key;
        todo!()
    }
}

impl Lpm<u32> for Dir24_8<'_> {
    fn lookup(&self, keys: &[u32], out: &mut [NextHopId]) {
        let _ = (keys, out);
        todo!()
    }
}
