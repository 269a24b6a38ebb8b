//! What README.md and the pages of docs/ show is what the program takes: every block of TOML passes `check`, and lists of
//! pipelines, compressions and keys are complete.

use std::os::unix::fs::PermissionsExt;
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

/// The blocks of a page that are marked as TOML, and those of indented code with a header of a section, each with the number
/// of its first line. They are without the indentation of what they are in, such as a list.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate().peekable();
    let mut is_after_blank = true;
    while let Some((number, line)) = lines.next() {
        let was_after_blank = std::mem::replace(&mut is_after_blank, line.trim().is_empty());
        let indent = line.len() - line.trim_start().len();
        if let Some(mark) = line.trim().strip_prefix("```") {
            let own = lines.by_ref().map(|(_, line)| line).take_while(|own| own.trim() != "```");
            let text: String = own.map(|own| dedented(own, indent) + "\n").collect();
            if mark == "toml" {
                blocks.push((number + 2, text));
            }
        } else if indent >= 4 && was_after_blank {
            let mut text = dedented(line, indent) + "\n";
            let is_in =
                |own: &str| own.trim().is_empty() || own.len() - own.trim_start().len() >= indent;
            while let Some((_, own)) = lines.next_if(|(_, own)| is_in(own)) {
                text += &(dedented(own, indent) + "\n");
            }
            is_after_blank = text.ends_with("\n\n");
            if text.lines().any(is_header) {
                blocks.push((number + 1, text.trim_end().to_owned() + "\n"));
            }
        }
    }
    blocks
}

/// A line without this indentation.
fn dedented(line: &str, indent: usize) -> String {
    let own = line.len() - line.trim_start().len();
    line[own.min(indent)..].to_owned()
}

/// Whether a line begins a section of a configuration, `[port.lan]` or `[[rule]]`.
fn is_header(line: &str) -> bool {
    let line = line.split('#').next().unwrap_or_default().trim_end();
    let name = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let name =
        name.map(|own| own.strip_prefix('[').and_then(|own| own.strip_suffix(']')).unwrap_or(own));
    name.is_some_and(|own| {
        own.starts_with(|c: char| c.is_ascii_lowercase())
            && own.chars().all(|c| c.is_ascii_alphanumeric() || "._-\"".contains(c))
    })
}

#[test]
fn every_configuration_in_the_documentation_is_good() {
    let folder = Scratch::new();
    // Modules that a page shows.
    for name in ["pass.k", "ttl_floor.k"] {
        let source = testkit::repository().join("examples/modules").join(name);
        std::fs::copy(source, folder.join(name)).expect("an example");
    }
    // Keys that another one has, for nobody but their owner.
    for name in ["branch-out.key", "branch-in.key"] {
        let path = folder.write(name, &format!("{0}\n{0}\n", "5a".repeat(32)));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("a key");
    }
    for name in ["switch-key.pem", "switch.pem", "ca.pem"] {
        let path = folder.write(name, "");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("a key");
    }
    let keys = format!("key_file = \"{}/", folder.join("").display());
    let mut count = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        let name = page.file_name().expect("a name").to_string_lossy().into_owned();
        for (number, mut block) in blocks(&text) {
            // A part of a file: the ports of the examples complete it.
            if !block.contains("[port.") {
                block += "\n[port.lan]\n[port.wan]\n";
            }
            let block = block.replace("key_file = \"/etc/shadeline/", &keys);
            let config = folder.write("config.toml", &block);
            let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
            let output = command.arg("check").arg(config).output().expect("the program starts");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{name}:{number}:\n{block}\n{said}");
            count += 1;
        }
    }
    assert!(count >= 18, "{count} blocks: is the mark of TOML another one?");
}

#[test]
fn blocks_are_found_with_their_lines() {
    let page = "# A\n\n```toml\na = 1\nb = 2\n```\n\n```text\nc\n```\n```toml\nd = 3\n```\n";
    assert_eq!(blocks(page), [(4, "a = 1\nb = 2\n".to_owned()), (12, "d = 3\n".to_owned())]);
}

