//! From a wish to a text that compiles.

use std::collections::HashSet;
use std::fmt::Write;

use chunk::ColumnDesc;

use crate::registry::KernelFile;

/// Work items in a group where no file says more.
const GROUP_ITEMS: u32 = 256;

/// A program: some files of kernels over the columns of a layout.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name, for messages and caches.
    pub name: &'static str,
    /// What it is made of, in order.
    pub files: Vec<&'static KernelFile>,
    /// All columns of the layout, in order; those that the kernels name must be among them.
    pub columns: Vec<ColumnDesc>,
    /// The most work items that a group may have when it is launched: at most the device's, a power of
    /// two. Kernels that share memory (`select_…`, `sort_…`) are launched with exactly as many, at least
    /// 16 and at most 512.
    pub group_items: u32,
}

impl Spec {
    /// A program with groups of up to the size that suits its files; without files, 256.
    pub fn new(name: &'static str, files: &[&'static KernelFile], columns: &[ColumnDesc]) -> Self {
        let (files, columns) = (files.to_vec(), columns.to_vec());
        let sizes = files.iter().flat_map(|file| file.kernels).map(|kernel| kernel.group_items);
        let group_items = sizes.max().unwrap_or(GROUP_ITEMS);
        Self { name, files, columns, group_items }
    }

    /// A program of one file, with columns that suit it.
    pub fn of_file(file: &'static KernelFile) -> Self {
        Self::new(file.name, &[file], file.columns)
    }

    /// The same with groups of another size.
    pub fn with_group_items(self, group_items: u32) -> Self {
        Self { group_items, ..self }
    }

    /// Names of all its kernels, in order.
    pub fn kernels(&self) -> Vec<&'static str> {
        self.files.iter().flat_map(|file| file.kernels).map(|kernel| kernel.name).collect()
    }

    /// Columns that its kernels name and its layout lacks.
    pub fn missing_columns(&self) -> Vec<&'static str> {
        let there = |name: &str| self.columns.iter().any(|column| column.name == name);
        let wanted = self.files.iter().flat_map(|f| f.kernels).flat_map(|k| k.columns);
        wanted.copied().filter(|name| !there(name)).collect()
    }

    /// Columns whose words a kernel expects side by side in the job's header, and which are not: other
    /// declarations that were joined before have some of them. The first one of each row of columns.
    pub fn scattered_columns(&self) -> Vec<&'static str> {
        let place = |name: &str| self.columns.iter().position(|column| column.name == name);
        let is_scattered = |names: &&[&str]| {
            names.windows(2).any(|pair| place(pair[0]).map(|at| at + 1) != place(pair[1]))
        };
        let rows = self.files.iter().flat_map(|file| file.side_by_side);
        rows.copied().filter(is_scattered).map(|names| names[0]).collect()
    }
}

/// The whole text of a program: nothing is included when it is compiled.
///
/// # Panics
/// If columns are missing or scattered, or two files have different constants of one name.
pub fn source(spec: &Spec) -> String {
    source_with(spec, "")
}

/// The same with a text of the caller's behind it.
///
/// Only columns that the text names have macros: programs of pipelines that differ in other columns are the same
/// text, which is compiled once. A text that makes names of columns by `##` has them all.
///
/// # Panics
/// As [`source`].
pub fn source_with(spec: &Spec, own: &str) -> String {
    let missing = spec.missing_columns();
    assert!(missing.is_empty(), "{}: no column is called {}", spec.name, missing.join(", "));
    let scattered = spec.scattered_columns();
    assert!(
        scattered.is_empty(),
        "{}: the columns behind {} do not follow it: declare them before others do",
        spec.name,
        scattered.join(", ")
    );
    let mut text = format!("#define GROUP_ITEMS {}\n", spec.group_items);
    text += &crate::constants::text();
    let mut constants: Vec<(&str, u32)> = Vec::new();
    for &(name, value) in spec.files.iter().flat_map(|file| file.constants) {
        match constants.iter().find(|(known, _)| *known == name) {
            None => {
                constants.push((name, value));
                let _ = writeln!(text, "#define {name} {value:#x}u"); // cannot fail on a String
            }
            Some((_, known)) => assert_eq!(*known, value, "{}: {name} has two values", spec.name),
        }
    }
    let mut blocks: Vec<u8> =
        [chunk::reasons::BLOCK, crate::reasons::BLOCK].map(|b| b.number()).into();
    for block in spec.files.iter().flat_map(|file| file.reasons) {
        if !blocks.contains(&block.number()) {
            blocks.push(block.number());
            text += &crate::constants::drops(block);
        }
    }
    text += include_str!("c/dialect.h");
    let mut parts: Vec<&str> = Vec::new();
    for file in spec.files.iter() {
        for header in file.headers.iter().copied().chain([file.text]) {
            // A header once, however many ask for it.
            if !parts.contains(&header) {
                parts.push(header);
            }
        }
    }
    parts.push(own);
    let named: HashSet<&str> = parts.iter().flat_map(|part| columns_named(part)).collect();
    let is_used = |name: &str| named.contains("") || named.contains(name);
    text += &chunk::dialect_of(&spec.columns, is_used);
    parts.into_iter().for_each(|part| text += part);
    text
}

