//! The fixed structures of `linux/xfrm.h`, on a 64-bit machine.

use crate::wire::{Address, Port, Reader, Spi, Wire, wire_struct};

/// Values of the structures' fields (`linux/xfrm.h`, `linux/in.h`).
pub mod value {
    #![allow(missing_docs, reason = "the kernel's own names")]
    pub const IPPROTO_ESP: u8 = 50;
    pub const IPPROTO_AH: u8 = 51;
    pub const IPPROTO_COMP: u8 = 108;
    pub const IPSEC_PROTO_ANY: u8 = 255;

    pub const XFRM_MODE_TRANSPORT: u8 = 0;
    pub const XFRM_MODE_TUNNEL: u8 = 1;
    pub const XFRM_MODE_BEET: u8 = 4;

    pub const XFRM_POLICY_IN: u8 = 0;
    pub const XFRM_POLICY_OUT: u8 = 1;
    pub const XFRM_POLICY_FWD: u8 = 2;

    pub const XFRM_POLICY_ALLOW: u8 = 0;
    pub const XFRM_POLICY_BLOCK: u8 = 1;

    pub const XFRM_POLICY_TYPE_MAIN: u8 = 0;
    pub const XFRM_POLICY_TYPE_SUB: u8 = 1;
    pub const XFRM_POLICY_TYPE_ANY: u8 = 255;

    pub const XFRM_POLICY_ICMP: u8 = 2;

    pub const XFRM_STATE_NOECN: u8 = 1;
    pub const XFRM_STATE_DECAP_DSCP: u8 = 2;
    pub const XFRM_STATE_NOPMTUDISC: u8 = 4;
    pub const XFRM_STATE_AF_UNSPEC: u8 = 32;
    pub const XFRM_STATE_ESN: u8 = 128;

    pub const XFRM_SA_XFLAG_DONT_ENCAP_DSCP: u32 = 1;
    pub const XFRM_SA_XFLAG_OSEQ_MAY_WRAP: u32 = 2;

    pub const XFRM_SA_DIR_IN: u8 = 1;
    pub const XFRM_SA_DIR_OUT: u8 = 2;

    pub const UDP_ENCAP_ESPINUDP: u16 = 2;

    pub const XFRM_AE_RVAL: u32 = 2;
    pub const XFRM_AE_LVAL: u32 = 4;
    pub const XFRM_AE_CU: u32 = 64;

    /// `XFRM_INF`: no limit.
    pub const XFRM_INF: u64 = u64::MAX;
    /// `XFRMA_REPLAY_ESN_MAX`, packets.
    pub const REPLAY_WINDOW_MAX: u32 = 4096;
}

