//! Content codings: gzip and deflate, one upon the other, with bounds.
//!
//! ```text
//!  bytes of the body ─▶ [ Inflate ─▶ Inflate … ] ─▶ pieces of the content
//! ```
//!
//! Containers (RFC 1950, RFC 1952) are read here and their sums are not verified: an observer has to see what a lenient
//! client sees. The ratio is reckoned for whole blocks of the body, so that it does not depend on segments.

use flate2::{Decompress, FlushDecompress};

use crate::limits::Limits;

/// Bytes that one step gives: what a decoder may hold back of a window.
const STEP: usize = 32 << 10;
/// Bytes of a decoder: its window and its tables.
const INFLATE: usize = 44 << 10;
/// Bytes of the body for which the ratio is reckoned.
const BLOCK: u64 = 512;
/// Bytes of what is said to be gzip, and is none, by which it is found out whether it is deflate.
const TRIAL: usize = 64;

/// Why the content ends before the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodingError {
    /// The data are broken.
    Broken,
    /// They become more than the limits allow.
    Bomb,
}

/// A coding by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
}

impl Coding {
    /// The codings of a field, in the order in which they were applied. `Err` for one that is not undone here, with
    /// whether its name is a known one.
    pub(crate) fn parse(value: &[u8]) -> Result<Vec<Self>, bool> {
        let mut codings = Vec::new();
        for name in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            match name.to_ascii_lowercase().as_slice() {
                b"" | b"identity" => {}
                b"gzip" | b"x-gzip" => codings.push(Self::Gzip),
                b"deflate" | b"x-deflate" => codings.push(Self::Deflate),
                b"br" | b"zstd" | b"compress" | b"x-compress" | b"lzma" | b"dcb" | b"dcz" => {
                    return Err(true);
                }
                _ => return Err(false),
            }
        }
        Ok(codings)
    }
}

/// Undoes all codings of a body.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// The one that was applied last comes first.
    layers: Vec<Inflate>,
    taken: u64,
    given: u64,
    error: Option<CodingError>,
}

impl Decoder {
    pub(crate) fn new(codings: &[Coding]) -> Self {
        let layers = codings.iter().rev().map(|coding| Inflate::new(*coding)).collect();
        Self { layers, taken: 0, given: 0, error: None }
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held(&self) -> usize {
        self.layers.len() * (STEP + INFLATE)
    }

    /// Takes bytes of the body. An error is given once; after it nothing is.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        limits: &Limits,
        content: &mut dyn FnMut(&[u8]),
    ) -> Result<(), CodingError> {
        while !bytes.is_empty() && self.error.is_none() {
            let len = (BLOCK - self.taken % BLOCK).min(bytes.len() as u64) as usize; // below BLOCK
            let (piece, rest) = bytes.split_at(len);
            bytes = rest;
            self.taken += len as u64;
            self.step(limits, content, |layers, last| feed(layers, piece, last))?;
        }
        Ok(())
    }

    /// The body has ended: what was held to find out its coding is content.
    pub(crate) fn finish(
        &mut self,
        limits: &Limits,
        content: &mut dyn FnMut(&[u8]),
    ) -> Result<(), CodingError> {
        if self.error.is_some() {
            return Ok(());
        }
        self.step(limits, content, finish)
    }

    fn step(
        &mut self,
        limits: &Limits,
        content: &mut dyn FnMut(&[u8]),
        own: impl FnOnce(&mut [Inflate], Content<'_>) -> Result<(), CodingError>,
    ) -> Result<(), CodingError> {
        let given = &mut self.given;
        // What the body up to the end of this block may become.
        let ratio = self.taken.next_multiple_of(BLOCK).saturating_mul(limits.ratio);
        let most = limits.decoded_bytes.min(ratio.max(limits.ratio_from_bytes));
        let mut last = |bytes: &[u8]| {
            let room = most.saturating_sub(*given);
            let len = usize::try_from(room).map_or(bytes.len(), |room| bytes.len().min(room));
            *given += len as u64;
            content(&bytes[..len]);
            if len == bytes.len() { Ok(()) } else { Err(CodingError::Bomb) }
        };
        let result = own(&mut self.layers, &mut last);
        self.error = result.err();
        result
    }

    /// The body is in another coding than the one that its head names.
    pub(crate) fn is_other(&self) -> bool {
        self.layers.iter().any(|layer| layer.is_other)
    }

    /// The body is not in the coding that its head names.
    pub(crate) fn is_plain(&self) -> bool {
        self.layers.iter().any(|layer| layer.place == Place::Plain)
    }

    /// The content came to its end, as far as the codings say.
    pub(crate) fn is_whole(&self) -> bool {
        self.error.is_none() && self.layers.iter().all(|layer| layer.is_whole())
    }
}

type Content<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), CodingError>;

