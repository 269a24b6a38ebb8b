//! The engine's view of the versions of a switch's tables, and a device's.

use std::borrow::Cow;

use device::tables::{Change, TableSource};
use engine::Versions;
use kernels::image::bridge::STATIONS;
use lookup::Patch;
use lookup::bridge::{SwitchPatch, SwitchTables};
use lookup::versions::{Changes, Pin, Reader};

/// One worker's way to the newest version.
#[derive(Debug)]
pub struct SwitchVersions(pub Reader<SwitchTables>);

impl Versions for SwitchVersions {
    type Tables = SwitchTables;
    type Pin = Pin<SwitchTables>;

    #[inline]
    fn pin(&mut self) -> Pin<SwitchTables> {
        self.0.pin()
    }

    #[inline]
    fn number(pin: &Pin<SwitchTables>) -> u64 {
        pin.version()
    }
}

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
                change(
                    STATIONS,
                    match patch {
                        Patch::Write { offset_words, words } => {
                            Change::Write { at: *offset_words, words }
                        }
                        Patch::Fill { offset_words, count, value } => {
                            Change::Fill { at: *offset_words, count: *count, value: *value }
                        }
                        Patch::Grow { len_words } => Change::Grow(*len_words),
                        Patch::Replace(words) => Change::Replace(words),
                    },
                );
            }
        }
        true
    }
}