wire_struct! {
    /// `xfrm_id`: what names an association within its family.
    Id, 24 {
        /// Address of the end that receives.
        daddr: Address;
        /// The index.
        spi: Spi;
        /// `IPPROTO_ESP`, `IPPROTO_AH`, `IPPROTO_COMP`; 0 for any in templates.
        proto: u8, pad 3;
    }

    /// `xfrm_selector`: which packets.
    Selector, 56 {
        /// Destination.
        daddr: Address;
        /// Source.
        saddr: Address;
        /// Destination port; type and code of ICMP are in the source and the destination port.
        dport: Port;
        /// Bits of it that count.
        dport_mask: Port;
        /// Source port.
        sport: Port;
        /// Bits of it that count.
        sport_mask: Port;
        /// `AF_INET` or `AF_INET6`; 0 for both.
        family: u16;
        /// Bits of the destination that count.
        prefixlen_d: u8;
        /// Bits of the source that count.
        prefixlen_s: u8;
        /// IP protocol; 0 for any.
        proto: u8, pad 3;
        /// Interface; 0 for any.
        ifindex: i32;
        /// User; not used.
        user: u32;
    }

    /// `xfrm_lifetime_cfg`: limits, `XFRM_INF` for none.
    LifetimeLimits, 64 {
        /// Bytes until a warning.
        soft_byte_limit: u64;
        /// Bytes until the end.
        hard_byte_limit: u64;
        /// Packets until a warning.
        soft_packet_limit: u64;
        /// Packets until the end.
        hard_packet_limit: u64;
        /// Seconds from the creation to a warning; 0 for never.
        soft_add_expires_seconds: u64;
        /// Seconds from the creation to the end; 0 for never.
        hard_add_expires_seconds: u64;
        /// Seconds from the first use to a warning; 0 for never.
        soft_use_expires_seconds: u64;
        /// Seconds from the first use to the end; 0 for never.
        hard_use_expires_seconds: u64;
    }

    /// `xfrm_lifetime_cur`: what was used.
    LifetimeCurrent, 32 {
        /// Bytes of packets.
        bytes: u64;
        /// Packets.
        packets: u64;
        /// Time of creation, seconds since 1970.
        add_time: u64;
        /// Time of the first use, for policies of the last use; 0 for never.
        use_time: u64;
    }

    /// `xfrm_stats`: refused packets.
    Stats, 12 {
        /// Outside of the replay window.
        replay_window: u32;
        /// Replays.
        replay: u32;
        /// Forged.
        integrity_failed: u32;
    }

    /// `xfrm_usersa_info`: an association.
    SaInfo, 224 {
        /// What it may carry; family 0 for anything.
        sel: Selector;
        /// What names it.
        id: Id;
        /// Address of the end that sends.
        saddr: Address;
        /// Limits.
        lft: LifetimeLimits;
        /// What was used.
        curlft: LifetimeCurrent;
        /// Refused packets.
        stats: Stats;
        /// Number of the acquisition that it answers.
        seq: u32;
        /// Links it to the templates of policies; 0 for none.
        reqid: u32;
        /// Family of `id.daddr` and `saddr`.
        family: u16;
        /// `XFRM_MODE_…`.
        mode: u8;
        /// Replay window in packets; 32 at most, larger ones are in an attribute.
        replay_window: u8;
        /// `XFRM_STATE_…`.
        flags: u8, pad 7;
    }

    /// `xfrm_usersa_id`: which association.
    SaId, 24 {
        /// Address of the end that receives.
        daddr: Address;
        /// The index.
        spi: Spi;
        /// Family of the address.
        family: u16;
        /// `IPPROTO_…`.
        proto: u8, pad 1;
    }

    /// `xfrm_userspi_info`: a request for an index of a range.
    SpiInfo, 232 {
        /// The association to be.
        info: SaInfo;
        /// Lowest index.
        min: u32;
        /// Highest index.
        max: u32;
    }

    /// `xfrm_aevent_id`: which association's counters.
    EventId, 48 {
        /// Which association.
        sa_id: SaId;
        /// Address of the end that sends.
        saddr: Address;
        /// `XFRM_AE_…`.
        flags: u32;
        /// As in [`SaInfo`].
        reqid: u32;
    }

    /// `xfrm_userpolicy_info`: a policy.
    PolicyInfo, 168 {
        /// Which packets.
        sel: Selector;
        /// Limits.
        lft: LifetimeLimits;
        /// What was used.
        curlft: LifetimeCurrent;
        /// Lower ones are looked at first.
        priority: u32;
        /// The kernel's number of it; the direction is in the lowest three bits.
        index: u32;
        /// `XFRM_POLICY_IN`, `XFRM_POLICY_OUT`, `XFRM_POLICY_FWD`.
        dir: u8;
        /// `XFRM_POLICY_ALLOW`, `XFRM_POLICY_BLOCK`.
        action: u8;
        /// `XFRM_POLICY_LOCALOK`, `XFRM_POLICY_ICMP`.
        flags: u8;
        /// `XFRM_SHARE_…`; not used.
        share: u8, pad 4;
    }

    /// `xfrm_userpolicy_id`: which policy, by index or, if that is 0, by selector.
    PolicyId, 64 {
        /// Which packets.
        sel: Selector;
        /// The kernel's number of it.
        index: u32;
        /// As in [`PolicyInfo`].
        dir: u8, pad 3;
    }

    /// `xfrm_user_tmpl`: an association that a policy requires.
    Template, 64 {
        /// Address of the other end in tunnel mode; index and protocol.
        id: Id;
        /// Family of the addresses.
        family: u16, pad 2;
        /// Address of this end in tunnel mode.
        saddr: Address;
        /// As in [`SaInfo`].
        reqid: u32;
        /// `XFRM_MODE_…`.
        mode: u8;
        /// `XFRM_SHARE_…`; not used.
        share: u8;
        /// Packets may pass without.
        optional: u8, pad 1;
        /// Algorithms of authentication that are allowed, as bits of PF_KEY's numbers.
        aalgos: u32;
        /// Those of encryption.
        ealgos: u32;
        /// Those of compression.
        calgos: u32;
    }

    /// `xfrm_user_acquire`: an association is needed.
    Acquire, 280 {
        /// What it would be named.
        id: Id;
        /// Address of this end.
        saddr: Address;
        /// The packet.
        sel: Selector;
        /// The policy that requires it.
        policy: PolicyInfo;
        /// As in [`Template`].
        aalgos: u32;
        /// As in [`Template`].
        ealgos: u32;
        /// As in [`Template`].
        calgos: u32;
        /// Number of the acquisition.
        seq: u32;
    }

    /// `xfrm_user_expire`: an association has reached a limit.
    Expire, 232 {
        /// The association.
        state: SaInfo;
        /// Not 0: it is gone.
        hard: u8, pad 7;
    }

    /// `xfrm_user_polexpire`: a policy has reached a limit.
    PolicyExpire, 176 {
        /// The policy.
        pol: PolicyInfo;
        /// Not 0: it is gone.
        hard: u8, pad 7;
    }

    /// `xfrm_usersa_flush`: all associations of a protocol.
    Flush, 1 {
        /// `IPPROTO_…`; 0 and `IPSEC_PROTO_ANY` for all.
        proto: u8;
    }

    /// `xfrm_user_report`: a packet was refused.
    Report, 60 {
        /// Protocol.
        proto: u8, pad 3;
        /// The packet.
        sel: Selector;
    }

    /// `xfrm_user_mapping`: address or port of the sender of UDP-encapsulated packets has changed.
    Mapping, 64 {
        /// Which association.
        id: SaId;
        /// As in [`SaInfo`].
        reqid: u32;
        /// Address before.
        old_saddr: Address;
        /// Address from now on.
        new_saddr: Address;
        /// Port before.
        old_sport: Port;
        /// Port from now on.
        new_sport: Port;
    }

    /// `xfrm_userpolicy_default`: what happens to packets without a policy: `XFRM_USERPOLICY_BLOCK` (1),
    /// `XFRM_USERPOLICY_ACCEPT` (2).
    PolicyDefault, 3 {
        /// To packets for this host.
        input: u8;
        /// To forwarded ones.
        forward: u8;
        /// To packets of this host.
        output: u8;
    }

    /// `xfrm_encap_tmpl`: encapsulation in UDP.
    Encapsulation, 24 {
        /// `UDP_ENCAP_…`.
        encap_type: u16;
        /// Port of the end that sends.
        encap_sport: Port;
        /// Port of the end that receives.
        encap_dport: Port, pad 2;
        /// Address before translation, for checksums in transport mode.
        encap_oa: Address;
    }

    /// `xfrm_userpolicy_type`.
    PolicyType, 6 {
        /// `XFRM_POLICY_TYPE_…`.
        value: u8, pad 1;
        /// Not used.
        reserved1: u16;
        /// Not used.
        reserved2: u8, pad 1;
    }

    /// `xfrm_mark`: a packet counts if its mark and the mask give the value.
    Mark, 8 {
        /// The value.
        v: u32;
        /// The mask.
        m: u32;
    }

    /// `xfrm_replay_state`: windows of up to 32 packets.
    ReplayState, 12 {
        /// Last sequence number sent.
        oseq: u32;
        /// Highest sequence number received.
        seq: u32;
        /// Which of it and the 31 before were received, from the lowest bit.
        bitmap: u32;
    }

    /// `xfrm_user_migrate`: associations get new addresses.
    Migration, 76 {
        /// Address of the end that receives, before.
        old_daddr: Address;
        /// Address of the end that sends, before.
        old_saddr: Address;
        /// Address of the end that receives, from now on.
        new_daddr: Address;
        /// Address of the end that sends, from now on.
        new_saddr: Address;
        /// `IPPROTO_…`.
        proto: u8;
        /// `XFRM_MODE_…`.
        mode: u8;
        /// Not used.
        reserved: u16;
        /// As in [`SaInfo`].
        reqid: u32;
        /// Family before.
        old_family: u16;
        /// Family from now on.
        new_family: u16;
    }

    /// `xfrm_user_kmaddress`: where the key management is.
    KeyManagement, 40 {
        /// This end.
        local: Address;
        /// The other end.
        remote: Address;
        /// Not used.
        reserved: u32;
        /// Family of both.
        family: u16, pad 2;
    }

    /// `xfrm_address_filter`: which associations a dump shows.
    AddressFilter, 36 {
        /// Source.
        saddr: Address;
        /// Destination.
        daddr: Address;
        /// Family of both.
        family: u16;
        /// Bits of the source that count.
        splen: u8;
        /// Bits of the destination that count.
        dplen: u8;
    }

    /// `xfrm_user_offload`: the network card encrypts.
    Offload, 8 {
        /// Its interface.
        ifindex: i32;
        /// `XFRM_OFFLOAD_…`.
        flags: u8, pad 3;
    }

    /// `xfrmu_sadhinfo`: size of the hash table of associations.
    SadHash, 8 {
        /// Buckets.
        buckets: u32;
        /// Most buckets.
        buckets_max: u32;
    }

    /// `xfrmu_spdinfo`: how many policies there are.
    SpdCounts, 24 {
        /// Inbound.
        input: u32;
        /// Outbound.
        output: u32;
        /// Forwarded.
        forward: u32;
        /// Inbound, of sockets.
        input_sockets: u32;
        /// Outbound, of sockets.
        output_sockets: u32;
        /// Forwarded, of sockets.
        forward_sockets: u32;
    }

    /// `xfrmu_spdhinfo`: size of the hash table of policies.
    SpdHash, 8 {
        /// Buckets.
        buckets: u32;
        /// Most buckets.
        buckets_max: u32;
    }

    /// `xfrmu_spdhthresh`: policies with prefixes at least this long are found by hash.
    SpdThreshold, 2 {
        /// Bits of the local prefix.
        local: u8;
        /// Bits of the remote prefix.
        remote: u8;
    }
}

