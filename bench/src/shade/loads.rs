//! What is looked up: a table, keys for it, and the two ways of the CPU, over the columns of the table's kernel.

use std::path::Path;

use apps::switch::kernels::{BRIDGE, BridgeColumns, STATIONS};
use chunk::{ColumnId, Columns, Declaration, Rows, Verdict};
use kernels::{KernelFile, LpmColumns, NameColumns, files};
use lookup::bridge::{SwitchTables, station_key};
use lookup::mtrie6::{self, Mtrie6, Mtrie6Builder};
use lookup::names::{
    DEPTH_MAX, NameFib, NameFibBuilder, NameHasher, NameKey, NameLimits, NameList, NamePrefixes,
};
use lookup::poptrie::{self, Poptrie, PoptrieBuilder};
use lookup::{Blob, Key6, Lpm, NextHopId};

use crate::on_device::text;
use crate::tables::{self, Random, Spread, keys4, keys6};
use crate::{l2, names};

/// Next hops of the IPv4 table: some hundred neighbours, as in `bench lpm4`.
const NEXT_HOPS: usize = 200;

/// Of a hundred names, those that no prefix begins, as in `bench ndn`.
const MISSES: usize = 10;

/// Names at most: each has a cell of 2,048 bytes.
const NAMES_MAX: usize = 1 << 18;

/// Names that the CPU hashes before it looks them up.
const BURST: usize = chunk::CHUNK_PACKETS_MAX;

/// How the CPU looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One key after the other.
    Plain,
    /// As the table itself chooses.
    Best,
}

/// The kernel of a table.
#[derive(Clone, Copy)]
pub(super) struct KernelUse {
    /// The file that it is in.
    pub(super) file: &'static KernelFile,
    /// Its name.
    pub(super) kernel: &'static str,
    /// The declaration of columns.
    pub(super) columns: Declaration,
    /// Columns that it reads, but for those of the payload.
    pub(super) reads: &'static [ColumnId],
    /// Columns that it fills.
    pub(super) writes: &'static [ColumnId],
    /// Columns of each key's place and length in the payload, where keys are there.
    pub(super) payload: Option<[ColumnId; 2]>,
    /// The region of the image that it finds the table in.
    pub(super) region: usize,
}

/// A table and the keys that it is asked for.
pub(super) trait Load: Send + Sync {
    /// Its name in the report.
    fn name(&self) -> String;
    /// What is worth knowing of it.
    fn about(&self) -> String;
    /// Keys: rows of all batches together.
    fn len(&self) -> usize;
    /// Lookups of a row.
    fn lookups(&self) -> usize {
        1
    }
    /// How a device looks up.
    fn kernel(&self) -> KernelUse;
    /// The table as a region of the image.
    fn words(&self) -> &[u32];
    /// Writes the keys from `first` on into the columns.
    fn fill(&self, rows: &mut Rows, first: usize);
    /// Key `index` where it travels as payload.
    fn payload(&self, _index: usize) -> Option<&[u8]> {
        None
    }
    /// Looks the keys up on the CPU, which are those from `first` on.
    fn shade(&self, form: Form, rows: &mut Rows, first: usize, scratch: &mut NamePrefixes);
}

struct Ipv4 {
    table: Blob,
    routes: usize,
    keys: Vec<u32>,
}

struct Ipv6 {
    table: Blob,
    routes: usize,
    keys: Vec<Key6>,
}

struct L2 {
    tables: SwitchTables,
    stations: usize,
    /// Source and destination.
    keys: Vec<[u64; 2]>,
}

struct Names {
    table: Blob,
    prefixes: usize,
    keys: NameList,
}

/// The full IPv4 table in a Poptrie, addresses inside its prefixes.
pub(super) fn ipv4(routes: &Path, keys: usize) -> Result<Box<dyn Load>, String> {
    let routes = tables::routes(routes)?.v4;
    if routes.is_empty() {
        return Err("no IPv4 route to look up".into());
    }
    let prefixes: Vec<_> = routes.iter().map(|(prefix, _)| *prefix).collect();
    let mut random = Random(5);
    let rib = prefixes.iter().map(|p| (*p, 1 + random.below(NEXT_HOPS) as NextHopId)).collect();
    let (_, table) = PoptrieBuilder::build(rib, poptrie::Limits::default()).map_err(text)?;
    Poptrie::new(&table).ok_or("the table cannot be viewed")?;
    let keys = keys4(&prefixes, keys, Spread::Prefixes, 42);
    Ok(Box::new(Ipv4 { table, routes: prefixes.len(), keys }))
}

