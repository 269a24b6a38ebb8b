//! Stage `rpf`: could this source have come in here? (RFC 3704)
//!
//! | | |
//! | --- | --- |
//! | reads | `flags`, `interface`, `src4`, `src6` |
//! | writes | nothing but verdicts |
//! | next | `route` |
//! | drop | `reverse_path` |
//!
//! Only interfaces that ask for the check pay for it. *Strict*: some path of the route back to the
//! source leaves by the interface that the packet came in by; all members of an equal-cost group
//! count. *Loose*: there is a route back, the default route included, that is neither a blackhole
//! nor unreachable nor our own address. Link-local sources are of this link by definition.
//!
//! Its kernel is the same lookup over the source columns.

use std::sync::Arc;

use chunk::{Chunk, ColumnSet, Columns, Declaration, ReasonBlock, Rows, Verdict};
use engine::{KernelForm, Phases, Shade, Stage, Step};
use lookup::NextHopId;
use lookup::fib::{Fib, NextHopKind, ReversePath};

use super::columns::{RouterColumns, flags, is_live};
use super::control::{ipv4, ipv6};
use super::kernels::ROUTE;

/// Rows that are looked up at once.
const BATCH: usize = chunk::CHUNK_PACKETS_MAX;

/// The stage.
pub struct ReversePathCheck {
    shade: Arc<Check>,
}

struct Check {
    /// Of the router's part of the tables.
    first_region: usize,
}

impl ReversePathCheck {
    /// A stage without state, over tables whose first region is region 0 of a device's image.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { shade: Arc::new(Check { first_region: 0 }) }
    }

    /// The same over tables whose regions begin with `first_region`.
    #[must_use]
    pub fn with_first_region(self, first_region: usize) -> Self {
        Self { shade: Arc::new(Check { first_region }) }
    }
}

impl<T: AsRef<Fib>> Stage<T> for ReversePathCheck {
    fn name(&self) -> &'static str {
        "rpf"
    }

    fn columns(&self) -> &'static [Declaration] {
        &[RouterColumns::COLUMNS]
    }

    fn phases(&self) -> Phases {
        Phases::NONE
    }

    /// Headers are all that is looked at, and all that is changed.
    fn takes_offloads(&self) -> bool {
        true
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[
            RouterColumns::FLAGS,
            RouterColumns::INTERFACE,
            RouterColumns::SRC4,
            RouterColumns::SRC6,
        ])
    }

    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        Some(self.shade.clone())
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, tables: &T) -> String {
        let tables = tables.as_ref();
        let view = RouterColumns::view(&mut chunk.rows);
        let mode = tables
            .interface(view.interface[row])
            .map_or(ReversePath::Off, |interface| interface.reverse_path);
        let source = match view.flags[row] {
            bits if bits & flags::IPV4 != 0 => ipv4([0, view.src4[row].into()]).to_string(),
            bits if bits & flags::IPV6 != 0 => ipv6(view.src6[row]).to_string(),
            _ => return String::new(),
        };
        match mode {
            ReversePath::Off => "off".into(),
            ReversePath::Strict => format!("strict, source {source}"),
            ReversePath::Loose => format!("loose, source {source}"),
        }
    }
}

/// Whether a route back of this kind passes the check.
fn passes(fib: &Fib, id: NextHopId, interface: u16, mode: ReversePath) -> bool {
    match mode {
        ReversePath::Off => true,
        ReversePath::Strict => fib.leads_to(id, interface),
        ReversePath::Loose => matches!(
            fib.next_hop(id).kind,
            NextHopKind::Adjacency | NextHopKind::Group | NextHopKind::Connected
        ),
    }
}

impl<T: AsRef<Fib>> Shade<T> for Check {
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            files: &[&ROUTE],
            steps: vec![Step::rows("rpf", 256).with_job(self.first_region as u32).into()],
            ..KernelForm::default()
        })
    }

    fn shade(&self, rows: &mut Rows, tables: &T) {
        let tables = tables.as_ref();
        // Off everywhere is the usual case, and costs one look at the interfaces.
        let anywhere =
            tables.interfaces().any(|(_, interface)| interface.reverse_path != ReversePath::Off);
        if !anywhere {
            return;
        }
        let view = RouterColumns::view(rows);
        let mode_of = |interface: u16| {
            tables.interface(interface).map_or(ReversePath::Off, |record| record.reverse_path)
        };
        for start in (0..view.verdict.len()).step_by(BATCH) {
            let end = (start + BATCH).min(view.verdict.len());
            let (mut keys4, mut rows4, mut n4) = ([0; BATCH], [0u32; BATCH], 0);
            let (mut keys6, mut rows6, mut n6) = ([[0; 2]; BATCH], [0u32; BATCH], 0);
            for row in start..end {
                let bits = view.flags[row];
                let checked = is_live(view.verdict[row])
                    && bits & flags::LINK_LOCAL == 0
                    && mode_of(view.interface[row]) != ReversePath::Off;
                if checked && bits & flags::IPV4 != 0 {
                    (keys4[n4], rows4[n4]) = (view.src4[row], row as u32);
                    n4 += 1;
                } else if checked && bits & flags::IPV6 != 0 {
                    (keys6[n6], rows6[n6]) = (view.src6[row], row as u32);
                    n6 += 1;
                }
            }
            let mut found = [0; BATCH];
            tables.lookup4(&keys4[..n4], &mut found[..n4]);
            for (&row, &id) in rows4[..n4].iter().zip(&found) {
                let interface = view.interface[row as usize];
                if !passes(tables, id, interface, mode_of(interface)) {
                    view.verdict[row as usize] = Verdict::drop(kernels::reasons::REVERSE_PATH).0;
                }
            }
            tables.lookup6(&keys6[..n6], &mut found[..n6]);
            for (&row, &id) in rows6[..n6].iter().zip(&found) {
                let interface = view.interface[row as usize];
                if !passes(tables, id, interface, mode_of(interface)) {
                    view.verdict[row as usize] = Verdict::drop(kernels::reasons::REVERSE_PATH).0;
                }
            }
        }
    }
}
