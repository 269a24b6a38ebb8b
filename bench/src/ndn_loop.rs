//! `bench ndn`: the named-data forwarder's whole loop, one core.
//!
//! ```text
//!  Interests ─▶ ndn_decode ─▶ name_lookup ─▶ pit ─▶ verdicts      so many chunks of them, then
//!  Data      ─▶ ndn_decode ─▶ name_lookup ─▶ pit ─▶ verdicts      what answers them, in the same order
//! ```
//!
//! Each name is asked for by one face and answered by another. Copying a frame into a cell stands for what a network
//! card would do; it is part of the loop in each form alike. The forms differ in how stage `name_lookup` looks up and
//! in nothing else, and must give the same verdicts.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use apps::ndn::pit::PitLimits;
use apps::ndn::store::StoreLimits;
use apps::ndn::{
    Face, NameForm, NdnColumns, NdnCounters, NdnOptions, NdnPatch, NdnTables, pipeline_with,
};
use chunk::{
    Arena, CHUNK_PACKETS_MAX, Chunk, Columns, Depot, HugePages, Layout, Packet, Pool, Region, Rows,
    Verdict, VerdictKind,
};
use engine::{Context, Stage};
use lookup::names::{NameHasher, NameList};
use lookup::versions::Patchable;
use lookup::{Blob, NO_ROUTE, NextHopId};
use packet::ndn::{self, InterestFields};

use crate::forms::{Form, rates, ratio};
use crate::ndn::FORMS;
use crate::{Report, Row, names};

/// Names that are asked for in a pass, at most.
const NAMES: usize = 1 << 17;

/// Chunks of Interests that are pending before Data comes.
const PENDING_CHUNKS: usize = 64;

const NOW_NS: u64 = 1_700_000_000_000_000_000;
const ASKS: u16 = 0;
const ANSWERS: u16 = 1;

/// Bytes of a name with which Data is still in one frame.
const NAME_MAX: usize = 1300;

/// Frames, back to back.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Frames {
    /// A frame by a face, from its neighbour to us.
    fn push(&mut self, face: u16, packet: &[u8]) {
        self.bytes.extend([[2, 0, 0, 0, 0, 1], mac(face)].as_flattened());
        self.bytes.extend([0x86, 0x24]);
        self.bytes.extend(packet);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }
}

fn mac(face: u16) -> [u8; 6] {
    [2, 0, 0, 0, 1, face as u8]
}

/// What is forwarded: an Interest for each name, and Data.
#[derive(Default)]
struct Load {
    tables: NdnTables,
    interests: Frames,
    data: Frames,
    /// By name.
    has_route: Vec<bool>,
}

/// Measures every form over the first names and reports the rates.
pub(crate) fn run(
    title: &str,
    blob: Blob,
    asked: &NameList,
    expected: &[NextHopId],
    rounds: usize,
    report: &mut Report,
) -> Result<(), String> {
    let load = load(blob, asked, expected)?;
    let count = load.interests.ends.len();
    let (_, depot) = Region::new(1024, HugePages::Advise).map_err(|e| e.to_string())?;
    let cells = Mutex::new(Cells::new(&depot)?);
    let forms: Vec<Form<'_, u32>> = FORMS
        .into_iter()
        .map(|(name, form)| {
            let (load, cells) = (&load, &cells);
            Form::new(name, move |out: &mut [u32]| {
                // One thread; the lock is taken once a pass.
                if let Ok(mut cells) = cells.lock() {
                    cells.forward(form, load, out);
                }
            })
        })
        .collect();
    let mut verdicts = vec![0; 2 * count];
    (forms[0].run)(&mut verdicts);
    check(&verdicts, &load.has_route, title, report);
    let rates = rates(&forms, 2 * count, rounds, 1, &mut report.wrong);
    for (form, rates) in forms.iter().zip(&rates) {
        let name = format!("{title}, whole loop: {}", form.name);
        let note = format!("Interests and Data of {count} names");
        report.rows.push(Row::new(name, "Mpps", rates.clone()).note(note));
    }
    let name = format!("{title}, whole loop: switched/plain");
    report.rows.push(ratio(name, &rates[1], &rates[0]));
    Ok(())
}

