//! Payload in each of its forms: frames at multiples of 16, and none of rows that are settled.

use std::time::Duration;

use device::Device;
use device::accelerator::{Options, Packing, SegmentProgram, Step};
use kernels::files::EMPTY;
use proptest::prelude::*;

use crate::fixture::opencl;
use crate::packets::{Cols, Kind, PacketJob, accelerator, accelerator_of, cells, hash_of, segment};
use chunk::Columns;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Packed,
    Gathered,
    InPlace,
}

/// Runs jobs of these frames and compares everything with what plain Rust makes of them.
fn check(jobs: &[Vec<(Vec<u8>, bool)>], kind: Kind, packing: Packing, has_region: bool) {
    let Some(driver) = opencl() else { return };
    let (region, mut pool) = cells(4096);
    let options =
        Options { slots: 2, patience: Duration::from_secs(60), packing, ..Options::default() };
    let region = has_region.then_some(region);
    let (mut device, arenas) =
        accelerator(driver, 256, 2, kind, region, options).expect("an accelerator");
    for frames in jobs {
        let before = device.traffic();
        arenas[0].close();
        arenas[0].reopen();
        let job = PacketJob::new(&arenas[0], &mut pool, frames);
        let is_chained =
            job.packets.iter().zip(frames).any(|(p, (_, live))| *live && p.cells() > 1);
        assert!(device.launch(job).is_ok());
        let (mut job, result) = device.retire(Duration::from_secs(60)).expect("it ends");
        assert_eq!(result, Ok(()));
        let traffic = device.traffic();

        let live = || frames.iter().filter(|(_, is_live)| *is_live);
        let aligned: usize = live().map(|(frame, _)| frame.len().next_multiple_of(16)).sum();
        let form = match (packing, has_region, kind.is_trusted) {
            (Packing::Packed, ..) => Form::Packed,
            (_, true, true) if !kind.writes && !is_chained => Form::InPlace,
            (Packing::Auto, true, _) => Form::Gathered,
            _ => Form::Packed,
        };
        let up = match form {
            Form::InPlace => 0,
            Form::Packed | Form::Gathered => aligned,
        };
        let context = format!("{kind:?} {packing:?} {form:?}");
        assert_eq!(traffic.payload_up_bytes - before.payload_up_bytes, up as u64, "{context}");
        let down = traffic.payload_down_bytes - before.payload_down_bytes;
        match kind.writes {
            false => assert_eq!(down, 0, "{context}"),
            true => assert!(down as usize + 16 > aligned && down as usize <= aligned),
        }
        let is_gathered = traffic.payload_gathered - before.payload_gathered;
        let is_in_place = traffic.payload_in_place - before.payload_in_place;
        assert_eq!(is_gathered, u64::from(form == Form::Gathered), "{context}");
        assert_eq!(is_in_place, u64::from(form == Form::InPlace), "{context}");

        for (row, (frame, is_live)) in frames.iter().enumerate() {
            let seen: &[u8] = if *is_live { frame } else { &[] };
            let view = Cols::view(&mut job.rows);
            assert_eq!(view.hash[row], hash_of(seen), "{context}: row {row}");
            assert_eq!((view.place[row] & 0xff_ffff) as usize, seen.len(), "{context}");
            if form != Form::InPlace {
                assert_eq!(view.place[row] >> 24, 0, "{context}: row {row} starts at a multiple");
            }
            let key = if *is_live && kind.writes { view.key[row] as u8 } else { 0 };
            let wanted: Vec<u8> = frame.iter().map(|byte| byte ^ key).collect();
            assert!(job.frame(row) == wanted, "{context}: row {row}");
        }
        job.free(&mut pool);
    }
}

fn any_frames() -> impl Strategy<Value = Vec<(Vec<u8>, bool)>> {
    let len = prop_oneof![0usize..40, 0usize..600, 1900usize..2100, 2000usize..5000];
    let frame = (len, any::<u8>(), prop::bool::weighted(0.7));
    prop::collection::vec(frame, 1..40).prop_map(|frames| {
        let bytes = |(len, seed, is_live): (usize, u8, bool)| {
            ((0..len).map(|i| (i as u8).wrapping_mul(seed | 1) ^ seed).collect(), is_live)
        };
        frames.into_iter().map(bytes).collect()
    })
}

fn any_packing() -> impl Strategy<Value = Packing> {
    prop_oneof![Just(Packing::Auto), Just(Packing::InPlace), Just(Packing::Packed)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn every_form_shows_each_row_its_own_bytes(
        jobs in prop::collection::vec(any_frames(), 1..4),
        (writes, is_trusted, has_region) in any::<(bool, bool, bool)>(),
        packing in any_packing(),
    ) {
        check(&jobs, Kind { writes, is_trusted, limit: false }, packing, has_region);
    }
}

/// A kernel of a segment whose payload is read in place, which does not use payload itself, does not get it.
#[test]
fn a_kernel_that_uses_no_payload_sees_none() {
    let Some(driver) = opencl() else { return };
    let (region, mut pool) = cells(64);
    let text = "
        KERNEL(test_look)
        {
            if (GLOBAL_ID < job_rows(arena))
                COL_HASH(arena)[GLOBAL_ID] = payload[COL_PAYLOAD_AT(arena)[GLOBAL_ID]];
        }
        KERNEL(test_peek)
        {
            if (GLOBAL_ID < job_rows(arena)) {
                uint seen = 0u;
                for (uint i = 0u; i < 256u; i++)
                    seen |= payload[i];
                COL_PLACE(arena)[GLOBAL_ID] = seen;
            }
        }";
    let kind = Kind { writes: false, is_trusted: true, limit: false };
    let steps = vec![
        Step::rows("test_look", 64),
        Step { has_payload: false, ..Step::rows("test_peek", 64) },
    ];
    let segment = SegmentProgram { payload_steps: 1, ..segment(text, &[&EMPTY], steps, kind) };
    let patience = Duration::from_secs(60);
    let options = Options { slots: 1, patience, ..Options::default() };
    let (mut device, arenas) =
        accelerator_of(driver, 64, 1, vec![Some(segment)], Some(region), options)
            .expect("an accelerator");
    let job = PacketJob::new(&arenas[0], &mut pool, &[(vec![0xaa; 60], true)]);
    assert!(device.launch(job).is_ok());
    let (mut job, result) = device.retire(patience).expect("it ends");
    let view = Cols::view(&mut job.rows);
    assert_eq!((result, view.hash[0], view.place[0]), (Ok(()), 0xaa, 0));
    assert_eq!(device.traffic().payload_in_place, 1);
    job.free(&mut pool);
}

/// Nothing to send, and nothing to gather.
#[test]
fn a_job_whose_rows_are_all_settled_sends_no_payload() {
    let frames = vec![vec![(vec![1; 100], false); 20], vec![(Vec::new(), true); 3]];
    for (packing, has_region) in
        [(Packing::Auto, true), (Packing::Auto, false), (Packing::InPlace, false)]
    {
        for writes in [false, true] {
            check(&frames, Kind { writes, is_trusted: true, limit: false }, packing, has_region);
        }
    }
}
