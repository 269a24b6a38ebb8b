//! The module `first_line`: drops segments of TCP connections whose first line, from either end, is longer than `LIMIT` bytes.

use controlplane::module::{Act, MODULE_DROP, Module, PacketAt, Parameters, Piece};

/// What `main` adds to the shipped applications.
pub static DESCRIPTOR: controlplane::Descriptor = controlplane::Descriptor::of_module::<FirstLine>();

/// The limit.
#[derive(Default)]
pub struct FirstLine(u32);

/// Of a connection: by end, the bytes of the first line so far, and whether it has ended.
type Lines = [(u32, bool); 2];

impl Module for FirstLine {
    type State = Lines;
    const NAME: &str = "first_line";
    const ABOUT: &str = "Drops segments of TCP connections with a long first line.";

    fn set_up(&mut self, parameters: &Parameters<'_>) -> Result<(), String> {
        self.0 = parameters.get("LIMIT", 100);
        Ok(())
    }

    fn process_tcp(&mut self, _: &mut PacketAt<'_>, lines: &mut Lines) -> Act {
        let is_long = lines.iter().any(|(bytes, _)| *bytes > self.0);
        if is_long { Act::Drop(MODULE_DROP) } else { Act::Pass }
    }

    fn process_stream(&mut self, at: &mut PacketAt<'_>, piece: Piece<'_>, lines: &mut Lines) -> Act {
        let (bytes, has_ended) = &mut lines[usize::from(piece.is_reply)];
        for byte in piece.bytes.iter().take_while(|_| !*has_ended) {
            *bytes += 1;
            if *byte == b'\n' {
                break;
            }
        }
        *has_ended |= piece.bytes.contains(&b'\n');
        self.process_tcp(at, lines)
    }
}
