//! Sealing and opening of a chunk's packets: a pure function of their bytes, the columns and the keys of the version.
//!
//! Threads: one worker, and a simulated device in its place.

use std::array::from_fn;

use arrayvec::ArrayVec;
use chunk::{Columns, Packet, Rows, Verdict};
use controlplane::{PartId, Tables};
use crypto::esp::{Open, Seal, open_batch_deferred, seal_batch};
use engine::{KernelForm, Shade};
use ipsec::Direction;

use super::kernels;
use super::keys::EspPart;
use super::{EspColumns, EspColumnsView};

/// Packets that are sealed or opened together.
const GROUP: usize = 32;

/// The shade of a stage.
#[derive(Debug)]
pub struct EspShade {
    direction: Direction,
    part: PartId<EspPart>,
}

impl EspShade {
    /// For packets of a direction, with the keys of this part.
    pub fn new(direction: Direction, part: PartId<EspPart>) -> Self {
        Self { direction, part }
    }

    fn group(
        &self,
        rows: &[usize],
        view: &mut EspColumnsView<'_>,
        packets: &mut [Packet],
        tables: &Tables,
    ) {
        let (Some(&first), Some(&last)) = (rows.first(), rows.last()) else { return };
        let keys = tables.part(self.part);
        let mut seals: ArrayVec<Seal<'_>, GROUP> = ArrayVec::new();
        let mut opens: ArrayVec<Open<'_>, GROUP> = ArrayVec::new();
        let mut of: ArrayVec<usize, GROUP> = ArrayVec::new();
        let mut wanted = rows.iter().peekable();
        for (row, packet) in (first..).zip(&mut packets[first..=last]) {
            if wanted.next_if(|wanted| **wanted == row).is_none() {
                continue;
            }
            let at = usize::from(view.esp_at[row]);
            let bytes = packet.data_mut().get_mut(at..at + view.esp_len[row] as usize);
            let association = keys.get(view.esp_key[row] as usize - 1);
            let (Some(bytes), Some(association)) = (bytes, association) else { continue };
            let high = view.esp_high[row];
            match self.direction {
                Direction::Out => {
                    let Some(own) = association.sealer() else { continue };
                    seals.push(own.encrypt(bytes, high));
                }
                Direction::In => {
                    let Some(own) = association.opener() else { continue };
                    let low: [u8; 4] = from_fn(|at| bytes.get(4 + at).copied().unwrap_or(0));
                    let number = u64::from(high) << 32 | u64::from(u32::from_be_bytes(low));
                    opens.push(own.open_as(bytes, number));
                }
            }
            of.push(row);
        }
        seal_batch(&mut seals);
        open_batch_deferred(&mut opens);
        let sealed = seals.iter().map(|own| own.result().is_ok());
        let opened = opens.iter().map(Open::is_genuine);
        for (row, is_done) in of.iter().zip(sealed.chain(opened)) {
            view.esp_done[*row] = is_done.into();
        }
    }
}

impl Shade<Tables> for EspShade {
    fn shade(&self, _: &mut Rows, _: &Tables) {}

    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], tables: &Tables) {
        let mut view = EspColumns::view(rows);
        let mut group: ArrayVec<usize, GROUP> = ArrayVec::new();
        for row in 0..packets.len() {
            view.esp_done[row] = 0;
            if view.esp_key[row] != 0 && Verdict(view.verdict[row]).is_next() {
                group.push(row);
            }
            if group.is_full() {
                self.group(&group, &mut view, packets, tables);
                group.clear();
            }
        }
        self.group(&group, &mut view, packets, tables);
    }

    fn kernels(&self) -> Option<KernelForm> {
        Some(kernels::form(self.direction, self.part.regions().start))
    }
}
