//! Groups and meters: changes, checked (OpenFlow 1.3.5 §6.5, §6.6).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use openflow::flow::ANY_GROUP;
use openflow::group::{
    ALL_GROUPS, ALL_METERS, BandKind, BucketCounters, GROUP_MAX, GroupDesc, GroupStats, METER_MAX,
    MeterConfig, MeterFlags, MeterStats, TableCommand,
};
use openflow::{Action, ErrorCode, GroupMod, GroupType, MeterMod, PortNo};

use crate::action_set;
use crate::control::{FlowControl, Undo, groups_of};
use crate::flow::{Counters, Group};
use crate::index;
use crate::meter::Meter;
use crate::tables::FlowPatch;

/// Groups, buckets of a group, meters, and bands of a meter, at most.
pub const GROUPS_MAX: usize = 1 << 16;
/// See [`GROUPS_MAX`].
pub const BUCKETS_MAX: usize = 256;
/// See [`GROUPS_MAX`].
pub const METERS_MAX: usize = 1 << 16;
/// See [`GROUPS_MAX`].
pub const BANDS_MAX: usize = 8;

/// Groups that lead to groups, at most.
pub const CHAIN_MAX: usize = 8;

impl FlowControl {
    /// GROUP_MOD.
    ///
    /// # Errors
    /// What the specification says of a request that cannot be carried out; nothing has changed then.
    pub fn group_mod(&mut self, request: &GroupMod, now_ns: u64) -> Result<(), ErrorCode> {
        match request.command {
            TableCommand::Delete if request.group == ALL_GROUPS => {
                let all: Vec<u32> = self.groups.keys().copied().collect();
                all.into_iter().for_each(|group| self.remove_group(group, now_ns));
                Ok(())
            }
            TableCommand::Delete => {
                self.remove_group(request.group, now_ns);
                Ok(())
            }
            TableCommand::Add | TableCommand::Modify => self.put_new_group(request, now_ns),
        }
    }

    fn put_new_group(&mut self, request: &GroupMod, now_ns: u64) -> Result<(), ErrorCode> {
        if request.group > GROUP_MAX {
            return Err(ErrorCode::GroupModInvalid);
        }
        let old = self.groups.get(&request.group);
        match (request.command, old) {
            (TableCommand::Add, Some(_)) => return Err(ErrorCode::GroupModExists),
            (TableCommand::Modify, None) => return Err(ErrorCode::GroupModUnknown),
            _ => {}
        }
        let created_ns = old.map_or(now_ns, |old| old.created_ns);
        if old.is_none() && self.groups.len() >= GROUPS_MAX {
            return Err(ErrorCode::GroupModOutOfGroups);
        }
        if request.buckets.len() > BUCKETS_MAX {
            return Err(ErrorCode::GroupModOutOfBuckets);
        }
        if request.kind == GroupType::Indirect && request.buckets.len() != 1 {
            return Err(ErrorCode::GroupModInvalid);
        }
        for bucket in &request.buckets {
            if bucket.weight != 0 && request.kind != GroupType::Select {
                // Nothing but a select group has weights; they do no harm elsewhere if they are 1.
                if bucket.weight != 1 {
                    return Err(ErrorCode::GroupModInvalid);
                }
            }
            let leads_back = |group: u32| group == request.group;
            if groups_of(&bucket.actions).any(leads_back) {
                return Err(ErrorCode::GroupModLoop);
            }
            self.check_actions(&bucket.actions).map_err(|error| match error {
                ErrorCode::BadActionOutGroup => ErrorCode::GroupModUnknown,
                error => error,
            })?;
            let (port, group) = (bucket.watch_port, bucket.watch_group);
            // Nothing says when such a bucket is live.
            let watches_nothing = port == PortNo::ANY && group == ANY_GROUP;
            if request.kind == GroupType::FastFailover && watches_nothing {
                return Err(ErrorCode::GroupModBadWatch);
            }
            if group != ANY_GROUP && !self.groups.contains_key(&group)
                || port != PortNo::ANY && !port.is_ordinary() && port != PortNo::LOCAL
            {
                return Err(ErrorCode::GroupModBadWatch);
            }
        }
        let watched = request.buckets.iter().map(|bucket| bucket.watch_group);
        let next = request.buckets.iter().flat_map(|bucket| groups_of(&bucket.actions));
        let next: Vec<u32> = next.chain(watched.filter(|group| *group != ANY_GROUP)).collect();
        if self.reaches(next.clone(), request.group) {
            return Err(ErrorCode::GroupModLoop);
        }
        let behind = self.depth(next, |own, group| own.next_groups(group));
        let before = self.depth(self.previous_groups(request.group), Self::previous_groups);
        if behind + before >= CHAIN_MAX {
            return Err(ErrorCode::GroupModChaining);
        }
        let group = Group {
            number: request.group,
            kind: request.kind,
            ordered: request.buckets.iter().map(|b| action_set::ordered(&b.actions)).collect(),
            buckets: request.buckets.clone(),
            created_ns,
            counters: Counters::default(),
            bucket_counters: request.buckets.iter().map(|_| Counters::default()).collect(),
        };
        self.change_group(request.group, Some(Arc::new(group)));
        Ok(())
    }

