//! What a device finds out of packets for flow tracking: headers, TCP segments with their checksums, numbers of connections, and the
//! order of the segments of a job.

use std::collections::HashMap;
use std::time::Instant;

use apps::flow::connections::{ConnectionColumns as C, Connections, OfConnection, memory_of};
use apps::flow::decode::{HeadColumns as H, reference, segment};
use apps::flow::kernels::{CONNECTIONS as TABLE, FLOW, REASSEMBLY};
use apps::flow::reassembly::{self, InStream, ReassemblyColumns as R};
use chunk::{CHUNK_PACKETS_MAX, Columns};
use device::accelerator::Step;
use device::driver::{Driver, Program};
use kernels::files::ORDER;
use kernels::job::JobBytes;
use packet::checksum::Checksums;
use stream::FlowKey;
use stream::table::{Class, FlowTable, Found, Limits, Slot};

use crate::Report;
use crate::app_kernels::Alone;
use crate::on_device::program_of;
use crate::report::Row;
use crate::streams::frames::{Ends, FRAME_MIN, Segment, write};
use crate::tables::Random;

/// Packets of a job.
const PACKETS: usize = 1 << 14;

/// Packets of a job that fills a GPU, whose launches cost as much as a small job.
const MANY: usize = 1 << 20;

/// Connections of the segments that are put in order.
const CONNECTIONS: usize = 1 << 10;

/// What a GPU is to do with a job of [`MANY`]: decode frames of [`FRAME_MIN`] bytes, put segments in order; Mpps.
const AIMS: (f64, f64) = (500.0, 100.0);

/// Lengths of frames, bytes.
const SIZES: [usize; 3] = [FRAME_MIN, 512, 1514];

/// Ethernet, IPv4 and TCP.
const HEADERS: usize = 54;

/// Their programs.
pub(crate) fn programs() -> Vec<Program> {
    vec![program(), order_program(), table_program()]
}

fn program() -> Program {
    program_of("flow", &[&FLOW], H::COLUMNS, "")
}

fn order_program() -> Program {
    program_of("reassembly", &[&REASSEMBLY, &ORDER], R::COLUMNS, "")
}

fn table_program() -> Program {
    program_of("connections", &[&TABLE], C::COLUMNS, "")
}

/// The kernels alone: packets and answers stay on the device. Answers are compared with the CPU's.
///
/// # Errors
/// The device's.
pub(crate) fn run(
    driver: &mut dyn Driver,
    rounds: usize,
    report: &mut Report,
) -> Result<(), String> {
    let is_gpu = driver.info().is_gpu;
    let many = is_gpu.then_some((MANY, FRAME_MIN));
    for (packets, size) in SIZES.map(|size| (PACKETS, size)).into_iter().chain(many) {
        decoded(driver, rounds, packets, size, report)?;
    }
    let many = is_gpu.then_some(MANY);
    for segments in std::iter::once(PACKETS).chain(many) {
        ordered(driver, rounds, segments, report)?;
        numbered(driver, rounds, segments, report)?;
    }
    Ok(())
}

/// Packets with a TCP segment of so many bytes: their headers, and headers and segments.
fn decoded(
    driver: &mut dyn Driver,
    rounds: usize,
    packets: usize,
    size: usize,
    report: &mut Report,
) -> Result<(), String> {
    let place = size.next_multiple_of(16);
    let mut payload = vec![0; place * packets];
    let mut job = JobBytes::new(H::COLUMNS, packets);
    for (row, frame) in payload.chunks_exact_mut(place).enumerate() {
        let [_, a, b, c] = (row as u32).to_be_bytes();
        let ends = Ends([([10, a, b, c].into(), 40_000), ([10, 128, 0, 1].into(), 80)]);
        let sequence = (row as u32).wrapping_mul(1000);
        let len = if size == FRAME_MIN { 0 } else { size - HEADERS };
        let flags = packet::tcp::flags::ACK;
        let own = Segment { from: row % 2, flags, sequence, acknowledgment: 7, len };
        write(frame, &ends, &own);
        job.put(H::FLOW_AT, row, (row * place) as u32);
        job.put(H::FLOW_LEN, row, size as u32);
        job.put(H::FLOW_HEAD, row, size as u32);
    }
    let mut expected = job.clone();
    for (row, frame) in payload.chunks_exact(place).enumerate() {
        let frame = &frame[..size];
        let (d, segment) = reference(frame, frame, Checksums::Verify);
        let [w0, w1, w2, w3] = d.words();
        expected.put(H::FLOW_SRC, row, d.src);
        expected.put(H::FLOW_DST, row, d.dst);
        expected.put(H::FLOW_HEADER0, row, [w0, w1]);
        expected.put(H::FLOW_HEADER1, row, [w2, w3]);
        expected.put(H::FLOW_SEGMENT, row, segment);
    }
    let aim = (packets == MANY).then_some(AIMS.0);
    let kernels = ["flow_headers", "flow_segments"].map(|kernel| Step::rows(kernel, 128));
    for (what, steps) in [("headers", &kernels[..1]), ("headers and TCP segments", &kernels[..])] {
        let (job, payload) = (job.clone(), payload.clone());
        let own = Alone {
            program: program(),
            steps,
            job,
            rows: packets,
            payload,
            state: Vec::new(),
            regions: &[&[0]],
        };
        let mut ran = own.run(driver, rounds)?;
        if steps.len() == 1 {
            // Nobody has looked at segments.
            let column = expected.column_range(H::FLOW_SEGMENT, packets);
            ran.job.bytes_mut()[column.clone()].copy_from_slice(&expected.bytes()[column]);
        }
        if ran.job != expected {
            report.wrong.push(format!(
                "flow tracking, {what} of {size} bytes: other answers than the CPU's"
            ));
        }
        let name = format!("{what} of {size} bytes, {} a job, kernels alone", count(packets));
        report.rows.push(ran.row(name, "Mpps", packets as f64 / 1e6, aim));
    }
    Ok(())
}

