//! A reload: the file is read, and what takes long is built, on a thread of its own; then the parts apply it as one
//! version, or nothing of it.

use std::collections::HashSet;
use std::sync::mpsc::Sender;

use control::api::{Asked, ErrorKind, Response};
use control::config::{self, Config, Diagnostic, KnownStages, LoadError, NOTHING, Report, Topic};
use control::kernel;
use control::netlink::Client;
use lookup::fib::Interface;

use super::{ControlLoop, Event, Phase, now_ns};
use crate::application::{Built, Environment, Prepare};
use crate::interfaces::{Interfaces, addresses};

/// What is said of a reload that a stop has overtaken.
const CANCELLED: &str = "reload cancelled: the instance is stopping";

/// A configuration that was read, with what the parts prepared of it, by part.
pub struct Read {
    result: Result<Fresh, Unread>,
    /// Who asked.
    answer: Sender<Response>,
    /// What is answered once this is applied, in place of a reload's answer.
    then: Option<Asked>,
}

/// Why a configuration was not read.
struct Unread {
    /// As people see it, over several lines.
    message: String,
    /// For the log, in one line.
    in_line: String,
}

impl From<String> for Unread {
    fn from(message: String) -> Self {
        Self { in_line: one_line(&message), message }
    }
}

impl From<LoadError> for Unread {
    fn from(error: LoadError) -> Self {
        let message = error.to_string();
        match error {
            LoadError::Invalid(report) => Self { in_line: report.errors_in_line(), message },
            _ => message.into(),
        }
    }
}

/// What a reload is to apply.
pub(super) struct Fresh {
    pub(super) config: Config,
    /// Of the file, if it comes from there.
    pub(super) report: Option<Report>,
    /// By part.
    pub(super) built: Vec<Option<Built>>,
    /// The interfaces from then on.
    pub(super) interfaces: Interfaces,
}

/// Why a configuration is not in force.
pub(super) enum NotApplied {
    /// In words; but for an error that ends the program, all is as before.
    Refused(String),
    /// The program is stopping; all is as before.
    Stopping,
}

impl From<String> for NotApplied {
    fn from(why: String) -> Self {
        Self::Refused(why)
    }
}

/// The warnings of a new configuration that a reload repeats: of rules, what has not the effect that one may expect; of
/// everything else, what the text in force did not have.
fn worth_telling(warnings: &[Diagnostic], old: &str, known: &KnownStages) -> Vec<String> {
    let is_always = |d: &Diagnostic| matches!(d.topic, Topic::OddRule | Topic::Unfiltered);
    let before: HashSet<String> = match warnings.iter().all(is_always) {
        true => HashSet::new(),
        false => {
            let before = config::parse(old, known).map_or_else(|all| all, |(_, warnings)| warnings);
            before.into_iter().map(|d| d.message).collect()
        }
    };
    let told = warnings.iter().filter(|d| is_always(d) || !before.contains(&d.message));
    told.map(|d| d.message.clone()).collect()
}

impl ControlLoop {
    /// Begins to read the configuration again. The answer goes to whoever asked; the log has it in one line.
    pub(super) fn reload(&mut self, answer: Sender<Response>) {
        (self.on_phase)(Phase::Reloading);
        let prepare: Vec<Option<Prepare>> =
            self.publisher.parts.iter().map(|own| own.part.prepare()).collect();
        let (path, known) = (self.file.clone(), self.known.clone());
        let interfaces = self.interfaces.clone();
        let asks = answer.clone();
        self.build(None, asks, move || {
            let read = || {
                if files::is_standard(&path) {
                    let what = "the configuration came from standard input, which cannot be read \
                                again: start with a file to reload it";
                    return Err(Unread::from(what.to_owned()));
                }
                let (config, report) = config::load(&path, &known)?;
                let interfaces = interfaces.after(&config)?;
                let built = |prepare: Option<Prepare>| {
                    prepare.map(|prepare| prepare(&config, &interfaces)).transpose()
                };
                let built = prepare.into_iter().map(built).collect::<Result<_, String>>()?;
                Ok(Fresh { config, report: Some(report), built, interfaces })
            };
            Event::Read(Box::new(Read { result: read(), answer, then: None }))
        });
    }

