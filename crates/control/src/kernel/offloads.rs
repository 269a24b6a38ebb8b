//! Switching off offloads that the queues of a port cannot carry.
//!
//! On a veth pair the kernel hands over frames whose checksums were never computed and segments larger than any wire
//! carries, because it assumes that a network card or the other stack will finish them. AF_PACKET says so with each
//! frame, except where several segments were merged to one (LRO) or to a list of packets. AF_XDP says nothing: there
//! checksum, scatter-gather, segmentation and receive-merging offloads go off, as
//! `ethtool -K IF tx off sg off tso off gso off gro off lro off` does.
//!
//! Done over the `ethtool` family of generic netlink (Linux 5.7 and later), which needs no ioctl
//! and so no unsafe code. Features that the driver holds fixed are left alone.

use netlink_packet_core::NLM_F_ACK;
use netlink_sys::protocols::NETLINK_GENERIC;

use super::links;
use crate::netlink::{Attributes, Client, Error, attributes};

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const FEATURES_HEADER: u16 = 1;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const FEATURES_NOCHANGE: u16 = 5;
const HEADER_DEV_INDEX: u16 = 1;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// Features that were switched off while this exists; dropping it switches them on again, on that interface only: by then
/// another one may have its name.
#[derive(Debug)]
pub struct OffloadsOff {
    interface: Interface,
    changed: Vec<String>,
    restore: bool,
}

/// What the queues of an interface can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried {
    /// Frames as they are on a wire: AF_XDP.
    Finished,
    /// Frames whose checksum and segmentation are left, each marked: AF_PACKET.
    Marked,
}

/// Whether a feature (by the kernel's name, `ethtool -k`) makes frames that the queues do not carry.
fn harmful(feature: &str, carried: Carried) -> bool {
    if carried == Carried::Marked {
        return matches!(feature, "rx-lro" | "rx-gro-list");
    }
    let sends = feature.starts_with("tx-")
        && (feature.contains("checksum")
            || feature.contains("segmentation")
            || feature.contains("scatter-gather")
            || feature.contains("gso"));
    let merges = feature.starts_with("rx-") && (feature.contains("gro") || feature.contains("lro"));
    sends || merges
}

/// Switches off what [`self`] is about on the interface of this name.
///
/// # Errors
///
/// If the interface does not exist, the kernel has no `ethtool` family, or refuses.
pub fn set_offloads_off(name: &str, carried: Carried) -> Result<OffloadsOff, Error> {
    set_offloads_off_after(name, carried, &[])
}

/// The same after a program that was ended before it could switch `earlier` on again.
///
/// # Errors
///
/// As [`set_offloads_off`].
pub fn set_offloads_off_after(
    name: &str,
    carried: Carried,
    earlier: &[String],
) -> Result<OffloadsOff, Error> {
    let index = links::named(&mut Client::route()?, name)?.ifindex;
    let interface = Interface { name: name.to_owned(), index };
    let mut ethtool = Ethtool::open()?;
    let (active, fixed) = ethtool.features(&interface)?;
    let harmful = |feature: &String| harmful(feature, carried) && !fixed.contains(feature);
    let is_off = |feature: &&String| !active.contains(*feature) && !fixed.contains(*feature);
    let earlier: Vec<String> = earlier.iter().filter(is_off).cloned().collect();
    let mut changed: Vec<String> = active.into_iter().filter(harmful).collect();
    if !changed.is_empty() {
        ethtool.set(&interface, &changed, false)?;
    }
    changed.extend(earlier);
    let off = OffloadsOff { interface, changed, restore: true };
    Ok(off)
}

/// What a program switched off that was ended before it could switch it on again; nothing is switched off.
///
/// # Errors
///
/// As [`set_offloads_off`].
pub fn earlier_offloads(name: &str, earlier: &[String]) -> Result<OffloadsOff, Error> {
    let index = links::named(&mut Client::route()?, name)?.ifindex;
    let interface = Interface { name: name.to_owned(), index };
    let (active, fixed) = Ethtool::open()?.features(&interface)?;
    let is_off = |feature: &&String| !active.contains(*feature) && !fixed.contains(*feature);
    let changed = earlier.iter().filter(is_off).cloned().collect();
    Ok(OffloadsOff { interface, changed, restore: true })
}

impl OffloadsOff {
    /// The features that will be on again, by the kernel's names.
    pub fn changed(&self) -> &[String] {
        &self.changed
    }

    /// Leaves them off for good.
    pub fn keep(mut self) {
        self.restore = false;
    }

    /// Switches them on again and says whether that worked.
    ///
    /// # Errors
    ///
    /// As [`set_offloads_off`].
    pub fn restore(mut self) -> Result<(), Error> {
        self.restore = false;
        self.switch_on()
    }

    fn switch_on(&self) -> Result<(), Error> {
        if self.changed.is_empty() {
            return Ok(());
        }
        Ethtool::open()?.set(&self.interface, &self.changed, true)
    }
}