fn feed(layers: &mut [Inflate], bytes: &[u8], last: Content<'_>) -> Result<(), CodingError> {
    match layers.split_first_mut() {
        None => last(bytes),
        Some((first, others)) => first.feed(bytes, &mut |content| feed(others, content, last)),
    }
}

fn finish(layers: &mut [Inflate], last: Content<'_>) -> Result<(), CodingError> {
    let Some((first, others)) = layers.split_first_mut() else { return Ok(()) };
    if first.place == Place::Trial {
        first.end_trial(true, &mut |content| feed(others, content, last))?;
    }
    finish(others, last)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The fixed part of a header.
    Header,
    /// Bytes of a length of two bytes come (FEXTRA).
    ExtraLen,
    Extra(u16),
    /// Text up to a zero (FNAME, FCOMMENT).
    Text,
    /// So many bytes (FHCRC, the trailer) and then.
    Skip(u8),
    Trailer(u8),
    Data,
    /// The body is no gzip; it may be deflate.
    Trial,
    /// The body is no gzip at all: it is its own content.
    Plain,
    /// All that comes is behind the content.
    End,
}

/// One coding.
#[derive(Debug)]
struct Inflate {
    coding: Coding,
    inflate: Decompress,
    place: Place,
    header: Vec<u8>,
    /// Flags of a gzip header that are still to be done.
    flags: u8,
    members: u32,
    /// It is not in the coding that was named.
    is_other: bool,
    out: Box<[u8]>,
}

impl Inflate {
    fn new(coding: Coding) -> Self {
        Self {
            coding,
            inflate: Decompress::new(false),
            place: Place::Header,
            header: Vec::new(),
            flags: 0,
            members: 0,
            is_other: false,
            out: vec![0; STEP].into_boxed_slice(),
        }
    }

    fn is_whole(&self) -> bool {
        match self.place {
            Place::End | Place::Trailer(_) | Place::Plain => true,
            Place::Header => self.members > 0,
            _ => false,
        }
    }

