//! HPACK (RFC 7541): the fields of a header block, by a table that both ends of a direction keep.
//!
//! ```text
//!  1iiiiiii          field i of the tables            0000iiii, 0001iiii   the name of field i, or 0 and a name; a value
//!  01iiiiii          the same with a value, and the field is added to the table
//!  001sssss          the table holds s bytes from now on
//! ```
//!
//! Fields share the bytes of the table. So a block of a few bytes that names a large field again and again costs few bytes of memory.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use super::huffman;

/// Bytes of a table at the beginning (RFC 9113 §6.5.2), and at most. An encoder that takes more is not followed.
const TABLE_BYTES: usize = 4096;
const TABLE_BYTES_MAX: usize = 64 << 10;

/// What a field of the table costs beside its bytes (RFC 7541 §4.1).
const ENTRY_BYTES: usize = 32;

/// A name or a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Text {
    Static(&'static [u8]),
    Shared(Arc<[u8]>),
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// A name with its value.
pub(super) type Field = (Text, Text);

/// The fields of a block.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) all: Vec<Field>,
    /// There were more than the bounds allow.
    pub(super) is_cut: bool,
}

/// The block cannot be read, and the table is unknown from there on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// The dynamic table of one direction.
#[derive(Debug)]
pub(super) struct Table {
    /// The latest comes first.
    fields: VecDeque<Field>,
    bytes: usize,
    bytes_max: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self { fields: VecDeque::new(), bytes: 0, bytes_max: TABLE_BYTES }
    }
}

impl Table {
    /// Bytes of memory that it holds.
    pub(super) fn held(&self) -> usize {
        self.bytes + self.fields.capacity() * size_of::<Field>()
    }

    /// Reads a block. Of its fields it keeps as many as `fields_max`, of `bytes_max` bytes.
    ///
    /// # Errors
    /// The block is broken.
    pub(super) fn read(
        &mut self,
        mut block: &[u8],
        fields_max: usize,
        bytes_max: usize,
    ) -> Result<Fields, Broken> {
        let (mut out, mut left) = (Fields::default(), bytes_max);
        while let Some(first) = block.first().copied() {
            let field = match first {
                0x80.. => self.get(integer(&mut block, 7)?)?,
                0x40.. => {
                    let field = self.literal(&mut block, 6)?;
                    self.add(field.clone());
                    field
                }
                0x20.. => {
                    let bytes = integer(&mut block, 5)?;
                    if bytes > TABLE_BYTES_MAX {
                        return Err(Broken);
                    }
                    self.bytes_max = bytes;
                    self.evict(0);
                    continue;
                }
                _ => self.literal(&mut block, 4)?,
            };
            let bytes = field.0.len() + field.1.len();
            if out.all.len() < fields_max && bytes <= left {
                left -= bytes;
                out.all.push(field);
            } else {
                out.is_cut = true;
            }
        }
        Ok(out)
    }

    /// A field by its index, from 1 on (RFC 7541 §2.3.3).
    fn get(&self, index: usize) -> Result<Field, Broken> {
        let index = index.checked_sub(1).ok_or(Broken)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Ok((Text::Static(name.as_bytes()), Text::Static(value.as_bytes())));
        }
        self.fields.get(index - STATIC.len()).cloned().ok_or(Broken)
    }

    /// A field with its value, and its name or the index of that.
    fn literal(&self, block: &mut &[u8], bits: u32) -> Result<Field, Broken> {
        let name = match integer(block, bits)? {
            0 => string(block)?,
            index => self.get(index)?.0,
        };
        Ok((name, string(block)?))
    }

    fn add(&mut self, field: Field) {
        let bytes = field.0.len() + field.1.len() + ENTRY_BYTES;
        self.evict(bytes);
        if bytes <= self.bytes_max {
            self.bytes += bytes;
            self.fields.push_front(field);
        }
    }

    /// Makes room for so many bytes, as far as there is.
    fn evict(&mut self, bytes: usize) {
        while self.bytes + bytes > self.bytes_max
            && let Some((name, value)) = self.fields.pop_back()
        {
            self.bytes -= name.len() + value.len() + ENTRY_BYTES;
        }
    }
}

