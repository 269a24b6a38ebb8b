//! Ports of a switch and the VLANs that they carry (IEEE 802.1Q-2018 §5, §6.9 and §8.8).

use super::storm::StormLimits;

/// The largest VLAN identifier: 0 is a priority tag, 4095 is reserved (IEEE 802.1Q §9.6).
pub const VLAN_MAX: u16 = 4094;

/// Why a port does not take a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is down.
    PortDown,
    /// It does not carry the VLAN, or takes no tags.
    Vlan,
}

/// A port as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgePort {
    /// Its name.
    pub name: String,
    /// Whether frames enter and leave by it.
    pub up: bool,
    /// Its VLANs.
    pub mode: PortMode,
    /// Whether stations are learned from the frames that come in by it.
    pub learning: bool,
    /// How many stations may be learned on it; `None`: as many as the table holds.
    pub stations: Option<u32>,
    /// Whether frames of stations beyond them are dropped.
    pub drops_extra: bool,
    /// How much may be flooded of what comes in by it.
    pub storm: StormLimits,
}

/// The VLANs of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortMode {
    /// One VLAN, and frames without tags: a station's port. Tagged frames are refused, priority tags apart.
    Access(u16),
    /// Several VLANs, with tags; those of the native one, if there is one, come and go without.
    Trunk {
        /// The VLAN of frames without a tag.
        native: Option<u16>,
        /// The VLANs that it carries beside the native one.
        allowed: VlanSet,
    },
}

impl BridgePort {
    /// An access port that is up, learns and has no limits.
    pub fn access(name: impl Into<String>, vlan: u16) -> Self {
        Self::with_mode(name.into(), PortMode::Access(vlan))
    }

    /// A trunk that is up, learns and has no limits.
    pub fn trunk(name: impl Into<String>, native: Option<u16>, allowed: VlanSet) -> Self {
        Self::with_mode(name.into(), PortMode::Trunk { native, allowed })
    }

    fn with_mode(name: String, mode: PortMode) -> Self {
        Self {
            name,
            up: true,
            mode,
            learning: true,
            stations: None,
            drops_extra: false,
            storm: StormLimits::default(),
        }
    }

    /// The VLAN of a frame that comes in with this identifier in its tag (0: a priority tag), or with none.
    ///
    /// # Errors
    /// Why the port does not take the frame.
    #[inline]
    pub fn ingress(&self, tag: Option<u16>) -> Result<u16, Refused> {
        let tag = tag.filter(|id| *id != 0);
        let vlan = match (&self.mode, tag) {
            _ if !self.up => return Err(Refused::PortDown),
            (PortMode::Access(vlan), None) => Some(*vlan),
            (PortMode::Access(_), Some(_)) => None,
            (PortMode::Trunk { native, .. }, None) => *native,
            (PortMode::Trunk { allowed, .. }, Some(id)) => Some(id).filter(|id| allowed.has(*id)),
        };
        vlan.filter(|vlan| (1..=VLAN_MAX).contains(vlan)).ok_or(Refused::Vlan)
    }

    /// Whether frames of a VLAN leave by this port with a tag; `None` if they do not leave by it.
    #[inline]
    pub fn egress(&self, vlan: u16) -> Option<bool> {
        match &self.mode {
            _ if !self.up || !(1..=VLAN_MAX).contains(&vlan) => None,
            PortMode::Access(own) => (*own == vlan).then_some(false),
            PortMode::Trunk { native, .. } if *native == Some(vlan) => Some(false),
            PortMode::Trunk { allowed, .. } => allowed.has(vlan).then_some(true),
        }
    }
}

/// A set of VLAN identifiers.
#[derive(Clone, PartialEq, Eq)]
pub struct VlanSet(Box<[u64; 64]>);

impl VlanSet {
    /// No VLAN.
    pub fn none() -> Self {
        Self(Box::new([0; 64]))
    }

    /// Every VLAN from 1 to [`VLAN_MAX`].
    pub fn all() -> Self {
        (1..=VLAN_MAX).collect()
    }

    /// Whether `vlan` is in it.
    #[inline]
    pub fn has(&self, vlan: u16) -> bool {
        let word = self.0.get(usize::from(vlan / 64));
        word.is_some_and(|word| word >> (vlan % 64) & 1 == 1)
    }

    /// Puts `vlan` in; identifiers that no VLAN has are left out.
    pub fn insert(&mut self, vlan: u16) {
        if (1..=VLAN_MAX).contains(&vlan) {
            self.0[usize::from(vlan / 64)] |= 1 << (vlan % 64);
        }
    }

    /// Its VLANs, in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        (1..=VLAN_MAX).filter(|vlan| self.has(*vlan))
    }
}

/// Ranges in order: `10,20-29`; `none` for no VLAN.
impl std::fmt::Display for VlanSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut first = 1;
        let mut comma = "";
        while let Some(from) = (first..=VLAN_MAX).find(|vlan| self.has(*vlan)) {
            let to = (from..=VLAN_MAX).take_while(|vlan| self.has(*vlan)).last().unwrap_or(from);
            write!(f, "{comma}{from}")?;
            if to > from {
                write!(f, "-{to}")?;
            }
            (first, comma) = (to + 1, ",");
        }
        if comma.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

impl FromIterator<u16> for VlanSet {
    fn from_iter<I: IntoIterator<Item = u16>>(vlans: I) -> Self {
        let mut set = Self::none();
        vlans.into_iter().for_each(|vlan| set.insert(vlan));
        set
    }
}

impl std::fmt::Debug for VlanSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlans_in_and_out() {
        let access = BridgePort::access("a", 7);
        assert_eq!(access.ingress(None), Ok(7));
        assert_eq!(access.ingress(Some(0)), Ok(7), "a priority tag names no VLAN");
        assert_eq!(access.ingress(Some(7)), Err(Refused::Vlan));
        assert_eq!((access.egress(7), access.egress(8)), (Some(false), None));

        let mut trunk =
            BridgePort::trunk("t", Some(1), [2, 3, 0, 4095, u16::MAX].into_iter().collect());
        assert_eq!((trunk.ingress(None), trunk.ingress(Some(0))), (Ok(1), Ok(1)));
        assert_eq!(trunk.ingress(Some(2)), Ok(2));
        for not in [1, 4, 4095, u16::MAX] {
            assert_eq!(trunk.ingress(Some(not)), Err(Refused::Vlan), "{not}");
        }
        let out = [0, 1, 2, 3, 4, 4095].map(|vlan| trunk.egress(vlan));
        assert_eq!(out, [None, Some(false), Some(true), Some(true), None, None]);
        let text = |vlans: &[u16]| vlans.iter().copied().collect::<VlanSet>().to_string();
        assert_eq!(text(&[1, 2, 3, 7, 20, 21, VLAN_MAX]), "1-3,7,20-21,4094");
        assert_eq!((text(&[]), VlanSet::all().to_string()), ("none".into(), "1-4094".into()));
        trunk.mode = PortMode::Trunk { native: None, allowed: VlanSet::all() };
        assert_eq!(trunk.ingress(None), Err(Refused::Vlan));
        assert_eq!(trunk.egress(VLAN_MAX), Some(true));
        trunk.up = false;
        assert_eq!((trunk.ingress(Some(5)), trunk.egress(5)), (Err(Refused::PortDown), None));
    }
}