    /// Begins to apply a configuration that is not the file's, and answers a request afterwards.
    pub(super) fn begin(&mut self, config: Config, asked: Asked, answer: Sender<Response>) {
        let prepare: Vec<Option<Prepare>> =
            self.publisher.parts.iter().map(|own| own.part.prepare()).collect();
        let interfaces = self.interfaces.clone();
        let asks = answer.clone();
        self.build(None, asks, move || {
            let built = |prepare: Option<Prepare>| {
                prepare.map(|prepare| prepare(&config, &interfaces)).transpose()
            };
            let built = prepare.into_iter().map(built).collect::<Result<_, String>>();
            let result = built.map(|built| Fresh { config, report: None, built, interfaces });
            let result = result.map_err(Unread::from);
            Event::Read(Box::new(Read { result, answer, then: Some(asked) }))
        });
    }

    /// Applies what was read.
    pub(super) fn apply_read(&mut self, read: Read) {
        let Some(asked) = read.then else { return self.apply_reload(read) };
        let read_well = read.result.map_err(|why| NotApplied::Refused(why.message));
        let applied = read_well.and_then(|fresh| {
            let diff = Config::diff(&self.config, &fresh.config);
            self.rebuild(fresh, &diff)
        });
        match applied {
            Ok(_) => self.answer_now(asked, read.answer),
            Err(error) => {
                let message = match error {
                    NotApplied::Refused(message) => message,
                    NotApplied::Stopping => "the instance is stopping".to_owned(),
                };
                // A client that is gone needs no answer.
                drop(read.answer.send(Response::error(ErrorKind::Internal, message)));
            }
        }
    }

    fn apply_reload(&mut self, read: Read) {
        let unread = read.result.as_ref().err().map(|why| why.in_line.clone());
        let result = read.result.map_err(|why| NotApplied::Refused(why.message));
        let result = result.and_then(|fresh| self.apply_file(fresh));
        match &result {
            Ok(message) => tracing::info!("reloaded: {}", one_line(message)),
            Err(NotApplied::Refused(why)) => {
                tracing::error!("not reloaded: {}", unread.unwrap_or_else(|| one_line(why)));
            }
            Err(NotApplied::Stopping) => tracing::info!("{CANCELLED}"),
        }
        (self.on_phase)(Phase::Reloaded { good: result.is_ok() });
        // A client that is gone needs no answer.
        let _ = read.answer.send(match result {
            Ok(message) => Response::Done { message },
            Err(NotApplied::Refused(message)) => Response::error(ErrorKind::Config, message),
            Err(NotApplied::Stopping) => Response::error(ErrorKind::Internal, CANCELLED),
        });
    }

    fn apply_file(&mut self, fresh: Fresh) -> Result<String, NotApplied> {
        let mut diff = Config::diff(&self.config, &fresh.config);
        // What waits for a restart is told until the restart, or until the file is as it was.
        diff.restart = Config::diff(&self.started, &fresh.config).restart;
        let report = fresh.report.clone();
        let told = match diff.rebuild.is_empty() {
            true => self.apply_live(fresh)?,
            false => self.rebuild(fresh, &diff)?,
        };
        let told = whole_lines(told) + &self.open_closed();
        let odd = report.map(|report| {
            let old = std::mem::replace(&mut self.source, report.source);
            worth_telling(&report.diagnostics, &old, &self.known)
        });
        let odd: String = odd.iter().flatten().map(|what| format!("warning: {what}\n")).collect();
        let diff = match diff.to_string() {
            // Of the file; what the parts say was no part of it.
            text if !told.is_empty() && text == NOTHING => "nothing else changed".into(),
            text => text,
        };
        Ok(odd + &told + &diff)
    }

    /// Applies what needs no other stages and no other ports. What the parts say of it.
    fn apply_live(&mut self, fresh: Fresh) -> Result<String, String> {
        let records = self.records.clone();
        let old = std::mem::replace(&mut self.config, fresh.config);
        self.publisher.parts.iter_mut().for_each(|own| own.part.begin());
        if let Err(error) = self.apply(&old, fresh.built) {
            self.config = old;
            self.addresses_back(&records, |_| true);
            self.records = records;
            self.roll_back();
            self.settle();
            return Err(error);
        }
        let told = self.commit(&old);
        (self.on_reload)(&self.config);
        self.settle();
        Ok(told)
    }

