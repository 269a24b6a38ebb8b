//! Pages of docs/ as plain text: headings, tables and links as a terminal shows them.
//!
//! The pages keep to a small part of Markdown, and what is not known here stays as it is written.
//!
//! ```text
//!  # Title                     TITLE
//!  ## Part                     Part, underlined
//!  ```text … ```               the lines, four columns in
//!  | a | b |                   columns where they fit, else an entry for each row
//!  [text](page.md)             text (`shadeline help page`)
//! ```

/// Columns of text.
pub(super) const WIDTH: usize = 100;

/// The first heading.
pub(super) fn title(page: &str) -> &str {
    page.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default()
}

/// The page as text.
pub(super) fn plain(page: &str) -> String {
    let mut out = String::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("```") {
            for line in lines.by_ref().take_while(|line| !line.trim_start().starts_with("```")) {
                push(&mut out, &format!("    {line}"));
            }
        } else if line.starts_with("<!--") {
            if !line.contains("-->") {
                lines.by_ref().find(|line| line.contains("-->"));
            }
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(row));
            }
            table(&mut out, rows);
        } else if let Some(text) = line.strip_prefix("# ") {
            push(&mut out, &linked(text).to_uppercase());
        } else if let Some(text) = line.strip_prefix("## ") {
            let text = linked(text);
            push(&mut out, &text);
            push(&mut out, &"─".repeat(text.chars().count()));
        } else if line.starts_with("###") {
            push(&mut out, &linked(line.trim_start_matches('#').trim_start()));
        } else if line.starts_with("    ") || line.trim().is_empty() {
            push(&mut out, line);
        } else {
            let mut text = line.to_owned();
            // Lines of a paragraph or of an entry are wrapped anew.
            while let Some(more) = lines.next_if(|line| continues(line)) {
                text.push(' ');
                text.push_str(more.trim_start());
            }
            paragraph(&mut out, &linked(&text));
        }
    }
    out
}

/// Whether a line goes on with the text of the one before.
fn continues(line: &str) -> bool {
    let text = line.trim_start();
    let begins = ["#", "|", "```", "- ", "* ", "<!--"];
    let number = text.split_once(". ").is_some_and(|(n, _)| n.parse::<u8>().is_ok());
    !text.is_empty()
        && !line.starts_with("    ")
        && !number
        && !begins.iter().any(|b| text.starts_with(b))
}

fn push(out: &mut String, line: &str) {
    if line.trim().is_empty() && (out.is_empty() || out.ends_with("\n\n")) {
        return;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

/// Wraps a paragraph; the lines of an entry of a list begin where its text does.
fn paragraph(out: &mut String, text: &str) {
    let body = text.trim_start();
    let mark = match body.split_once(' ') {
        Some((mark @ ("-" | "*"), _)) => mark.len() + 1,
        Some((mark, _)) if mark.strip_suffix('.').is_some_and(|n| n.parse::<u8>().is_ok()) => {
            mark.len() + 1
        }
        _ => 0,
    };
    let indent = text.len() - body.len();
    wrap(out, &format!("{:indent$}", ""), &format!("{:1$}", "", indent + mark), body);
}

fn wrap(out: &mut String, first: &str, rest: &str, text: &str) {
    let (mut line, mut is_empty) = (first.to_owned(), true);
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            push(out, &line);
            (line, is_empty) = (rest.to_owned(), true);
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    push(out, &line);
}

/// The cells of a row; `\|` is a bar within one.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|').replace("\\|", "\0");
    let row = row.strip_suffix('|').unwrap_or(&row);
    row.split('|').map(|cell| linked(cell.trim()).replace('\0', "|")).collect()
}

fn table(out: &mut String, mut rows: Vec<Vec<String>>) {
    rows.retain(|row| {
        !row.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| "-:".contains(c)))
    });
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let whole: usize = widths.iter().map(|width| width + 2).sum();
    if whole <= WIDTH + 2 {
        for row in &rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  "));
            push(out, &cells.collect::<String>());
        }
        return;
    }
    let Some((heads, rows)) = rows.split_first() else { return };
    for row in rows {
        let Some((name, cells)) = row.split_first() else { continue };
        match cells {
            // Of two columns the second one explains the first.
            [only] => {
                wrap(out, "", "    ", name);
                wrap(out, "    ", "    ", only);
            }
            _ => {
                wrap(out, "", "    ", name);
                for (head, cell) in heads.iter().skip(1).zip(cells) {
                    if !cell.is_empty() {
                        let head =
                            if head.is_empty() { String::new() } else { format!("{head}: ") };
                        wrap(out, "    ", "      ", &format!("{head}{cell}"));
                    }
                }
            }
        }
    }
}

/// Links as a reader of a terminal follows them.
fn linked(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(open) = rest.find('[') {
        let link = closed(&rest[open + 1..]).and_then(|(text, after)| {
            let (target, after) = after.strip_prefix('(')?.split_once(')')?;
            Some((text, target, after))
        });
        let Some((text, target, after)) = link else {
            out += &rest[..=open];
            rest = &rest[open + 1..];
            continue;
        };
        // `![text](picture)`
        out += rest[..open].strip_suffix('!').unwrap_or(&rest[..open]);
        out += &match target.split('#').next().and_then(|page| page.strip_suffix(".md")) {
            Some(page) if !page.contains('/') => {
                match text.trim_matches('`') == format!("{page}.md") {
                    true => format!("`shadeline help {page}`"),
                    false => format!("{text} (`shadeline help {page}`)"),
                }
            }
            _ if target.starts_with("http") => format!("{text} <{target}>"),
            _ => text.to_owned(),
        };
        rest = after;
    }
    out + rest
}

/// What is before the bracket that closes, and what is behind it.
fn closed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 0 => return Some((&text[..at], &text[at + 1..])),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_plain() {
        let page = "# A page\n\nSome `code`, see\n[router.md](router.md) and [keys](configuration.md#a), [x](../a/b.toml), [`[a]`](#a).\n\
            \n## Part [one](https://example.org/)\n\n```text\n # not a title\n```\n\n| a | b |\n| --- | ---: |\n\
            | `x\\|y` | 1 |\n\n- an entry\n  of two lines\n- another\n";
        let expected = "A PAGE\n\nSome `code`, see `shadeline help router` and keys (`shadeline help configuration`), x, `[a]`.\n\
            \nPart one <https://example.org/>\n───────────────────────────────\n\n     # not a title\n\n\
            a       b\n`x|y`  1\n\n- an entry of two lines\n- another\n";
        assert_eq!(plain(page), expected.replace("a       b", "a      b"));
        assert_eq!(title(page), "A page");
    }

    #[test]
    fn wide_tables_become_entries() {
        let long = "word ".repeat(30);
        let out =
            plain(&format!("| name | what | why |\n| --- | --- | --- |\n| `a` | {long} | |\n"));
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines[0], "`a`");
        assert!(
            lines[1].starts_with("    what: word") && lines[2].starts_with("      word"),
            "{out}"
        );
        assert!(lines.len() == 3 && lines.iter().all(|line| line.len() <= WIDTH), "{out}");
    }

    #[test]
    fn no_page_is_wider_than_it_should_be() {
        for (name, page) in super::super::TOPICS {
            let text = plain(page);
            assert!(!text.contains("](") && !text.contains("```"), "{name}: {text}");
            for line in text.lines().filter(|line| !line.starts_with("    ")) {
                let words = line.split_whitespace().count();
                assert!(line.chars().count() <= WIDTH || words <= 2, "{name}: {line}");
            }
        }
    }
}