/// Segments of [`CONNECTIONS`] as they arrive: of 870 packets 320 are acknowledgments alone (GASPP §7.2); one in 64 comes before the
/// one before it, one in 256 again.
fn segments(count: usize) -> Vec<InStream> {
    let mut random = Random(11);
    let mut next = vec![[0_u32; 2]; CONNECTIONS];
    for numbers in &mut next {
        *numbers = [random.next() as u32, random.next() as u32];
    }
    let mut all: Vec<InStream> = Vec::with_capacity(count);
    while all.len() < count {
        let connection = (random.next() % CONNECTIONS as u64) as usize;
        let is_answer = random.next() % 870 < 320;
        let [client, server] = [
            ([0, 0x0a00_0000 + connection as u64], 40_000 + connection as u32),
            ([0, 0x0a80_0001], 80),
        ];
        let (src, dst) = if is_answer { (client, server) } else { (server, client) };
        let len = if is_answer { 0 } else { 1460 };
        let sequence = &mut next[connection][usize::from(is_answer)];
        let own = InStream {
            src: src.0,
            dst: dst.0,
            ports: src.1 << 16 | dst.1,
            sequence: *sequence,
            len,
        };
        *sequence = sequence.wrapping_add(len);
        match random.next() % 256 {
            0 => all.extend([own, own]),
            1..5 => {
                let later = InStream { sequence: *sequence, ..own };
                *sequence = sequence.wrapping_add(len);
                all.extend([later, own]);
            }
            _ => all.push(own),
        }
    }
    all.truncate(count);
    all
}

/// The order of segments.
fn ordered(
    driver: &mut dyn Driver,
    rounds: usize,
    rows: usize,
    report: &mut Report,
) -> Result<(), String> {
    /// The seed of the hash.
    const SEED: u32 = 0x5eed;
    let segments = segments(rows);
    let mut job = JobBytes::new(R::COLUMNS, rows);
    job.add_areas(&reassembly::areas().map(|area| area.bytes(rows)));
    for (row, own) in segments.iter().enumerate() {
        job.put(R::FLOW_SRC, row, own.src);
        job.put(R::FLOW_DST, row, own.dst);
        job.put(R::FLOW_HEADER0, row, [u64::from(own.ports) << 32 | u64::from(40 + own.len), 0]);
        job.put(R::FLOW_HEADER1, row, [34 << 16 | 14, 6 << 8]);
        let words = u64::from(segment::RIGHT) << 56 | 20 << 48;
        job.put(R::FLOW_SEGMENT, row, [u64::from(own.sequence), words]);
    }
    let steps = reassembly::steps(rows, SEED);
    let (program, payload) = (order_program(), Vec::new());
    let own =
        Alone { program, steps: &steps, job, rows, payload, state: Vec::new(), regions: &[&[0]] };
    let ran = own.run(driver, rounds)?;
    let segments: Vec<_> = segments.into_iter().map(Some).collect();
    let is_wrong =
        reassembly::reference(&segments, 0, SEED).iter().enumerate().any(|(row, own)| {
            let found =
                [R::FLOW_GROUP, R::FLOW_PLACE, R::FLOW_NEXT].map(|of| ran.job.get::<u32>(of, row));
            found != [own.group, own.place, own.next]
        });
    if is_wrong {
        report.wrong.push(format!("reassembly of {rows} segments: another order than the CPU's"));
    }
    let aim = (rows == MANY).then_some(AIMS.1);
    let (all, of) = (count(rows), count(CONNECTIONS));
    let name = format!("reassembly of jobs of {all} segments, {of} connections, kernels alone");
    report.rows.push(ran.row(name, "Mpps", rows as f64 / 1e6, aim));
    Ok(())
}

