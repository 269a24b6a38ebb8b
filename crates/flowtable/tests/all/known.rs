//! Ways that are known from keys alone: the same becomes of packets, and a device's regions follow the tables.

use flowtable::device::{self, region};
use flowtable::pipeline::Lookups;
use flowtable::walk::{OPEN, Path};
use flowtable::{FlowPatch, Settings};
use lookup::Patch;
use lookup::versions::Patchable;
use openflow::{ErrorCode, FlowCommand, FlowMod, Instruction, PortNo, Version};

use crate::generate;
use crate::random::{Random, seeds};
use crate::world::{Out, World};

/// What becomes of frames whose paths are known, and the counters of flows behind it.
fn send_known(world: &mut World, frames: &[Vec<u8>], in_port: u32, paths: &[Option<Path>]) -> Out {
    let mut out = Out::default();
    for (row, (frame, path)) in frames.iter().zip(paths).enumerate() {
        match path {
            Some(path) => world.pipeline.push_known(row, frame.clone(), PortNo(in_port), 1, *path),
            None => world.pipeline.push(row, frame.clone(), PortNo(in_port), 1),
        }
    }
    world.pipeline.run(&world.tables, &mut out, &mut ());
    out
}

/// Packets and bytes of a flow, by its number.
type OfFlow = (u32, (u64, u64));

fn counters(world: &World) -> (Vec<OfFlow>, Vec<Lookups>) {
    let flows = world.tables.flows().map(|flow| (flow.id, flow.counters.get()));
    (flows.collect(), world.pipeline.lookups().to_vec())
}

/// Applies a change the way a device does.
fn apply(regions: &mut [Vec<u32>], region: usize, patch: &Patch) {
    let words = &mut regions[region];
    let mut write = |at: usize, new: &[u32]| {
        words.resize(words.len().max(at + new.len()), 0);
        words[at..][..new.len()].copy_from_slice(new);
    };
    match patch {
        Patch::Write { offset_words, words } => write(*offset_words, words),
        Patch::Writes { .. } => patch.writes().for_each(|(at, words)| write(at, words)),
        Patch::Fill { offset_words, count, value } => write(*offset_words, &vec![*value; *count]),
        Patch::Grow { len_words } => words.resize(words.len().max(*len_words), 0),
        Patch::Replace(new) => words.clone_from(new),
    }
}

/// Random tables, changed by steps, and frames through them.
fn each(mut check: impl FnMut(u64, &mut Random, &mut World)) {
    for seed in seeds() {
        let mut random = Random(seed);
        let tables = random.of(&[1, 3, 12, 20]);
        let settings = Settings { device: true, ..Settings::of_13(tables) };
        let mut world =
            World::new(settings, random.of(&["auto", "linear", "tuple", "bloom", "cuts"]));
        let mut copy = regions(&world);
        let groups = random.below(4) as u32;
        for number in 0..groups {
            let group = generate::group(&mut random, number);
            if let Err(error) = world.control.group_mod(&group, 1) {
                assert_eq!(error, ErrorCode::GroupModUnknown, "seed {seed}: {group:?}");
            }
        }
        for _ in 0..3 {
            for _ in 0..random.of(&[3, 30, 150]) {
                let mut request = generate::flow_mod(&mut random, groups);
                if tables == 20 {
                    stretch(&mut request);
                }
                world.control.flow_mod(&request, Version::V13, 1).ok();
                if random.one_in(20) {
                    publish(&mut world, &mut copy);
                }
            }
            if tables == 12 {
                (0..11).for_each(|table| lead_on(&mut world, table));
            }
            publish(&mut world, &mut copy);
            assert_same(seed, &copy, &regions(&world));
            check(seed, &mut random, &mut world);
        }
    }
}

/// The second and the third table are the ninth and the seventeenth one, which no device knows.
fn stretch(request: &mut FlowMod) {
    request.table *= 8;
    for instruction in &mut request.instructions {
        if let Instruction::GotoTable(next) = instruction {
            *next *= 8;
        }
    }
}

/// All packets that no other flow takes go to the next table: paths become too long.
fn lead_on(world: &mut World, table: u8) {
    let mut request = FlowMod::new(FlowCommand::Add);
    (request.table, request.priority) = (table, 0);
    request.instructions.push(Instruction::GotoTable(table + 1));
    world.control.flow_mod(&request, Version::V13, 1).unwrap();
}

fn regions(world: &World) -> Vec<Vec<u32>> {
    device::regions(&world.tables).into_iter().map(|region| region.into_owned()).collect()
}

fn publish(world: &mut World, copy: &mut [Vec<u32>]) {
    for patch in world.control.take_patches() {
        if let FlowPatch::Device(region, patch) = &patch {
            apply(copy, *region, patch);
        }
        world.tables.apply(&patch);
    }
}

fn assert_same(seed: u64, copy: &[Vec<u32>], own: &[Vec<u32>]) {
    for (number, (copy, own)) in copy.iter().zip(own).enumerate() {
        // A classifier that is gone leaves zeros, and an image may have grown beyond what is in use.
        let len = copy.len().min(own.len());
        assert!(copy[..len] == own[..len], "seed {seed}, region {number}");
        let rest = copy[len..].iter().chain(&own[len..]);
        let is_known = number >= region::CLASSES || number == region::FLOWS;
        assert!(is_known || copy.len() == own.len(), "seed {seed}, region {number}");
        assert!(rest.into_iter().all(|word| *word == 0), "seed {seed}, region {number}");
    }
}

#[test]
fn a_known_way_changes_nothing() {
    let (mut known, mut open) = (0, 0);
    each(|seed, random, world| {
        let mut frames: Vec<_> = (0..80).map(|_| generate::frame(random, false)).collect();
        frames.extend((0..40).map(|_| generate::frame(random, true)));
        frames
            .extend((0..20).map(|_| (0..random.below(40)).map(|_| random.next() as u8).collect()));
        let in_port = random.of(&[1, 2]);
        let mut paths = world.paths(&frames, in_port);
        let before = counters(world);
        let plain = send_known(world, &frames, in_port, &vec![None; frames.len()]);
        let behind = counters(world);
        // Some are not known at all, as if their job had failed, or not to the end.
        for path in &mut paths {
            if random.one_in(10) {
                path.0[random.below(4)..].fill(OPEN);
            }
            known += path.0.iter().filter(|step| **step != OPEN).count();
            open += usize::from(path.0[0] == OPEN);
        }
        let paths: Vec<_> = paths.into_iter().map(Some).collect();
        let own = send_known(world, &frames, in_port, &paths);
        let last = counters(world);
        assert_eq!(own, plain, "seed {seed}");
        let flows = before.0.iter().zip(&behind.0).zip(&last.0);
        for (((id, before), (_, behind)), (_, last)) in flows {
            assert_eq!(behind.0 - before.0, last.0 - behind.0, "seed {seed}, packets of flow {id}");
            assert_eq!(behind.1 - before.1, last.1 - behind.1, "seed {seed}, bytes of flow {id}");
        }
        for ((before, behind), last) in before.1.iter().zip(&behind.1).zip(&last.1) {
            assert_eq!(behind.looked_up - before.looked_up, last.looked_up - behind.looked_up);
            assert_eq!(behind.matched - before.matched, last.matched - behind.matched);
        }
    });
    assert!(known > 5000 && open > 100, "{known} steps, {open} rows without any");
}