    fn feed(&mut self, mut bytes: &[u8], content: Content<'_>) -> Result<(), CodingError> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.place == Place::Data {
                bytes = self.data(bytes, content)?;
                continue;
            }
            if self.place == Place::Plain {
                return content(bytes);
            }
            match self.place {
                Place::End => return Ok(()),
                Place::Header => {
                    self.header.push(*first);
                    self.end_header_byte();
                    if self.place == Place::Data
                        && self.coding == Coding::Deflate
                        && !is_zlib(&self.header)
                    {
                        // Raw deflate, as some servers send it: the two bytes are data.
                        let header = std::mem::take(&mut self.header);
                        self.data(&header, content)?;
                    }
                }
                Place::Trial => {
                    self.header.push(*first);
                    if self.header.len() == TRIAL {
                        self.end_trial(false, content)?;
                    }
                }
                Place::ExtraLen => {
                    self.header.push(*first);
                    if let [low, high] = self.header[..] {
                        self.header.clear();
                        self.place = Place::Extra(u16::from_le_bytes([low, high]));
                        if self.place == Place::Extra(0) {
                            self.next_part();
                        }
                    }
                }
                Place::Extra(left) => {
                    self.place = Place::Extra(left - 1);
                    if left == 1 {
                        self.next_part();
                    }
                }
                Place::Text if *first == 0 => self.next_part(),
                Place::Text => {}
                Place::Skip(left) => {
                    self.place = Place::Skip(left - 1);
                    if left == 1 {
                        self.next_part();
                    }
                }
                Place::Trailer(left) => {
                    self.place = Place::Trailer(left - 1);
                    if left == 1 {
                        // Another member may follow.
                        self.place = Place::Header;
                        self.inflate.reset(false);
                    }
                }
                Place::Data | Place::Plain => {}
            }
            bytes = rest;
        }
        Ok(())
    }

    /// One more byte of a header.
    fn end_header_byte(&mut self) {
        match self.coding {
            // No deflate begins like this.
            Coding::Deflate if self.header[..] == [0x1f, 0x8b] => {
                (self.coding, self.is_other) = (Coding::Gzip, true);
            }
            Coding::Deflate if self.header.len() == 2 => self.place = Place::Data,
            Coding::Gzip => {
                let magic = [0x1f, 0x8b, 8];
                let is_gzip = self.header.iter().zip(magic).all(|(found, wanted)| *found == wanted);
                if !is_gzip {
                    // Behind a member, what is no other one is padding.
                    self.place = if self.members > 0 { Place::End } else { Place::Trial };
                } else if self.header.len() == 10 {
                    self.flags = self.header[3] & 0x1e;
                    self.header.clear();
                    self.next_part();
                }
            }
            Coding::Deflate => {}
        }
    }

    /// What is said to be gzip, and is none, is deflate, in its container or without, or else its own content.
    fn end_trial(&mut self, is_over: bool, content: Content<'_>) -> Result<(), CodingError> {
        let held = std::mem::take(&mut self.header);
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        let zlib = is_zlib(&held).then_some(2);
        // Few texts are deflate for so long, and no deflate is text.
        let begins = zlib.into_iter().chain([0]).filter(|_| is_over || !held.iter().all(is_text));
        let begin = { begins }.find(|begin| self.inflates(&held[*begin..], is_over));
        self.inflate.reset(false);
        let Some(begin) = begin else {
            self.place = Place::Plain;
            return content(&held);
        };
        (self.coding, self.is_other, self.place) = (Coding::Deflate, true, Place::Data);
        self.data(&held[begin..], content).map(|_| ())
    }

    /// Whether these bytes begin a stream of deflate; or are one, with a sum behind it perhaps.
    fn inflates(&mut self, bytes: &[u8], is_whole: bool) -> bool {
        self.inflate.reset(false);
        let status = self.inflate.decompress(bytes, &mut self.out, FlushDecompress::None);
        let behind = bytes.len() - (self.inflate.total_in() as usize).min(bytes.len());
        match status {
            Err(_) => false,
            Ok(flate2::Status::StreamEnd) => {
                self.inflate.total_out() > 0 && (behind <= 8 || !is_whole)
            }
            Ok(_) => !is_whole,
        }
    }

    /// The next part of a gzip header that its flags name (RFC 1952 §2.3).
    fn next_part(&mut self) {
        let (flag, place) = match self.flags {
            flags if flags & 4 != 0 => (4, Place::ExtraLen),
            flags if flags & 8 != 0 => (8, Place::Text),
            flags if flags & 16 != 0 => (16, Place::Text),
            flags if flags & 2 != 0 => (2, Place::Skip(2)),
            _ => (0, Place::Data),
        };
        self.flags &= !flag;
        self.place = place;
    }

    /// Takes data; what is behind them.
    fn data<'b>(
        &mut self,
        mut bytes: &'b [u8],
        content: Content<'_>,
    ) -> Result<&'b [u8], CodingError> {
        loop {
            let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(bytes, &mut self.out, FlushDecompress::None);
            let taken = (self.inflate.total_in() - before_in) as usize; // of `bytes`
            let given = (self.inflate.total_out() - before_out) as usize; // of `out`
            bytes = &bytes[taken.min(bytes.len())..];
            if given > 0 {
                content(&self.out[..given.min(STEP)])?;
            }
            match status {
                Err(_) => return Err(CodingError::Broken),
                Ok(flate2::Status::StreamEnd) => {
                    self.members = self.members.saturating_add(1);
                    self.place = match self.coding {
                        Coding::Gzip => Place::Trailer(8),
                        Coding::Deflate => Place::End,
                    };
                    self.header.clear();
                    return Ok(bytes);
                }
                Ok(_) if taken == 0 && given == 0 => return Ok(&[]),
                Ok(_) => {}
            }
        }
    }
}

