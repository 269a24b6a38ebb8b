//! What README.md and the pages of docs/ show is what the program takes: every block of TOML passes `check`.

use std::path::PathBuf;
use std::process::Command;

use testkit::Scratch;

/// README.md and the pages of docs/.
fn pages() -> Vec<PathBuf> {
    let root = testkit::repository();
    let entries = std::fs::read_dir(root.join("docs")).expect("docs").flatten();
    let mut pages: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    pages.push(root.join("README.md"));
    pages.sort();
    pages
}

/// The blocks of a page that are marked as TOML, each with the number of its first line.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line.trim() == "```toml" {
            let lines = lines.by_ref().map(|(_, line)| line);
            let text: String = lines
                .take_while(|line| line.trim() != "```")
                .flat_map(|line| [line, "\n"])
                .collect();
            blocks.push((number + 2, text));
        }
    }
    blocks
}

#[test]
fn every_configuration_in_the_documentation_is_good() {
    let folder = Scratch::new();
    // Modules that a page shows.
    for name in ["pass.k", "ttl_floor.k"] {
        let source = testkit::repository().join("examples/modules").join(name);
        std::fs::copy(source, folder.join(name)).expect("an example");
    }
    let mut count = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        let name = page.file_name().expect("a name").to_string_lossy().into_owned();
        for (number, mut block) in blocks(&text) {
            // A part of a file: the ports of the examples complete it.
            if !block.contains("[port.") {
                block += "\n[port.lan]\n[port.wan]\n";
            }
            let config = folder.write("config.toml", &block);
            let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
            let output = command.arg("check").arg(config).output().expect("the program starts");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{name}:{number}:\n{block}\n{said}");
            count += 1;
        }
    }
    assert!(count >= 9, "{count} blocks: is the mark of TOML another one?");
}

#[test]
fn blocks_are_found_with_their_lines() {
    let page = "# A\n\n```toml\na = 1\nb = 2\n```\n\n```text\nc\n```\n```toml\nd = 3\n```\n";
    assert_eq!(blocks(page), [(4, "a = 1\nb = 2\n".to_owned()), (12, "d = 3\n".to_owned())]);
}