    /// Groups that a group leads to, those that it watches among them.
    fn next_groups(&self, group: u32) -> Vec<u32> {
        self.groups.get(&group).map_or_else(Vec::new, |group| index::next_groups(group).collect())
    }

    /// Groups that lead to a group.
    fn previous_groups(&self, group: u32) -> Vec<u32> {
        self.index.parents(group).collect()
    }

    /// Whether `wanted` is among some groups, or behind them.
    fn reaches(&self, mut open: Vec<u32>, wanted: u32) -> bool {
        let mut seen = BTreeSet::new();
        while let Some(group) = open.pop() {
            if group == wanted {
                return true;
            }
            if seen.insert(group) {
                open.extend(self.next_groups(group));
            }
        }
        false
    }

    /// Whether actions send to NORMAL, themselves or by groups that they lead to.
    pub fn sends_to_normal(&self, actions: &[Action]) -> bool {
        let is_normal =
            |action: &Action| matches!(action, Action::Output { port: PortNo::NORMAL, .. });
        let (mut open, mut seen) = (groups_of(actions).collect::<Vec<_>>(), BTreeSet::new());
        let mut found = actions.iter().any(is_normal);
        while let Some(number) = open.pop().filter(|_| !found) {
            let Some(group) = self.groups.get(&number).filter(|_| seen.insert(number)) else {
                continue;
            };
            for bucket in &group.buckets {
                found |= bucket.actions.iter().any(is_normal);
                open.extend(groups_of(&bucket.actions));
            }
        }
        found
    }

    /// Groups one behind the other on the longest way that begins with `first`, counted up to [`CHAIN_MAX`].
    fn depth(&self, first: Vec<u32>, next: impl Fn(&Self, u32) -> Vec<u32>) -> usize {
        let mut level: BTreeSet<u32> = first.into_iter().collect();
        let mut depth = 0;
        while !level.is_empty() && depth < CHAIN_MAX {
            depth += 1;
            level = level.into_iter().flat_map(|group| next(self, group)).collect();
        }
        depth
    }

    /// A group leaves, with the flows and the groups that lead to it.
    fn remove_group(&mut self, group: u32, now_ns: u64) {
        if !self.groups.contains_key(&group) {
            return;
        }
        self.change_group(group, None);
        self.leave_all(self.index.of_group(group), now_ns);
        let others = self.previous_groups(group);
        others.into_iter().for_each(|other| self.remove_group(other, now_ns));
    }

    fn change_group(&mut self, number: u32, group: Option<Arc<Group>>) {
        self.remember(|own| Undo::Group(number, own.groups.get(&number).cloned()));
        self.put_group(number, group);
    }

    pub(crate) fn put_group(&mut self, number: u32, group: Option<Arc<Group>>) {
        let old = match &group {
            Some(group) => self.groups.insert(number, group.clone()),
            None => self.groups.remove(&number),
        };
        self.index.change_group(number, old.as_deref(), group.as_deref());
        self.patches.push(FlowPatch::Group(number, group));
    }

    /// METER_MOD.
    ///
    /// # Errors
    /// What the specification says of a request that cannot be carried out; nothing has changed then.
    pub fn meter_mod(&mut self, request: &MeterMod, now_ns: u64) -> Result<(), ErrorCode> {
        match request.command {
            TableCommand::Delete if request.meter == ALL_METERS => {
                let all: Vec<u32> = self.meters.keys().copied().collect();
                all.into_iter().for_each(|meter| self.remove_meter(meter, now_ns));
                Ok(())
            }
            TableCommand::Delete => {
                self.remove_meter(request.meter, now_ns);
                Ok(())
            }
            TableCommand::Add | TableCommand::Modify => self.put_new_meter(request, now_ns),
        }
    }

