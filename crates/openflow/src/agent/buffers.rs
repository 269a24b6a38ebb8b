//! Packets that wait at the switch for their controller.

/// A ring of packets: the newest replaces the oldest. A number names a place and its use, so that a late answer does not
/// release another packet.
#[derive(Debug)]
pub(super) struct Buffers {
    slots: Vec<Option<Buffered>>,
    next: u32,
}

#[derive(Debug)]
pub(super) struct Buffered {
    id: u32,
    /// Port of entry.
    pub(super) in_port: u32,
    pub(super) data: Vec<u8>,
}

impl Buffers {
    pub(super) fn new(len: usize) -> Self {
        Self { slots: (0..len).map(|_| None).collect(), next: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Keeps a packet; `None` where there is no place at all.
    pub(super) fn keep(&mut self, in_port: u32, data: &[u8]) -> Option<u32> {
        let len = u32::try_from(self.slots.len()).ok().filter(|len| *len > 0)?;
        let id = self.next;
        // `u32::MAX` means no buffer.
        self.next = if self.next >= u32::MAX - len { 0 } else { self.next + 1 };
        let slot = &mut self.slots[(id % len) as usize];
        let mut bytes = slot.take().map(|old| old.data).unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(data);
        *slot = Some(Buffered { id, in_port, data: bytes });
        Some(id)
    }

    /// Releases a packet.
    pub(super) fn take(&mut self, id: u32) -> Option<Buffered> {
        let len = u32::try_from(self.slots.len()).ok().filter(|len| *len > 0)?;
        self.slots[(id % len) as usize].take_if(|buffered| buffered.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_numbers_release_nothing() {
        let mut buffers = Buffers::new(2);
        let first = buffers.keep(1, b"a").unwrap();
        let second = buffers.keep(2, b"b").unwrap();
        let third = buffers.keep(3, b"c").unwrap();
        assert!(buffers.take(first).is_none(), "replaced by the third");
        assert_eq!(buffers.take(second).unwrap().data, b"b");
        assert!(buffers.take(second).is_none(), "released already");
        let third = buffers.take(third).unwrap();
        assert_eq!((third.in_port, &third.data[..]), (3, &b"c"[..]));
        assert!(Buffers::new(0).keep(1, b"a").is_none());
    }

    #[test]
    fn numbers_start_again_before_the_one_that_means_none() {
        let mut buffers = Buffers::new(3);
        buffers.next = u32::MAX - 5;
        for _ in 0..20 {
            let id = buffers.keep(0, b"x").unwrap();
            assert!(id != u32::MAX && buffers.take(id).is_some());
        }
    }
}
