//! What a device finds out of packets for flow tracking: headers, and TCP segments with their checksums.

use apps::flow::decode::{HeadColumns as H, reference};
use apps::flow::kernels::FLOW;
use chunk::Columns;
use device::Backend;
use device::driver::{Arguments, Program, Shape};
use kernels::job::JobBytes;
use packet::checksum::Checksums;

use crate::on_device::{PATIENCE, open, program_of, text, timed};
use crate::streams::frames::{Ends, FRAME_MIN, Segment, write};
use crate::{Args, Report, Row};

/// Packets of a job.
const PACKETS: usize = 1 << 14;

/// Jobs of a round.
const JOBS: usize = 16;

/// Lengths of frames, bytes.
const SIZES: [usize; 3] = [FRAME_MIN, 512, 1514];

/// Ethernet, IPv4 and TCP.
const HEADERS: usize = 54;

/// Their program.
pub(crate) fn program() -> Program {
    program_of("flow", &[&FLOW], H::COLUMNS, "")
}

/// The kernels alone: packets and answers stay on the device. Answers are compared with the CPU's.
pub(crate) fn run(args: &Args, backend: Backend, report: &mut Report) -> Result<(), String> {
    let mut device = open(backend)?;
    let driver = &mut *device;
    let names = ["flow_headers", "flow_segments"];
    let kernels = driver.build(&program(), &names).map_err(text)?;
    let queue = driver.queue().map_err(text)?;
    for size in SIZES {
        let place = size.next_multiple_of(16);
        let mut payload = vec![0; place * PACKETS];
        let mut job = JobBytes::new(H::COLUMNS, PACKETS);
        for (row, frame) in payload.chunks_exact_mut(place).enumerate() {
            let ends = Ends([
                ([10, 0, (row >> 8) as u8, row as u8].into(), 40_000),
                ([10, 1, 0, 1].into(), 80),
            ]);
            let sequence = 1000 * row as u32;
            let len = if size == FRAME_MIN { 0 } else { size - HEADERS };
            write(
                frame,
                &ends,
                &Segment {
                    from: row % 2,
                    flags: packet::tcp::flags::ACK,
                    sequence,
                    acknowledgment: 7,
                    len,
                },
            );
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
        let arena = driver.allocate(job.bytes().len()).map_err(text)?;
        let packets = driver.allocate(payload.len()).map_err(text)?;
        for (memory, bytes) in [(arena, job.bytes()), (packets, &payload[..])] {
            device::upload_all(driver, queue, memory, &[(bytes, 0)], PATIENCE).map_err(text)?;
        }
        let arguments = Arguments { arena, payload: packets, tables: arena, state: arena, job: 0 };
        let shape = Shape::of_rows(PACKETS, 128);
        let launches: Vec<_> = (0..JOBS)
            .flat_map(|_| kernels.iter().map(|kernel| (*kernel, shape, arguments)))
            .collect();
        timed(driver, queue, &launches[..names.len()])?;
        device::download_all(driver, queue, arena, 0, job.bytes_mut(), PATIENCE).map_err(text)?;
        if job != expected {
            report.wrong.push(format!(
                "flow tracking, frames of {size} bytes: other answers than the CPU's"
            ));
        }
        let (mut rates, mut clock) = (Vec::new(), "");
        for _ in 0..args.rounds.max(1) {
            let (time, by) = timed(driver, queue, &launches)?;
            clock = by;
            rates.push((JOBS * PACKETS) as f64 / time.as_secs_f64() / 1e6);
        }
        driver.free(arena);
        driver.free(packets);
        let name = format!("headers and TCP segments of {size} bytes, kernels alone");
        report.rows.push(Row::new(name, "Mpps", rates).note(clock));
    }
    Ok(())
}
