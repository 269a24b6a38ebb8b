//! `shadeline lpm --backend`: the lookups as jobs of a device.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::lookup_job::{self, Keys, LookupKernels, Lookups};
use device::accelerator::Options;
use device::tables::{Change, TableSource};
use device::{Backend, Device};
use lookup::bspl::Bspl;
use lookup::dir24_8::Dir24_8;
use lookup::mtrie6::Mtrie6;
use lookup::poptrie::Poptrie;
use lookup::{Blob, Key6, Lpm, NO_ROUTE, NextHopId};

use crate::backend;
use crate::failure::Failure;

/// Addresses of a job at most.
const ROWS_MAX: usize = 1 << 18;

/// Why a table cannot go to a device.
pub(super) const NO_FORM: &str = "has no device form: use another, or --backend cpu";

/// The tables of both families, as both sides read them. They never change.
pub(super) struct Tables {
    pub(super) v4: Arc<Blob>,
    pub(super) v6: Arc<Blob>,
}

impl Lookups for Tables {
    type Tables = Self;
    fn tables(&self) -> &Self {
        self
    }
    fn version(&self) -> u64 {
        1
    }
    fn lookup4(&self, keys: &[u32], results: &mut [NextHopId]) {
        if let Some(table) = Dir24_8::new(&self.v4) {
            table.lookup(keys, results);
        } else if let Some(table) = Poptrie::new(&self.v4) {
            table.lookup(keys, results);
        } else {
            results.fill(NO_ROUTE);
        }
    }
    fn lookup6(&self, keys: &[Key6], results: &mut [NextHopId]) {
        if let Some(table) = Bspl::new(&self.v6) {
            table.lookup(keys, results);
        } else if let Some(table) = Mtrie6::new(&self.v6) {
            table.lookup(keys, results);
        } else {
            results.fill(NO_ROUTE);
        }
    }
}

impl Tables {
    /// The kernels that read them.
    fn kernels(&self) -> LookupKernels {
        let v4 = if Poptrie::new(&self.v4).is_some() { "poptrie" } else { "lpm4" };
        let v6 = if Mtrie6::new(&self.v6).is_some() { "mtrie6" } else { "lpm6" };
        LookupKernels { v4, v6 }
    }
}

struct Images;

impl TableSource<Tables> for Images {
    /// As the kernels of lookups read them: IPv4 in the first region, IPv6 in the second one.
    fn regions<'a>(&self, tables: &'a Tables) -> Vec<Cow<'a, [u32]>> {
        vec![Cow::Borrowed(tables.v4.words()), Cow::Borrowed(tables.v6.words())]
    }

    fn changes(&self, _: u64, _: u64, _: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        false
    }
}

/// What was looked up on a device.
pub(super) struct Looked {
    /// The device's name.
    pub(super) device: String,
    pub(super) v4: (Vec<NextHopId>, Duration),
    pub(super) v6: (Vec<NextHopId>, Duration),
}

/// Looks everything up where `backend` says; `None` where that is the CPU. A device that fails on the way
/// is logged once, and the CPU does what is left.
///
/// # Errors
/// A device that was named and is absent, or does not answer rightly.
pub(super) fn lookup_all(
    backend: Backend,
    tables: Tables,
    keys4: &[u32],
    keys6: &[Key6],
) -> Result<Option<Looked>, Failure> {
    let Some(driver) = backend::driver(backend)? else { return Ok(None) };
    let name = driver.info().name.clone();
    let rows = keys4.len().max(keys6.len()).clamp(256, ROWS_MAX);
    let made = lookup_job::accelerator::<Tables>(
        driver,
        Box::new(Images),
        tables.kernels(),
        rows,
        Options::default(),
    );
    let (mut device, arenas) = match made {
        Ok(made) => made,
        Err(error) => {
            tracing::warn!("device {name}: {error}; the CPU does all lookups");
            return Ok(None);
        }
    };
    let tables = Arc::new(tables);
    let mut failure = None;
    let mut all = |keys: Keys<'_>, n: usize| {
        let mut results = vec![0; n];
        let begin = Instant::now();
        let failed = lookup_job::lookup_all(&mut device, &arenas, &tables, keys, &mut results);
        failure = failure.take().or(failed);
        (results, begin.elapsed())
    };
    let v4 = all(Keys::V4(keys4), keys4.len());
    let v6 = all(Keys::V6(keys6), keys6.len());
    if let Some(error) = failure {
        tracing::warn!("device {name}: {error}; the CPU does the remaining lookups");
    }
    let device = device.name();
    Ok(Some(Looked { device, v4, v6 }))
}
