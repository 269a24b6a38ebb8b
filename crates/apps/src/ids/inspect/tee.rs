//! What a session says of a flow: it goes to the detector, and into lines.

use applayer::{Anomaly, Data, Email, File, Piece, Progress, Sink, Transaction};
use control::config::IdsEvent;
use detect::{Detector, Feed, Sender};
use flowlog::eve::{ApplicationAnomaly, Eve, Origin};
use l7proto::Protocol;

use super::{LATEST_MAX, OfFlowKept, Parts, RECENT_MAX};
use crate::ids::counters::add;
use crate::ids::outputs::{Lines, To};

/// What a session says, to the detector and into lines.
pub(super) struct Tee<'a> {
    pub(super) detector: &'a mut Detector,
    pub(super) flow: &'a mut OfFlowKept,
    pub(super) parts: &'a Parts,
    pub(super) lines: &'a mut Lines,
    pub(super) recent: &'a mut Vec<Transaction>,
    pub(super) files: &'a mut Vec<File>,
    pub(super) now_ns: u64,
    pub(super) is_reversed: bool,
}

impl Tee<'_> {
    fn feed(&mut self) -> Feed<'_> {
        Feed { detector: self.detector, flow: &mut self.flow.state }
    }

    fn write(
        &mut self,
        kind: IdsEvent,
        sender: Sender,
        write: impl FnOnce(&Eve, &Origin<'_>, &mut Vec<u8>),
    ) {
        let outputs = &self.parts.outputs;
        if !outputs.has(kind) {
            return;
        }
        let origin = self.flow.origin_of(outputs, sender, self.now_ns, self.is_reversed);
        write(&outputs.eve, &origin, &mut self.lines.line);
        let key = self.flow.key(self.now_ns);
        self.lines.put(To::Eve, key);
    }

    fn remember(&mut self, transaction: &Transaction) {
        let known = self.recent.iter().position(|own| own.id == transaction.id);
        if let Some(at) = known {
            // The one that went on last is the last.
            self.recent[at..].rotate_left(1);
        } else if self.recent.len() < RECENT_MAX {
            self.recent.push(transaction.clone());
            return;
        }
        if let Some(last) = self.recent.last_mut() {
            last.clone_from(transaction);
        }
    }
}

impl Sink for Tee<'_> {
    fn protocol(&mut self, protocol: Option<Protocol>) {
        self.feed().protocol(protocol);
    }

    fn piece(&mut self, piece: &Piece<'_>) {
        self.feed().piece(piece);
    }

    fn transaction(&mut self, transaction: &Transaction, progress: Progress) {
        self.feed().transaction(transaction, progress);
        if progress != Progress::Begun && self.lines.outputs.has_files() {
            self.remember(transaction);
        }
        if progress != Progress::Finished || transaction.is_late {
            return;
        }
        let name = transaction.protocol().name();
        self.parts.counters.transaction(name);
        let kind = match transaction.protocol() {
            Protocol::Http1 | Protocol::Http2 => IdsEvent::Http,
            Protocol::Dns => IdsEvent::Dns,
            Protocol::Tls => IdsEvent::Tls,
            Protocol::Ssh => IdsEvent::Ssh,
            Protocol::Smtp => IdsEvent::Smtp,
            Protocol::Ftp => IdsEvent::Ftp,
            _ => return,
        };
        self.write(kind, Sender::Client, |eve, origin, out| {
            eve.transaction(origin, transaction, out);
        });
    }

    fn mail(&mut self, transaction: u64, email: &Email) {
        // What has no room is shown without its mail.
        if !self.lines.outputs.has_files() || email.cost() > LATEST_MAX {
            return;
        }
        let is_it = |own: &Transaction| own.id == transaction;
        if !self.recent.iter().any(is_it)
            && let Some(latest) = self.flow.latest.as_deref().filter(|own| is_it(own)).cloned()
        {
            self.remember(&latest);
        }
        let known = self.recent.iter_mut().rfind(|own| is_it(own)).map(|own| &mut own.data);
        if let Some(Data::Smtp(smtp)) = known {
            smtp.email.clone_from(email);
        }
    }

    fn file(&mut self, file: &File) {
        self.feed().file(file);
        add(&self.parts.counters.files, 1);
        let sender = detect::sender_of(file.direction);
        let is_it = |own: &&Transaction| own.id == file.transaction;
        let latest = self.flow.latest.as_deref().filter(is_it);
        let known = self.recent.iter().rfind(is_it).or(latest).cloned();
        let application = known.as_ref().map(|own| own.protocol().name());
        self.write(IdsEvent::Fileinfo, sender, |eve, origin, out| {
            eve.file(origin, application, known.as_ref(), file, out);
        });
        if self.files.len() < RECENT_MAX && self.lines.outputs.has_files() {
            self.files.push(file.clone());
        }
    }

    fn anomaly(&mut self, anomaly: &Anomaly) {
        self.feed().anomaly(anomaly);
        self.flow.limit.is_exceeded |= anomaly.kind.is_limit();
        add(&self.parts.counters.anomalies, 1);
        let sender = anomaly.direction.map_or(Sender::Client, detect::sender_of);
        let report = ApplicationAnomaly {
            event: anomaly.kind.name(),
            layer: anomaly.kind.layer(),
            application: anomaly.kind.protocol().map(Protocol::name),
            transaction_id: anomaly.transaction,
        };
        self.write(IdsEvent::Anomaly, sender, |eve, origin, out| {
            eve.application_anomaly(origin, &report, out);
        });
    }
}