impl Load for Ipv4 {
    fn name(&self) -> String {
        "IPv4".into()
    }

    fn about(&self) -> String {
        format!("Poptrie, {} routes", self.routes)
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn kernel(&self) -> KernelUse {
        KernelUse {
            file: &files::TRIES,
            kernel: "poptrie",
            columns: LpmColumns::COLUMNS,
            reads: &[LpmColumns::DST4],
            writes: &[LpmColumns::RESULT],
            payload: None,
            region: 0,
        }
    }

    fn words(&self) -> &[u32] {
        self.table.words()
    }

    fn fill(&self, rows: &mut Rows, first: usize) {
        let len = rows.len();
        LpmColumns::view(rows).dst4.copy_from_slice(&self.keys[first..first + len]);
    }

    fn shade(&self, form: Form, rows: &mut Rows, _: usize, _: &mut NamePrefixes) {
        let view = LpmColumns::view(rows);
        match (Poptrie::new(&self.table), form) {
            (None, _) => {}
            (Some(table), Form::Plain) => table.lookup_plain(view.dst4, view.result),
            (Some(table), Form::Best) => table.lookup(view.dst4, view.result),
        }
    }
}

/// The full IPv6 table in the multibit trie, addresses inside its prefixes.
pub(super) fn ipv6(routes: &Path, keys: usize) -> Result<Box<dyn Load>, String> {
    let routes = tables::routes(routes)?.v6;
    if routes.is_empty() {
        return Err("no IPv6 route to look up".into());
    }
    let prefixes: Vec<_> = routes.iter().map(|(prefix, _)| *prefix).collect();
    let rib = routes.into_iter().collect();
    let (_, table) = Mtrie6Builder::build(rib, mtrie6::Limits::default()).map_err(text)?;
    Mtrie6::new(&table).ok_or("the table cannot be viewed")?;
    let keys = keys6(&prefixes, keys, Spread::Prefixes, 42);
    Ok(Box::new(Ipv6 { table, routes: prefixes.len(), keys }))
}

impl Load for Ipv6 {
    fn name(&self) -> String {
        "IPv6".into()
    }

    fn about(&self) -> String {
        format!("multibit trie, {} routes", self.routes)
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn kernel(&self) -> KernelUse {
        KernelUse {
            file: &files::TRIES,
            kernel: "mtrie6",
            columns: LpmColumns::COLUMNS,
            reads: &[LpmColumns::DST6],
            writes: &[LpmColumns::RESULT],
            payload: None,
            region: 1,
        }
    }

    fn words(&self) -> &[u32] {
        self.table.words()
    }

    fn fill(&self, rows: &mut Rows, first: usize) {
        let len = rows.len();
        LpmColumns::view(rows).dst6.copy_from_slice(&self.keys[first..first + len]);
    }

    fn shade(&self, form: Form, rows: &mut Rows, _: usize, _: &mut NamePrefixes) {
        let view = LpmColumns::view(rows);
        match (Mtrie6::new(&self.table), form) {
            (None, _) => {}
            (Some(table), Form::Plain) => table.lookup_plain(view.dst6, view.result),
            (Some(table), Form::Best) => table.lookup(view.dst6, view.result),
        }
    }
}

/// A switch that knows so many stations; each frame's source and destination are among them.
pub(super) fn l2(stations: usize, keys: usize) -> Result<Box<dyn Load>, String> {
    if stations == 0 {
        return Err("no station to look up".into());
    }
    let tables = l2::learn(stations)?;
    tables.stations().ok_or("the table cannot be viewed")?;
    let mut random = Random(9);
    let mut key = || station_key(1, l2::mac(random.below(stations)));
    let keys = (0..keys).map(|_| [key(), key()]).collect();
    Ok(Box::new(L2 { tables, stations, keys }))
}

impl Load for L2 {
    fn name(&self) -> String {
        format!("layer 2, {} stations", self.stations)
    }

