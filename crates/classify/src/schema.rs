//! Which fields a rule has, and where they are in a header.
//!
//! A header (GSwitch's *tuple*, §4) is the fields that are looked at, packed into words of 4 bytes, most
//! significant bit first, one field after the other:
//!
//! ```text
//! 5-tuple, IPv4    src │ dst │ sport, dport │ proto, –                     4 words  (128 bits)
//! 5-tuple, IPv6    src (4) │ dst (4) │ sport, dport │ proto, –            10 words
//! 12 fields        in_port │ eth_dst, eth_src (3) │ eth_type, vlan, pcp │
//!                  src │ dst │ proto, tos │ sport, dport                   9 words  (288 bits)
//! ```
//!
//! A field of up to 32 bits is in one word; a longer one goes on where the last field ended. The number of
//! words is rounded up to one of [`WIDTHS`], so that every lookup is compiled for its own number; the words
//! that are too many are zero.

use std::borrow::Cow;
use std::ops::Range;

/// Words that a header may have.
pub const WIDTHS: [usize; 6] = [2, 4, 9, 10, 16, 32];

/// The largest width.
pub const WORDS_MAX: usize = WIDTHS[WIDTHS.len() - 1];

/// How a rule says which values of a field it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A number of leading bits.
    Prefix,
    /// From a lowest to a highest value; of up to 32 bits.
    Range,
    /// Any bits; all of them is an exact match.
    Mask,
}

/// One field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name, for people.
    pub name: Cow<'static, str>,
    /// Its length, 1 to 128 bits.
    pub bits: u8,
    /// How rules match it.
    pub kind: Kind,
}

impl Field {
    /// A field.
    pub fn new(name: impl Into<Cow<'static, str>>, bits: u8, kind: Kind) -> Self {
        Self { name: name.into(), bits, kind }
    }

    /// The largest value.
    pub fn max(&self) -> u128 {
        ones(self.bits)
    }
}

/// `bits` ones.
pub(crate) fn ones(bits: u8) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// Why fields make no schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// No field at all.
    #[error("a schema has at least one field")]
    Empty,
    /// The length is none.
    #[error("the field {name} has {bits} bits, expected 1 to {max}")]
    Bits {
        /// The field.
        name: String,
        /// Its length.
        bits: u8,
        /// The most that its kind may have.
        max: u8,
    },
    /// Too many bits in all.
    #[error("the fields take {words} words, at most {WORDS_MAX}")]
    TooLong {
        /// Words that they take.
        words: usize,
    },
}

/// The fields of a header and their places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    fields: Vec<Field>,
    /// Bits of each, from the first bit of word 0.
    places: Vec<Range<usize>>,
    words: usize,
    /// Bits of each word that belong to fields which are not ranges.
    masked: Vec<u32>,
}

/// Where a field of up to 32 bits is: `header[word] >> shift & max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The word.
    pub word: usize,
    /// Bits behind it in the word.
    pub shift: u32,
    /// Its largest value.
    pub max: u32,
}

impl Schema {
    /// A schema of these fields, in this order.
    ///
    /// # Errors
    /// No field, a field of a length that cannot be, or more than [`WORDS_MAX`] words.
    pub fn new(fields: Vec<Field>) -> Result<Self, SchemaError> {
        if fields.is_empty() {
            return Err(SchemaError::Empty);
        }
        let mut places = Vec::with_capacity(fields.len());
        let mut end = 0;
        for field in &fields {
            let max = if field.kind == Kind::Range { 32 } else { 128 };
            if field.bits == 0 || field.bits > max {
                let name = field.name.to_string();
                return Err(SchemaError::Bits { name, bits: field.bits, max });
            }
            let bits = usize::from(field.bits);
            let fits = end % 32 + bits <= 32 || bits > 32;
            let start: usize = if fits { end } else { end.next_multiple_of(32) };
            end = start + bits;
            places.push(start..end);
        }
        let needed = end.div_ceil(32);
        let words = WIDTHS.into_iter().find(|width| *width >= needed);
        let words = words.ok_or(SchemaError::TooLong { words: needed })?;
        let mut schema = Self { fields, places, words, masked: Vec::new() };
        let mut masked = vec![0; words];
        for (at, field) in schema.fields.iter().enumerate() {
            if field.kind != Kind::Range {
                schema.set(&mut masked, at, field.max());
            }
        }
        schema.masked = masked;
        Ok(schema)
    }

    /// Source and destination address and port, and protocol, of IPv4: GSwitch's 128 bits.
    pub fn five_tuple() -> Self {
        Self::preset(five_fields(32))
    }

    /// The same of IPv6.
    pub fn five_tuple_v6() -> Self {
        Self::preset(five_fields(128))
    }

    /// The twelve fields of OpenFlow 1.0: GSwitch's 288 bits (§6).
    pub fn twelve_fields() -> Self {
        let mask = |name, bits| Field::new(name, bits, Kind::Mask);
        Self::preset(vec![
            mask("in_port", 32),
            mask("eth_dst", 48),
            mask("eth_src", 48),
            mask("eth_type", 16),
            mask("vlan", 12),
            mask("vlan_pcp", 3),
            Field::new("src", 32, Kind::Prefix),
            Field::new("dst", 32, Kind::Prefix),
            mask("proto", 8),
            mask("tos", 6),
            mask("sport", 16),
            mask("dport", 16),
        ])
    }

    fn preset(fields: Vec<Field>) -> Self {
        Self::new(fields).expect("the fields of a preset fit")
    }