/// An Interest goes on where its name has a route, and so does the Data that answers it.
fn check(verdicts: &[u32], has_route: &[bool], title: &str, report: &mut Report) {
    let goes = |verdict: &u32| Verdict(*verdict).kind() == VerdictKind::Forward;
    let (interests, data) = verdicts.split_at(verdicts.len() / 2);
    let both = interests.iter().zip(data).zip(has_route);
    let is_wrong = |((interest, data), has_route): &((&u32, &u32), &bool)| {
        [goes(interest), goes(data)] != [**has_route; 2]
    };
    let wrong: Vec<_> = both.filter(is_wrong).collect();
    if let Some(((interest, data), has_route)) = wrong.first() {
        let said = [interest, data].map(|verdict| Verdict(**verdict).reason().name());
        report.wrong.push(format!(
            "{title}, whole loop: {} names were not forwarded rightly, one of them with {} route: {said:?}",
            wrong.len(),
            if **has_route { "a" } else { "no" },
        ));
    }
}

fn load(blob: Blob, asked: &NameList, expected: &[NextHopId]) -> Result<Load, String> {
    let mut tables = NdnTables::new(blob);
    for face in [ASKS, ANSWERS] {
        let record = Face {
            name: format!("f{face}"),
            up: true,
            port: face,
            mtu: 1500,
            mac: [2, 0, 0, 0, 0, 1],
            neighbour_mac: Some(mac(face)),
            udp: None,
            on_demand: false,
        };
        tables.apply(&NdnPatch::Face(face, Some(record)));
    }
    for next_hop in 1..=names::NEXT_HOPS {
        tables.apply(&NdnPatch::Hop(next_hop, vec![ANSWERS]));
    }
    let mut load = Load { tables, ..Load::default() };
    let (mut packet, mut seen) = (Vec::new(), HashSet::new());
    for (name, next_hop) in asked.iter().zip(expected).take(NAMES) {
        // No Interest asks for the name of no components; one that is asked for twice has one answer.
        if !(1..=NAME_MAX).contains(&name.bytes().len()) || !seen.insert(name.bytes()) {
            continue;
        }
        let nonce = Some((seen.len() as u32).wrapping_mul(0x9e37_79b1));
        let fields = InterestFields { nonce, hop_limit: Some(9), ..Default::default() };
        let none = "a name that fits no packet";
        packet.clear();
        ndn::emit_interest(name.bytes(), &fields, None, &mut packet).ok_or(none)?;
        load.interests.push(ASKS, &packet);
        packet.clear();
        ndn::emit_data(name.bytes(), 0, b"content", &mut packet).ok_or(none)?;
        load.data.push(ANSWERS, &packet);
        load.has_route.push(*next_hop != NO_ROUTE);
    }
    Ok(load)
}

/// What the loop runs with.
struct Cells {
    pool: Pool,
    rows: Option<Rows>,
    dropped: Vec<(Packet, chunk::DropReason)>,
    released: Vec<(Packet, Verdict)>,
}

impl Cells {
    fn new(depot: &Arc<Depot>) -> Result<Self, String> {
        let arena = Arena::new(Layout::new(NdnColumns::COLUMNS, CHUNK_PACKETS_MAX));
        let rows = Some(arena.reserve(CHUNK_PACKETS_MAX).ok_or("no rows")?);
        let pool = Pool::new(depot.clone(), 64);
        Ok(Self { pool, rows, dropped: Vec::new(), released: Vec::new() })
    }

