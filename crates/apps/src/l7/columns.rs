//! The column of the stage `l7`.

chunk::columns! {
    /// What the stage `l7` says of a packet.
    pub struct L7Columns / L7View {
        /// The application of the packet's flow, as far as it is known with this packet: its
        /// [number](super::label::number). 0 for none.
        pub l7_application: u32,
    }
}
