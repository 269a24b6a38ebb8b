//! A switch's tables as a part of the program's.

use std::borrow::Cow;

use controlplane::tables::{PartImages, TablePart, each_change};
use device::tables::Change;
use lookup::bridge::{SwitchPatch, SwitchTables};

/// The switch's part: [`SwitchTables`], with the station table as its one region.
#[derive(Debug)]
pub struct SwitchPart;

/// The tables by themselves, as a device copies them and follows their changes.
pub type SwitchImages = PartImages<SwitchPart>;

impl TablePart for SwitchPart {
    type Tables = SwitchTables;

    const REGIONS: usize = 1;

    fn len_bytes(tables: &SwitchTables) -> usize {
        tables.blob().len_bytes()
    }

    fn regions(tables: &SwitchTables) -> Vec<Cow<'_, [u32]>> {
        vec![Cow::Borrowed(tables.blob().words())]
    }

    fn changes(patch: &SwitchPatch, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        // Kernels read neither ports nor options: both belong to the post-shade.
        if let SwitchPatch::Macs(patches) = patch {
            patches.iter().for_each(|patch| each_change(patch, 0, change));
        }
        true
    }
}
