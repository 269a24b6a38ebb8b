//! The forwarding tables as a part of the program's.

use std::borrow::Cow;

use controlplane::tables::{PartImages, TablePart, each_change};
use device::tables::Change;
use lookup::fib;
use lookup::fib::{Fib, FibPatch};

/// The router's part: [`Fib`], with the regions of [`lookup::fib::image`].
#[derive(Debug)]
pub struct RouterPart;

/// The forwarding tables by themselves, as a device copies them and follows their changes.
pub type FibImages = PartImages<RouterPart>;

impl TablePart for RouterPart {
    type Tables = Fib;

    const REGIONS: usize = fib::image::REGIONS;

    fn len_bytes(tables: &Fib) -> usize {
        tables.len_bytes()
    }

    fn regions(tables: &Fib) -> Vec<Cow<'_, [u32]>> {
        tables.regions().into()
    }

    fn changes(patch: &FibPatch, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        patch.regions(&mut |region, patch| each_change(&patch, region, change));
        true
    }
}
