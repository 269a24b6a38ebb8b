//! Zstandard as a stream: any number of frames, one after the other.
//!
//! The decoder gives bytes only when they have left its window, or the frame has ended. So where a frame is cut or
//! corrupt, an empty last block ends it: everything before the fault is delivered, then the error.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window that is accepted: `zstd --long=28`. A header could ask for more memory than there is.
const WINDOW_BYTES_MAX: u64 = 256 << 20;

/// An empty block, which is the last of its frame, and a checksum that is not looked at.
const LAST_BLOCK: &[u8] = &[1, 0, 0, 0, 0, 0, 0];

/// The frames of an input.
pub(crate) struct Zstd<R> {
    input: R,
    decoder: FrameDecoder,
    /// Whether a frame has begun whose end was not checked yet.
    in_frame: bool,
    /// An error that follows the bytes before it.
    failed: Option<io::Error>,
    ended: bool,
}

impl<R: BufRead> Zstd<R> {
    pub(crate) fn new(input: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Self { input, decoder, in_frame: false, failed: None, ended: false }
    }

    /// Begins the next frame; `false` at the end of the input.
    fn begin(&mut self) -> io::Result<bool> {
        if self.input.fill_buf()?.is_empty() {
            return Ok(false);
        }
        match self.decoder.reset(&mut self.input) {
            Ok(()) => self.in_frame = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let skipped =
                    io::copy(&mut self.input.by_ref().take(length.into()), &mut io::sink())?;
                if skipped < length.into() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) => return Err(io_error(error)),
        }
        Ok(true)
    }

    /// Decodes a block.
    fn block(&mut self) -> io::Result<()> {
        let decoded =
            self.decoder.decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1));
        decoded.map(drop).map_err(io_error)
    }

    /// Checks a frame whose bytes have all been taken.
    fn end_frame(&mut self) -> io::Result<()> {
        self.in_frame = false;
        let (stored, own) =
            (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
        match stored {
            Some(stored) if own != Some(stored) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "wrong checksum"))
            }
            _ => Ok(()),
        }
    }

    fn step(&mut self) -> io::Result<bool> {
        match (self.in_frame, self.decoder.is_finished()) {
            (false, _) => self.begin(),
            (true, false) => self.block().map(|()| true),
            (true, true) => self.end_frame().map(|()| true),
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(out);
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.ended {
                return Ok(0);
            }
            match self.step() {
                Ok(true) => {}
                Ok(false) => self.ended = true,
                Err(error) => {
                    self.failed = Some(error);
                    self.ended = true;
                    if self.in_frame && !self.decoder.is_finished() {
                        // Nothing more to say than the error that is kept.
                        let _ = self.decoder.decode_blocks(LAST_BLOCK, BlockDecodingStrategy::All);
                    }
                }
            }
        }
    }
}

/// The error of the input, where that is what lies behind; else what the decoder says.
fn io_error(error: FrameDecoderError) -> io::Error {
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(at) = cause {
        if let Some(of_input) = at.downcast_ref::<io::Error>() {
            return io::Error::new(of_input.kind(), of_input.to_string());
        }
        cause = at.source();
    }
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
