//! The key of a stage as a part of the tables, so that a packet has the key of its version wherever it is encrypted.
//!
//! ```text
//!  version n:    master ─▶ keys of connections on each worker
//!                └ words ─▶ a region of a device's image ─▶ keys of rows, in a job
//! ```
//!
//! Whoever changes the key keeps the new one, and a change only knows where it is: a log of changes keeps no key alive, and the old
//! one is wiped with the last copy of the tables that has it.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Weak};

use controlplane::TablePart;
use device::tables::Change;
use lookup::versions::Patchable;

use super::keys::Master;

/// The key of all stages of a name.
#[derive(Clone)]
pub struct KeyTable(pub Arc<Master>);

impl fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyTable")
    }
}

/// Another key.
#[derive(Clone)]
pub struct KeyPatch(Weak<Master>);

impl KeyPatch {
    /// This key, which the caller keeps until another one is published.
    pub fn new(master: &Arc<Master>) -> Self {
        Self(Arc::downgrade(master))
    }
}

impl fmt::Debug for KeyPatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyPatch")
    }
}

impl Patchable for KeyTable {
    type Patch = KeyPatch;

    fn apply(&mut self, patch: &KeyPatch) {
        // Only a key that a later change replaces may be gone.
        if let Some(master) = patch.0.upgrade() {
            self.0 = master;
        }
    }
}

/// The part of a stage, with one region.
#[derive(Debug)]
pub struct KeyPart;

impl TablePart for KeyPart {
    type Tables = KeyTable;

    const REGIONS: usize = 1;

    const IS_SECRET: bool = true;

    fn len_bytes(table: &KeyTable) -> usize {
        size_of_val(table.0.words())
    }

    fn regions(table: &KeyTable) -> Vec<Cow<'_, [u32]>> {
        vec![Cow::Borrowed(table.0.words())]
    }

    fn changes(patch: &KeyPatch, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        let Some(master) = patch.0.upgrade() else { return false };
        change(0, Change::Replace(master.words()));
        true
    }
}
