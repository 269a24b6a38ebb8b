//! The step that a device can take: which flow of each table takes a packet (PacketShader §6.2.3; actions stay on the CPU).
//!
//! ```text
//!  packet ─ pre_shade ─▶ key ─▶ [ all tables, one after the other ] ─▶ path ─ post_shade ─▶ instructions, counters, outputs
//! ```
//!
//! | | |
//! | --- | --- |
//! | reads | `openflow_key0` to `openflow_key6` |
//! | writes | `openflow_path0`, `openflow_path1` |
//!
//! A pure function of columns and tables: [`flowtable::walk`] on a CPU, the kernel `flow_tables` on a device. Where a path is open,
//! `post_shade` looks up as without a shade, so what becomes of a packet does not depend on who shades, nor on how far.
//!
//! Threads: without state; any thread may.

use std::cell::RefCell;

use chunk::{ColumnSet, Columns, Packet, Rows, Verdict};
use engine::{KernelForm, Shade, Step};
use flowtable::walk::{Path, Room, flags_of, walk};
use flowtable::{FlowTables, Key, device, headers};
use openflow::PortNo;

use super::columns::{KEYS, KeyColumns, KeyView, PATHS};
use super::kernels::FLOWS;

/// See the module.
pub(super) struct Walk {
    /// Of the switch's part of the tables.
    pub(super) first_region: usize,
}

/// What the shade reads.
pub(super) fn reads() -> ColumnSet {
    ColumnSet::of(&KEYS)
}

/// What it writes.
pub(super) fn writes() -> ColumnSet {
    ColumnSet::of(&PATHS)
}

/// Writes the key of a packet that goes through the tables.
pub(super) fn put(view: &mut KeyView<'_>, row: usize, packet: &Packet, in_port: PortNo) {
    let mut key = Key::default();
    let headers = headers::read(packet.data(), packet.frame_len(), in_port.0, &mut key);
    view.put(row, &key, flags_of(&headers));
}

/// Buffers of a thread.
#[derive(Default)]
struct Buffers {
    keys: Vec<Key>,
    flags: Vec<u32>,
    paths: Vec<Path>,
    room: Room,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

impl Shade<FlowTables> for Walk {
    fn shade(&self, rows: &mut Rows, tables: &FlowTables) {
        let mut view = KeyColumns::view(rows);
        BUFFERS.with_borrow_mut(|Buffers { keys, flags, paths, room }| {
            keys.clear();
            flags.clear();
            paths.clear();
            for row in 0..view.verdict.len() {
                let (key, own) = view.get(row);
                keys.push(key);
                flags.push(if Verdict(view.verdict[row]).is_next() { own } else { 0 });
            }
            paths.resize(keys.len(), Path::OPEN);
            walk(tables, keys, flags, paths, room);
            for (row, path) in paths.iter().enumerate() {
                view.put_path(row, path);
            }
        });
    }

    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            files: &[&FLOWS],
            steps: vec![Step::rows("flow_tables", 128).with_job(self.first_region as u32).into()],
            ..KernelForm::default()
        })
    }

    fn fits_device(&self, tables: &FlowTables) -> bool {
        device::fits(tables)
    }
}
