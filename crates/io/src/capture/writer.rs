//! Writes pcap and pcapng. The same packets give the same bytes: nothing of the machine or the time
//! of writing goes in.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use chunk::Packet;

/// Which format to write; both with nanoseconds, in the byte order of x86 and ARM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Format {
    /// pcapng: comments, any length.
    #[default]
    PcapNg,
    /// pcap, with the magic number for nanoseconds.
    Pcap,
}

/// Writes Ethernet frames to a capture. Not buffered: give it a buffered output.
#[derive(Debug)]
pub struct CaptureWriter<W> {
    output: W,
    format: Format,
    /// Of the interfaces that are described, by number; with [`CaptureWriter::new`] there is one without a name.
    interfaces: HashMap<String, u32>,
}

impl Format {
    /// What a file of this name holds: pcap if it ends so, else pcapng.
    pub fn of(path: &Path) -> Self {
        match path.extension() {
            Some(end) if end.eq_ignore_ascii_case("pcap") => Format::Pcap,
            _ => Format::PcapNg,
        }
    }
}

/// Where a frame was seen, for [`CaptureWriter::write_from`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number that [`CaptureWriter::interface`] gave.
    pub interface: u32,
    /// Leaving, not coming in.
    pub outgoing: bool,
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a capture; the header is written at once.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn new(mut output: W, format: Format) -> io::Result<Self> {
        match format {
            Format::Pcap => {
                output.write_all(&0xa1b2_3c4du32.to_le_bytes())?;
                output.write_all(&2u16.to_le_bytes())?;
                output.write_all(&4u16.to_le_bytes())?;
                output.write_all(&[0; 8])?; // time zone and accuracy, always 0
                output.write_all(&(256u32 << 10).to_le_bytes())?; // what tcpdump calls unlimited
                output.write_all(&1u32.to_le_bytes())?; // Ethernet
            }
            Format::PcapNg => {
                output.write_all(&[section(), description("")].concat())?;
            }
        }
        Ok(Self { output, format, interfaces: HashMap::from([(String::new(), 0)]) })
    }

    /// Begins a pcapng capture whose interfaces are described by [`CaptureWriter::interface`], one
    /// at least, and each before its first packet.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn with_interfaces(mut output: W) -> io::Result<Self> {
        output.write_all(&section())?;
        Ok(Self { output, format: Format::PcapNg, interfaces: HashMap::new() })
    }

    /// The number of an interface, for [`Seen`]. It is described where it is new, which may be between packets (pcapng,
    /// section 4.2).
    ///
    /// # Errors
    /// Those of the output.
    pub fn interface(&mut self, name: &str) -> io::Result<u32> {
        if let Some(number) = self.interfaces.get(name) {
            return Ok(*number);
        }
        self.output.write_all(&description(name))?;
        let number = self.interfaces.len() as u32;
        self.interfaces.insert(name.to_owned(), number);
        Ok(number)
    }

    /// Writes the frame `bytes`, seen at an interface.
    ///
    /// # Errors
    /// Those of the output, and where no interface of that number is described: readers would stop there.
    pub fn write_from(
        &mut self,
        seen: Seen,
        bytes: &[u8],
        time_ns: u64,
        comment: Option<&str>,
    ) -> io::Result<()> {
        if seen.interface as usize >= self.interfaces.len() {
            let message = format!("interface {} is not described", seen.interface);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.write_segments(Some(seen), std::iter::once(bytes), bytes.len(), time_ns, comment)
    }

    /// Writes one packet with its own time.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write(&mut self, packet: &Packet) -> io::Result<()> {
        self.write_with_comment(packet, packet.time_ns, None)
    }

    /// Writes one packet at `time_ns` with a comment, which pcap leaves out.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_with_comment(
        &mut self,
        packet: &Packet,
        time_ns: u64,
        comment: Option<&str>,
    ) -> io::Result<()> {
        self.write_segments(None, packet.segments(), packet.frame_len(), time_ns, comment)
    }

    /// Writes the frame `bytes`.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_bytes(
        &mut self,
        bytes: &[u8],
        time_ns: u64,
        comment: Option<&str>,
    ) -> io::Result<()> {
        self.write_segments(None, std::iter::once(bytes), bytes.len(), time_ns, comment)
    }

    fn write_segments<'a>(
        &mut self,
        seen: Option<Seen>,
        segments: impl Iterator<Item = &'a [u8]>,
        len: usize,
        time_ns: u64,
        comment: Option<&str>,
    ) -> io::Result<()> {
        let frame = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        match self.format {
            Format::Pcap => {
                let seconds = (time_ns / 1_000_000_000) as u32;
                self.words(&[seconds, (time_ns % 1_000_000_000) as u32, frame, frame])?;
                segments.into_iter().try_for_each(|segment| self.output.write_all(segment))
            }
            Format::PcapNg => {
                let padding = frame.next_multiple_of(4) - frame;
                // An option's length has 16 bits.
                let comment = comment.map(|text| &text.as_bytes()[..text.len().min(0xffff)]);
                let texts = comment.map_or(0, |c| 4 + c.len().next_multiple_of(4)) as u32;
                let has_options = comment.is_some() || seen.is_some();
                let options =
                    texts + if seen.is_some() { 8 } else { 0 } + u32::from(has_options) * 4;
                let interface = seen.map_or(0, |seen| seen.interface);
                let block = 32 + frame + padding + options;
                let (high, low) = ((time_ns >> 32) as u32, time_ns as u32);
                self.words(&[6, block, interface, high, low, frame, frame])?;
                for segment in segments {
                    self.output.write_all(segment)?;
                }
                self.output.write_all(&[0; 3][..padding as usize])?;
                if let Some(comment) = comment {
                    self.words(&[1 | (comment.len() as u32) << 16])?;
                    self.output.write_all(comment)?;
                    let padding = comment.len().next_multiple_of(4) - comment.len();
                    self.output.write_all(&[0; 3][..padding])?;
                }
                if let Some(seen) = seen {
                    self.words(&[2 | 4 << 16, 1 + u32::from(seen.outgoing)])?; // epb_flags
                }
                if has_options {
                    self.words(&[0])?; // end of options
                }
                self.words(&[block])
            }
        }
    }

    fn words(&mut self, words: &[u32]) -> io::Result<()> {
        let mut bytes = [0; 28];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        self.output.write_all(&bytes[..4 * words.len()])
    }

    /// Hands buffered bytes on.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// The output.
    pub fn get_ref(&self) -> &W {
        &self.output
    }

    /// Ends the capture.
    pub fn into_inner(self) -> W {
        self.output
    }
}

/// Section header block, of unknown length.
fn section() -> Vec<u8> {
    let words = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28u32];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Interface description block: Ethernet, no snap length; if_name, if_tsresol 10^-9.
fn description(name: &str) -> Vec<u8> {
    let name = &name.as_bytes()[..name.len().min(0xffff)];
    let mut options = Vec::new();
    if !name.is_empty() {
        options.extend_from_slice(&(2 | (name.len() as u32) << 16).to_le_bytes());
        options.extend_from_slice(name);
        options.resize(options.len().next_multiple_of(4), 0);
    }
    for word in [9 | 1 << 16, 9, 0u32] {
        options.extend_from_slice(&word.to_le_bytes());
    }
    let len = 20 + options.len() as u32;
    let mut block: Vec<u8> = [1, len, 1, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    block.extend_from_slice(&options);
    block.extend_from_slice(&len.to_le_bytes());
    block
}