#[test]
fn indented_blocks_are_found() {
    let page = "- A list:\n\n  ```toml\n  [flow]\n    active = \"1s\"\n  ```\n\nText\n\n    [port.a]     # of a page\n    mtu = 1500\n\n    \
                [[rule]]\n\nText\n    [port.b]\n\n    shadeline run\n    [options] [file]\n\n    $ cat\n     [[route]]\n";
    let expected = [
        (4, "[flow]\n  active = \"1s\"\n".to_owned()),
        (10, "[port.a]     # of a page\nmtu = 1500\n\n[[rule]]\n".to_owned()),
    ];
    assert_eq!(blocks(page), expected);
}

/// A text of the repository.
fn text(path: &str) -> String {
    std::fs::read_to_string(testkit::repository().join(path)).expect(path)
}

/// Whether a text has this word.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|own| own == word)
}

/// Texts that list the pipelines which `mode` may name: where, and how the part begins that lists them.
const LISTS_OF_MODES: &[(&str, &str)] = &[
    ("packaging/shadeline.toml", "mode = \"router\" "),
    ("docs/stages.md", "suggests an order that works. `mode ="),
    ("docs/configuration.md", "| `mode` |"),
    ("docs/glossary.md", "| pipeline |"),
];

#[test]
fn lists_of_pipelines_are_complete() {
    let modes = apps::known_of(apps::DESCRIPTORS).modes;
    assert!(modes.iter().any(|mode| mode.name == "router"));
    for (path, begin) in LISTS_OF_MODES {
        let text = text(path);
        let at = text.find(begin).unwrap_or_else(|| panic!("{path}: no `{begin}`"));
        // A list may go over the end of a line.
        let list = text[at..].lines().take(2).collect::<Vec<_>>().join("\n");
        for mode in &modes {
            assert!(has_word(&list, &mode.name), "{path}: no `{}` in:\n{list}", mode.name);
        }
    }
}

#[test]
fn lists_of_compressions_are_complete() {
    let mut texts: Vec<PathBuf> = pages();
    for folder in ["shadeline/examples", "packaging"] {
        let entries =
            std::fs::read_dir(testkit::repository().join(folder)).expect(folder).flatten();
        texts.extend(
            entries
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|end| end == "toml")),
        );
    }
    let known = files::input::COMPRESSIONS;
    let mut count = 0;
    for path in texts {
        let text = std::fs::read_to_string(&path).expect("a text");
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            // A list names two at least, and may go over the ends of lines.
            let is_list = known.iter().filter(|name| has_word(line, name)).count() > 1;
            let list = lines[number.saturating_sub(1)..]
                .iter()
                .take(3)
                .copied()
                .collect::<Vec<_>>()
                .join("\n");
            for name in known.iter().filter(|_| is_list) {
                assert!(has_word(&list, name), "{}:{}: no {name}", path.display(), number + 1);
            }
            count += usize::from(is_list);
        }
    }
    assert!(count >= 8, "{count} lists of compressions: are they written in another way?");
}

#[test]
fn the_example_of_a_router_has_every_key() {
    let example = text("shadeline/examples/router.toml");
    let sections = [
        "[system]",
        "[port.NAME]",
        "[port.NAME.fault]",
        "[port.NAME.host]",
        "[port.NAME] of a VLAN",
        "[router]",
        "[[route]]",
        "member of `via`",
        "[[routes]]",
        "[[neighbour]]",
        "[engine]",
        "[engine.sim]",
        "[pipeline.NAME]",
    ];
    let all = control::config::keys();
    for title in sections {
        let section = all.iter().find(|own| own.title == title).expect(title);
        // Of named data.
        let of_others = ["faces", "register"];
        for key in section.keys.iter().filter(|key| !of_others.contains(&key.name)) {
            let is_set = |line: &str| {
                let line = line.trim_start_matches("# ");
                let names = line.split([',', '{']).filter_map(|part| part.split_once('='));
                names.into_iter().any(|(name, _)| name.trim() == key.name)
            };
            assert!(example.lines().any(is_set), "no `{}` of {title}", key.name);
        }
    }
}
