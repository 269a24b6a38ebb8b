//! What modules count, for `ctl show modules` and metrics.

use engine::Counter;

/// What is counted of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Packets that it processed.
    Packets,
    /// Packets that it dropped,
    Dropped,
    /// had ignored by later modules,
    Ignored,
    /// sent to Linux,
    ToHost,
    /// or dumped.
    Dumped,
    /// Packets with a write outside of them that was not done, or into a full hash table.
    Errors,
    /// Packets that it could not process.
    Failed,
}

/// Name and text of each column, in their order.
pub const COLUMNS: [(&str, &str); 7] = [
    ("packets", "Packets that a module processed."),
    ("dropped", "Packets that a module dropped."),
    ("ignored", "Packets of flows that a module has later modules ignore."),
    ("to_host", "Packets that a module sent to Linux."),
    ("dumped", "Packets that a module dumped."),
    ("errors", "Packets with a refused write: outside of the packet, or into a full hash table."),
    ("failed", "Packets that a module could not process: it is disabled, or the device failed."),
];

/// The counters of one worker; that worker alone adds to them.
#[derive(Debug)]
pub struct Counters {
    names: Vec<String>,
    values: Box<[Counter]>,
}

impl Counters {
    /// All zero.
    pub fn new(names: Vec<String>) -> Self {
        let values = (0..names.len() * COLUMNS.len()).map(|_| Counter::default()).collect();
        Self { names, values }
    }

    /// The modules that are counted.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The name of a module.
    pub fn name(&self, module: usize) -> &str {
        self.names.get(module).map_or("", String::as_str)
    }

    /// One more.
    pub fn add(&self, module: usize, column: Column) {
        if let Some(counter) = self.values.get(module * COLUMNS.len() + column as usize) {
            counter.add(1);
        }
    }

    /// One more for each of these modules.
    pub fn add_bits(&self, mut modules: u32, column: Column) {
        while modules != 0 {
            self.add(modules.trailing_zeros() as usize, column);
            modules &= modules - 1;
        }
    }

    /// What was counted.
    pub fn get(&self, module: usize, column: usize) -> u64 {
        self.values.get(module * COLUMNS.len() + column).map_or(0, Counter::get)
    }
}