    /// The fields.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Words of a header; one of [`WIDTHS`].
    pub fn words(&self) -> usize {
        self.words
    }

    /// Bits of each word of a header that belong to fields which are not ranges.
    pub fn masked_bits(&self) -> &[u32] {
        &self.masked
    }

    /// The value of a field of a header, or of any words that are laid out like one.
    pub fn get(&self, header: &[u32], field: usize) -> u128 {
        let place = &self.places[field];
        let words = &header[place.start / 32..place.end.div_ceil(32)];
        let value = words.iter().fold(0, |value, word| value << 32 | u128::from(*word));
        let spare = place.end.next_multiple_of(32) - place.end;
        if words.len() <= 4 {
            return value >> spare & ones(self.fields[field].bits);
        }
        // 128 bits over five words: the first one was shifted out.
        value >> spare | u128::from(words[0]) << (128 - spare)
    }

    /// Sets a field of a header; bits above its length are left out.
    pub fn set(&self, header: &mut [u32], field: usize, value: u128) {
        let place = &self.places[field];
        let mut rest = value & ones(self.fields[field].bits);
        let mut end = place.end;
        while end > place.start {
            let word = (end - 1) / 32;
            let begin = place.start.max(word * 32);
            let (bits, shift) = (end - begin, (word + 1) * 32 - end);
            let mask = (ones(bits as u8) as u32) << shift;
            header[word] = header[word] & !mask | ((rest as u32) << shift & mask);
            rest >>= bits;
            end = begin;
        }
    }

    /// A header of these values.
    ///
    /// # Panics
    /// When there is not one value for each field.
    pub fn header(&self, values: &[u128]) -> Vec<u32> {
        assert_eq!(values.len(), self.fields.len(), "one value for each field");
        let mut header = vec![0; self.words];
        values.iter().enumerate().for_each(|(field, value)| self.set(&mut header, field, *value));
        header
    }

    /// Where a field of up to 32 bits is; `None` for a longer one.
    pub fn place(&self, field: usize) -> Option<Place> {
        let bits = self.fields[field].bits;
        if bits > 32 || self.places[field].start / 32 != (self.places[field].end - 1) / 32 {
            return None;
        }
        let end = self.places[field].end;
        let shift = (end.next_multiple_of(32) - end) as u32;
        Some(Place { word: (end - 1) / 32, shift, max: ones(bits) as u32 })
    }

    /// The places of the range fields.
    pub fn ranges(&self) -> impl Iterator<Item = Place> {
        let ranges = self.fields.iter().enumerate().filter(|(_, f)| f.kind == Kind::Range);
        ranges.filter_map(|(field, _)| self.place(field))
    }
}

fn five_fields(address_bits: u8) -> Vec<Field> {
    vec![
        Field::new("src", address_bits, Kind::Prefix),
        Field::new("dst", address_bits, Kind::Prefix),
        Field::new("sport", 16, Kind::Range),
        Field::new("dport", 16, Kind::Range),
        Field::new("proto", 8, Kind::Mask),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_the_words_of_the_paper() {
        assert_eq!(Schema::five_tuple().words(), 4);
        assert_eq!(Schema::twelve_fields().words(), 9);
        assert_eq!(Schema::five_tuple_v6().words(), 10);
        let schema = Schema::five_tuple();
        assert_eq!(schema.header(&[0x0a00_0001, 2, 3, 4, 6]), [0x0a00_0001, 2, 0x3_0004, 6 << 24]);
        assert_eq!(schema.masked_bits(), [u32::MAX, u32::MAX, 0, 0xff00_0000]);
    }

    #[test]
    fn fields_are_read_back_and_stand_apart() {
        // 128 bits over five words, and short fields that must not straddle.
        let odd = [3, 128, 30, 7, 48, 1, 33, 64].map(|bits| Field::new("x", bits, Kind::Mask));
        let odd = Schema::new(odd.to_vec()).unwrap();
        for schema in [odd, Schema::five_tuple_v6(), Schema::twelve_fields()] {
            for at in 0..schema.fields().len() {
                let max = schema.fields()[at].max();
                let pattern = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210 & max;
                for value in [max, pattern, 1, 0] {
                    let mut header = vec![0; schema.words()];
                    schema.set(&mut header, at, value);
                    assert_eq!(schema.get(&header, at), value);
                    let others = (0..schema.fields().len()).filter(|other| *other != at);
                    others.for_each(|other| assert_eq!(schema.get(&header, other), 0));
                    let mut full = vec![u32::MAX; schema.words()];
                    schema.set(&mut full, at, 0);
                    schema.set(&mut full, at, value);
                    assert_eq!(schema.get(&full, at), value);
                    if let Some(place) = schema.place(at) {
                        assert_eq!(
                            u128::from(header[place.word] >> place.shift & place.max),
                            value
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn refuses_what_cannot_be() {
        let field = |bits, kind| vec![Field::new("f", bits, kind)];
        assert_eq!(Schema::new(vec![]), Err(SchemaError::Empty));
        assert!(matches!(Schema::new(field(0, Kind::Mask)), Err(SchemaError::Bits { .. })));
        assert!(matches!(
            Schema::new(field(33, Kind::Range)),
            Err(SchemaError::Bits { max: 32, .. })
        ));
        assert!(matches!(Schema::new(field(129, Kind::Mask)), Err(SchemaError::Bits { .. })));
        let many = vec![Field::new("f", 128, Kind::Mask); 9];
        assert_eq!(Schema::new(many), Err(SchemaError::TooLong { words: 36 }));
    }
}
