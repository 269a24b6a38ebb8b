//! The tables of an OpenFlow switch against the walk on the CPU: random flows and frames of `flowtable`'s tests.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use apps::openflow::columns::{KEYS, KeyColumns, PATHS, columns_of, path_of};
use apps::openflow::kernels::FLOWS;
use chunk::{Columns, Verdict};
use flowtable::headers::read;
use flowtable::key::Words;
use flowtable::walk::{OPEN, Path, Room, STEPS, flags_of, walk};
use flowtable::{Key, Settings, device};
use kernels::Spec;
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::known::bytes_of;
use openflow::{FlowCommand, FlowMod, Instruction, Version};

use crate::bed::{Bed, GROUP_ITEMS, Memories, over_rows};
use crate::generate;
use crate::random::Random;
use crate::world::World;

/// A switch with random flows; in some, all tables lead to the next one.
fn world(random: &mut Random) -> World {
    let (tables, is_10) = (random.of(&[3, 12, 20]), random.one_in(3));
    let settings = if is_10 { Settings::of_10(128) } else { Settings::of_13(tables) };
    let settings = Settings { device: true, ..settings };
    let mut world = World::new(settings, random.of(&["linear", "tuple", "bloom", "cuts"]));
    let version = if is_10 { Version::V10 } else { Version::V13 };
    // Words that the flows look at: headers of every width.
    let (most, mut used) = (random.of(&[2, 4, 9, 10, 16, 32]), 0_u32);
    for _ in 0..random.of(&[3, 30, 300]) {
        let mut request = generate::flow_mod(random, 0);
        if is_10 {
            request.table = 0;
            request.instructions.retain(|own| matches!(own, Instruction::ApplyActions(_)));
        }
        if random.one_in(3) {
            // All that a packet of the generator says.
            let frame = generate::frame(random, false);
            request.matches = openflow::Match::new();
            for (field, value) in flowtable::reference::fields(&frame, openflow::PortNo(1)) {
                if generate::is_of_exact(field) {
                    request.matches.set(field, value, field.full());
                }
            }
        }
        let mask = Words::of(&request.matches).mask;
        let own = (0..32).filter(|word| mask.0[*word] != 0).fold(0, |own, word| own | 1 << word);
        if (used | own).count_ones() <= most {
            used |= own;
            world.control.flow_mod(&request, version, 1).ok();
        }
    }
    if !is_10 && random.one_in(2) {
        for table in 0..tables - 1 {
            let mut request = FlowMod::new(FlowCommand::Add);
            (request.table, request.priority) = (table, 0);
            request.instructions.push(Instruction::GotoTable(table + 1));
            world.control.flow_mod(&request, version, 1).ok();
        }
    }
    world.publish();
    world
}

/// How many steps were found, and how many rows had none.
fn check(seed: u64, bed: &mut Bed) -> [usize; 2] {
    let mut random = Random(seed);
    let mut seen = [0; 2];
    for items in GROUP_ITEMS {
        let spec = Spec::of_file(&FLOWS).with_group_items(items);
        for _ in 0..4 {
            let world = world(&mut random);
            let rows = 1 + random.below(300);
            let (mut keys, mut flags) = (Vec::new(), Vec::new());
            let mut job = JobBytes::new(KeyColumns::COLUMNS, rows);
            for row in 0..rows {
                let frame = generate::frame(&mut random, row % 4 == 0);
                let mut key = Key::default();
                let headers = read(&frame, frame.len(), random.of(&[1, 2]), &mut key);
                let own = if random.one_in(10) { 0 } else { flags_of(&headers) };
                let is_next = !random.one_in(10);
                let verdict = if is_next { Verdict::NEXT } else { Verdict::DUMP };
                job.put(KeyColumns::VERDICT, row, verdict.0);
                let columns = KEYS.iter().zip(columns_of(&key, own));
                columns.for_each(|(column, value)| job.put(*column, row, value));
                keys.push(key);
                flags.push(if is_next { own } else { 0 });
            }
            let mut paths = vec![Path([0; STEPS]); rows];
            walk(&world.tables, &mut keys, &mut flags, &mut paths, &mut Room::default());
            let mut expected = job.clone();
            for (row, path) in paths.iter().enumerate() {
                seen[0] += path.0.iter().filter(|step| **step != OPEN).count();
                seen[1] += usize::from(path.0[0] == OPEN);
                let columns = PATHS.iter().zip(path_of(path));
                columns.for_each(|(column, value)| expected.put(*column, row, value));
            }
            let own = device::regions(&world.tables);
            let regions: Vec<&[u32]> =
                [&[7u32; 3][..]].into_iter().chain(own.iter().map(|own| &**own)).collect();
            let lens: Vec<_> = regions.iter().map(|region| (region.len(), 0)).collect();
            let image = ImageLayout::new(&lens).write(1, &regions);
            let (arena, tables) = (bed.memory(job.bytes()), bed.memory(&bytes_of(&image)));
            let memories = Memories { arena, tables, ..bed.memories() };
            let mut launch = over_rows("flow_tables", rows, items);
            launch.job = 1;
            bed.run(&spec, memories, &[launch]);
            bed.read(arena, job.bytes_mut());
            for (row, key) in keys.iter().enumerate() {
                for column in PATHS {
                    let [own, twin]: [[u64; 2]; 2] =
                        [&job, &expected].map(|job| job.get(column, row));
                    assert_eq!(own, twin, "seed {seed}, row {row}, {column:?}: {key:x?}");
                }
            }
            assert!(job == expected, "seed {seed}: the kernel wrote beyond its columns");
            bed.free(arena);
            bed.free(tables);
        }
    }
    seen
}

#[test]
fn paths_are_those_of_the_cpu() {
    let Some(mut bed) = Bed::open() else { return };
    let seen = check(16, &mut bed);
    assert!(seen.iter().all(|seen| *seen > 100), "{seen:?}");
}

/// With a seed that no run had before; a failure names it.
#[test]
fn the_same_with_a_fresh_seed() {
    let Some(mut bed) = Bed::open() else { return };
    check(RandomState::new().hash_one(0), &mut bed);
}