/// A number whose first `bits` bits are the lowest of the first byte (RFC 7541 §5.1).
fn integer(block: &mut &[u8], bits: u32) -> Result<usize, Broken> {
    let (first, mut rest) = block.split_first().ok_or(Broken)?;
    let mask = (1_usize << bits) - 1;
    let mut value = usize::from(*first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (byte, behind) = rest.split_first().ok_or(Broken)?;
            rest = behind;
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            // 2^28 is more than any number that is valid here.
            if shift >= 28 {
                return Err(Broken);
            }
        }
    }
    *block = rest;
    Ok(value)
}

/// A string, as it is or in Huffman's code (RFC 7541 §5.2).
fn string(block: &mut &[u8]) -> Result<Text, Broken> {
    let is_coded = block.first().is_some_and(|byte| byte & 0x80 != 0);
    let len = integer(block, 7)?;
    let (bytes, rest) = block.split_at_checked(len).ok_or(Broken)?;
    *block = rest;
    let bytes = if is_coded { huffman::decode(bytes).ok_or(Broken)?.into() } else { bytes.into() };
    Ok(Text::Shared(bytes))
}

/// The static table (RFC 7541 Appendix A).
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        digits.chunks(2).map(|pair| byte(pair).unwrap()).collect()
    }

    fn read(table: &mut Table, hex: &str) -> String {
        let fields = table.read(&bytes(hex), 100, 1000).unwrap();
        assert!(!fields.is_cut);
        let text = |own: &Text| String::from_utf8(own.to_vec()).unwrap();
        let lines = fields.all.iter().map(|(name, value)| [text(name), text(value)].join(": "));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// RFC 7541 §C.4: requests in Huffman's code, one behind the other.
    #[test]
    fn requests_of_the_rfc() {
        let mut table = Table::default();
        let first = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com";
        assert_eq!(read(&mut table, "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff"), first);
        assert_eq!(table.bytes, 57);
        let second = format!("{first}\ncache-control: no-cache");
        assert_eq!(read(&mut table, "8286 84be 5886 a8eb 1064 9cbf"), second);
        assert_eq!(table.bytes, 110);
        assert_eq!(
            read(&mut table, "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf"),
            ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n\
             custom-key: custom-value"
        );
        assert_eq!(table.bytes, 164);
    }

    /// RFC 7541 §C.5: responses with a table of 256 bytes, of which fields are evicted.
    #[test]
    fn responses_of_the_rfc() {
        let mut table = Table::default();
        table.read(&[0x3f, 0xe1, 0x01], 1, 1).unwrap();
        assert_eq!(table.bytes_max, 256);
        let rest = "cache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
                    location: https://www.example.com";
        let first = "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a \
                     3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d";
        assert_eq!(read(&mut table, first), format!(":status: 302\n{rest}"));
        assert_eq!((table.bytes, table.fields.len()), (222, 4));
        assert_eq!(read(&mut table, "4803 3330 37c1 c0bf"), format!(":status: 307\n{rest}"));
        assert_eq!((table.bytes, table.fields.len()), (222, 4));
    }

    #[test]
    fn broken_blocks() {
        for hex in ["80", "be", "ff ff ff ff ff 01", "3f ff ff 07", "40 05 61", "00 81 00", "7f"] {
            assert_eq!(Table::default().read(&bytes(hex), 9, 99).unwrap_err(), Broken, "{hex}");
        }
    }

    /// A field of 4,000 bytes, named 10,000 times: the bounds hold, and the memory is that of the field.
    #[test]
    fn fields_that_are_named_again() {
        let mut block = bytes("40 01 61 7f a1 1e");
        block.extend([b'x'; 4000]);
        block.extend([0xbe; 10_000]);
        let mut table = Table::default();
        let fields = table.read(&block, 20_000, 1 << 16).unwrap();
        assert!(fields.is_cut);
        assert_eq!(fields.all.len(), (1 << 16) / 4001);
        assert!(fields.all.iter().all(|(_, value)| value.as_ptr() == table.fields[0].1.as_ptr()));
        assert_eq!(table.bytes, 4033);
    }
}
