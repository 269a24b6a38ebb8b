//! Whether the tables have room for the routes of files: said before a start by `check`, and with the same words by
//! a start that fails.
//!
//! Only routes longer than 24 bits can fill a table of IPv4 (each /24 that has some takes 1 KB), and only millions one
//! of IPv6. So the tables are built, as a start builds them, only where there are many of these.
//!
//! And whether there is memory for a reload: while it is applied, the routes and tables are there twice, to go back to.

use std::path::PathBuf;

use control::api::table::thousands;
use control::config::Config;
use control::rib::RibError;
use controlplane::memory::{self, Need};
use lookup::TableError;
use lookup::fib::{FibBuilder, Options, RouteTarget};
use lookup::routes::{RoutesFile, read_file};

use super::routes;

/// IPv4 routes longer than 24 bits, and IPv6 routes, that every table has room for.
const LONG_V4: usize = 200_000;
const V6: usize = 1_000_000;

/// How many routes there are of the kinds that fill tables.
#[derive(Debug, Clone, Copy, Default)]
pub struct Demand {
    long_v4: usize,
    v6: usize,
}

/// Memory of a reload, measured with 250,000 and 1,000,000 IPv4 routes, and a quarter more. First what a route of a file
/// takes while the file is read, for each byte of the text; then a route that is there already, while it is there twice,
/// and the tables themselves; and a route that is new, in the RIB, the builder of the tables, their two versions and the
/// patches between these.
const BYTES_PER_TEXT: u64 = 6;
const BYTES_PER_ROUTE: u64 = 500;
const BYTES_OF_TABLES: u64 = 64 << 20;
const BYTES_PER_NEW_ROUTE: u64 = 1000;

/// Address space that tables reserve to grow in, without using it: of the copy to go back to, and of a table of IPv4 that
/// becomes one of the other kind.
const RESERVED_BYTES: u64 = 1500 << 20;

/// Asks for the memory in which the files of a configuration are read.
///
/// # Errors
/// There is too little, in words.
pub(super) fn memory_to_read(config: &Config) -> Result<(), String> {
    let bytes =
        config.route_files.iter().map(|file| files::input::text_bytes(&file.file)).sum::<u64>();
    let need = Need { bytes: bytes * BYTES_PER_TEXT, reserved_bytes: 0 };
    memory::ask_for(need, "the files of `[[routes]]`")
}

/// Asks for the memory in which a configuration with these files is applied, where there are `now` routes.
///
/// # Errors
/// As [`memory_to_read`].
pub(super) fn memory_to_apply(
    now: usize,
    config: &Config,
    read: &[RoutesFile],
) -> Result<(), String> {
    let files = read.iter().map(|file| file.v4.len() + file.v6.len()).sum::<usize>();
    let then = files + config.routes.len();
    let new = then.saturating_sub(now) as u64;
    let need = Need {
        bytes: BYTES_OF_TABLES
            + (now.max(then) as u64) * BYTES_PER_ROUTE
            + new * BYTES_PER_NEW_ROUTE,
        reserved_bytes: RESERVED_BYTES,
    };
    let routes = if then == 1 { "route" } else { "routes" };
    let what = format!("a second copy of the routing tables ({} {routes})", thousands(then as u64));
    memory::ask_for(need, &what)
}

impl Demand {
    /// Counts those of a file in.
    pub fn add(&mut self, routes: &RoutesFile) {
        self.long_v4 += routes.v4.iter().filter(|(prefix, _)| prefix.len() > 24).count();
        self.v6 += routes.v6.len();
    }

    fn may_be_too_much(self) -> bool {
        self.long_v4 > LONG_V4 || self.v6 > V6
    }
}

/// The first file of `[[routes]]` that the tables have no room for, and why. `demand` is that of all of them.
pub fn over_capacity(config: &Config, demand: Demand) -> Option<(PathBuf, String)> {
    if !demand.may_be_too_much() {
        return None;
    }
    let files: Vec<RoutesFile> =
        config.route_files.iter().filter_map(|file| read_file(&file.file).ok()).collect();
    (1..=files.len()).find_map(|count| {
        let mut demand = Demand::default();
        files[..count].iter().for_each(|file| demand.add(file));
        if !demand.may_be_too_much() {
            return None;
        }
        let error = build(config, &files[..count]).err()?;
        Some((config.route_files[count - 1].file.clone(), text(&error)))
    })
}

/// Builds the tables of a configuration with the routes of files.
fn build(config: &Config, files: &[RoutesFile]) -> Result<(), TableError> {
    let mut builder = FibBuilder::new(Options::default(), routes::tables(config));
    let hop4 = builder.create_hop::<u32>(&RouteTarget::Blackhole)?;
    let hop6 = builder.create_hop::<u128>(&RouteTarget::Blackhole)?;
    let v4 = files.iter().flat_map(|file| file.v4.iter().map(|(prefix, _)| (*prefix, hop4)));
    builder.load::<u32>(v4.collect())?;
    let v6 = files.iter().flat_map(|file| file.v6.iter().map(|(prefix, _)| (*prefix, hop6)));
    builder.load::<u128>(v6.collect())?;
    builder.freeze().map(drop)
}

/// Why a start has no tables: with the file whose routes they have no room for.
pub fn failure(config: &Config, error: &TableError) -> String {
    let mut demand = Demand::default();
    for file in config.route_files.iter().filter_map(|file| read_file(&file.file).ok()) {
        demand.add(&file);
    }
    match over_capacity(config, demand) {
        Some((path, what)) => format!("{}: {what}", path.display()),
        None => text(error),
    }
}

/// Why the RIB refused, and what helps.
pub fn refused(error: &RibError) -> String {
    match error {
        RibError::Table(error) => text(error),
        other => other.to_string(),
    }
}

/// What a table said, and what helps where it is full.
pub fn text(error: &TableError) -> String {
    let full = match error {
        TableError::Of { error, .. } => error,
        other => other,
    };
    let help = match full {
        TableError::Full { what: "pages of 1 KB" | "extension groups", .. } => {
            "; a /24 with routes longer than 24 bits takes 1 KB: aggregate such routes or remove some (`auto` uses the table that has room)"
        }
        TableError::Full { what: "lines of 64 bytes", .. } => {
            "; the table `bspl` takes more routes"
        }
        _ => "",
    };
    format!("{error}{help}")
}
