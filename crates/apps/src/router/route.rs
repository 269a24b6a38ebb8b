//! Stage `route`: from destination to adjacency.
//!
//! | | |
//! | --- | --- |
//! | reads | `flags`, `flow_hash`, `dst4`, `dst6` |
//! | writes | `decision` |
//! | next | `rewrite` |
//! | drop | `blackhole`, `bad_lookup` |
//!
//! A pure function of columns and tables, so that a device can take it. Rows of one family are
//! gathered into a dense batch, looked up in one call, and what the next hop means, a member of an
//! equal-cost group by flow hash, is written back (PacketShader §6.2.1 and §6.2.2 do the same on
//! their GPU). Whatever needs the packet itself, an ICMP error among it, is left to `rewrite`.

use std::sync::Arc;

use chunk::{Chunk, ColumnSet, Columns, Declaration, DropReason, ReasonBlock, Rows, Verdict};
use engine::{KernelForm, Phases, Shade, Stage, Step};
use lookup::NextHopId;
use lookup::fib::{Fib, Resolved};

use super::columns::{Decision, RouterColumns, flags, is_live};
use super::control::{ipv4, ipv6};
use super::kernels::ROUTE;

/// Rows that are looked up at once.
const BATCH: usize = chunk::CHUNK_PACKETS_MAX;

/// The stage.
pub struct Route {
    shade: Arc<Lookup>,
}

struct Lookup {
    /// Of the router's part of the tables.
    first_region: usize,
}

impl Route {
    /// A stage without state, over tables whose first region is region 0 of a device's image.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { shade: Arc::new(Lookup { first_region: 0 }) }
    }

    /// The same over tables whose regions begin with `first_region`.
    #[must_use]
    pub fn with_first_region(self, first_region: usize) -> Self {
        Self { shade: Arc::new(Lookup { first_region }) }
    }
}

impl<T: AsRef<Fib>> Stage<T> for Route {
    fn name(&self) -> &'static str {
        "route"
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
            RouterColumns::FLOW_HASH,
            RouterColumns::DST4,
            RouterColumns::DST6,
        ])
    }

    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[RouterColumns::DECISION])
    }

    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        Some(self.shade.clone())
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, tables: &T) -> String {
        let tables = tables.as_ref();
        let view = RouterColumns::view(&mut chunk.rows);
        let destination = match view.flags[row] {
            bits if bits & flags::IPV4 != 0 => ipv4([0, view.dst4[row].into()]).to_string(),
            bits if bits & flags::IPV6 != 0 => ipv6(view.dst6[row]).to_string(),
            _ => return String::new(),
        };
        if !is_live(view.verdict[row]) {
            return destination;
        }
        let name = |interface: u16| {
            let record = tables.interface(interface);
            record.map_or_else(|| interface.to_string(), |record| record.name.clone())
        };
        let decision = match Decision::decode(view.decision[row]) {
            Decision::Adjacency(index) => match tables.adjacency(index) {
                None => format!("adjacency {index}"),
                Some(a) => {
                    let via = match a.family {
                        6 => ipv6(a.address).to_string(),
                        _ => ipv4(a.address).to_string(),
                    };
                    let known = if a.resolved == 0 { " (not resolved)" } else { "" };
                    format!("adjacency {index}, {via} on {}{known}", name(a.interface))
                }
            },
            Decision::Connected(interface) => format!("on the link of {}", name(interface)),
            Decision::Local(interface) => format!("address of {}", name(interface)),
            Decision::Broadcast(interface) => format!("broadcast of {}", name(interface)),
            Decision::NoRoute => "no route".into(),
            Decision::Unreachable => "unreachable".into(),
        };
        format!("{destination}: {decision}")
    }
}

/// What a next hop means for a packet: its decision, or the drop that ends it in silence.
#[inline(always)]
pub(super) fn decide(fib: &Fib, id: NextHopId, flow_hash: u32) -> Result<Decision, DropReason> {
    match fib.resolve(id, flow_hash) {
        Resolved::Adjacency(_, index) if index < Decision::ADJACENCIES_MAX => {
            Ok(Decision::Adjacency(index))
        }
        Resolved::Connected(interface) => Ok(Decision::Connected(interface)),
        Resolved::Local(interface) => Ok(Decision::Local(interface)),
        Resolved::Broadcast(interface) => Ok(Decision::Broadcast(interface)),
        Resolved::NoRoute => Ok(Decision::NoRoute),
        Resolved::Unreachable => Ok(Decision::Unreachable),
        Resolved::Blackhole => Err(kernels::reasons::BLACKHOLE),
        Resolved::Adjacency(..) | Resolved::Bad => Err(kernels::reasons::BAD_LOOKUP),
    }
}