/// Whether a container of deflate begins like this.
fn is_zlib(bytes: &[u8]) -> bool {
    let [cmf, flags, ..] = *bytes else { return false };
    cmf & 15 == 8 && u16::from_be_bytes([cmf, flags]).is_multiple_of(31)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(
        codings: &[Coding],
        body: &[u8],
        size: usize,
        limits: &Limits,
    ) -> (Vec<u8>, Option<CodingError>, bool) {
        let mut decoder = Decoder::new(codings);
        let (mut content, mut error) = (Vec::new(), None);
        for piece in body.chunks(size) {
            let result = decoder.feed(piece, limits, &mut |bytes| content.extend(bytes));
            error = error.or(result.err());
        }
        let result = decoder.finish(limits, &mut |bytes| content.extend(bytes));
        error = error.or(result.err());
        (content, error, decoder.is_whole())
    }

    #[test]
    fn each_coding_in_pieces_of_each_size() {
        let text: Vec<u8> =
            (0..3000_u32).flat_map(|n| (n * n % 251).to_string().into_bytes()).collect();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&text).unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
        raw.write_all(&text).unwrap();
        let mut named = flate2::GzBuilder::new()
            .filename("name")
            .comment("comment")
            .extra(vec![1, 2, 3])
            .write(Vec::new(), Compression::fast());
        named.write_all(&text).unwrap();
        let (front, back) = text.split_at(1000);
        let members = [gzip(front), gzip(back), b"padding".to_vec()].concat();
        let (zlib, raw) = (zlib.finish().unwrap(), raw.finish().unwrap());
        let cases = [
            (vec![Coding::Gzip], zlib.clone()),
            (vec![Coding::Gzip], raw.clone()),
            (vec![Coding::Deflate], gzip(&text)),
            (vec![Coding::Gzip, Coding::Deflate], gzip(&zlib)),
            (vec![Coding::Gzip], gzip(&text)),
            (vec![Coding::Gzip], named.finish().unwrap()),
            (vec![Coding::Gzip], members),
            (vec![Coding::Deflate], zlib),
            (vec![Coding::Deflate], raw),
            (vec![Coding::Gzip, Coding::Gzip], gzip(&gzip(&text))),
            (vec![], text.clone()),
        ];
        for (codings, body) in cases {
            for size in [1, 7, 500, 100_000] {
                let found = decode(&codings, &body, size, &Limits::default());
                assert!(found == (text.clone(), None, true), "{codings:?} {size}");
            }
            if !codings.is_empty() {
                let (content, error, is_whole) =
                    decode(&codings, &body[..body.len() / 2], 64, &Limits::default());
                assert!(error.is_none() && !is_whole && text.starts_with(&content));
            }
        }
    }

    /// What is said to be gzip and is text is text, however short.
    #[test]
    fn text_is_its_own_content() {
        let all: [&[u8]; 7] =
            [b"", b"x", b"x^", b"K\0", b"knock, knock", b"x\x9c and more", &[b's'; 300]];
        for text in all {
            for size in [1, 5, 1000] {
                let (content, error, _) = decode(&[Coding::Gzip], text, size, &Limits::default());
                assert!(content == text && error.is_none(), "{text:?} {size} {content:?}");
            }
        }
    }

    #[test]
    fn broken_data_give_the_same_in_pieces_of_each_size() {
        let text = b"some text that repeats, some text that repeats, and some more".repeat(50);
        let whole = gzip(&text);
        for at in 0..whole.len() {
            let mut body = whole.clone();
            body[at] ^= 0x55;
            let expected = decode(&[Coding::Gzip], &body, body.len(), &Limits::default());
            for size in [1, 3, 17] {
                assert!(
                    decode(&[Coding::Gzip], &body, size, &Limits::default()) == expected,
                    "{at}"
                );
            }
        }
    }

    #[test]
    fn bombs_end() {
        let zeros = vec![0; 20 << 20];
        let bomb = gzip(&gzip(&zeros));
        let codings = [Coding::Gzip, Coding::Gzip];
        let (content, error, _) = decode(&codings, &bomb, 100, &Limits::default());
        assert_eq!(error, Some(CodingError::Bomb));
        assert!(content.len() < zeros.len());
        let limits = Limits { decoded_bytes: 5000, ..Limits::default() };
        let (content, error, _) = decode(&[Coding::Gzip], &gzip(&zeros), 100, &limits);
        assert_eq!((content.len(), error), (5000, Some(CodingError::Bomb)));
    }

    #[test]
    fn names_of_codings() {
        assert_eq!(Coding::parse(b"gzip, Deflate"), Ok(vec![Coding::Gzip, Coding::Deflate]));
        assert_eq!(Coding::parse(b"identity"), Ok(vec![]));
        assert_eq!((Coding::parse(b"br"), Coding::parse(b"x")), (Err(true), Err(false)));
    }
}
