//! A device's view of the versions of a switch's tables.

use std::borrow::Cow;

use device::tables::{Change, TableSource};
use kernels::image::bridge::STATIONS;
use lookup::bridge::{SwitchPatch, SwitchTables};
use lookup::versions::Changes;

use crate::tables::each_change;

/// The tables as a device copies them and follows their changes: the station table in the region
/// [`STATIONS`], the regions before it empty.
#[derive(Debug)]
pub struct SwitchImages(pub Changes<SwitchPatch>);

impl TableSource<SwitchTables> for SwitchImages {
    fn regions<'a>(&self, tables: &'a SwitchTables) -> Vec<Cow<'a, [u32]>> {
        let mut regions = vec![Cow::Borrowed(&[][..]); STATIONS];
        regions.push(Cow::Borrowed(tables.blob().words()));
        regions
    }

    fn changes(&self, from: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        let Some(versions) = self.0.between(from, to) else { return false };
        for patch in versions.iter().flat_map(|patches| patches.iter()) {
            // Kernels read neither ports nor options: both belong to the post-shade.
            let SwitchPatch::Macs(patches) = patch else { continue };
            for patch in patches {
                each_change(patch, STATIONS, change);
            }
        }
        true
    }
}
