//! Counters of what the forwarder does beside the fates of received frames, which the engine counts.

use engine::Counter;

/// Faces that a configuration may have.
pub const FACES_MAX: usize = 1024;

/// Counters of one worker's stages. Written by that worker alone, read by anybody.
#[derive(Debug)]
#[repr(align(128))]
pub struct NdnCounters {
    /// Interests that are pending now.
    pub pending: Counter,
    /// Interests whose time ended without Data.
    pub expired: Counter,
    /// Data in the content store now.
    pub stored: Counter,
    /// Bytes of them.
    pub stored_bytes: Counter,
    /// Interests that the store answered.
    pub store_hits: Counter,
    /// Interests that it could not answer.
    pub store_misses: Counter,
    /// Data that went to make room.
    pub store_evicted: Counter,
    /// Nacks sent.
    pub nacks: Counter,
    /// Copies of Data or Nacks for which no cell was free.
    pub copies_lost: Counter,
    faces: Box<[FaceCounters]>,
}

/// What passed a face.
#[derive(Debug, Default)]
pub struct FaceCounters {
    /// Interests that came in.
    pub in_interests: Counter,
    /// Data that came in.
    pub in_data: Counter,
    /// Interests that went out.
    pub out_interests: Counter,
    /// Data that went out.
    pub out_data: Counter,
}

impl NdnCounters {
    /// All zero, for as many faces as a configuration may have.
    pub fn new() -> Self {
        Self::with_faces(FACES_MAX)
    }

    /// All zero, for so many faces.
    pub fn with_faces(faces: usize) -> Self {
        let counter = Counter::default;
        Self {
            pending: counter(),
            expired: counter(),
            stored: counter(),
            stored_bytes: counter(),
            store_hits: counter(),
            store_misses: counter(),
            store_evicted: counter(),
            nacks: counter(),
            copies_lost: counter(),
            faces: (0..faces).map(|_| FaceCounters::default()).collect(),
        }
    }

    /// Those of a face; `None` beyond the last one.
    pub fn face(&self, index: u16) -> Option<&FaceCounters> {
        self.faces.get(usize::from(index))
    }
}

impl Default for NdnCounters {
    fn default() -> Self {
        Self::new()
    }
}
