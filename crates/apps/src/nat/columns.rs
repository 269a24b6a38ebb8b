//! Columns of address translation.

use super::source::Wanted;

chunk::columns! {
    /// What the stage that translates destinations writes where no later stage reads headers.
    pub(super) struct DestinationColumns / DestinationView {
        pub flags: u16,
        pub l3: u8,
        pub interface: u16,
        pub flow_hash: u32,
        pub dst4: u32,
        pub src4: u32,
        pub dst6: [u64; 2],
        pub src6: [u64; 2],
        pub nat: u64,
    }
}

chunk::columns! {
    /// The same with what a firewall reads.
    pub(super) struct HeadersColumns / HeadersView {
        pub flags: u16,
        pub l3: u8,
        pub interface: u16,
        pub flow_hash: u32,
        pub dst4: u32,
        pub src4: u32,
        pub dst6: [u64; 2],
        pub src6: [u64; 2],
        pub nat: u64,
        pub filter_family: u8,
        pub filter_head0: [u64; 2],
        pub filter_head1: [u64; 2],
        pub filter_head2: [u64; 2],
        pub filter_l3: u8,
    }
}

chunk::columns! {
    /// What the stage that translates sources reads.
    pub(super) struct SourceColumns / SourceView {
        pub flags: u16,
        pub l3: u8,
        pub interface: u16,
        pub dst4: u32,
        pub decision: u32,
        /// [`Wanted`].
        pub nat: u64,
    }
}

/// The kind of [`Wanted::Written`].
const WRITTEN: u64 = 6;

/// The kind of [`Wanted::Source6`].
const SOURCE6: u64 = 7;

/// The kinds from this one on are of IPv6 packets that become IPv4.
const TURN: u64 = 8;

/// ```text
///  63  60 59    48 47          16 15     0
/// ┌──────┬────────┬──────────────┬────────┐
/// │ kind │  rule  │ IPv4 address │  port  │    kind 0: nothing
/// └──────┴────────┴──────────────┴────────┘
/// ```
impl Wanted {
    pub(super) const RULES_MAX: usize = 1 << 12;

    pub(super) const fn encode(self) -> u64 {
        let (kind, rule, (address, port)) = match self {
            Wanted::Nothing => (0, 0, (0, 0)),
            Wanted::New => (1, 0, (0, 0)),
            Wanted::NewTo(rule, end) => (2, rule, end),
            Wanted::Source(end) => (3, 0, end),
            Wanted::Control(None) => (4, 0, (0, 0)),
            Wanted::Control(Some(end)) => (5, 0, end),
            Wanted::Written(end) => (WRITTEN, 0, end),
            Wanted::Turn(end) => (TURN, 0, end),
            Wanted::Source6(rule, end) => (SOURCE6, rule, end),
            Wanted::TurnNew(rule) => (9, rule, (0, 0)),
            Wanted::TurnError => (10, 0, (0, 0)),
        };
        kind << 60 | (rule as u64 & 0xfff) << 48 | (address as u64) << 16 | port as u64
    }

    /// Whether a value is [`Wanted::Written`].
    #[inline(always)]
    pub(super) const fn is_written(value: u64) -> bool {
        value >> 60 == WRITTEN
    }

    /// Whether a value is of an IPv6 packet that becomes IPv4.
    #[inline(always)]
    pub(super) const fn is_turn(value: u64) -> bool {
        value >> 60 >= TURN
    }

    pub(super) const fn decode(value: u64) -> Self {
        let end = ((value >> 16) as u32, value as u16);
        match value >> 60 {
            1 => Wanted::New,
            2 => Wanted::NewTo((value >> 48) as u16 & 0xfff, end),
            3 => Wanted::Source(end),
            4 => Wanted::Control(None),
            5 => Wanted::Control(Some(end)),
            WRITTEN => Wanted::Written(end),
            TURN => Wanted::Turn(end),
            SOURCE6 => Wanted::Source6((value >> 48) as u16 & 0xfff, end),
            9 => Wanted::TurnNew((value >> 48) as u16 & 0xfff),
            10 => Wanted::TurnError,
            _ => Wanted::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_survives_its_column() {
        let ends = [(0, 0), (u32::MAX, u16::MAX), (0xc000_0201, 80)];
        for end in ends {
            for wanted in [
                Wanted::Nothing,
                Wanted::New,
                Wanted::NewTo(4095, end),
                Wanted::Source(end),
                Wanted::Source6(4095, end),
                Wanted::Control(None),
                Wanted::Control(Some(end)),
                Wanted::Written(end),
                Wanted::Turn(end),
                Wanted::TurnNew(4095),
                Wanted::TurnError,
            ] {
                assert_eq!(Wanted::decode(wanted.encode()), wanted);
                let is_turn =
                    matches!(wanted, Wanted::Turn(_) | Wanted::TurnNew(_) | Wanted::TurnError);
                assert_eq!(Wanted::is_turn(wanted.encode()), is_turn);
                let is_written = matches!(wanted, Wanted::Written(_));
                assert_eq!(Wanted::is_written(wanted.encode()), is_written);
            }
        }
    }
}
