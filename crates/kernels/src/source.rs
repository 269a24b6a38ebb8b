//! From a wish to a text that compiles.

use chunk::{ColumnDesc, ReasonBlock};

use crate::registry::{ALL, KernelFile};

/// Work items in a group where no file says more.
const GROUP_ITEMS: u32 = 256;

/// A program: some files of kernels over the columns of a layout.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name, for messages and caches.
    pub name: &'static str,
    /// Names of [`KernelFile`]s.
    pub files: Vec<&'static str>,
    /// All columns of the layout, in order; those that the kernels name must be among them.
    pub columns: Vec<ColumnDesc>,
    /// The most work items that a group may have when it is launched: at most the device's, a power of
    /// two. Kernels that share memory (`select_…`, `sort_…`) are launched with exactly as many, at least
    /// 16 and at most 512.
    pub group_items: u32,
    /// Blocks of drop reasons that its kernels name as `DROP_…`, beside those of [`chunk::reasons`] and
    /// [`crate::reasons`], which every program has.
    pub reasons: &'static [&'static ReasonBlock],
}

impl Spec {
    /// A program with groups of up to the size that suits its files; without files, 256.
    ///
    /// # Panics
    /// If a file is not known.
    pub fn new(name: &'static str, files: &[&'static str], columns: &[ColumnDesc]) -> Self {
        let columns = columns.to_vec();
        let spec = Self { name, files: files.to_vec(), columns, group_items: 0, reasons: &[] };
        let sizes = spec.kernel_files().flat_map(|file| file.kernels).map(|k| k.group_items);
        Self { group_items: sizes.max().unwrap_or(GROUP_ITEMS), ..spec }
    }

    /// The same with groups of another size.
    pub fn with_group_items(self, group_items: u32) -> Self {
        Self { group_items, ..self }
    }

    /// The same with the drop reasons of an application.
    pub fn with_reasons(self, reasons: &'static [&'static ReasonBlock]) -> Self {
        Self { reasons, ..self }
    }

    /// Names of all its kernels, in order.
    pub fn kernels(&self) -> Vec<&'static str> {
        self.kernel_files().flat_map(|file| file.kernels).map(|kernel| kernel.name).collect()
    }

    /// Columns that its kernels name and its layout lacks.
    pub fn missing_columns(&self) -> Vec<&'static str> {
        let there = |name: &str| self.columns.iter().any(|column| column.name == name);
        let wanted = self.kernel_files().flat_map(|f| f.kernels).flat_map(|k| k.columns);
        wanted.copied().filter(|name| !there(name)).collect()
    }

    /// Columns whose words a kernel expects side by side in the job's header, and which are not: other
    /// declarations that were joined before have some of them. The first one of each row of columns.
    pub fn scattered_columns(&self) -> Vec<&'static str> {
        let place = |name: &str| self.columns.iter().position(|column| column.name == name);
        let is_scattered = |names: &&[&str]| {
            names.windows(2).any(|pair| place(pair[0]).map(|at| at + 1) != place(pair[1]))
        };
        let rows = self.kernel_files().flat_map(|file| file.side_by_side);
        rows.copied().filter(is_scattered).map(|names| names[0]).collect()
    }

    fn kernel_files(&self) -> impl Iterator<Item = &'static KernelFile> {
        self.files.iter().map(|name| {
            let known = ALL.iter().find(|file| file.name == *name);
            known.unwrap_or_else(|| panic!("no file of kernels is called {name}"))
        })
    }
}

/// A program of each file of kernels, with columns that suit it.
pub fn programs() -> Vec<Spec> {
    let spec = |file: &'static KernelFile| {
        Spec::new(file.name, std::slice::from_ref(&file.name), file.columns)
    };
    ALL.iter().map(spec).collect()
}