/// The way of a packet that a stage behind `route` makes: what the column `decision` has for it, and the longest packet in
/// bytes that its link takes. `family` and `address` are those of the destination. `None`: there is none.
pub(crate) fn way(fib: &Fib, family: u8, address: [u64; 2], flow_hash: u32) -> Option<(u32, u16)> {
    let mut found = [lookup::NO_ROUTE];
    match family {
        4 => fib.lookup4(&[address[1] as u32], &mut found),
        _ => fib.lookup6(&[address], &mut found),
    }
    let decision = decide(fib, found[0], flow_hash).ok()?;
    Some((decision.encode(), mtu(fib, decision)?))
}

/// The longest packet that the way of a column `decision` takes; `None` where it leads nowhere.
pub(crate) fn mtu_of(fib: &Fib, decision: u32) -> Option<u16> {
    mtu(fib, Decision::decode(decision))
}

fn mtu(fib: &Fib, decision: Decision) -> Option<u16> {
    match decision {
        Decision::Adjacency(index) => fib.adjacency(index).map(|own| own.mtu),
        Decision::Connected(interface) => fib.interface(interface).map(|own| own.mtu),
        _ => None,
    }
}

impl<T: AsRef<Fib>> Shade<T> for Lookup {
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            files: &[&ROUTE],
            steps: vec![Step::rows("route", 256).with_job(self.first_region as u32).into()],
            ..KernelForm::default()
        })
    }

    fn shade(&self, rows: &mut Rows, tables: &T) {
        let tables = tables.as_ref();
        let view = RouterColumns::view(rows);
        let len = view.verdict.len();
        for start in (0..len).step_by(BATCH) {
            let batch = start..(start + BATCH).min(len);
            let verdict = &mut view.verdict[batch.clone()];
            let decision = &mut view.decision[batch.clone()];
            let flow_hash = &view.flow_hash[batch.clone()];
            let flags = &view.flags[batch.clone()];
            let mut found = [0; BATCH];

            let (mut keys, mut places) = ([0; BATCH], [0u16; BATCH]);
            let n = gather(
                verdict,
                flags,
                flags::IPV4,
                &view.dst4[batch.clone()],
                &mut keys,
                &mut places,
            );
            tables.lookup4(&keys[..n], &mut found[..n]);
            scatter(tables, &places[..n], &found, flow_hash, verdict, decision);
            if n == verdict.len() {
                continue; // no row is left for IPv6
            }

            let mut keys = [[0; 2]; BATCH];
            let n = gather(
                verdict,
                flags,
                flags::IPV6,
                &view.dst6[batch.clone()],
                &mut keys,
                &mut places,
            );
            tables.lookup6(&keys[..n], &mut found[..n]);
            scatter(tables, &places[..n], &found, flow_hash, verdict, decision);
        }
    }
}

/// Collects the keys of live rows of one family without a branch; returns how many.
#[inline(always)]
fn gather<K: Copy>(
    verdict: &[u32],
    flags: &[u16],
    family: u16,
    column: &[K],
    keys: &mut [K; BATCH],
    places: &mut [u16; BATCH],
) -> usize {
    let mut n = 0;
    for (row, ((&verdict, &flags), &key)) in verdict.iter().zip(flags).zip(column).enumerate() {
        // `n` ≤ `row` < BATCH; the mask says so to the compiler.
        keys[n & (BATCH - 1)] = key;
        places[n & (BATCH - 1)] = row as u16;
        n += usize::from(is_live(verdict) & (flags & family != 0));
    }
    n
}

/// Writes what the next hops mean.
#[inline(always)]
fn scatter(
    fib: &Fib,
    places: &[u16],
    found: &[NextHopId],
    flow_hash: &[u32],
    verdict: &mut [u32],
    decision: &mut [u32],
) {
    for (&row, &id) in places.iter().zip(found) {
        let row = usize::from(row);
        match decide(fib, id, flow_hash[row]) {
            Ok(found) => decision[row] = found.encode(),
            Err(reason) => verdict[row] = Verdict::drop(reason).0,
        }
    }
}
