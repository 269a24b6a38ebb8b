//! Every kernel under Oclgrind, which sees what PoCL hides: races, uninitialised reads, accesses beyond
//! memory, barriers that not all items reach. The inputs are the known answers.
//!
//! Oclgrind's exit status says nothing, so its log is read: it must be empty. Kernels with a planted bug of
//! each kind prove that it would not be.

use std::path::{Path, PathBuf};
use std::process::Command;

use chunk::Columns;
use kernels::{Launch, LpmColumns, Spec, files, known};

use crate::bed::{Bed, Memories};

/// Items in a group: the fewest that still are more than one row of anything.
const ITEMS: u32 = 32;

/// The environment names the planted bug to the program that runs under Oclgrind.
const BUG: &str = "SHADELINE_PLANTED_BUG";
/// What that program prints when it got to its end.
const END: &str = "reached the end";

/// A kernel that is wrong, and words of the report about it.
struct Planted {
    name: &'static str,
    text: &'static str,
    report: &'static str,
}

const PLANTED: &[Planted] = &[
    Planted {
        name: "race",
        text: "KERNEL(race)
{
    LOCAL uint shared[GROUP_ITEMS];
    shared[ITEM_ID] = ITEM_ID;
    // A barrier is missing.
    ((GLOBAL uint *)state)[GLOBAL_ID] = shared[GROUP_ITEMS - 1u - ITEM_ID];
}
",
        report: "data race",
    },
    Planted {
        name: "race_between_groups",
        text: "KERNEL(race_between_groups)
{
    ((GLOBAL uint *)state)[0] += GLOBAL_ID;
}
",
        report: "data race",
    },
    Planted {
        name: "uninitialised",
        text: "KERNEL(uninitialised)
{
    LOCAL uint shared[GROUP_ITEMS];
    if (ITEM_ID != 0u)
        shared[ITEM_ID] = ITEM_ID;
    BARRIER();
    if (shared[0] == 7u)
        ((GLOBAL uint *)state)[GLOBAL_ID] = 1u;
}
",
        report: "ninitialized",
    },
    Planted {
        name: "beyond",
        text: "KERNEL(beyond)
{
    ((GLOBAL uint *)state)[GLOBAL_ID + 1u] = 1u;
}
",
        report: "Invalid write",
    },
    Planted {
        name: "divergent",
        text: "KERNEL(divergent)
{
    if (ITEM_ID != 0u)
        BARRIER();
}
",
        report: "divergence",
    },
];

/// Runs one of the tests below under Oclgrind; what it printed, and the log. None, and the test is skipped,
/// where Oclgrind is missing.
fn under_oclgrind(test: &str, bug: &str) -> Option<(String, String)> {
    let oclgrind = testkit::require_tool("oclgrind")?;
    let library = library(&oclgrind)?;
    let scratch = testkit::Scratch::new();
    let log = scratch.join("oclgrind.log");
    let output = Command::new(oclgrind)
        .args(["--data-races", "--uninitialized", "--build-options", "-cl-opt-disable", "--log"])
        .arg(&log)
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env("OPENCL_DYLIB_PATH", library)
        .env_remove("SHADELINE_TEST_BACKEND")
        .env(BUG, bug)
        .output()
        .expect("oclgrind starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Some((printed, std::fs::read_to_string(&log).unwrap_or_default()))
}

/// Oclgrind's OpenCL library, beside its program.
fn library(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    let found = prefix.join("lib/oclgrind/liboclgrind-rt.so");
    if !found.is_file() {
        testkit::skip(&format!("oclgrind has no {}", found.display()));
        return None;
    }
    Some(found)
}

#[test]
fn no_kernel_is_reported() {
    let Some((printed, log)) = under_oclgrind("oclgrind::run_known_answers", "") else { return };
    assert!(printed.contains(END), "{printed}");
    assert!(log.trim().is_empty(), "{log}");
}

#[test]
fn planted_bugs_are_reported() {
    for planted in PLANTED {
        let Some((printed, log)) = under_oclgrind("oclgrind::run_planted_bug", planted.name) else {
            return;
        };
        assert!(log.contains(planted.report), "{}: {log}\n{printed}", planted.name);
    }
}

fn oclgrind() -> Bed {
    let bed = Bed::open().expect("Oclgrind's device");
    assert!(bed.name().contains("Oclgrind"), "{} is not Oclgrind", bed.name());
    bed
}

/// Does its work only where `no_kernel_is_reported` has started it, under Oclgrind.
#[test]
fn run_known_answers() {
    if std::env::var_os(BUG).is_none() {
        return;
    }
    let mut bed = oclgrind();
    for known in known::of(files::ALL, ITEMS) {
        assert_eq!(crate::known::failure(&mut bed, &known), None);
    }
    // Indices that lead nowhere: no access beyond memory.
    crate::lpm::damaged_tables();
    crate::tries::damaged_tables();
    crate::classify::damaged_images();
    crate::route::numbers_out_of_range();
    crate::patch::changes_beyond_the_image();
    println!("{END}");
}

/// Does its work only where `planted_bugs_are_reported` has started it, under Oclgrind.
#[test]
fn run_planted_bug() {
    let Ok(name) = std::env::var(BUG) else { return };
    let planted = PLANTED.iter().find(|planted| planted.name == name).expect("a planted bug");
    let mut bed = oclgrind();
    let spec = Spec::new("planted", &[&files::EMPTY], LpmColumns::COLUMNS).with_group_items(ITEMS);
    bed.build("planted", kernels::source(&spec) + planted.text, vec![planted.name]);
    let state = bed.memory(&vec![0; 2 * 4 * ITEMS as usize]);
    let memories = Memories { state, ..bed.memories() };
    let launch = Launch { kernel: planted.name, groups: 2, items: ITEMS, job: 0 };
    bed.launch("planted", memories, &[launch]);
}
