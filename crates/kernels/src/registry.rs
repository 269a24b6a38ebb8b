//! What there is to say of a file of kernels.
//!
//! A file is a constant of its owner: this crate ([`files`](crate::files)), or an application. A program of kernels
//! names its files, and what goes over all files is given a list, so nothing here knows them all.

use chunk::{Declaration, ReasonBlock};

use crate::known::{self, Known};

/// A file of kernels. Two are the same if their names and texts are.
#[derive(Clone, Copy, Debug)]
pub struct KernelFile {
    /// Its name without the ending.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
    /// Texts that it needs before it, in order; one that several files of a program need is there once.
    pub headers: &'static [&'static str],
    /// Numbers that its texts share with the host, each by the name of a macro.
    pub constants: &'static [(&'static str, u32)],
    /// Blocks of drop reasons that its texts name as `DROP_…`, beside those of [`chunk::reasons`] and
    /// [`reasons`](crate::reasons), which every program has.
    pub reasons: &'static [&'static ReasonBlock],
    /// Its kernels, in order.
    pub kernels: &'static [KernelInfo],
    /// A declaration of columns that suits it, for self-tests and for compiling it alone.
    pub columns: Declaration,
    /// Rows of columns that a kernel finds from the word of the first one on (`WORD_…`): they must be declared one
    /// after the other.
    pub side_by_side: &'static [&'static [&'static str]],
    /// Known answers for programs whose groups have so many work items: each kernel is launched in one of them.
    pub known: fn(u32) -> Vec<Known>,
}

impl KernelFile {
    /// Nothing: what a declaration begins with.
    pub const NONE: Self = Self {
        name: "",
        text: "",
        headers: &[],
        constants: &[],
        reasons: &[],
        kernels: &[],
        columns: &[],
        side_by_side: &[],
        known: |_| Vec::new(),
    };

    /// A file with no further needs than its text.
    pub const fn new(
        name: &'static str,
        text: &'static str,
        kernels: &'static [KernelInfo],
        columns: Declaration,
    ) -> Self {
        Self { name, text, kernels, columns, ..Self::NONE }
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<&'static KernelInfo> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

impl PartialEq for KernelFile {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.text == other.text
    }
}

impl Eq for KernelFile {}

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// Its name.
    pub name: &'static str,
    /// Columns that it reads or writes.
    pub columns: &'static [&'static str],
    /// Work items in a group, as it is meant to be launched.
    pub group_items: u32,
}

impl KernelInfo {
    /// A kernel over these columns, meant for groups of `group_items` work items.
    pub const fn new(
        name: &'static str,
        columns: &'static [&'static str],
        group_items: u32,
    ) -> Self {
        Self { name, columns, group_items }
    }
}

/// One launch of a sequence that does something together, such as a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The kernel.
    pub kernel: &'static str,
    /// Groups.
    pub groups: u32,
    /// Work items in each.
    pub items: u32,
    /// The job number that it is given.
    pub job: u32,
}

/// What is wrong with files of kernels, in words; for tests of their owners.
///
/// Text and declaration must name the same kernels and columns, each kernel must have a known answer that changes
/// something, and no two kernels may have one name.
pub fn problems(files: &[&'static KernelFile]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for file in files {
        let mut say = |what: &str| problems.push(format!("{}: {what}", file.name));
        if file.text.matches("\nKERNEL(").count() != file.kernels.len() {
            say("its text has other kernels than it declares");
        }
        let known = known::of(&[file], GROUP_ITEMS);
        for kernel in file.kernels {
            let name = kernel.name;
            if names.contains(&name) {
                say(&format!("there is another kernel `{name}`"));
            }
            names.push(name);
            if !file.text.contains(&format!("\nKERNEL({name})")) {
                say(&format!("its text has no kernel `{name}`"));
            }
            if !kernel.group_items.is_power_of_two() {
                say(&format!("groups of `{name}` are not a power of two"));
            }
            let mut proofs = known.iter().filter(|known| known.kernels.contains(&name));
            if !proofs.any(|known| known.launches.iter().any(|launch| launch.kernel == name)) {
                say(&format!("`{name}` has no known answer"));
            }
        }
        let mut columns = file.kernels.iter().flat_map(|kernel| kernel.columns);
        let accessor = |column: &str| format!("COL_{}(", column.to_ascii_uppercase());
        if columns.any(|column| !file.text.contains(&accessor(column))) {
            say("its text does not use all columns that it declares");
        }
        let uses_columns = file.text.contains("COL_");
        if uses_columns == file.kernels.iter().all(|kernel| kernel.columns.is_empty()) {
            say("text and declaration disagree on whether it uses columns");
        }
        if known.iter().any(|known| !known.spec.missing_columns().is_empty()) {
            say("a known answer lacks columns");
        }
        if known.iter().any(|known| !known.payload.len().is_multiple_of(4)) {
            say("payload of a known answer is not a whole number of words");
        }
        if !known.iter().all(|known| known.changes_something() || known.kernels == ["empty"]) {
            say("a known answer changes nothing");
        }
    }
    problems
}

/// Work items of a group in [`problems`].
const GROUP_ITEMS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    #[test]
    fn files_are_what_they_declare() {
        assert_eq!(problems(files::ALL), [""; 0]);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_named() {
        const WRONG: KernelFile = KernelFile {
            name: "wrong",
            text: "\nKERNEL(one)\n{\n}\nKERNEL(two)\n{\n}\n",
            kernels: &[KernelInfo { name: "three", columns: &["verdict"], group_items: 65 }],
            ..KernelFile::NONE
        };
        let found = problems(&[&WRONG, &files::EMPTY, &files::EMPTY]);
        let expected = [
            "wrong: its text has other kernels than it declares",
            "wrong: its text has no kernel `three`",
            "wrong: groups of `three` are not a power of two",
            "wrong: `three` has no known answer",
            "wrong: its text does not use all columns that it declares",
            "wrong: text and declaration disagree on whether it uses columns",
            "empty: there is another kernel `empty`",
        ];
        assert_eq!(found, expected);
    }
}
