//! The drop reasons of the whole program: registered at the start, listed in `docs/drops.md`.
//!
//! Reasons are declared where packets are dropped ([`chunk::drop_reasons!`]). Here they meet: every pipeline has
//! counters for all of them, so that a dashboard finds the same names whatever the pipeline is.

use chunk::{ReasonBlock, ReasonClash};

use crate::pipelines;

/// The blocks of the engine and of every application, in order of their numbers.
pub(crate) fn blocks() -> Vec<&'static ReasonBlock> {
    let mut all = vec![chunk::reasons::BLOCK];
    all.extend(pipelines::descriptors().iter().flat_map(|own| own.reasons));
    all.sort_unstable_by_key(|block| block.number());
    all.dedup();
    all
}

/// Registers all of them.
///
/// # Errors
/// When two blocks have the same number or two reasons the same name.
pub(crate) fn register() -> Result<(), ReasonClash> {
    blocks().into_iter().try_for_each(chunk::reasons::register)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write;
    use std::path::{Path, PathBuf};

    use super::*;

    const HEAD: &str = "\
# Drop reasons

Every lost packet is counted under one reason. Its name appears in `ctl show drops` (with the remedy), in the metrics
(`shadeline_drop_packets_total`), in `stats.json`, in the report at the end, and in the comment of each packet in
`dropped.pcapng` and in captures of `ctl capture drops`. Names and numbers keep their meaning in later versions.

To see which packets are lost, and where:

    shadeline ctl show drops                        # reasons with their counts and remedies
    shadeline ctl capture drops -w drops.pcapng     # the packets, each with its reason as a comment
    shadeline ctl trace host 192.0.2.7              # the stage that drops a packet, and why

Some reasons need no action: their remedy begins with \"Nothing\" or \"Normal\".

A packet that a stage *dumps* is not counted as dropped: it goes only to `ctl capture dumps` and `[dump.NAME]`, and over
captures to `dumped.pcapng`, which is written if there are such packets.

If a stage panics, the packets of its chunk are dropped as `stage_panic`. The log names the stage, its line in the
configuration, and the packet. After 16 panics a worker no longer runs stages, and gives its receive queues to another
worker, except over captures.

`ctl show runtime` counts packets that entered the pipeline again, were handed over to the worker of another flow, were
dumped, or were under way for longer than `max_delay` (*late*), and panics and workers that no longer run stages. The
metrics are `shadeline_worker_again_packets_total`, `…_handed_over_packets_total`, `…_dumped_packets_total`,
`…_late_packets_total`, `shadeline_worker_panics_total` and `shadeline_worker_gave_up`.

The number of a reason is 256 times the number of its block, plus its number in the block. Block 255 is reserved for the
stages of tests.

<!-- Made from the declarations by a test: UPDATE_DROPS=1 cargo test -p shadeline drops -->
";

    /// The page `docs/drops.md`.
    fn page() -> String {
        let mut page = HEAD.to_owned();
        for block in blocks() {
            let _ = write!(page, "\n## Block {}: {}\n\n", block.number(), block.name());
            page += "| name | number | meaning | what to do |\n| --- | ---: | --- | --- |\n";
            let mut reasons: Vec<_> = block.reasons().iter().collect();
            reasons.sort_unstable_by_key(|reason| reason.code());
            for r in reasons {
                let (code, name) = (r.code().code(), r.name());
                let _ = writeln!(page, "| `{name}` | {code} | {} | {} |", r.text(), r.remedy());
            }
        }
        page
    }

    /// The file's text, after it has become `wanted` where the environment asks for that.
    fn updated(path: &Path, wanted: &str) -> String {
        if std::env::var_os("UPDATE_DROPS").is_some() {
            std::fs::write(path, wanted).unwrap();
        }
        std::fs::read_to_string(path).unwrap()
    }

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn the_page_is_made_from_the_declarations() {
        let there = updated(&root().join("docs/drops.md"), &page());
        assert!(
            there == page(),
            "docs/drops.md is old: UPDATE_DROPS=1 cargo test -p shadeline drops"
        );
    }

    /// `codes.txt` holds a line for every code that was ever shipped. Lines are added, never changed: a reason that is
    /// gone leaves its line, so that its code or its name gets no other meaning.
    #[test]
    fn a_shipped_code_keeps_its_meaning() {
        let path = root().join("shadeline/src/drops/codes.txt");
        let mut shipped = BTreeMap::new();
        for line in std::fs::read_to_string(&path).unwrap_or_default().lines() {
            let (code, name) = line.split_once(' ').expect("a code and a name");
            let code: u16 = code.parse().expect("a code");
            assert_eq!(shipped.insert(code, name.to_owned()), None, "{code} twice");
        }
        let mut all = shipped.clone();
        for reason in blocks().iter().flat_map(|block| block.reasons()) {
            let (code, name) = (reason.code().code(), reason.name());
            if let Some(shipped) = shipped.get(&code) {
                assert_eq!(shipped, name, "code {code} had another meaning");
            } else if let Some((old, _)) = shipped.iter().find(|(_, shipped)| *shipped == name) {
                panic!("`{name}` had the code {old}, now {code}");
            }
            all.insert(code, name.to_owned());
        }
        let lines: String = all.iter().map(|(code, name)| format!("{code} {name}\n")).collect();
        assert_eq!(updated(&path, &lines), lines, "new codes: UPDATE_DROPS=1 adds them");
    }

    #[test]
    fn all_blocks_go_together() {
        register().unwrap();
        register().unwrap();
        let names: Vec<_> = blocks().iter().map(|block| block.number()).collect();
        assert_eq!(names, [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 13, 14, 15, 16, 17]);
        for reason in blocks().iter().flat_map(|block| block.reasons()) {
            assert_eq!(reason.code().name(), reason.name());
            // A cell of a table of the page, and a sentence.
            assert!(!reason.text().contains(['|', '\n']) && !reason.text().ends_with('.'));
            assert!(!reason.remedy().contains(['|', '\n']) && reason.remedy().ends_with('.'));
        }
    }
}
