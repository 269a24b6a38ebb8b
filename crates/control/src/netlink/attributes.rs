//! Writing and reading plain attributes, for the families that have no decoder
//! crate here (nfnetlink, generic netlink, next-hop objects).

use netlink_packet_core::{NLA_ALIGNTO, NLA_F_NESTED, NLA_HEADER_SIZE, NlaBuffer, NlasIterator};

/// A growing list of attributes: length, type, value, padding to four bytes.
#[derive(Debug, Default, Clone)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one attribute. The value is at most 65,531 bytes, the format's limit;
    /// a longer one is a mistake of the caller and panics.
    pub fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = u16::try_from(NLA_HEADER_SIZE + value.len()).expect("attribute under 64 KiB");
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(NLA_ALIGNTO), 0);
        self
    }

    /// Appends a string with its closing zero.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes)
    }

    /// Appends a 32-bit number in the machine's byte order.
    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Appends a 32-bit number in network byte order (all of nfnetlink).
    pub fn be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Appends a nest that `fill` writes.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes)) -> &mut Self {
        let mut inner = Attributes::new();
        fill(&mut inner);
        self.put(kind | NLA_F_NESTED, &inner.0)
    }

    /// The encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The attributes of `bytes` as (type without flag bits, value); reading stops at the first
/// attribute whose length lies.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(Result::ok).map(|mut attribute: NlaBuffer<&[u8]>| {
        let length = attribute.length() as usize;
        let whole: &[u8] = attribute.inner();
        (attribute.kind(), &whole[NLA_HEADER_SIZE..length])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_attributes_read_back() {
        let mut list = Attributes::new();
        list.u32(1, 7).text(2, "abc").nest(3, |nest| {
            nest.be32(4, 9);
        });
        let read: Vec<_> = attributes(list.as_bytes()).collect();
        assert_eq!(read.len(), 3);
        assert_eq!(read[0], (1, &7u32.to_ne_bytes()[..]));
        assert_eq!(read[1], (2, &b"abc\0"[..]));
        assert_eq!(attributes(read[2].1).collect::<Vec<_>>(), [(4, &9u32.to_be_bytes()[..])]);
    }

    #[test]
    fn a_lying_length_ends_the_list() {
        let mut list = Attributes::new();
        list.u32(1, 7);
        let mut bytes = list.as_bytes().to_vec();
        bytes.extend_from_slice(&[200, 0, 1, 0]);
        assert_eq!(attributes(&bytes).count(), 1);
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0);
    }
}