    fn about(&self) -> String {
        "cuckoo, source and destination: two lookups a frame".into()
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn lookups(&self) -> usize {
        2
    }

    fn kernel(&self) -> KernelUse {
        KernelUse {
            file: &BRIDGE,
            kernel: "bridge",
            columns: BridgeColumns::COLUMNS,
            reads: &[
                BridgeColumns::VERDICT,
                BridgeColumns::FLAGS,
                BridgeColumns::SOURCE_KEY,
                BridgeColumns::DESTINATION_KEY,
            ],
            writes: &[BridgeColumns::SOURCE, BridgeColumns::DESTINATION],
            payload: None,
            region: STATIONS,
        }
    }

    fn words(&self) -> &[u32] {
        self.tables.blob().words()
    }

    fn fill(&self, rows: &mut Rows, first: usize) {
        let view = BridgeColumns::view(rows);
        view.verdict.fill(Verdict::NEXT.0);
        view.flags.fill(0);
        let keys = view.source_key.iter_mut().zip(view.destination_key);
        for ((source, destination), key) in keys.zip(&self.keys[first..]) {
            [*source, *destination] = *key;
        }
    }

    fn shade(&self, form: Form, rows: &mut Rows, _: usize, _: &mut NamePrefixes) {
        let view = BridgeColumns::view(rows);
        let columns = [(view.source_key, view.source), (view.destination_key, view.destination)];
        for (keys, stations) in columns {
            match (self.tables.stations(), form) {
                (None, _) => {}
                (Some(table), Form::Plain) => table.lookup_direct(keys, stations),
                (Some(table), Form::Best) => table.lookup(keys, stations),
            }
        }
    }
}

/// So many prefixes made of the names in `folder`; names inside them, and some elsewhere.
pub(super) fn names(folder: &Path, prefixes: usize, keys: usize) -> Result<Box<dyn Load>, String> {
    if prefixes == 0 {
        return Err("no prefix of names to look up".into());
    }
    let all = names::prefixes(folder, prefixes, 7)?;
    let bytes: usize =
        all.names.iter().map(|name| (name.bytes().len() + 16).next_multiple_of(64)).sum();
    let limits = NameLimits { prefixes: all.names.len(), name_bytes: bytes + 4096 };
    let (_, table) = NameFibBuilder::build(NameHasher::new(1), &all.names, &all.next_hops, limits)
        .map_err(text)?;
    NameFib::new(&table).ok_or("the table cannot be viewed")?;
    let keys = all.keys(keys.min(NAMES_MAX), MISSES, 42);
    Ok(Box::new(Names { table, prefixes: all.names.len(), keys }))
}

impl Load for Names {
    fn name(&self) -> String {
        "names".into()
    }

    fn about(&self) -> String {
        format!("{} prefixes, hashing the name included", self.prefixes)
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn kernel(&self) -> KernelUse {
        KernelUse {
            file: &files::NAMES,
            kernel: "names",
            columns: NameColumns::COLUMNS,
            reads: &[],
            writes: &[NameColumns::RESULT],
            payload: Some([NameColumns::PAYLOAD_AT, NameColumns::PAYLOAD_LEN]),
            region: 0,
        }
    }

    fn words(&self) -> &[u32] {
        self.table.words()
    }

    fn fill(&self, _: &mut Rows, _: usize) {}

    fn payload(&self, index: usize) -> Option<&[u8]> {
        Some(self.keys.get(index).bytes())
    }

    fn shade(&self, form: Form, rows: &mut Rows, first: usize, scratch: &mut NamePrefixes) {
        let Some(table) = NameFib::new(&self.table) else { return };
        let results = NameColumns::view(rows).result.chunks_mut(BURST);
        for (results, first) in results.zip((first..).step_by(BURST)) {
            let names = (first..first + results.len()).map(|index| self.keys.get(index));
            scratch.clear();
            names.clone().for_each(|name| scratch.push(table.hasher(), name, DEPTH_MAX));
            let keys: Vec<NameKey<'_>> =
                names.enumerate().map(|(at, name)| scratch.key(at, name)).collect();
            match form {
                Form::Plain => table.lookup_direct(&keys, results),
                Form::Best => table.lookup(&keys, results),
            }
        }
    }
}
