//! Compiled kernels are found again, and bad entries do no harm.

use std::fs;
use std::path::PathBuf;

use device::accelerator::{Options, PayloadWork, Step};
use device::cache::Cache;
use device::driver::{Driver, Program, Shape};
use device::{Device, apart};
use kernels::files::EMPTY;

use crate::fixture::{LIMIT, all, download, opencl_with, program, upload};
use crate::packets::{Kind, PacketJob, TEXT, accelerator_of, cells, segment};

fn adding(amount: u32) -> Program {
    let source = "__kernel void add(ARGUMENTS) { arena[get_global_id(0)] += AMOUNT + job; }";
    Program { defines: vec![("AMOUNT".into(), amount.to_string())], ..program(source) }
}

/// Builds and runs the program; what it made of zeros.
fn run(driver: &mut dyn Driver, program: &Program) -> Vec<u32> {
    let kernels = driver.build(program, &["add"]).unwrap();
    let queue = driver.queue().unwrap();
    let memory = driver.allocate(16).unwrap();
    upload(driver, queue, &[0; 4], memory);
    driver.launch(queue, kernels[0], Shape { groups: 1, items: 4 }, &all(memory, 1)).unwrap();
    download(driver, queue, memory, 4)
}

fn entries(cache: &Cache) -> Vec<PathBuf> {
    let folder = cache.folder().unwrap();
    fs::read_dir(folder).map_or(Vec::new(), |all| all.map(|e| e.unwrap().path()).collect())
}

#[test]
fn the_second_build_of_a_program_and_no_other_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    for (amount, hits, misses) in [(10, 0, 1), (10, 1, 1), (20, 1, 2), (10, 2, 2), (20, 3, 2)] {
        let Some(mut driver) = opencl_with(cache.clone()) else { return };
        assert_eq!(run(&mut *driver, &adding(amount)), [amount + 1; 4]);
        assert_eq!((cache.hits(), cache.misses()), (hits, misses));
    }
    assert_eq!(entries(&cache).len(), 2);
}

#[test]
fn a_spoiled_entry_is_ignored_and_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    let Some(mut driver) = opencl_with(cache.clone()) else { return };
    assert_eq!(run(&mut *driver, &adding(3)), [4; 4]);
    let [entry] = &entries(&cache)[..] else { panic!("one entry") };
    let good = fs::read(entry).unwrap();
    let mut changed = good.clone();
    changed[good.len() / 2] ^= 1;
    for bad in [&[][..], b"something else", &good[..good.len() - 1], &changed] {
        fs::write(entry, bad).unwrap();
        let hits = cache.hits();
        assert_eq!(run(&mut *driver, &adding(3)), [4; 4]);
        assert_eq!(cache.hits(), hits, "ignored");
        assert_eq!(run(&mut *driver, &adding(3)), [4; 4]);
        assert_eq!(cache.hits(), hits + 1, "written anew");
    }
}

/// An entry that is whole, under the right key, and yet nothing that the platform takes.
#[test]
fn a_binary_that_the_platform_refuses_is_compiled_anew() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    let Some(mut driver) = opencl_with(cache.clone()) else { return };
    assert_eq!(run(&mut *driver, &adding(3)), [4; 4]);
    let [entry] = &entries(&cache)[..] else { panic!("one entry") };
    let good = fs::read(entry).unwrap();
    // The layout as the module `cache` describes it.
    let number = |at: usize| u64::from_le_bytes(good[at..at + 8].try_into().unwrap()) as usize;
    let (magic, key) = (19, &good[43..43 + number(19)]);
    let code = b"no binary of anything";
    let check = key.iter().chain(code).fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let numbers = [key.len() as u64, code.len() as u64, check].map(u64::to_le_bytes).concat();
    let bad = [&good[..magic], &numbers, key, code].concat();
    fs::write(entry, &bad).unwrap();
    assert_eq!(run(&mut *driver, &adding(3)), [4; 4]);
    assert_eq!(cache.hits(), 1, "the entry was whole");
    assert_ne!(fs::read(entry).unwrap(), bad, "and is replaced");
    assert_eq!(run(&mut *driver, &adding(3)), [4; 4]);
    assert_eq!(cache.hits(), 2);
}

/// Another process has compiled the programs: here they are found, whatever their kernels do with a header of zeros.
#[test]
fn programs_that_were_compiled_before_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let before = Cache::at(folder.path());
    let Some(mut driver) = opencl_with(before.clone()) else { return };
    let wrong = program("__kernel void add(ARGUMENTS) { nonsense(); }");
    let kernels = || vec![("add".to_owned(), 4)];
    let all = [(adding(10), kernels()), (wrong, kernels()), (adding(20), kernels())];
    apart::compile(&mut *driver, &all, LIMIT).expect("a program that does not build is left out");
    assert_eq!(before.misses(), 3);
    let cache = Cache::at(folder.path());
    for (number, amount) in [(1, 10), (2, 20)] {
        let mut driver = opencl_with(cache.clone()).expect("it was there");
        assert_eq!(run(&mut *driver, &adding(amount)), [amount + 1; 4]);
        assert_eq!((cache.hits(), cache.misses()), (number, 0));
    }
}

/// All that takes time is done when the device is opened: the one before has stopped when it gets the cells.
#[test]
fn cells_are_shared_without_a_build() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    let Some(driver) = opencl_with(cache.clone()) else { return };
    let (region, _) = cells(256);
    let kind = Kind { writes: true, is_trusted: false, limit: false };
    let steps = vec![Step::rows("test_hash", 64)];
    let segments = vec![Some(segment(TEXT, &[&EMPTY], steps, kind))];
    let options = Options::default();
    let (mut device, _) = accelerator_of::<PacketJob>(driver, 64, 1, segments, None, options)
        .expect("an accelerator");
    let built = cache.hits() + cache.misses();
    assert!(built > 1, "the program of the segment, and the one that gathers");
    device.share(region).expect("cells");
    assert_eq!(cache.hits() + cache.misses(), built);
    assert_eq!(device.payload_work(0), PayloadWork::Find);
}
