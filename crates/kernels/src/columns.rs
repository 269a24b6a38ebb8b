//! The columns that kernels use, as declarations. A pipeline that runs a kernel declares columns of these
//! names and types among its own; self-tests and tests use the declarations as they are.

chunk::columns! {
    /// Columns of `lpm4` and `lpm6`.
    pub struct LpmColumns / LpmView {
        /// IPv4 destination, host order.
        pub dst4: u32,
        /// IPv6 destination, `[high, low]`.
        pub dst6: [u64; 2],
        /// Next hop's number, 0 for none.
        pub result: u32,
    }
}

chunk::columns! {
    /// Columns of `exact8` and `exact16`.
    pub struct ExactColumns / ExactView {
        /// A key of 8 bytes.
        pub key8: u64,
        /// A key of 16 bytes.
        pub key16: [u64; 2],
        /// Its value; all ones for a miss.
        pub value8: u64,
        /// The value of the other one.
        pub value16: u32,
    }
}

chunk::columns! {
    /// Columns of the kernels of `sort` and `select`.
    pub struct ScheduleColumns / ScheduleView {
        /// Bytes of the frame.
        pub payload_len: u32,
        /// Upper-layer protocol.
        pub protocol: u8,
    }
}

chunk::columns! {
    /// Columns of the kernels of `hash`.
    pub struct HashColumns / HashView {
        /// Source address; the key of `hash_words`.
        pub src: [u64; 2],
        /// Destination address.
        pub dst: [u64; 2],
        /// Ports, the source's in the upper half.
        pub ports: u32,
        /// Upper-layer protocol.
        pub protocol: u8,
        /// Names a member of each family.
        pub seed: u64,
        /// Where the frame starts in the payload, bytes.
        pub payload_at: u32,
        /// Bytes of it.
        pub payload_len: u32,
        /// Symmetric flow hash.
        pub flow: u32,
        /// Murmur3.
        pub murmur: u32,
        /// Multiply-shift.
        pub shift: u32,
        /// Polynomial modulo 2^61 - 1.
        pub prime: u64,
        /// Finaliser of Murmur3, 32 bits.
        pub fmix32: u32,
        /// Finaliser of Murmur3, 64 bits.
        pub fmix64: u64,
    }
}

chunk::columns! {
    /// Columns of the kernels of `payload`.
    pub struct PayloadColumns / PayloadView {
        /// Where the frame starts in the payload, bytes.
        pub payload_at: u32,
        /// Bytes of it.
        pub payload_len: u32,
        /// The low byte changes the packet's bytes.
        pub key: u32,
        /// Sum of the packet's bytes.
        pub sum: u32,
        /// The flow's place in the state.
        pub slot: u32,
    }
}

chunk::columns! {
    /// Columns of the kernel `names`.
    pub struct NameColumns / NameView {
        /// Where the name's components start in the payload, bytes.
        pub payload_at: u32,
        /// Bytes of them.
        pub payload_len: u32,
        /// Next hop, 0 for no route.
        pub result: u32,
    }
}

chunk::columns! {
    /// Columns of the kernels of `literals` and `dfa`.
    pub struct WalkColumns / WalkView {
        /// Where the bytes to walk over start in the payload.
        pub payload_at: u32,
        /// How many there are.
        pub payload_len: u32,
        /// The state before them.
        pub walk_from: u64,
        /// The state behind them.
        pub walk_to: u64,
    }
}

chunk::columns! {
    /// Columns of `linear4`, `tuple2`, `tuple4`, `rfc` and `tic`: headers of up to four words.
    pub struct Classify4Columns / Classify4View {
        /// The best rule: priority above id; all ones for none.
        pub found: u64,
        /// Words 0 to 3 of the header, lowest first.
        pub head0: [u64; 2],
    }
}

chunk::columns! {
    /// Columns of `linear12`, `tuple9` and `tuple10`: headers of up to twelve words.
    pub struct Classify12Columns / Classify12View {
        /// The best rule: priority above id; all ones for none.
        pub found: u64,
        /// Words 0 to 3 of the header, lowest first.
        pub head0: [u64; 2],
        /// Words 4 to 7 of the header, lowest first.
        pub head1: [u64; 2],
        /// Words 8 to 11 of the header, lowest first.
        pub head2: [u64; 2],
    }
}

chunk::columns! {
    /// Columns of `linear32`, `tuple16` and `tuple32`: headers of up to 32 words.
    pub struct Classify32Columns / Classify32View {
        /// The best rule: priority above id; all ones for none.
        pub found: u64,
        /// Words 0 to 3 of the header, lowest first.
        pub head0: [u64; 2],
        /// Words 4 to 7 of the header, lowest first.
        pub head1: [u64; 2],
        /// Words 8 to 11 of the header, lowest first.
        pub head2: [u64; 2],
        /// Words 12 to 15 of the header, lowest first.
        pub head3: [u64; 2],
        /// Words 16 to 19 of the header, lowest first.
        pub head4: [u64; 2],
        /// Words 20 to 23 of the header, lowest first.
        pub head5: [u64; 2],
        /// Words 24 to 27 of the header, lowest first.
        pub head6: [u64; 2],
        /// Words 28 to 31 of the header, lowest first.
        pub head7: [u64; 2],
    }
}

chunk::columns! {
    /// Columns of the kernels of `cipher` and `digest`.
    pub struct CipherColumns / CipherView {
        /// Initialisation vector or first counter block, a big-endian number, `[high, low]`; for GCM the 12 bytes of the
        /// nonce with 1 behind them.
        pub iv: [u64; 2],
        /// GCM's tag, bytes in the order of memory: written, or compared.
        pub tag: [u64; 2],
        /// Bytes 0 to 15 of a digest, in the order of memory.
        pub digest0: [u64; 2],
        /// Bytes 16 to 31.
        pub digest1: [u64; 2],
        /// Where the frame starts in the payload, bytes.
        pub payload_at: u32,
        /// Bytes of it.
        pub payload_len: u32,
        /// Bytes of the frame before the text.
        pub text_at: u32,
        /// Number of the key's record.
        pub key: u32,
        /// GCM: 1 if a text was sealed or is genuine, else 0.
        pub done: u32,
    }
}