/// The whole text of a program: nothing is included when it is compiled.
///
/// # Panics
/// If a file is not known, or columns are missing or scattered.
pub fn source(spec: &Spec) -> String {
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
    for block in spec.reasons {
        text += &crate::constants::drops(block);
    }
    text += include_str!("c/dialect.h");
    text += &chunk::dialect(&spec.columns);
    let mut joined: Vec<&str> = Vec::new();
    for file in spec.kernel_files() {
        for header in file.headers.iter().copied().chain([file.text]) {
            // A header once, however many ask for it.
            if !joined.contains(&header) {
                text += header;
                joined.push(header);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LpmColumns, RouteColumns};
    use chunk::Columns;

    #[test]
    fn a_program_holds_each_part_once_and_in_order() {
        let spec = Spec::new("all", &["lpm", "lpm", "empty"], LpmColumns::COLUMNS);
        assert_eq!(spec.kernels(), ["lpm4", "lpm6", "lpm4", "lpm6", "empty"]);
        let text = source(&spec);
        for part in ["define COL_RESULT(", "FN uint bspl_lookup(", "KERNEL(lpm6)", "KERNEL(empty)"]
        {
            assert_eq!(text.matches(part).count(), 1, "{part}");
        }
        assert!(text.find("COL_RESULT").unwrap() < text.find("KERNEL(lpm4)").unwrap());
    }

    #[test]
    fn a_program_names_the_drop_reasons_of_its_application() {
        chunk::drop_reasons! {
            /// An application's.
            const BLOCK: 254, "an application";
            OWN = 7, "own", "a reason", "Nothing.";
        }
        let spec = Spec::new("empty", &["empty"], LpmColumns::COLUMNS);
        assert!(!source(&spec).contains("DROP_OWN"));
        let text = source(&spec.with_reasons(&[BLOCK]));
        let verdict = chunk::Verdict::drop(OWN).0;
        assert!(text.contains(&format!("#define DROP_OWN {verdict:#x}u\n")));
    }

    #[test]
    fn missing_columns_are_named() {
        let spec = Spec::new("lpm", &["lpm"], RouteColumns::COLUMNS);
        assert_eq!(spec.missing_columns(), ["result", "result"]);
    }

    /// Where another declaration has the second of three columns, a kernel would read the wrong ones.
    #[test]
    fn scattered_columns_are_named() {
        use crate::FilterColumns;
        chunk::columns! { struct Other / OtherView { pub filter_head1: [u64; 2], } }
        let scattered = |declared: &[chunk::Declaration]| {
            let layout = chunk::Layout::join(declared, 1).unwrap();
            Spec::new("filter", &["filter"], layout.columns()).scattered_columns()
        };
        let (own, other) = (FilterColumns::COLUMNS, Other::COLUMNS);
        assert_eq!(scattered(&[own, other]), [""; 0]);
        assert_eq!(scattered(&[other, own]), ["filter_head0"]);
    }

    /// A kernel may be launched with the size that the registry names, whatever else is in the program.
    #[test]
    fn a_program_is_built_for_the_largest_group_that_it_is_launched_with() {
        assert_eq!(Spec::new("a", &["decode"], crate::HeaderColumns::COLUMNS).group_items, 128);
        assert_eq!(Spec::new("a", &["decode", "select"], LpmColumns::COLUMNS).group_items, 256);
        assert_eq!(Spec::new("a", &[], LpmColumns::COLUMNS).group_items, 256);
    }

    #[test]
    fn the_registry_names_the_kernels_that_the_files_hold() {
        for file in ALL {
            let in_text = file.text.matches("\nKERNEL(").count();
            assert_eq!(in_text, file.kernels.len(), "{}", file.name);
            for kernel in file.kernels {
                let there = file.text.contains(&format!("\nKERNEL({})", kernel.name));
                assert!(there, "{}: {}", file.name, kernel.name);
                assert!(kernel.group_items.is_power_of_two());
            }
            for column in file.kernels.iter().flat_map(|kernel| kernel.columns) {
                let accessor = format!("COL_{}(", column.to_ascii_uppercase());
                assert!(file.text.contains(&accessor), "{}: {column}", file.name);
            }
            let named = file.text.matches("COL_").count();
            assert_eq!(named == 0, file.kernels.iter().all(|kernel| kernel.columns.is_empty()));
        }
    }
}