    /// What the parts say of what is now in force.
    pub(super) fn commit(&mut self, old: &Config) -> String {
        let mut env = super::environment!(self);
        let parts = self.publisher.parts.iter_mut();
        parts.map(|own| own.part.commit(old, &self.started, &mut env)).collect()
    }

    /// Whatever may fail.
    pub(super) fn apply(&mut self, old: &Config, built: Vec<Option<Built>>) -> Result<(), String> {
        let mut env = super::environment!(self);
        for (own, built) in self.publisher.parts.iter_mut().zip(built) {
            own.part.apply(old, built, &mut env)?;
        }
        self.apply_addresses(old)
    }

    /// Addresses, MTU and checks of the interfaces after a reload. Addresses of a twin go by way of
    /// the kernel, which may have some of its own.
    fn apply_addresses(&mut self, old: &Config) -> Result<(), String> {
        for i in 0..self.records.len() {
            let name = self.interfaces.name(i as u16).to_owned();
            let fresh = self.fresh_record(i);
            if self.records[i].mtu != fresh.mtu {
                self.warn_of_mtu(i);
            }
            let list = |config: &Config| {
                config.port(&name).map(|port| port.addresses.clone()).unwrap_or_default()
            };
            let (before, after) = (list(old), list(&self.config));
            if let Some(twin) = self.twins[i].clone() {
                let mut client = Client::route().map_err(|error| error.to_string())?;
                for address in before.iter().filter(|a| !after.contains(a)) {
                    kernel::links::remove_address(&mut client, twin.ifindex, *address)
                        .map_err(|error| error.to_string())?;
                    self.address(twin.ifindex, *address, false);
                }
                // Before the addresses: with less than 1280 bytes the kernel takes none of IPv6.
                self.set_mtu(i, fresh.mtu)?;
                for address in after.iter().filter(|a| !before.contains(a)) {
                    kernel::links::add_address(&mut client, twin.ifindex, *address, false)
                        .map_err(|error| error.to_string())?;
                    self.address(twin.ifindex, *address, true);
                }
                self.records[i].reverse_path = fresh.reverse_path;
            } else {
                // The rest of it is for a restart.
                let record = &mut self.records[i];
                record.mtu = fresh.mtu;
                record.addresses4 = fresh.addresses4;
                record.addresses6 = fresh.addresses6;
                record.reverse_path = fresh.reverse_path;
            }
            self.publish_interface(i);
        }
        Ok(())
    }

    /// Gives the twins of interfaces that stay the addresses that they had before a reload that failed.
    pub(super) fn addresses_back(&mut self, records: &[Interface], stays: impl Fn(usize) -> bool) {
        for (i, was) in records.iter().enumerate().filter(|(i, _)| stays(*i)) {
            if let Err(error) = self.address_back(i, was) {
                let name = self.interfaces.name(i as u16);
                tracing::error!("port {name}: failed to restore the previous addresses: {error}");
            }
        }
    }

    /// The parts take back what they changed in a reload that failed. Configuration and records are as before.
    pub(super) fn roll_back(&mut self) {
        for i in 0..self.records.len() {
            self.tell_interface(i);
        }
        // After the interfaces: what they changed goes back, too.
        let mut env = super::environment!(self);
        self.publisher.parts.iter_mut().for_each(|own| own.part.roll_back(&mut env));
    }

    /// Gives a twin the addresses and the MTU that it had.
    fn address_back(&mut self, i: usize, was: &Interface) -> Result<(), String> {
        let Some(twin) = self.twins[i].clone() else { return Ok(()) };
        let (now, then) = (addresses(&self.records[i]), addresses(was));
        if now != then {
            let mut client = Client::route().map_err(|error| error.to_string())?;
            for address in now.iter().filter(|a| !then.contains(a)) {
                kernel::links::remove_address(&mut client, twin.ifindex, *address)
                    .map_err(|error| error.to_string())?;
            }
            for address in then.iter().filter(|a| !now.contains(a)) {
                kernel::links::add_address(&mut client, twin.ifindex, *address, false)
                    .map_err(|error| error.to_string())?;
            }
        }
        self.set_mtu(i, was.mtu)
    }
}

/// A message of several lines as an entry of the log.
/// What a part says, which may have no end of line at its end.
fn whole_lines(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ")
}
