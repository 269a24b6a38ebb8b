//! Writes pcap and pcapng. The same packets give the same bytes: nothing of the machine or the time
//! of writing goes in.

use std::io::{self, Write};

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
                let mut header = Vec::with_capacity(64);
                // Section header block, of unknown length.
                for word in [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28u32] {
                    header.extend_from_slice(&word.to_le_bytes());
                }
                // Interface description block: Ethernet, no snap length; if_tsresol 10^-9.
                for word in [1, 32, 1, 0, 9 | 1 << 16, 9, 0, 32u32] {
                    header.extend_from_slice(&word.to_le_bytes());
                }
                output.write_all(&header)?;
            }
        }
        Ok(Self { output, format })
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
        self.write_segments(packet.segments(), packet.frame_len(), time_ns, comment)
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
        self.write_segments(std::iter::once(bytes), bytes.len(), time_ns, comment)
    }

    fn write_segments<'a>(
        &mut self,
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
                let options = comment.map_or(0, |c| 4 + c.len().next_multiple_of(4) + 4) as u32;
                let block = 32 + frame + padding + options;
                let (high, low) = ((time_ns >> 32) as u32, time_ns as u32);
                self.words(&[6, block, 0, high, low, frame, frame])?;
                for segment in segments {
                    self.output.write_all(segment)?;
                }
                self.output.write_all(&[0; 3][..padding as usize])?;
                if let Some(comment) = comment {
                    self.words(&[1 | (comment.len() as u32) << 16])?;
                    self.output.write_all(comment)?;
                    let padding = comment.len().next_multiple_of(4) - comment.len();
                    self.output.write_all(&[0; 3][..padding])?;
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