/// What a text calls columns: of `COL_DST4(arena)` and `WORD_DST4` it is `DST4`, of `COL_##name` nothing.
fn columns_named(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter_map(|word| word.strip_prefix("COL_").or_else(|| word.strip_prefix("WORD_")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{CLASSIFY12, EMPTY, LPM, PATCH, PAYLOAD, SELECT};
    use crate::{Classify12Columns, ExactColumns, LpmColumns};
    use chunk::Columns;

    #[test]
    fn a_program_holds_each_part_once_and_in_order() {
        let spec = Spec::new("all", &[&LPM, &LPM, &EMPTY], LpmColumns::COLUMNS);
        assert_eq!(spec.kernels(), ["lpm4", "lpm6", "lpm4", "lpm6", "empty"]);
        let text = source(&spec);
        for part in ["define COL_RESULT(", "FN uint bspl_lookup(", "KERNEL(lpm6)", "KERNEL(empty)"]
        {
            assert_eq!(text.matches(part).count(), 1, "{part}");
        }
        assert!(text.find("COL_RESULT").unwrap() < text.find("KERNEL(lpm4)").unwrap());
    }

    #[test]
    fn a_program_has_constants_and_drop_reasons_of_its_files() {
        chunk::drop_reasons! {
            /// An application's.
            const BLOCK: 254, "an application";
            OWN = 7, "own", "a reason", "Nothing.";
        }
        const OF_APPLICATION: KernelFile = KernelFile {
            name: "own",
            constants: &[("OWN_NUMBER", 7)],
            reasons: &[BLOCK, chunk::reasons::BLOCK],
            ..KernelFile::NONE
        };
        assert!(!source(&Spec::of_file(&EMPTY)).contains("DROP_OWN"));
        let text = source(&Spec::new("two", &[&OF_APPLICATION, &EMPTY, &OF_APPLICATION], &[]));
        let verdict = chunk::Verdict::drop(OWN).0;
        for (define, count) in [
            (format!("#define DROP_OWN {verdict:#x}u\n"), 1),
            ("#define OWN_NUMBER 0x7u\n".into(), 1),
        ] {
            assert_eq!(text.matches(&define).count(), count, "{define}");
        }
        assert_eq!(text.matches("#define DROP_NO_VERDICT ").count(), 1, "those of every program");
    }

    /// Columns of other stages make no other program, unless they move one that it uses.
    #[test]
    fn a_program_has_macros_for_the_columns_that_it_names() {
        let layout = |names: &[&[ColumnDesc]]| names.concat();
        let of = |columns: &[ColumnDesc], own: &str| {
            source_with(&Spec { columns: columns.to_vec(), ..Spec::of_file(&LPM) }, own)
        };
        let (lpm, exact) = (LpmColumns::COLUMNS, ExactColumns::COLUMNS);
        let alone = of(lpm, "");
        assert_eq!(of(&layout(&[lpm, exact]), ""), alone);
        assert_ne!(of(&layout(&[exact, lpm]), ""), alone);
        let named = of(&layout(&[lpm, exact]), "// WORD_KEY8\n");
        assert!(named.contains("#define WORD_KEY8 ") && named.contains("#define COL_KEY8(arena) "));
        assert!(!named.contains("KEY16"));
        let pasted = of(&layout(&[lpm, exact]), "#define OF(x) COL_ ## x(arena)\n");
        assert!(pasted.contains("COL_KEY16(arena)") && pasted.ends_with("## x(arena)\n"));
    }

    #[test]
    #[should_panic(expected = "SAME has two values")]
    fn a_constant_has_one_value() {
        const ONE: KernelFile =
            KernelFile { name: "one", constants: &[("SAME", 1)], ..KernelFile::NONE };
        const TWO: KernelFile =
            KernelFile { name: "two", constants: &[("SAME", 2)], ..KernelFile::NONE };
        source(&Spec::new("both", &[&ONE, &TWO], &[]));
    }

    #[test]
    fn missing_columns_are_named() {
        let spec = Spec::new("lpm", &[&LPM], ExactColumns::COLUMNS);
        assert_eq!(spec.missing_columns(), ["dst4", "result", "dst6", "result"]);
    }

    /// Where another declaration has the second of three columns, a kernel would read the wrong ones.
    #[test]
    fn scattered_columns_are_named() {
        chunk::columns! { struct Other / OtherView { pub head1: [u64; 2], } }
        let scattered = |declared: &[chunk::Declaration]| {
            let layout = chunk::Layout::join(declared, 1).unwrap();
            Spec::new("some", &[&CLASSIFY12], layout.columns()).scattered_columns()
        };
        let (own, other) = (Classify12Columns::COLUMNS, Other::COLUMNS);
        assert_eq!(scattered(&[own, other]), [""; 0]);
        assert_eq!(scattered(&[other, own]), ["head0"]);
    }

    /// A kernel may be launched with the size that the registry names, whatever else is in the program.
    #[test]
    fn a_program_is_built_for_the_largest_group_that_it_is_launched_with() {
        assert_eq!(Spec::of_file(&PAYLOAD).group_items, 128);
        assert_eq!(Spec::new("a", &[&PAYLOAD, &SELECT], LpmColumns::COLUMNS).group_items, 256);
        assert_eq!(Spec::of_file(&PATCH).group_items, 256);
        assert_eq!(Spec::new("a", &[], LpmColumns::COLUMNS).group_items, 256);
    }
}
