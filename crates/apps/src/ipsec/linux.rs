//! Associations and policies of Linux, as a key-exchange daemon such as strongSwan's adds them.
//!
//! ```text
//!  xfrm::Follower ─▶ Vec<Change> ─▶ Linux::take ─▶ Database
//!       ▲                                             │
//!       └── counts once a second, limits, packets without association
//! ```
//!
//! The kernel never sees an ESP packet: counts, numbers and windows of its associations are those that are written back.
//! Limits of bytes and packets are counted here; limits of seconds are the kernel's, and its `EXPIRE` ends an association.
//!
//! Where a peer in UDP has moved to is announced in the kernel's form (`XFRM_MSG_MAPPING`): when it is heard from there, and once a
//! second with packets from there, until whoever keeps the association has changed it. The kernel announces it with each packet.
//!
//! No number is sent twice with a key. The kernel's numbers are a second old at most: an association that was in use before is
//! taken over `SKIPPED` numbers later. One that comes back (a daemon removes and adds an association whose peer has moved) goes
//! on where it was, as the database knows. A new one is written back at once, so that it counts as used. An inbound one refuses
//! all numbers up to the kernel's; what came in the last second before a crash could be replayed.
//!
//! What cannot be done here is named in the log, and drops packets instead of letting them pass: an association with an
//! algorithm that is not here is not added, and packets of its policies then have none. A policy that asks for more than one
//! association, or for another protocol, discards. While policies are missing, because one cannot be read or they are too many,
//! packets that no policy with `protect` matches are dropped: one of the missing ones may be meant. The kernel's policies for
//! this host (`in`) and for forwarded packets (`fwd`) are one direction here.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use ipsec::policy::ANY_PORT;
use ipsec::{
    Action, Database, Direction, Dont, Dscp, Expiry, Limit, Limits, Mode, Parameters, Policy,
    Selector, Template, Tuple, Udp, Words,
};
use xfrm::structs::LifetimeCurrent;
use xfrm::structs::value::{
    XFRM_INF, XFRM_SA_XFLAG_DONT_ENCAP_DSCP, XFRM_STATE_NOECN, XFRM_STATE_NOPMTUDISC,
};
use xfrm::{AssociationId, Change, Counters, Follower, PolicyDirection, PolicyId};

use super::current::{Event, Wanted};

/// Protocol number of ESP.
const ESP: u8 = 50;
/// Numbers that an association may send between two looks at its counts.
const SKIPPED: u64 = 1 << 24;
/// How long the kernel may take to say what it has.
const PATIENCE: Duration = Duration::from_secs(10);

/// An association that is in use.
struct Used {
    own: Arc<xfrm::Association>,
    /// Counts that were written back.
    written: [u64; 3],
    /// Time of its first packet, seconds since 1970.
    first_s: u64,
}

/// What Linux has, and the thread that follows it.
pub struct Linux {
    follower: Option<Follower>,
    /// Set when nobody takes what the follower has to say any more.
    is_over: Arc<AtomicBool>,
    /// Addresses of the router: which way an association goes.
    local: Vec<IpAddr>,
    hop_limit: u8,
    associations: BTreeMap<AssociationId, Used>,
    /// Associations that cannot be used: with other addresses of the router, some can.
    unused: BTreeMap<AssociationId, Arc<xfrm::Association>>,
    policies: BTreeMap<PolicyId, Arc<xfrm::Policy>>,
    /// Policies that the kernel has are missing here.
    is_incomplete: bool,
    /// What the follower could not do, as it was logged last.
    failed: u64,
}

