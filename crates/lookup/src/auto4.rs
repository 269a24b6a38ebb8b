//! The IPv4 table that is the quicker one for the routes there are: Poptrie, and DIR-24-8 for very many.
//!
//! Poptrie's array and records are read at every lookup; the nearer the cache that holds them, the quicker it is. They
//! grow with the places where neighbouring /24s have different answers: 5 MB for the full table of the Internet, 20 MB
//! for some four million scattered /24s. DIR-24-8 has 64 MB from the start and reads one cell of it. Routes longer than
//! 24 bits cost both the same, 1 KB for each /24 that has such routes, and both read it at one access more. So the
//! number of records decides:
//!
//! ```text
//!              records ≤ limit                    records > limit, or no room
//!  build ──────▶ Poptrie ───────── insert ─────────────▶ DIR-24-8 (stays so)
//!                                    └─ one patch, which replaces the image: its first word tells readers
//! ```
//!
//! Readers are never blocked: the patch is applied to the copy without readers, as any other. A table that has
//! gone over does not come back when routes go; it would have to be watched for going to and fro.
//!
//! Thread rule: one owner.

use crate::dir24_8::{self, Dir24_8Builder};
use crate::poptrie::{self, PoptrieBuilder};
use crate::rib::Rib;
use crate::{Blob, NextHopId, Patch, Prefix, TableError};

/// How large the tables may grow, and when the other is taken.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Pages of 1 KB with records of Poptrie, beyond which DIR-24-8 is taken.
    pub record_pages: u32,
    /// Of Poptrie.
    pub poptrie: poptrie::Limits,
    /// Of DIR-24-8.
    pub dir24_8: dir24_8::Limits,
}

impl Default for Limits {
    /// 19 MB of records. Measured with scattered /24s, addresses inside them: Poptrie is quicker up to 4 million
    /// (17 MB with the array), DIR-24-8 from 6 million on (22 MB).
    fn default() -> Self {
        let (poptrie, dir24_8) = (poptrie::Limits::default(), dir24_8::Limits::default());
        Self { record_pages: 19 << 10, poptrie, dir24_8 }
    }
}

/// The routes, and whichever table holds them.
#[derive(Debug, Clone)]
pub struct Auto4Builder {
    limits: Limits,
    table: Table,
}

#[derive(Debug, Clone)]
enum Table {
    Poptrie(PoptrieBuilder),
    Dir24_8(Dir24_8Builder),
}

impl Auto4Builder {
    /// Builds the table of `rib`.
    ///
    /// # Errors
    /// Neither table has room for it, or the system has no memory.
    pub fn build(rib: Rib<u32>, limits: Limits) -> Result<(Self, Blob), TableError> {
        let (rib, refused) = match PoptrieBuilder::build_or_return(rib, limits.poptrie) {
            Ok((builder, blob)) if builder.record_pages() <= limits.record_pages => {
                return Ok((Self { limits, table: Table::Poptrie(builder) }, blob));
            }
            Ok((builder, _)) => (builder.into_rib(), None),
            Err((rib, error @ TableError::Full { .. })) => (rib, Some(error)),
            Err((_, error)) => return Err(error),
        };
        match Dir24_8Builder::build_or_return(rib, limits.dir24_8) {
            Ok((builder, blob)) => Ok((Self { limits, table: Table::Dir24_8(builder) }, blob)),
            Err((_, error)) if refused.is_some() => Err(error),
            // There is room in the other, if at another speed.
            Err((rib, _)) => PoptrieBuilder::build(rib, limits.poptrie)
                .map(|(builder, blob)| (Self { limits, table: Table::Poptrie(builder) }, blob)),
        }
    }

    /// Adds or replaces a route, appending the patches to `patches`; the next hop that stood there.
    /// On an error nothing has changed.
    ///
    /// # Errors
    /// As of [`Auto4Builder::build`], or the next hop is none.
    pub fn insert(
        &mut self,
        prefix: Prefix<u32>,
        next_hop: NextHopId,
        patches: &mut Vec<Patch>,
    ) -> Result<Option<NextHopId>, TableError> {
        let poptrie = match &mut self.table {
            Table::Dir24_8(builder) => return builder.insert(prefix, next_hop, patches),
            Table::Poptrie(builder) => builder,
        };
        let known = patches.len();
        match poptrie.insert(prefix, next_hop, patches) {
            Ok(before) => {
                if poptrie.record_pages() > self.limits.record_pages
                    && let Some(replacement) = self.go_over(None)
                {
                    patches.truncate(known);
                    patches.push(replacement);
                }
                Ok(before)
            }
            Err(error @ TableError::Full { .. }) => {
                let before = poptrie.rib().get(prefix);
                let replacement = self.go_over(Some((prefix, next_hop))).ok_or(error)?;
                patches.push(replacement);
                Ok(before)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a route, appending the patches to `patches`; its next hop, `None` when it was not there.
    pub fn remove(&mut self, prefix: Prefix<u32>, patches: &mut Vec<Patch>) -> Option<NextHopId> {
        match &mut self.table {
            Table::Poptrie(builder) => builder.remove(prefix, patches),
            Table::Dir24_8(builder) => builder.remove(prefix, patches),
        }
    }

    /// The routes in the table.
    pub fn rib(&self) -> &Rib<u32> {
        match &self.table {
            Table::Poptrie(builder) => builder.rib(),
            Table::Dir24_8(builder) => builder.rib(),
        }
    }

    /// The table that holds them now, by the name that a user has for it.
    pub fn table_name(&self) -> &'static str {
        match &self.table {
            Table::Poptrie(_) => "poptrie",
            Table::Dir24_8(_) => "dir24-8",
        }
    }

    /// Makes the table DIR-24-8 with one route more; the patch that does it. `None`, and nothing has changed, where
    /// that has no room either.
    fn go_over(&mut self, route: Option<(Prefix<u32>, NextHopId)>) -> Option<Patch> {
        let Table::Poptrie(poptrie) = &self.table else { return None };
        if poptrie.groups_used() + u32::from(route.is_some()) > self.limits.dir24_8.groups {
            return None; // said without making a second copy of the routes
        }
        let mut rib = poptrie.rib().clone();
        if let Some((prefix, next_hop)) = route {
            rib.insert(prefix, next_hop);
        }
        let (builder, blob) = Dir24_8Builder::build(rib, self.limits.dir24_8).ok()?;
        self.table = Table::Dir24_8(builder);
        Some(Patch::Replace(blob.words().to_vec()))
    }
}
