//! IPsec: a router as a gateway (RFC 4301).
//!
//! ```text
//!  decode ─▶ esp_in ─▶ … firewall ─▶ route ─▶ … ─▶ esp_out ─▶ rewrite
//!              │                                      │
//!              └───▶ View: associations, policies ◀───┘        one for all workers, replaced when control changes it
//! ```
//!
//! Firewall and routes see what is inside tunnels, in both directions. Address translation comes behind both stages: what tunnels
//! carry has the addresses of the inside, and what is sealed is not translated.
//!
//! - [`incoming`] opens ESP, plain and in UDP, and has `decode` look at the packets that were inside; then asks the policies
//!   whether each packet came as it must.
//! - [`outgoing`] asks the policies about packets that leave, makes room, and seals them; finds the way of the outer packet.
//! - `protection` has what the router sends itself go by `esp_out`, too.
//! - [`device`] is the encryption as a step of its own, which a device can take.
//! - [`tunnels`] are the interfaces of route-based IPsec: ports whose packets associations carry.
//! - [`current`] is what both read, and what they count.
//! - [`settings`] makes associations and policies of `[[sa]]` and `[[policy]]`, [`linux`] those of a key-exchange daemon;
//!   `control_part` keeps the database.
//!
//! # Deliberately absent
//! - Packets of the host's own sockets: they leave as the twin sends them.
//! - Key agreement: a daemon beside it does that.
//!
//! Threads: one instance of each stage per worker; they share the associations, whose counts are atomic.

pub mod commands;
mod control_part;
pub mod current;
pub mod device;
mod events;
pub mod incoming;
mod keep_alive;
pub mod linux;
#[cfg(test)]
mod linux_tests;
mod load;
pub mod outgoing;
mod owners;
mod policy_list;
mod protection;
pub mod reasons;
pub mod rows;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod tunnels;

use control::config::{Application, Backend, StageKind};
use controlplane::Descriptor;

/// The stage that opens packets.
pub const IN: &str = "esp_in";

/// The stage that seals packets.
pub const OUT: &str = "esp_out";

/// Where packets that are handed over enter.
const PLACE: &str = "decode";

/// Bytes of a line of a cache.
const LINE: usize = 64;

/// Starts to load the lines that a frame has in its first cell, a line behind it, and `before` bytes in front of it: all, or where
/// the cipher asks for those between itself, as it goes ([`asks_itself`]), the first ones and the last. A core has few misses on
/// their way at once, so to ask for all keeps it waiting; the streams that a second-level cache follows begin with the first lines.
/// The line behind is touched, too, though no byte of it is read: the last vector of a text reaches into it.
#[inline]
fn prefetch(packet: &chunk::Packet, before: usize, is_whole: bool) {
    const HEAD: usize = 3 * LINE;
    const TAIL: usize = 2 * LINE;
    let first = packet.data().as_ptr().wrapping_sub(before);
    let end = before + packet.data().len() + LINE;
    let load = |at: usize| interleave::prefetch_at(first.wrapping_add(at));
    if is_whole || end <= HEAD + TAIL {
        (0..end).step_by(LINE).for_each(load);
    } else {
        (0..HEAD).step_by(LINE).for_each(load);
        (end - TAIL..end).step_by(LINE).for_each(load);
    }
}

/// Whether the ciphers of an association have the next texts loaded meanwhile: those of counter mode and GCM text by text, HMAC-SHA1
/// block by block.
#[inline]
fn asks_itself(own: &ipsec::Association) -> bool {
    matches!(
        own.suite().encryption(),
        crypto::Encryption::AesGcm(..) | crypto::Encryption::AesCtr(..)
    )
}

/// Moves `len` bytes of headers of a frame. That of a link without tags has a constant length: a copy is two moves then.
///
/// # Panics
/// They are not all there.
#[inline]
fn move_headers(frame: &mut [u8], len: usize, from: usize, to: usize) {
    const LINK: usize = packet::ethernet::HEADER_LEN;
    let link = frame[from..].first_chunk::<LINK>().copied();
    match (link, frame[to..].first_chunk_mut::<LINK>()) {
        (Some(link), Some(place)) if len == LINK => *place = link,
        _ => frame.copy_within(from..from + len, to),
    }
}

/// Blocks of the reasons that its stages drop for: `decode` looks at opened packets.
pub const REASONS: &[&chunk::ReasonBlock] =
    &[reasons::BLOCK, crate::router::reasons::BLOCK, packet::reasons::BLOCK];

/// What it declares.
pub static DESCRIPTOR: Descriptor = Descriptor {
    application: &APPLICATION,
    stages: STAGES,
    reasons: REASONS,
    kernels: device::kernels::FILES,
    variants: &[|config| config.ipsec.device = true],
    requests: commands::REQUESTS,
    tables: commands::TABLES,
    groups: commands::GROUPS,
    absent: "this instance has no IPsec: add [[sa]] or [[policy]] to the configuration and restart",
    check: control_part::check_files,
    start: control_part::start,
    ..Descriptor::NONE
};

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: "ipsec",
    title: "IPsec",
    sections: &["ipsec", "sa", "policy"],
    joins: Some(IN),
    joins_end: Some(OUT),
    // Nothing else takes the packets of tunnel interfaces.
    joins_for: &["port"],
    joins_when: Some(|config, _| {
        config.physical_ports().any(|(_, own)| own.backend == Backend::Ipsec)
    }),
    ..Application::NONE
};

/// Its stages.
pub const STAGES: &[StageKind] = &[
    StageKind {
        about: "Opens ESP packets, plain and in UDP; drops packets that did not come as the policies say.",
        needs: &["ip"],
        provides: &["opened"],
        places: &[PLACE],
        ..StageKind::new(IN, &APPLICATION)
    },
    StageKind {
        about: "Seals packets that the policies protect; finds the way of the outer packets.",
        needs: &["opened", "next_hop"],
        places: &[OUT],
        ..StageKind::new(OUT, &APPLICATION)
    },
];
