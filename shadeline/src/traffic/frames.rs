//! The frames of a capture as traffic: each as it is, in turn.

use std::path::Path;

use chunk::{HugePages, Pool, Region};
use io::RxQueue;
use io::capture::CaptureRx;
use io::generator::Template;

use crate::failure::Failure;

/// Most frames of one capture: they stay in memory, and the generator numbers them with 16 bits.
pub(super) const FRAMES_MAX: usize = 1 << 16;

/// Cells for the frames of one turn.
const CELLS: u32 = 4096;

/// Frames of one turn.
const BURST: usize = 64;

/// Reads the first frames of a capture (pcap or pcapng, may be gzip, xz or zstd) as templates of equal weight.
///
/// # Errors
/// If the capture cannot be read, has no frame, or more than [`FRAMES_MAX`].
pub(super) fn read(path: &Path) -> Result<Vec<Template>, Failure> {
    let failed = |what: String| Failure::other(format!("{}: {what}", path.display()));
    let (_, depot) = Region::new(CELLS, HugePages::Off)
        .map_err(|error| Failure::other(format!("no memory for cells: {error}")))?;
    let mut pool = Pool::new(depot, 256);
    let mut capture = CaptureRx::open([path]).map_err(|error| failed(error.to_string()))?;
    let (mut templates, mut packets) = (Vec::new(), Vec::new());
    while !capture.is_finished() {
        capture.recv(&mut pool, &mut packets, BURST);
        for packet in packets.drain(..) {
            let frame = packet.segments().collect::<Vec<_>>().concat();
            templates.push(Template { frame, weight: 1, ..Template::default() });
            packet.free(&mut pool);
        }
        if let Some(error) = capture.take_error() {
            return Err(failed(error));
        }
        if templates.len() > FRAMES_MAX {
            return Err(failed(format!("more than {FRAMES_MAX} frames, which is the limit here")));
        }
    }
    if templates.is_empty() {
        return Err(failed("no frame to send".to_owned()));
    }
    Ok(templates)
}