    /// Forwards all Interests, and all Data; the verdicts to `out`, first those of Interests.
    fn forward(&mut self, form: NameForm, load: &Load, out: &mut [u32]) {
        let mut stages = pipeline_with(
            &NdnOptions {
                hasher: NameHasher::new(4),
                // One face asks for all: half of the table is its share.
                pit: PitLimits::of((2 * PENDING_CHUNKS * CHUNK_PACKETS_MAX) as u32),
                nack: false,
                packet_time: false,
                store: StoreLimits::default(),
                first_region: 0,
                control: None,
                counters: Arc::new(NdnCounters::new()),
            },
            form,
        );
        let count = load.interests.ends.len();
        let (interests, data) = out.split_at_mut(count);
        for window in (0..count).step_by(PENDING_CHUNKS * CHUNK_PACKETS_MAX) {
            let end = count.min(window + PENDING_CHUNKS * CHUNK_PACKETS_MAX);
            for (frames, face, out) in
                [(&load.interests, ASKS, &mut *interests), (&load.data, ANSWERS, &mut *data)]
            {
                for first in (window..end).step_by(CHUNK_PACKETS_MAX) {
                    let burst = first..end.min(first + CHUNK_PACKETS_MAX);
                    let frames = burst.clone().map(|index| frames.get(index));
                    self.chunk(&mut stages, &load.tables, frames, face, &mut out[burst]);
                }
            }
        }
    }

    /// One chunk through all stages.
    fn chunk<'f>(
        &mut self,
        stages: &mut [Box<dyn Stage<NdnTables>>],
        tables: &NdnTables,
        frames: impl Iterator<Item = &'f [u8]>,
        port: u16,
        out: &mut [u32],
    ) {
        let Some(rows) = self.rows.take() else { return };
        let mut chunk = Chunk::new(rows, 0);
        chunk.time_ns = NOW_NS;
        for frame in frames {
            let Some(mut packet) = Packet::copy_from(&mut self.pool, frame) else { break };
            packet.port = port;
            chunk.packets.push(packet);
        }
        chunk.rows.set_len(chunk.packets.len());
        chunk.rows.verdicts().fill(Verdict::NEXT.0);
        let Self { pool, dropped, released, .. } = self;
        for stage in stages {
            let mut cx = Context::detached(pool, tables, NOW_NS, dropped, released);
            stage.pre_shade(&mut chunk, &mut cx);
            if let Some(shader) = stage.shader() {
                shader.shade_packets(&mut chunk.rows, &mut chunk.packets, tables);
            }
            stage.post_shade(&mut chunk, &mut cx);
        }
        out[..chunk.packets.len()].copy_from_slice(chunk.rows.verdicts());
        let made = chunk.emitted.drain(..).map(|emitted| emitted.packet);
        for packet in chunk.packets.drain(..).chain(made) {
            packet.free(&mut self.pool);
        }
        chunk.rows.set_len(CHUNK_PACKETS_MAX);
        self.rows = Some(chunk.rows);
    }
}

#[cfg(test)]
mod tests {
    use lookup::names::{NameFibBuilder, NameLimits};
    use packet::ndn::NameBuf;

    use super::*;

    #[test]
    fn interests_and_data_go_their_ways() {
        let name = |text: &str| NameBuf::from_uri(text.as_bytes()).unwrap();
        let mut prefixes = NameList::new();
        prefixes.push(name("/a").name().encodings());
        let (_, blob) =
            NameFibBuilder::build(NameHasher::new(1), &prefixes, &[3], NameLimits::of(16)).unwrap();
        let (mut asked, mut expected) = (NameList::new(), Vec::new());
        for number in 0..1000 {
            let (first, next_hop) = if number % 5 == 0 { ("b", NO_ROUTE) } else { ("a", 3) };
            // Some are asked for twice.
            let text = format!("/{first}/{}", number % 990);
            asked.push(name(&text).name().encodings());
            expected.push(next_hop);
        }
        let mut report = Report::new("toy", "data");
        run("toy", blob.try_clone().unwrap(), &asked, &expected, 1, &mut report).unwrap();
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        let names: Vec<_> = report.rows.iter().map(|row| row.name.as_str()).collect();
        let row = |form: &str| format!("toy, whole loop: {form}");
        assert_eq!(names, ["plain", "switched", "machine", "switched/plain"].map(row));
        assert!(report.rows.iter().all(|row| row.median > 0.0));
        // Answers that are others.
        expected[7] = NO_ROUTE;
        run("toy", blob, &asked, &expected, 1, &mut report).unwrap();
        assert_eq!(report.wrong.len(), 1);
        let expected =
            "toy, whole loop: 1 names were not forwarded rightly, one of them with no route";
        assert!(report.wrong[0].starts_with(expected), "{:?}", report.wrong);
    }
}
