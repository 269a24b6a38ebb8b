//! Jobs whose workers have looked at their packets: the same bytes as where the accelerator looks itself.

use std::time::Duration;

use chunk::{Arena, Columns, Pool, Region};
use device::Device;
use device::accelerator::{
    Accelerator, Options, Packing, PayloadBlock, PayloadWay, PayloadWork, SegmentProgram, Step,
    Traffic,
};
use kernels::files::EMPTY;
use proptest::prelude::*;

use crate::fixture::opencl;
use crate::packets::{Cols, Kind, PartsJob, TEXT, accelerator_of, cells, hash_of, segment};

const WAIT: Duration = Duration::from_secs(60);
/// Rows of an arena: its block has 256 KiB.
const ROWS: usize = 128;

type Frames = Vec<(Vec<u8>, bool)>;

struct Bed {
    device: Accelerator<PartsJob>,
    arenas: Vec<Arena>,
    blocks: Vec<PayloadBlock>,
    region: Option<&'static Region>,
    pool: Pool,
    work: PayloadWork,
    /// The way that its jobs choose.
    way: Option<PayloadWay>,
}

fn bed(kind: Kind, packing: Packing, has_region: bool) -> Option<Bed> {
    let (region, pool) = cells(2048);
    let names = if kind.writes { &["test_hash", "test_change"][..] } else { &["test_hash"] };
    let steps = names.iter().map(|name| Step::rows(*name, 64)).collect();
    let program: SegmentProgram = segment(TEXT, &[&EMPTY], steps, kind);
    let options = Options { slots: 1, patience: WAIT, packing, ..Options::default() };
    let region = has_region.then_some(region);
    let (mut device, arenas) =
        accelerator_of(opencl()?, ROWS, 1, vec![Some(program)], region, options)
            .expect("an accelerator");
    let work = device.payload_work(0);
    let blocks = device.payload_blocks(1);
    let region = region.filter(|_| work == PayloadWork::Find);
    Some(Bed { device, arenas, blocks, region, pool, work, way: None })
}

impl Bed {
    /// Runs a job and compares it with plain Rust; what travelled for it.
    fn check(&mut self, parts: &[Frames], writes: bool, order: &[usize]) -> Traffic {
        let before = self.device.traffic();
        self.arenas[0].close();
        self.arenas[0].reopen();
        if let Some(block) = self.blocks.first() {
            assert!(block.reuse());
        }
        let mut job = PartsJob::new(&self.arenas[0], &mut self.pool, parts);
        job.1 = self.way;
        for number in order {
            job.0[*number].look(self.region, self.blocks.first());
        }
        assert!(self.device.launch(job).is_ok());
        let (mut job, result) = self.device.retire(WAIT).expect("it ends");
        assert_eq!(result, Ok(()));
        for (part, frames) in job.0.iter_mut().zip(parts) {
            part.land(&mut Vec::new());
            let view = Cols::view(&mut part.rows);
            for (row, (frame, is_live)) in frames.iter().enumerate() {
                let seen: &[u8] = if *is_live { frame } else { &[] };
                assert_eq!(view.hash[row], hash_of(seen), "row {row}");
                assert_eq!((view.place[row] & 0xff_ffff) as usize, seen.len());
                let key = if *is_live && writes { view.key[row] as u8 } else { 0 };
                let bytes: Vec<u8> = part.packets[row].segments().flatten().copied().collect();
                let wanted: Vec<u8> = frame.iter().map(|byte| byte ^ key).collect();
                assert!(bytes == wanted, "row {row}");
            }
            part.payload.clear();
        }
        job.free(&mut self.pool);
        let after = self.device.traffic();
        Traffic {
            payload_up_bytes: after.payload_up_bytes - before.payload_up_bytes,
            payload_in_place: after.payload_in_place - before.payload_in_place,
            payload_gathered: after.payload_gathered - before.payload_gathered,
            payload_packed: after.payload_packed - before.payload_packed,
            copies: after.copies - before.copies,
            ..after
        }
    }
}

