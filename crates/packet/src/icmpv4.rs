//! ICMP (RFC 792).

/// Codes of type 3, destination unreachable.
pub mod unreachable {
    /// No route.
    pub const NET: u8 = 0;
    /// No answer from the neighbour.
    pub const HOST: u8 = 1;
    /// Protocol unknown at the destination.
    pub const PROTOCOL: u8 = 2;
    /// Port closed at the destination.
    pub const PORT: u8 = 3;
    /// Fragmentation needed and DF set.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Source route failed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Prohibited by the operator (RFC 1812 §5.2.7.1).
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
}
