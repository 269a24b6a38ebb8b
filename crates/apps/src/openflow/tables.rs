//! The tables as a part of those of the program.

use std::borrow::Cow;

use controlplane::TablePart;
use controlplane::tables::each_change;
use device::tables::Change;
use flowtable::device::{WORDS_MAX, region, regions};
use flowtable::{FlowPatch, FlowTables};
use lookup::Patch;

/// The part. Its regions are empty without `device` of `[stage.openflow]`.
#[derive(Debug)]
pub(super) struct OpenFlowPart;

impl TablePart for OpenFlowPart {
    type Tables = FlowTables;

    const REGIONS: usize = region::COUNT;

    fn len_bytes(tables: &FlowTables) -> usize {
        tables.len_bytes()
    }

    fn regions(tables: &FlowTables) -> Vec<Cow<'_, [u32]>> {
        regions(tables)
    }

    fn changes(patch: &FlowPatch, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        match patch {
            FlowPatch::Device(region, patch) => {
                each_change(patch, *region, change);
                // Versions that have more are not for a device.
                !matches!(patch, Patch::Grow { len_words } if *len_words > WORDS_MAX)
                    && !matches!(patch, Patch::Replace(words) if words.len() > WORDS_MAX)
            }
            FlowPatch::Begin(..) | FlowPatch::Settings(_) => false,
            _ => true,
        }
    }
}