fn any_part() -> impl Strategy<Value = Frames> {
    let len = prop_oneof![0usize..40, 0usize..600, 1900usize..2100, 2000usize..9000];
    let frame = (len, any::<u8>(), prop::bool::weighted(0.7));
    let bytes = |(len, seed, is_live): (usize, u8, bool)| {
        ((0..len).map(|i| (i as u8).wrapping_mul(seed | 1) ^ seed).collect(), is_live)
    };
    prop::collection::vec(frame.prop_map(bytes), 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Whichever parts were looked at, in whatever order, and whether they fit their block.
    #[test]
    fn parts_show_each_row_its_own_bytes(
        jobs in prop::collection::vec(prop::collection::vec(any_part(), 1..5), 1..4),
        (writes, is_trusted, has_region, reverse) in any::<(bool, bool, bool, bool)>(),
        looked in prop_oneof![3 => Just(8usize), 1 => 0usize..4],
        packing in prop_oneof![Just(Packing::Auto), Just(Packing::InPlace), Just(Packing::Packed)],
    ) {
        let kind = Kind { writes, is_trusted, limit: false };
        let Some(mut bed) = bed(kind, packing, has_region) else { return Ok(()) };
        for parts in &jobs {
            let mut order: Vec<_> = (0..parts.len().min(looked)).collect();
            if reverse {
                order.reverse();
            }
            let traffic = bed.check(parts, writes, &order);
            let live = parts.iter().flatten().filter(|(_, is_live)| *is_live);
            let aligned: usize = live.map(|(frame, _)| frame.len().next_multiple_of(16)).sum();
            let wanted = if traffic.payload_in_place == 1 { 0 } else { aligned as u64 };
            prop_assert_eq!(traffic.payload_up_bytes, wanted);
            if bed.work == PayloadWork::Find && packing == Packing::Auto {
                prop_assert_eq!(traffic.payload_in_place + traffic.payload_gathered, 1);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Each way that there is to choose from, whoever has packed what: the same bytes.
    #[test]
    fn each_way_shows_each_row_its_own_bytes(
        jobs in prop::collection::vec(prop::collection::vec(any_part(), 1..4), 1..4),
        (writes, is_trusted) in any::<(bool, bool)>(),
        looked in prop_oneof![3 => Just(8usize), 1 => 0usize..4],
    ) {
        let kind = Kind { writes, is_trusted, limit: false };
        let Some(mut bed) = bed(kind, Packing::Measured, true) else { return Ok(()) };
        let ways = bed.device.payload_ways(0);
        let stays = !writes && is_trusted;
        prop_assert_eq!(ways.len(), if stays { 3 } else { 2 });
        prop_assert_eq!((bed.work, bed.blocks.len()), (PayloadWork::Find, 1));
        for parts in &jobs {
            let order: Vec<_> = (0..parts.len().min(looked)).collect();
            let live = parts.iter().flatten().filter(|(_, is_live)| *is_live);
            let is_in_one_cell = live.clone().all(|(frame, _)| frame.len() < 1800);
            for way in ways {
                bed.way = Some(*way);
                let traffic = bed.check(parts, writes, &order);
                let went = [traffic.payload_in_place, traffic.payload_gathered, traffic.payload_packed];
                match way {
                    PayloadWay::Packed => prop_assert_eq!(went, [0, 0, 1]),
                    PayloadWay::InPlace if is_in_one_cell => prop_assert_eq!(went, [1, 0, 0]),
                    // Chains cannot be read in place.
                    PayloadWay::InPlace => prop_assert_eq!(went[2], 0),
                    PayloadWay::Gathered => prop_assert_eq!(went, [0, 1, 0]),
                }
            }
        }
    }
}

const CHANGES: Kind = Kind { writes: true, is_trusted: true, limit: false };

fn part(rows: usize, len: usize) -> Frames {
    (0..rows).map(|row| (vec![row as u8; len + row], true)).collect()
}

/// Chunks that were packed in the order in which they are in the job go up in one copy.
#[test]
fn packed_parts_go_up_in_one_copy() {
    let Some(mut bed) = bed(CHANGES, Packing::Packed, false) else { return };
    assert_eq!((bed.work, bed.blocks.len()), (PayloadWork::Pack, 1));
    let parts = [part(20, 60), part(1, 1), part(40, 700)];
    let in_order = bed.check(&parts, true, &[0, 1, 2]).copies;
    assert_eq!(bed.check(&parts, true, &[2, 1, 0]).copies, in_order + 2);
    assert_eq!(bed.check(&parts, true, &[]).copies, in_order, "packed by the master");
}

/// A chunk of jumbo frames does not fit behind the others, and its bytes are the same.
#[test]
fn what_does_not_fit_a_block_is_packed_by_the_master() {
    let Some(mut bed) = bed(CHANGES, Packing::Auto, false) else { return };
    let parts = [part(20, 6000), part(20, 9000), part(10, 60)];
    let copies = bed.check(&parts, true, &[0, 1, 2]).copies;
    let all_fit = bed.check(&[part(20, 60), part(20, 60), part(10, 60)], true, &[0, 1, 2]).copies;
    assert_eq!(copies, all_fit + 2, "the third lies behind the first in the block");
}

/// Where kernels read in place, or the device gathers, workers pack nothing.
#[test]
fn workers_do_what_the_device_needs() {
    for (packing, has_region, writes, work) in [
        (Packing::Auto, true, true, PayloadWork::Find),
        (Packing::Auto, true, false, PayloadWork::Find),
        (Packing::Auto, false, true, PayloadWork::Pack),
        (Packing::InPlace, true, false, PayloadWork::Find),
        (Packing::InPlace, true, true, PayloadWork::Pack),
        (Packing::Packed, true, false, PayloadWork::Pack),
    ] {
        let Some(bed) = bed(Kind { writes, ..CHANGES }, packing, has_region) else { return };
        let blocks = usize::from(work == PayloadWork::Pack);
        assert_eq!((bed.work, bed.blocks.len()), (work, blocks), "{packing:?}");
        assert_eq!(bed.device.payload_work(7), PayloadWork::None);
    }
}