    fn put_new_meter(&mut self, request: &MeterMod, now_ns: u64) -> Result<(), ErrorCode> {
        if request.meter == 0 || request.meter > METER_MAX {
            return Err(ErrorCode::MeterModInvalid);
        }
        let old = self.meters.get(&request.meter);
        match (request.command, old) {
            (TableCommand::Add, Some(_)) => return Err(ErrorCode::MeterModExists),
            (TableCommand::Modify, None) => return Err(ErrorCode::MeterModUnknownMeter),
            _ => {}
        }
        let created_ns = old.map_or(now_ns, |old| old.created_ns);
        if old.is_none() && self.meters.len() >= METERS_MAX {
            return Err(ErrorCode::MeterModOutOfMeters);
        }
        if request.bands.len() > BANDS_MAX {
            return Err(ErrorCode::MeterModOutOfBands);
        }
        let both = MeterFlags::KBPS | MeterFlags::PKTPS;
        if request.flags.contains(both) {
            return Err(ErrorCode::MeterModFlags);
        }
        for band in &request.bands {
            if band.rate == 0 {
                return Err(ErrorCode::MeterModRate);
            }
            if matches!(band.kind, BandKind::Experimenter { .. }) {
                return Err(ErrorCode::MeterModBand);
            }
        }
        let meter = Meter::new(request.meter, request.flags, request.bands.clone(), created_ns);
        self.change_meter(request.meter, Some(Arc::new(meter)));
        Ok(())
    }

    /// A meter leaves, with the flows that use it.
    fn remove_meter(&mut self, meter: u32, now_ns: u64) {
        if self.meters.contains_key(&meter) {
            self.change_meter(meter, None);
            self.leave_all(self.index.of_meter(meter), now_ns);
        }
    }

    fn change_meter(&mut self, number: u32, meter: Option<Arc<Meter>>) {
        self.remember(|own| Undo::Meter(number, own.meters.get(&number).cloned()));
        self.put_meter(number, meter);
    }

    pub(crate) fn put_meter(&mut self, number: u32, meter: Option<Arc<Meter>>) {
        match &meter {
            Some(meter) => self.meters.insert(number, meter.clone()),
            None => self.meters.remove(&number),
        };
        self.patches.push(FlowPatch::Meter(number, meter));
    }

    /// The group of a number.
    pub fn group(&self, number: u32) -> Option<&Arc<Group>> {
        self.groups.get(&number)
    }

    /// GROUP statistics of one group, or of all of them.
    pub fn group_stats(&self, group: u32, now_ns: u64) -> Vec<GroupStats> {
        let wanted = self.groups.values().filter(|own| group == ALL_GROUPS || own.number == group);
        let stats = wanted.map(|own| {
            let [flows, _] = self.index.counts(own.number, 0);
            let leads = |other: &u32| {
                let Some(other) = self.groups.get(other) else { return false };
                other.buckets.iter().any(|b| groups_of(&b.actions).any(|to| to == own.number))
            };
            let groups = self.index.parents(own.number).filter(leads).count();
            let (packets, bytes) = own.counters.get();
            let bucket = |counters: &Counters| {
                let (packets, bytes) = counters.get();
                BucketCounters { packets, bytes }
            };
            GroupStats {
                group: own.number,
                references: (flows + groups) as u32,
                packets,
                bytes,
                duration: Duration::from_nanos(now_ns.saturating_sub(own.created_ns)),
                buckets: own.bucket_counters.iter().map(bucket).collect(),
            }
        });
        stats.collect()
    }

    /// GROUP_DESC of all groups.
    pub fn group_descs(&self) -> Vec<GroupDesc> {
        let desc = |own: &Arc<Group>| GroupDesc {
            kind: own.kind,
            group: own.number,
            buckets: own.buckets.clone(),
        };
        self.groups.values().map(desc).collect()
    }

    /// METER statistics of one meter, or of all of them.
    pub fn meter_stats(&self, meter: u32, now_ns: u64) -> Vec<MeterStats> {
        let wanted = self.meters.values().filter(|own| meter == ALL_METERS || own.number == meter);
        let stats = wanted.map(|own| {
            let [_, uses] = self.index.counts(0, own.number);
            let of = |counter: &std::sync::atomic::AtomicU64| {
                counter.load(std::sync::atomic::Ordering::Relaxed)
            };
            let bands = (0..own.bands.len()).map(|band| {
                let (packets, bytes) = own.exceeded(band);
                BucketCounters { packets, bytes }
            });
            MeterStats {
                meter: own.number,
                flows: uses as u32,
                packets: of(&own.packets),
                bytes: of(&own.bytes),
                duration: Duration::from_nanos(now_ns.saturating_sub(own.created_ns)),
                bands: bands.collect(),
            }
        });
        stats.collect()
    }

    /// METER_CONFIG of one meter, or of all of them.
    pub fn meter_configs(&self, meter: u32) -> Vec<MeterConfig> {
        let wanted = self.meters.values().filter(|own| meter == ALL_METERS || own.number == meter);
        let config = |own: &Arc<Meter>| MeterConfig {
            flags: own.flags,
            meter: own.number,
            bands: own.bands.clone(),
        };
        wanted.map(config).collect()
    }
}