impl Linux {
    /// Follows the kernel; changes go to a channel, as [`Event::Linux`]. `local` are the addresses of the router. Also what the
    /// kernel has now: no packet may leave before its policies are known.
    ///
    /// # Errors
    /// The kernel cannot be followed, or does not say what it has.
    pub fn follow(
        sender: SyncSender<Event>,
        local: Vec<IpAddr>,
        hop_limit: u8,
    ) -> Result<(Self, Vec<Change>), String> {
        let mut own = Self::new(None, local, hop_limit);
        let is_over = own.is_over.clone();
        let first = Arc::new(Mutex::new(Some(Vec::new())));
        let early = first.clone();
        let sink = move |changes: Vec<Change>| {
            if let Some(first) = &mut *early.lock().unwrap_or_else(PoisonError::into_inner) {
                first.extend(changes);
                return true;
            }
            let mut event = Event::Linux(changes);
            loop {
                match sender.try_send(event) {
                    Ok(()) => return true,
                    Err(TrySendError::Disconnected(_)) => return false,
                    Err(TrySendError::Full(back)) => event = back,
                }
                if is_over.load(Ordering::Relaxed) {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let follower = Follower::start(xfrm::Options::default(), sink);
        let follower = follower.map_err(|error| error.to_string())?;
        let until = Instant::now() + PATIENCE;
        loop {
            let stats = follower.stats();
            if stats.is_in_step {
                break;
            }
            if Instant::now() >= until {
                let why = stats.last_error.unwrap_or_else(|| "no answer".to_owned());
                return Err(format!("associations and policies cannot be read: {why}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        own.follower = Some(follower);
        let changes = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok((own, changes.unwrap_or_default()))
    }

    /// Nothing yet. Without a follower nothing is written back.
    pub fn new(follower: Option<Follower>, local: Vec<IpAddr>, hop_limit: u8) -> Self {
        Self {
            follower,
            is_over: Arc::default(),
            local,
            hop_limit,
            associations: BTreeMap::new(),
            unused: BTreeMap::new(),
            policies: BTreeMap::new(),
            is_incomplete: false,
            failed: 0,
        }
    }

    /// The router has these addresses now: associations with them that were not used before are.
    pub fn set_local(&mut self, local: Vec<IpAddr>, database: &mut Database, now_ns: u64) {
        if self.local != local {
            self.local = local;
            let again = self.unused.values().cloned().map(Change::AssociationAdded).collect();
            self.take(again, database, now_ns);
        }
    }

    /// Takes changes of the kernel's databases. Whether policies have changed: [`Linux::policies`] has them.
    pub fn take(&mut self, changes: Vec<Change>, database: &mut Database, now_ns: u64) -> bool {
        let mut policies = false;
        for change in changes {
            match change {
                Change::AssociationAdded(own) | Change::AssociationReplaced(own) => {
                    match self.add(&own, database, now_ns) {
                        Ok(()) => doubts(&own).iter().for_each(|doubt| {
                            tracing::warn!("IPsec: Linux's association {}: {doubt}", name(&own.id));
                        }),
                        Err(why) => {
                            tracing::warn!(
                                "IPsec: Linux's association {} is not used: {why}",
                                name(&own.id)
                            );
                            self.remove(own.id, database);
                            self.unused.insert(own.id, own);
                        }
                    }
                }
                Change::AssociationRemoved(id) => self.remove(id, database),
                Change::PolicyAdded(own) | Change::PolicyReplaced(own) => {
                    for doubt in policy(&own).1 {
                        tracing::warn!("IPsec: Linux's policy {}: {doubt}", own.id.index);
                    }
                    self.policies.insert(own.id, own);
                    policies = true;
                }
                Change::PolicyRemoved(id) => policies |= self.policies.remove(&id).is_some(),
                Change::PoliciesMissing(is_so) => {
                    match is_so {
                        true => tracing::error!(
                            "IPsec: policies of Linux are missing, because one cannot be read or they are too many: packets \
                             that no policy protects are dropped"
                        ),
                        false => tracing::warn!("IPsec: all policies of Linux are known again"),
                    }
                    self.is_incomplete = is_so;
                    policies = true;
                }
            }
        }
        policies
    }

    fn add(
        &mut self,
        own: &Arc<xfrm::Association>,
        database: &mut Database,
        now_ns: u64,
    ) -> Result<(), String> {
        let keys = own.keys.as_ref().map_err(ToString::to_string)?;
        let key = keys.expand().map_err(|error| error.to_string())?;
        let mut parameters = parameters(own, &self.local, self.hop_limit)?;
        // One that comes back goes on with its numbers, which are newer than the kernel's.
        let is_back = database.remembers(&parameters, &key.marks());
        if own.start.sent > 0 && !is_back {
            parameters.first_number += SKIPPED;
        }
        let is_known = self.associations.contains_key(&own.id);
        let added = match is_known {
            // It goes on with its numbers.
            true => database.replace(parameters, key, now_ns),
            false => database.add(parameters, key, now_ns),
        };
        let added = added.map_err(|error| error.to_string())?;
        if let (Some(window), false) = (added.opener().and_then(|own| own.window()), is_back) {
            let top = own.start.received;
            for number in top.saturating_sub(window.len().into()) + 1..=top {
                let _ = window.update(number);
            }
        }
        self.unused.remove(&own.id);
        let used = Used { own: own.clone(), written: [0; 3], first_s: 0 };
        let mut counted = counters(&added, &used);
        counted.used = own.start.used;
        counted.sent = counted.sent.max(u64::from(added.sealer().is_some()));
        if !is_known && added.sealer().is_some() {
            self.send(xfrm::counters(own, &counted));
        }
        self.associations.insert(own.id, used);
        Ok(())
    }

    fn send(&self, request: (xfrm::Message, u16)) {
        if let Some(follower) = &self.follower {
            follower.send(request);
        }
    }

    fn remove(&mut self, id: AssociationId, database: &mut Database) {
        self.unused.remove(&id);
        if self.associations.remove(&id).is_some() {
            database.delete(id.spi, id.destination);
        }
    }

    /// All policies for packets here, `after` those of the configuration. Of several with the same direction, selector and
    /// priority, the first one counts. While some are missing, none lets a packet pass, and the last one discards.
    pub fn policies(&self, after: u32) -> Vec<Policy> {
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        if self.is_incomplete {
            for direction in [Direction::In, Direction::Out] {
                let (selector, action) = (Selector::ANY, Action::Discard);
                seen.insert((direction, u32::MAX, 0, selector.clone()));
                let (priority, if_id) = (u32::MAX, 0);
                all.push(Policy { direction, priority, if_id, selector, action });
            }
        }
        for own in self.policies.values() {
            let Some(mut policy) = policy(own).0 else { continue };
            if self.is_incomplete && policy.action == Action::Bypass {
                continue;
            }
            policy.priority = policy.priority.saturating_add(after + 1);
            let Policy { direction, priority, if_id, .. } = policy;
            if seen.insert((direction, priority, if_id, policy.selector.clone())) {
                all.push(policy);
            }
        }
        all
    }

    /// Logs what the follower could not do since the last call.
    fn log_failures(&mut self) {
        let Some(follower) = &self.follower else { return };
        let stats = follower.stats();
        let (left_out, unread) = (stats.mirror.left_out, stats.unread);
        let failed = left_out + unread + stats.dropped + stats.errors;
        if failed > self.failed {
            self.failed = failed;
            tracing::warn!(
                "IPsec: following Linux: {unread} messages not read, {left_out} associations and policies left out, {} requests \
                 dropped, {} failures: {}",
                stats.dropped,
                stats.errors,
                stats.last_error.unwrap_or_default()
            );
        }
    }

    /// Writes back what has been counted since the last call.
    pub fn write_counts(&mut self, database: &Database, now_ns: u64) {
        self.log_failures();
        for used in self.associations.values_mut() {
            let id = used.own.id;
            let Some(now) = database.get(id.spi, id.destination) else { continue };
            let [bytes, packets, ..] = now.counts();
            let counts = [bytes, packets, now.number()];
            if used.first_s == 0 && packets > 0 {
                used.first_s = now_ns / 1_000_000_000;
            }
            if counts != used.written && packets > 0 {
                used.written = counts;
                let request = xfrm::counters(&used.own, &counters(now, used));
                if let Some(follower) = &self.follower {
                    follower.send(request);
                    mapping(used, now).into_iter().for_each(|own| follower.announce(own));
                }
            }
        }
    }

    /// What announces that the peer of an association is elsewhere; `None` if the association says so itself, or is not Linux's.
    pub fn moved(
        &self,
        spi: u32,
        destination: IpAddr,
        database: &Database,
    ) -> Option<xfrm::Message> {
        let mut all = self.associations.values();
        let used =
            all.find(|own| (own.own.id.spi, own.own.id.destination) == (spi, destination))?;
        mapping(used, database.get(spi, destination)?)
    }

    /// Announces what [`Linux::moved`] has made.
    pub fn announce(&self, message: xfrm::Message) {
        if let Some(follower) = &self.follower {
            follower.announce(message);
        }
    }

    /// Reports a limit that an association has reached.
    pub fn expired(&self, expiry: &Expiry) {
        let mut all = self.associations.values();
        let is_it = |used: &&Used| {
            (used.own.id.spi, used.own.id.destination) == (expiry.spi, expiry.destination)
        };
        if let Some(used) = all.find(is_it) {
            let [bytes, packets, _] = used.written;
            let used_so_far = LifetimeCurrent { bytes, packets, ..used.own.start.used };
            let counted = Counters { used: used_so_far, ..Counters::default() };
            self.send(xfrm::expire(&used.own, &counted, expiry.is_hard));
        }
    }

    /// Asks the kernel to announce that a packet has no association; `None` if no policy of the kernel protects it.
    pub fn wanted(&self, wanted: &Wanted) -> Option<(xfrm::Message, u16)> {
        let Wanted { tuple, template, if_id } = wanted;
        let protects = |own: &&Arc<xfrm::Policy>| {
            let found = policy(own).0;
            own.id.direction == PolicyDirection::Out
                && found.is_some_and(|found| {
                    found.action == Action::Protect(*template)
                        && found.if_id == *if_id
                        && found.selector.matches(tuple)
                })
        };
        let own = self.policies.values().filter(protects).min_by_key(|own| own.priority)?;
        xfrm::acquire(own, ends(tuple), tuple.protocol, tuple.ports.unwrap_or_default())
    }

    /// Sends what [`Linux::wanted`] has made.
    pub fn ask(&self, wanted: &Wanted) {
        if let Some(request) = self.wanted(wanted) {
            self.send(request);
        }
    }
}

impl Drop for Linux {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn name(id: &AssociationId) -> String {
    format!("{:#x} to {}", id.spi, id.destination)
}

/// The addresses of a packet.
pub fn ends(tuple: &Tuple) -> (IpAddr, IpAddr) {
    (address(tuple.family, tuple.src), address(tuple.family, tuple.dst))
}

fn address(family: u8, [high, low]: Words) -> IpAddr {
    match family {
        4 => std::net::Ipv4Addr::from_bits(low as u32).into(),
        _ => std::net::Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into(),
    }
}

/// The announcement that authentic packets of an inbound association come from elsewhere than it says.
fn mapping(used: &Used, now: &ipsec::Association) -> Option<xfrm::Message> {
    let (address, port) = now.opener().and_then(|_| now.heard())?;
    xfrm::mapping(&used.own, address, port)
}

/// What was counted, as the kernel has it.
fn counters(now: &ipsec::Association, used: &Used) -> Counters {
    let [bytes, packets, ..] = now.counts();
    let used = LifetimeCurrent {
        bytes,
        packets,
        add_time: used.own.start.used.add_time,
        use_time: used.first_s,
    };
    let mut counters = Counters { used, ..Counters::default() };
    match now.opener().and_then(|own| own.window()) {
        Some(window) => {
            let top = window.top();
            counters.received = top;
            counters.window = vec![0; window.len().div_ceil(64) as usize];
            for back in 0..u64::from(window.len()).min(top) {
                // Within the window, what is refused was received.
                if window.check(top - back).is_err() {
                    counters.window[(back / 64) as usize] |= 1 << (back % 64);
                }
            }
        }
        None => counters.sent = now.sealer().map_or(0, |own| own.sequence().next() - 1),
    }
    counters
}

/// Whether the kernel finds what has this mark (`XFRMA_MARK`, value and mask) for packets whose mark is 0, which all packets have
/// here. Policies and inbound associations are found by the packet's mark, outbound associations by that of the policy
/// (`xfrm_policy_match`, `xfrm_state_lookup`, `xfrm_state_find`): the mask is taken, and the value compared.
const fn is_of_unmarked((value, _): (u32, u32)) -> bool {
    value == 0
}

/// What is different with an association that is used.
pub fn doubts(own: &xfrm::Association) -> Vec<String> {
    let (value, mask) = own.output_mark;
    let mut doubts = Vec::new();
    if value & mask != 0 {
        doubts.push(format!(
            "its packets do not get mark {value:#x}/{mask:#x}: routes and policies for that mark do not apply to them"
        ));
    }
    doubts
}

/// An association of the kernel as one of this gateway.
///
/// # Errors
/// Why it cannot be used, in words.
pub fn parameters(
    own: &xfrm::Association,
    local: &[IpAddr],
    hop_limit: u8,
) -> Result<Parameters, String> {
    let direction = match own.direction {
        Some(xfrm::Direction::In) => Direction::In,
        Some(xfrm::Direction::Out) => Direction::Out,
        None if local.contains(&own.id.destination) => Direction::In,
        None if local.contains(&own.source) => Direction::Out,
        None => return Err("neither end is an address of a port".to_owned()),
    };
    if !is_of_unmarked(own.id.mark) {
        let (value, mask) = own.id.mark;
        return Err(format!(
            "it is for packets with mark {value:#x}/{mask:#x}, and packets have no marks here"
        ));
    }
    if own.reqid == 0 {
        return Err("no policy names it: its `reqid` is 0".to_owned());
    }
    let limit = |own: u64| (own != XFRM_INF && own != 0).then_some(own);
    let of = |soft, hard| Limit { soft: limit(soft), hard: limit(hard) };
    let lft = &own.limits;
    let is = |flag: u8| own.flags & flag != 0;
    let ends = (own.source, own.id.destination);
    Ok(Parameters {
        mode: match own.mode {
            xfrm::Mode::Transport => Mode::Transport,
            xfrm::Mode::Tunnel => Mode::Tunnel,
            xfrm::Mode::Other(mode) => return Err(format!("mode {mode} is not supported")),
        },
        if_id: own.if_id,
        is_extended: own.is_extended,
        window: own.window,
        first_number: own.start.sent + 1,
        udp: own.udp.map(|udp| Udp { source: udp.source_port, destination: udp.destination_port }),
        pad_to: u16::try_from(own.pad_to).unwrap_or(u16::MAX),
        dscp: match own.extra_flags & XFRM_SA_XFLAG_DONT_ENCAP_DSCP {
            0 => Dscp::Copy,
            _ => Dscp::Set(0),
        },
        dont_fragment: if is(XFRM_STATE_NOPMTUDISC) { Dont::Clear } else { Dont::Copy },
        ecn: !is(XFRM_STATE_NOECN),
        hop_limit,
        limits: Limits {
            bytes: of(lft.soft_byte_limit, lft.hard_byte_limit),
            packets: of(lft.soft_packet_limit, lft.hard_packet_limit),
            seconds: Limit::default(),
        },
        ..Parameters::new(direction, own.id.spi, ends, own.reqid)
    })
}

/// A policy of the kernel as one of this gateway, `None` if it is for packets that do not exist here; and what is different.
pub fn policy(own: &xfrm::Policy) -> (Option<Policy>, Vec<String>) {
    let mut doubts = Vec::new();
    if !is_of_unmarked(own.mark) {
        let (value, mask) = own.mark;
        doubts.push(format!(
            "not used: it is for packets with mark {value:#x}/{mask:#x}, and packets have no marks here"
        ));
        return (None, doubts);
    }
    let mut is_exact = true;
    let mut ports = |(value, mask): (u16, u16)| -> RangeInclusive<u16> {
        let last = value | !mask;
        match mask {
            0 => ANY_PORT,
            _ if mask.leading_ones() + mask.trailing_zeros() == 16 => value & mask..=last,
            _ => {
                is_exact = false;
                ANY_PORT
            }
        }
    };
    let sel = &own.selector;
    let is_icmp = matches!(sel.protocol, Some(1 | 58));
    let (source_ports, destination_ports) = match is_icmp {
        true => (ANY_PORT, ANY_PORT),
        false => (ports(sel.source_port), ports(sel.destination_port)),
    };
    is_exact &= !is_icmp || (sel.source_port.1, sel.destination_port.1) == (0, 0);
    // Without addresses it may still be of one family.
    let any = sel.is_ipv6.map(|is_ipv6| match is_ipv6 {
        false => IpNet::from(ipnet::Ipv4Net::default()),
        true => IpNet::from(ipnet::Ipv6Net::default()),
    });
    let net = |own: Option<(IpAddr, u8)>| match own {
        Some((ip, len)) => IpNet::new(ip, len).ok().map(|net| net.trunc()),
        None => any,
    };
    let selector = Selector {
        source: net(sel.source),
        destination: net(sel.destination),
        protocol: sel.protocol,
        source_ports,
        destination_ports,
    };
    let is_pass = !own.is_block && !own.is_sub && own.templates.is_empty();
    if sel.ifindex.is_some() {
        if is_pass {
            doubts.push("not used: it lets packets of one interface pass".to_owned());
            return (None, doubts);
        }
        doubts.push("used for all interfaces".to_owned());
    }
    let action = match &own.templates[..] {
        _ if own.is_block => Action::Discard,
        _ if own.is_sub => {
            doubts.push("discards its packets: sub-policies are not supported".to_owned());
            Action::Discard
        }
        [] => Action::Bypass,
        [one]
            if one.protocol == ESP
                && matches!(one.mode, xfrm::Mode::Tunnel | xfrm::Mode::Transport) =>
        {
            if one.is_optional {
                doubts.push("packets without an association are dropped".to_owned());
            }
            Action::Protect(Template { reqid: one.reqid, tunnel: one.tunnel })
        }
        _ => {
            doubts.push("discards its packets: it asks for more than ESP once".to_owned());
            Action::Discard
        }
    };
    let action = match (is_exact, action) {
        (true, action) => action,
        (false, Action::Bypass) => {
            doubts.push("not used: its ports or ICMP types are not a range".to_owned());
            return (None, doubts);
        }
        (false, action) => {
            doubts.push("used for all ports, or types of ICMP".to_owned());
            action
        }
    };
    let direction = match own.id.direction {
        PolicyDirection::Out => Direction::Out,
        PolicyDirection::In | PolicyDirection::Forward => Direction::In,
    };
    let (priority, if_id) = (own.priority, own.if_id);
    (Some(Policy { direction, priority, if_id, selector, action }), doubts)
}