impl Drop for OffloadsOff {
    fn drop(&mut self) {
        if self.restore {
            let _ = self.switch_on(); // the interface may be gone
        }
    }
}

/// The interface of a number; the name is for messages.
#[derive(Debug)]
struct Interface {
    name: String,
    index: u32,
}

struct Ethtool {
    client: Client,
    family: u16,
}

fn genl(command: u8, attributes: &Attributes) -> Vec<u8> {
    let mut body = vec![command, 1, 0, 0];
    body.extend_from_slice(attributes.as_bytes());
    body
}

impl Ethtool {
    fn open() -> Result<Ethtool, Error> {
        let what = "looking for the kernel's ethtool family";
        let mut client = Client::new(NETLINK_GENERIC)?;
        let mut asked = Attributes::new();
        asked.text(CTRL_ATTR_FAMILY_NAME, "ethtool");
        let mut family = None;
        client.get(what, GENL_ID_CTRL, &genl(CTRL_CMD_GETFAMILY, &asked), |message| {
            family = attributes(message.payload.get(4..).unwrap_or(&[]))
                .find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID)
                .and_then(|(_, value)| value.try_into().ok())
                .map(u16::from_ne_bytes);
        })?;
        let family = family.ok_or_else(|| Error::malformed(what, "no family number in it"))?;
        Ok(Ethtool { client, family })
    }

    /// The features that are active, and those that cannot be changed.
    fn features(&mut self, interface: &Interface) -> Result<(Vec<String>, Vec<String>), Error> {
        let mut asked = Attributes::new();
        asked.nest(FEATURES_HEADER, |header| _ = header.u32(HEADER_DEV_INDEX, interface.index));
        let (mut active, mut fixed) = (Vec::new(), Vec::new());
        let body = genl(ETHTOOL_MSG_FEATURES_GET, &asked);
        let what = format!("reading the offloads of {}", interface.name);
        self.client.get(&what, self.family, &body, |message| {
            for (kind, value) in attributes(message.payload.get(4..).unwrap_or(&[])) {
                match kind {
                    FEATURES_ACTIVE => active = bit_names(value),
                    FEATURES_NOCHANGE => fixed = bit_names(value),
                    _ => {}
                }
            }
        })?;
        Ok((active, fixed))
    }

    fn set(&mut self, interface: &Interface, features: &[String], on: bool) -> Result<(), Error> {
        let mut asked = Attributes::new();
        asked.nest(FEATURES_HEADER, |header| _ = header.u32(HEADER_DEV_INDEX, interface.index));
        asked.nest(FEATURES_WANTED, |bitset| {
            bitset.nest(BITSET_BITS, |bits| {
                for feature in features {
                    bits.nest(BITS_BIT, |bit| {
                        bit.text(BIT_NAME, feature);
                        if on {
                            bit.put(BIT_VALUE, &[]);
                        }
                    });
                }
            });
        });
        let body = genl(ETHTOOL_MSG_FEATURES_SET, &asked);
        let verb = if on { "on" } else { "off" };
        let what = format!("switching offloads of {} {verb}", interface.name);
        self.client.change(&what, self.family, NLM_F_ACK, &body)
    }
}

/// The names in a bitset that lists set bits (one with a mask lists clear ones without a value).
fn bit_names(bitset: &[u8]) -> Vec<String> {
    let has_mask = attributes(bitset).all(|(kind, _)| kind != 1); // ETHTOOL_A_BITSET_NOMASK
    attributes(bitset)
        .filter(|(kind, _)| *kind == BITSET_BITS)
        .flat_map(|(_, bits)| attributes(bits))
        .filter(|(kind, _)| *kind == BITS_BIT)
        .filter(|(_, bit)| !has_mask || attributes(bit).any(|(kind, _)| kind == BIT_VALUE))
        .filter_map(|(_, bit)| attributes(bit).find(|(kind, _)| *kind == BIT_NAME))
        .map(|(_, text)| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Carried, harmful};

    #[test]
    fn only_what_makes_odd_frames_is_switched_off() {
        for name in [
            "tx-checksum-ip-generic",
            "tx-scatter-gather",
            "tx-tcp-segmentation",
            "tx-generic-segmentation",
            "tx-gso-list",
            "rx-gro",
            "rx-gro-hw",
            "rx-lro",
            "rx-udp-gro-forwarding",
        ] {
            assert!(harmful(name, Carried::Finished), "{name}");
            let is_merged = ["rx-lro"].contains(&name);
            assert_eq!(harmful(name, Carried::Marked), is_merged, "{name}");
        }
        for name in
            ["rx-vlan-hw-parse", "tx-vlan-hw-insert", "highdma", "rx-checksum", "rx-hashing"]
        {
            assert!(!harmful(name, Carried::Finished), "{name}");
        }
    }
}
