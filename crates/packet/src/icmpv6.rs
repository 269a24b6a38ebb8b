//! ICMPv6 (RFC 4443).

/// Codes of type 1, destination unreachable.
pub mod unreachable {
    /// No route.
    pub const NO_ROUTE: u8 = 0;
    /// Prohibited by the operator.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// No answer from the neighbour, and other reasons.
    pub const ADDRESS: u8 = 3;
    /// Port closed at the destination.
    pub const PORT: u8 = 4;
    /// Source address failed the ingress policy.
    pub const SOURCE_POLICY: u8 = 5;
    /// Route to the destination rejects.
    pub const REJECT_ROUTE: u8 = 6;
}
