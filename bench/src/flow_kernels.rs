//! What a device finds out of packets for flow tracking: headers, and TCP segments with their checksums.

use apps::flow::decode::{HeadColumns as H, reference};
use apps::flow::kernels::FLOW;
use chunk::Columns;
use device::accelerator::Step;
use device::driver::{Driver, Program};
use kernels::job::JobBytes;
use packet::checksum::Checksums;

use crate::Report;
use crate::app_kernels::Alone;
use crate::on_device::program_of;
use crate::streams::frames::{Ends, FRAME_MIN, Segment, write};

/// Packets of a job.
const PACKETS: usize = 1 << 14;

/// Lengths of frames, bytes.
const SIZES: [usize; 3] = [FRAME_MIN, 512, 1514];

/// Ethernet, IPv4 and TCP.
const HEADERS: usize = 54;

/// Their program.
pub(crate) fn program() -> Program {
    program_of("flow", &[&FLOW], H::COLUMNS, "")
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
    let steps = ["flow_headers", "flow_segments"].map(|kernel| Step::rows(kernel, 128));
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
        let program = program();
        let own = Alone { program, steps: &steps, job, rows: PACKETS, payload, regions: &[&[0]] };
        let ran = own.run(driver, rounds)?;
        if ran.job != expected {
            report.wrong.push(format!(
                "flow tracking, frames of {size} bytes: other answers than the CPU's"
            ));
        }
        let name = format!("headers and TCP segments of {size} bytes, kernels alone");
        report.rows.push(ran.row(name, "Mpps", PACKETS as f64 / 1e6, None));
    }
    Ok(())
}