/// Segments whose connections are in a table of a million cells, and whose directions are known.
fn numbered(
    driver: &mut dyn Driver,
    rounds: usize,
    rows: usize,
    report: &mut Report,
) -> Result<(), String> {
    /// The seed of the hash.
    const SEED: u32 = 0x5eed;
    /// Cells of the table.
    const CELLS: usize = 1 << 20;
    let mut job = JobBytes::new(C::COLUMNS, rows);
    let area = job.add_areas(&[8 * rows])[0];
    let (mut firsts, mut packets) = (HashMap::new(), Vec::with_capacity(rows));
    for (row, own) in segments(rows).iter().enumerate() {
        let header0 = [u64::from(own.ports) << 32 | u64::from(40 + own.len), 0];
        let words = [own.sequence.into(), u64::from(segment::RIGHT) << 56 | 20 << 48 | 0x10];
        let direction = (own.src, own.dst, own.ports);
        job.put(C::FLOW_SRC, row, own.src);
        job.put(C::FLOW_DST, row, own.dst);
        job.put(C::FLOW_HEADER0, row, header0);
        job.put(C::FLOW_SEGMENT, row, words);
        job.put(C::FLOW_GROUP, row, *firsts.entry(direction).or_insert(row as u32));
        job.put(C::FLOW_TIME, row, row as u32);
        packets.push(OfConnection::of_columns(
            (own.src, own.dst),
            header0,
            words,
            row as u32,
            SEED,
        ));
    }
    let mut table = Connections::new(CELLS);
    let bytes_of =
        |table: &Connections| kernels::known::bytes_of(&memory_of(std::slice::from_ref(table)));
    let state = bytes_of(&table);
    let mut expected = job.clone();
    for (row, number) in table.job(&packets).into_iter().enumerate() {
        expected.put(C::FLOW_NUMBER, row, number);
    }
    let steps = ["connections_insert", "connections_number"]
        .map(|kernel| Step::rows(kernel, reassembly::ITEMS).with_job(SEED));
    let (program, payload) = (table_program(), Vec::new());
    let own = Alone { program, steps: &steps, job, rows, payload, state, regions: &[&[0]] };
    let ran = own.run(driver, rounds)?;
    let is_wrong = ran.job.bytes()[..area] != expected.bytes()[..area];
    if is_wrong || ran.state != bytes_of(&table) {
        report.wrong.push(format!("connections of {rows} segments: other numbers than the CPU's"));
    }
    let (all, of, cells) = (count(rows), count(CONNECTIONS), count(CELLS));
    let name = format!(
        "connection table of {cells}, jobs of {all} segments, {of} connections, kernels alone"
    );
    report.rows.push(ran.row(name, "Mpps", rows as f64 / 1e6, None));
    looked_up(rounds, rows, CELLS, report)
}

/// The same segments looked up in the table of the tracker, of the same size, by one core: batches of a chunk.
fn looked_up(
    rounds: usize,
    rows: usize,
    capacity: usize,
    report: &mut Report,
) -> Result<(), String> {
    let limits = Limits { capacity, half_open_max: capacity };
    let mut table = FlowTable::<u64>::new(limits, 7).map_err(|error| error.to_string())?;
    let keys: Vec<FlowKey> = segments(rows)
        .iter()
        .map(|own| {
            let [src, dst] = [own.ports >> 16, own.ports & 0xffff].map(|port| port as u16);
            FlowKey::new((own.src, src), (own.dst, dst), 6, 4, 0).0
        })
        .collect();
    let mut found = vec![Found::NONE; CHUNK_PACKETS_MAX];
    let mut figures = Vec::with_capacity(rounds);
    // The first round inserts.
    for round in 0..=rounds.max(1) {
        let begin = Instant::now();
        let mut known = 0;
        for keys in keys.chunks(CHUNK_PACKETS_MAX) {
            let found = &mut found[..keys.len()];
            table.lookup(
                keys,
                1_000,
                &mut (|_| Some(Class::Full), |_: Slot, _: &FlowKey, _: &u64| {}),
                found,
            );
            known += found.iter().filter(|own| !own.is_new()).count();
        }
        let seconds = begin.elapsed().as_secs_f64();
        if round > 0 {
            figures.push(rows as f64 / 1e6 / seconds);
            if known != rows {
                report.wrong.push(format!("{known} of {rows} segments were found on the CPU"));
            }
        }
    }
    let (all, of, cells) = (count(rows), count(CONNECTIONS), count(capacity));
    let name =
        format!("the tracker's table of {cells} on one core, {all} segments, {of} connections");
    report.rows.push(Row::new(name, "Mpps", figures));
    Ok(())
}

/// A number with marks of thousands.
fn count(number: usize) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", count(number / 1000), number % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kernel answers as the CPU does.
    #[test]
    fn answers_are_the_cpus() {
        assert_eq!([7, 16_384, MANY].map(count), ["7", "16,384", "1,048,576"]);
        if !testkit::require_opencl() {
            return;
        }
        let mut driver = device::probe::open(device::driver::Api::OpenCl, 0).unwrap();
        let mut report = Report::new("device", String::new());
        run(&mut *driver, 1, &mut report).unwrap();
        assert_eq!(report.wrong, [""; 0]);
        assert_eq!(report.rows.len(), 2 * SIZES.len() + 3);
    }
}
