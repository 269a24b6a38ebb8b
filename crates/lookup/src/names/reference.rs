//! The reference: a map of component lists, asked from the longest prefix on.

use std::collections::HashMap;

use crate::{NO_ROUTE, NextHopId};

/// Prefixes and their next hops.
#[derive(Debug, Clone, Default)]
pub struct ReferenceNames {
    map: HashMap<Vec<Vec<u8>>, NextHopId>,
}

impl ReferenceNames {
    /// Adds or replaces a prefix; the next hop that stood there.
    pub fn insert<'a>(
        &mut self,
        components: impl IntoIterator<Item = &'a [u8]>,
        next_hop: NextHopId,
    ) -> Option<NextHopId> {
        self.map.insert(components.into_iter().map(<[u8]>::to_vec).collect(), next_hop)
    }

    /// Removes a prefix; its next hop.
    pub fn remove<'a>(
        &mut self,
        components: impl IntoIterator<Item = &'a [u8]>,
    ) -> Option<NextHopId> {
        let name: Vec<Vec<u8>> = components.into_iter().map(<[u8]>::to_vec).collect();
        self.map.remove(&name)
    }

    /// The next hop of the longest prefix of a name, or [`NO_ROUTE`].
    pub fn lookup<'a>(&self, components: impl IntoIterator<Item = &'a [u8]>) -> NextHopId {
        let name: Vec<Vec<u8>> = components.into_iter().map(<[u8]>::to_vec).collect();
        let found = (0..=name.len()).rev().find_map(|depth| self.map.get(&name[..depth]));
        found.copied().unwrap_or(NO_ROUTE)
    }

    /// Prefixes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}
