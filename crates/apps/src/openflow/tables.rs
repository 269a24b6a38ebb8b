//! The tables of an OpenFlow switch as a part of the program's.

use std::borrow::Cow;

use controlplane::tables::TablePart;
use device::tables::Change;
use flowtable::{FlowPatch, FlowTables};

/// The part. No kernel reads it.
#[derive(Debug)]
pub(super) struct OpenFlowPart;

impl TablePart for OpenFlowPart {
    type Tables = FlowTables;

    const REGIONS: usize = 0;

    fn len_bytes(tables: &FlowTables) -> usize {
        tables.len_bytes()
    }

    fn regions(_: &FlowTables) -> Vec<Cow<'_, [u32]>> {
        Vec::new()
    }

    fn changes(_: &FlowPatch, _: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        true
    }
}
