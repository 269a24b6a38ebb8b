//! Stage `bridge`: from keys to stations.
//!
//! | | |
//! | --- | --- |
//! | reads | `flags`, `source_key`, `destination_key` |
//! | writes | `source`, `destination` |
//! | next | `bridge_out` |
//!
//! A pure function of columns and tables, so that a device can take it. The sources of the whole batch are looked
//! up, then the destinations: two lookups staged over the batch keep more accesses in flight than two nested ones
//! for each packet, and the source's line of a busy conversation serves as the destination's of its answers.

use std::sync::Arc;

use chunk::{Chunk, ColumnSet, Columns, Declaration, Rows};
use engine::{KernelForm, Phases, Shade, Stage, Step};
use lookup::bridge::{Station, SwitchTables, split_key};
use packet::MacAddr;

use super::columns::{SwitchColumns, flags, is_live, vlan};
use super::kernels::BRIDGE;
use crate::ports::PortNames;

/// Rows that are looked up at once.
const BATCH: usize = chunk::CHUNK_PACKETS_MAX;

/// The stage.
pub struct Bridge {
    shade: Arc<Lookup>,
    names: PortNames,
}

/// How the stations of a batch are looked up: the table's own choice, or one of its forms, to measure them.
pub type Form = fn(&SwitchTables, &[u64], &mut [u64]);

struct Lookup {
    form: Form,
    /// Of the switch's part of the tables.
    first_region: usize,
}

impl Bridge {
    /// A stage without state, over tables whose first region is region 0 of a device's image.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self::with_form(SwitchTables::lookup)
    }

    /// As [`Bridge::new`], with a form of lookup of one's own choice.
    pub fn with_form(form: Form) -> Self {
        Self { shade: Arc::new(Lookup { form, first_region: 0 }), names: PortNames::default() }
    }

    /// The same over tables whose regions begin with `first_region`.
    #[must_use]
    pub fn with_first_region(self, first_region: usize) -> Self {
        let shade = Arc::new(Lookup { form: self.shade.form, first_region });
        Self { shade, ..self }
    }

    /// Traces name the ports of stations.
    #[must_use]
    pub fn with_names(self, names: PortNames) -> Self {
        Self { names, ..self }
    }
}

impl<T: AsRef<SwitchTables> + Send + Sync + 'static> Stage<T> for Bridge {
    fn name(&self) -> &'static str {
        "bridge"
    }

    fn columns(&self) -> &'static [Declaration] {
        &[SwitchColumns::COLUMNS]
    }

    fn phases(&self) -> Phases {
        Phases::NONE
    }

    /// Headers are all that is looked at, and all that is changed.
    fn takes_offloads(&self) -> bool {
        true
    }

    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[
            SwitchColumns::FLAGS,
            SwitchColumns::SOURCE_KEY,
            SwitchColumns::DESTINATION_KEY,
        ])
    }

    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[SwitchColumns::SOURCE, SwitchColumns::DESTINATION])
    }

    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        Some(self.shade.clone())
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, _: &T) -> String {
        let view = SwitchColumns::view(&mut chunk.rows);
        if !is_live(view.verdict[row]) {
            return String::new();
        }
        let name = |key: u64, station: u64| {
            let (mac, station) = (MacAddr(split_key(key).1), Station(station));
            match station.is_known() {
                true => format!("{mac} ({})", self.names.name(station.port())),
                false => format!("{mac} (not known)"),
            }
        };
        let (source, destination) = (view.source_key[row], view.destination_key[row]);
        format!(
            "VLAN {}: {} to {}",
            vlan(view.tci[row]),
            name(source, view.source[row]),
            name(destination, view.destination[row])
        )
    }
}

impl<T: AsRef<SwitchTables> + Send + Sync + 'static> Shade<T> for Lookup {
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            files: &[&BRIDGE],
            steps: vec![Step::rows("bridge", 256).with_job(self.first_region as u32).into()],
            ..KernelForm::default()
        })
    }

    fn shade(&self, rows: &mut Rows, tables: &T) {
        let tables = tables.as_ref();
        let view = SwitchColumns::view(rows);
        let len = view.verdict.len();
        for start in (0..len).step_by(BATCH) {
            let batch = start..(start + BATCH).min(len);
            let verdict = &view.verdict[batch.clone()];
            let flags = &view.flags[batch.clone()];
            let live = |row: usize| is_live(verdict[row]);
            let one = |row: usize| is_live(verdict[row]) & (flags[row] & flags::GROUP == 0);
            self.look_up(
                tables,
                live,
                &view.source_key[batch.clone()],
                &mut view.source[batch.clone()],
            );
            let destination = &mut view.destination[batch.clone()];
            self.look_up(tables, one, &view.destination_key[batch.clone()], destination);
            for (row, station) in destination.iter_mut().enumerate() {
                if live(row) && !one(row) {
                    *station = Station::NONE.0;
                }
            }
        }
    }
}

impl Lookup {
    /// Looks up the rows that `wanted` names.
    #[inline(always)]
    fn look_up(
        &self,
        tables: &SwitchTables,
        wanted: impl Fn(usize) -> bool,
        keys: &[u64],
        out: &mut [u64],
    ) {
        let (mut dense, mut places) = ([0; BATCH], [0u16; BATCH]);
        let mut n = 0;
        for (row, key) in keys.iter().enumerate() {
            // `n` ≤ `row` < BATCH; the mask says so to the compiler.
            dense[n & (BATCH - 1)] = *key;
            places[n & (BATCH - 1)] = row as u16;
            n += usize::from(wanted(row));
        }
        if n == keys.len() {
            return (self.form)(tables, keys, out);
        }
        let mut found = [0; BATCH];
        (self.form)(tables, &dense[..n], &mut found[..n]);
        for (row, station) in places[..n].iter().zip(&found) {
            out[usize::from(*row)] = *station;
        }
    }
}
