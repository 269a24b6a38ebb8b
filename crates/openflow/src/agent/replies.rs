//! Multipart replies: in as many messages as they need.

use std::time::Duration;

use super::channel::Dump;
use super::{Agent, ChannelId, Switch};
use crate::error::{ErrorCode, Version};
use crate::flow::FlowStats;
use crate::message::{Body, MultipartReply, MultipartRequest};
use crate::port::PortNo;
use crate::wire::Unencodable;

/// Flows of one message of a dump: some ten thousand bytes.
const FLOWS_A_MESSAGE: usize = 128;

impl Agent {
    pub(super) fn multipart(
        &mut self,
        id: ChannelId,
        version: Version,
        xid: u32,
        request: MultipartRequest,
        switch: &mut dyn Switch,
        now: Duration,
    ) -> Result<(), ErrorCode> {
        let one = |reply: MultipartReply| vec![reply];
        let parts = match request {
            MultipartRequest::Flow(filter) => {
                self.dump(id, Dump { xid, filter, is_nicira: false, from: 0 }, switch, now);
                return Ok(());
            }
            MultipartRequest::NiciraFlow(filter) => {
                self.dump(id, Dump { xid, filter, is_nicira: true, from: 0 }, switch, now);
                return Ok(());
            }
            MultipartRequest::NiciraAggregate(filter) => {
                one(MultipartReply::NiciraAggregate(switch.aggregate(version, &filter)?))
            }
            MultipartRequest::Desc => one(MultipartReply::Desc(switch.description())),
            MultipartRequest::Aggregate(filter) => {
                one(MultipartReply::Aggregate(switch.aggregate(version, &filter)?))
            }
            MultipartRequest::Table => parts(switch.tables(), MultipartReply::Table),
            MultipartRequest::PortStats(port) => {
                let mut all = switch.port_stats(port, now)?;
                all.retain(|stats| version == Version::V13 || stats.port.to_v10().is_some());
                parts(all, MultipartReply::PortStats)
            }
            MultipartRequest::Queue { port, queue } => {
                // 1.0 says ALL for any port.
                let is_all = version == Version::V10 && port == PortNo::ALL;
                let port = if is_all { PortNo::ANY } else { port };
                let mut all = switch.queue_stats(port, queue, now)?;
                all.retain(|stats| version == Version::V13 || stats.port.to_v10().is_some());
                parts(all, MultipartReply::Queue)
            }
            MultipartRequest::Group(group) => {
                parts(switch.group_stats(group, now), MultipartReply::Group)
            }
            MultipartRequest::GroupDesc => parts(switch.groups(), MultipartReply::GroupDesc),
            MultipartRequest::GroupFeatures => {
                one(MultipartReply::GroupFeatures(switch.group_features()))
            }
            MultipartRequest::Meter(meter) => {
                parts(switch.meter_stats(meter, now)?, MultipartReply::Meter)
            }
            MultipartRequest::MeterConfig(meter) => {
                parts(switch.meters(meter)?, MultipartReply::MeterConfig)
            }
            MultipartRequest::MeterFeatures => {
                one(MultipartReply::MeterFeatures(switch.meter_features()))
            }
            // The tables are as they are.
            MultipartRequest::TableFeatures(wanted) if !wanted.is_empty() => {
                return Err(ErrorCode::TableFeaturesEperm);
            }
            MultipartRequest::TableFeatures(_) => {
                parts(switch.table_features(), MultipartReply::TableFeatures)
            }
            MultipartRequest::PortDesc => {
                let mut all = switch.ports();
                all.retain(|port| version == Version::V13 || port.port.to_v10().is_some());
                parts(all, MultipartReply::PortDesc)
            }
            MultipartRequest::FlowMonitor(requests) => {
                return self.monitor(id, xid, requests, switch);
            }
            MultipartRequest::Experimenter(own) => return Err(own.refusal()),
        };
        let last = parts.len() - 1;
        for (n, reply) in parts.into_iter().enumerate() {
            let body = Body::MultipartReply { more: n < last, reply };
            let sent = self.channels.get_mut(&id).map(|channel| channel.send(xid, body));
            if sent.is_some_and(|sent| sent.is_err()) {
                return Err(ErrorCode::BadRequestMultipart);
            }
        }
        Ok(())
    }

    /// Sends the next flows of a dump; what is left waits in the channel.
    pub(super) fn dump(
        &mut self,
        id: ChannelId,
        dump: Dump,
        switch: &mut dyn Switch,
        now: Duration,
    ) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let Some(version) = channel.version() else { return };
        let (xid, limit) = (dump.xid, FLOWS_A_MESSAGE);
        let reply = match dump.is_nicira {
            true => MultipartReply::NiciraFlow,
            false => MultipartReply::Flow,
        };
        let page = match switch.flows(version, &dump.filter, dump.from, limit, now) {
            Ok(page) => page,
            Err(code) => return self.error(id, xid, code, &[]),
        };
        let mut waiting = vec![page.flows];
        while let Some(flows) = waiting.pop() {
            let more = page.next.is_some() || !waiting.is_empty();
            let body = Body::MultipartReply { more, reply: reply(flows.clone()) };
            match channel.send(xid, body) {
                Ok(()) => {}
                // Only flows with very long actions: half of them at a time.
                Err(Unencodable::TooLong) if flows.len() > 1 => {
                    let (first, second) = flows.split_at(flows.len() / 2);
                    waiting.push(second.to_vec());
                    waiting.push(first.to_vec());
                }
                // What 1.0 cannot express is left out, so that the rest can be seen.
                Err(_) => {
                    let can = |f: &FlowStats| {
                        let body =
                            Body::MultipartReply { more: false, reply: reply(vec![f.clone()]) };
                        crate::encode(&crate::Message::new(version, 0, body)).is_ok()
                    };
                    waiting.push(flows.into_iter().filter(can).collect());
                }
            }
        }
        channel.dump = page.next.map(|from| Dump { from, ..dump });
    }
}

/// Entries in messages: no entry of these replies is longer than some thousand bytes, but for groups of many buckets.
fn parts<T>(all: Vec<T>, reply: impl Fn(Vec<T>) -> MultipartReply) -> Vec<MultipartReply>
where
    T: Clone,
{
    let fits = |part: &[T]| {
        let body = Body::MultipartReply { more: false, reply: reply(part.to_vec()) };
        // The longer of both versions.
        let message = |version| crate::Message::new(version, 0, body.clone());
        let is_long = |version| {
            crate::encode(&message(version)).is_err_and(|error| error == Unencodable::TooLong)
        };
        !is_long(Version::V13) && !is_long(Version::V10)
    };
    let mut done = Vec::new();
    let mut waiting = vec![&all[..]];
    while let Some(part) = waiting.pop() {
        if part.len() <= 1 || fits(part) {
            done.push(reply(part.to_vec()));
        } else {
            let (first, second) = part.split_at(part.len() / 2);
            waiting.push(second);
            waiting.push(first);
        }
    }
    done
}
