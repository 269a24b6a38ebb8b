//! The kernel by which a device proves the hash table of modules, with its known answer.

use chunk::Columns;
use controlplane::module::Table;
use kernels::known::{Known, Place};
use kernels::{KernelFile, KernelInfo};

chunk::columns! {
    /// Columns of `module_table`.
    pub struct TableColumns / TableView {
        /// [`FIND`], [`ADD`], [`CAS`] or [`INSERT`].
        pub table_operation: u32,
        /// The key.
        pub table_key: u32,
        /// What comes back if it is not there; what is added, expected, or given.
        pub table_first: u32,
        /// What it is set to.
        pub table_second: u32,
        /// The answer.
        pub table_result: u32,
        /// Whether there was no room.
        pub table_error: u32,
    }
}

/// Operations: numbers in `table_operation`.
pub const FIND: u32 = 0;
/// See [`FIND`].
pub const ADD: u32 = 1;
/// See [`FIND`].
pub const CAS: u32 = 2;
/// See [`FIND`].
pub const INSERT: u32 = 3;

/// The kernel.
pub const TABLE: KernelFile = KernelFile {
    name: "module_table",
    columns: TableColumns::COLUMNS,
    text: include_str!("kernels/table.k"),
    headers: &[include_str!("kernels/table.h")],
    constants: &[
        ("TABLE_FIND", FIND),
        ("TABLE_ADD", ADD),
        ("TABLE_CAS", CAS),
        ("TABLE_INSERT", INSERT),
    ],
    kernels: &[KernelInfo::new(
        "module_table",
        &[
            "table_operation",
            "table_key",
            "table_first",
            "table_second",
            "table_result",
            "table_error",
        ],
        64,
    )],
    known,
    ..KernelFile::NONE
};

/// What an operation does to the table, and its answer: value and error.
pub fn reference(table: &mut Table, [operation, key, first, second]: [u32; 4]) -> (u32, u32) {
    let answer = match operation {
        FIND => Ok(table.find(key).unwrap_or(first)),
        ADD => table.add(key, first),
        CAS => table.compare_and_swap(key, first, second),
        INSERT => table.insert(key, first).map(u32::from),
        _ => Ok(0),
    };
    answer.map_or((0, 1), |value| (value, 0))
}

/// Words of the table as a device has them.
pub fn words(table: &Table) -> Vec<u32> {
    table.entries().iter().flat_map(|(key, value)| [*key, *value]).collect()
}

/// Each row has a key of its own, so that their order says nothing: known keys and new ones, and one for which there is no
/// room.
fn known(_: u32) -> Vec<Known> {
    let mut table = Table::new(32);
    for key in [40, 41, 42] {
        let _ = table.add(key, key * 3);
    }
    let before = words(&table);
    let rows = [
        [FIND, 40, 9, 0],
        [FIND, 5, 9, 0],
        [ADD, 41, 7, 0],
        [ADD, 6, 3, 0],
        [CAS, 42, 126, 8],
        [CAS, 7, 1, 8],
        [INSERT, 8, 5, 0],
        [ADD, 0, 1, 0],
    ];
    let answers = rows.map(|row| reference(&mut table, row));
    let column = |at: usize| rows.map(|row| u64::from(row[at]));
    let results = answers.map(|(result, _)| u64::from(result));
    let errors = answers.map(|(_, error)| u64::from(error));
    let mut known = Known::rows(
        &TABLE,
        31,
        &[
            (TableColumns::TABLE_OPERATION, &column(0)),
            (TableColumns::TABLE_KEY, &column(1)),
            (TableColumns::TABLE_FIRST, &column(2)),
            (TableColumns::TABLE_SECOND, &column(3)),
        ],
        &[(TableColumns::TABLE_RESULT, &results), (TableColumns::TABLE_ERROR, &errors)],
    );
    known.state = kernels::known::bytes_of(&before);
    vec![known.expect(Place::State, 0, kernels::known::bytes_of(&words(&table)))]
}