/// `xfrm_replay_state_esn`: windows of up to 4,096 packets, and extended sequence numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ReplayEsn {
    /// Last sequence number sent, its lower half.
    pub oseq: u32,
    /// Highest sequence number received, its lower half.
    pub seq: u32,
    /// Upper half of `oseq`.
    pub oseq_hi: u32,
    /// Upper half of `seq`.
    pub seq_hi: u32,
    /// Packets that the window holds.
    pub replay_window: u32,
    /// Words of the bitmap.
    pub words: u32,
    /// The window as a ring of bits: bit `(number - 1) mod 32n` of the whole, in n words, is set if the number was received.
    /// Requests may leave it out: then no bit is set.
    pub bitmap: Vec<u32>,
}

impl ReplayEsn {
    pub(crate) const HEAD: usize = 24;

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < Self::HEAD {
            return None;
        }
        let mut from = Reader(bytes);
        let words = u32::read(&mut from);
        let bitmap = bytes.len() - Self::HEAD;
        if words > value::REPLAY_WINDOW_MAX / 32 || ![0, words as usize * 4].contains(&bitmap) {
            return None;
        }
        let [oseq, seq, oseq_hi, seq_hi, replay_window] =
            std::array::from_fn(|_| u32::read(&mut from));
        let bitmap = (0..bitmap / 4).map(|_| u32::read(&mut from)).collect();
        Some(Self { oseq, seq, oseq_hi, seq_hi, replay_window, words, bitmap })
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let Self { oseq, seq, oseq_hi, seq_hi, replay_window, words, bitmap } = self;
        for number in [*words, *oseq, *seq, *oseq_hi, *seq_hi, *replay_window] {
            number.write(to);
        }
        bitmap.iter().for_each(|word| word.write(to));
    }
}
