//! What the steward does for a firewall: `ctl rule`.

use std::path::Path;
use std::sync::mpsc::Sender;

use control::api::{ErrorKind, ROWS_PER_RESPONSE, Request, Response};
use control::config::{self, LoadError, Report, RuleEntry, Topic};
use control::firewall::Action;

use super::Steward;
use crate::firewall::{self, Firewall, Gone, Refusal};
use crate::wiring::Interfaces;

/// What who asks for rules where there are none is told.
const NO_FIREWALL: &str =
    "this instance has no firewall: add [firewall] or a [[rule]] to the configuration and restart";

fn no_firewall() -> Response {
    Response::error(ErrorKind::Unsupported, NO_FIREWALL)
}

fn refused(refusal: Refusal) -> Response {
    match refusal {
        Refusal::NotFound(message) => Response::error(ErrorKind::NotFound, message),
        Refusal::Exists(message) => Response::error(ErrorKind::Exists, message),
        Refusal::Bad(message) => Response::error(ErrorKind::BadRequest, message),
    }
}

/// Rules that are to replace all others.
pub(crate) struct NewRules {
    entries: Vec<RuleEntry>,
    /// What is odd about them.
    odd: Vec<String>,
}

impl NewRules {
    /// Reads a file and looks at its rules, which for many takes longer than the steward may be away.
    pub(crate) fn read(
        file: &Path,
        action: Option<&Action>,
        interfaces: &Interfaces,
    ) -> Result<Self, Box<Response>> {
        match config::load_rules(file, action) {
            Ok(entries) => Ok(Self { odd: firewall::odd(&entries, interfaces), entries }),
            Err(error @ LoadError::Invalid(_)) => {
                Err(Box::new(Response::error(ErrorKind::Config, error)))
            }
            Err(error) => Err(Box::new(Response::error(ErrorKind::BadRequest, error))),
        }
    }
}

/// What a configuration has odd about its rules, in the words of its warnings.
pub(super) fn odd(report: &Report) -> Vec<String> {
    let odd = report.diagnostics.iter().filter(|diagnostic| diagnostic.topic == Topic::OddRule);
    odd.map(|diagnostic| diagnostic.message.clone()).collect()
}

/// What a reload tells of rules before the differences of the file.
pub(super) fn told(odd: &[String], gone: Gone) -> String {
    let mut text: String = odd.iter().map(|text| format!("warning: {text}\n")).collect();
    let count = |n: usize| if n == 1 { "1 rule".to_owned() } else { format!("{n} rules") };
    if gone.rules > 0 {
        let (rules, of_file) = (count(gone.rules), count(gone.of_file));
        text.push_str(&format!(
            "gone: {rules} of `ctl rule`; back: {of_file} of the configuration\n"
        ));
    }
    text
}

impl Steward {
    /// A request about rules.
    pub(super) fn rule(&mut self, request: Request, answer: &Sender<Response>) {
        let response = match request {
            Request::RuleShow { name } => return self.rule_show(name.as_deref(), answer),
            Request::RuleAdd { rule, place } => self.change_rules(|f| f.add(rule, &place)),
            Request::RuleReplace { rule } => self.change_rules(|f| f.replace(rule)),
            Request::RuleDel { name } => {
                self.change_rules(|f| f.remove(&name).map(|()| Vec::new()))
            }
            _ => Response::error(ErrorKind::Internal, "no request about rules"),
        };
        // A client that is gone needs no answer.
        drop(answer.send(response));
    }

    /// Counters of rules begin at zero.
    pub(super) fn clear_rules(&mut self) {
        if let Some(firewall) = &mut self.plane.firewall {
            firewall.clear();
            self.dirty = true;
        }
    }

    /// Takes a set that was read and looked at elsewhere.
    pub(super) fn replace_rules(&mut self, set: NewRules) -> Response {
        let NewRules { entries, odd } = set;
        self.change_rules(|firewall| firewall.replace_all(&entries).map(|()| odd))
    }

    /// Makes a change visible, and tells what is odd about it.
    fn change_rules(
        &mut self,
        change: impl FnOnce(&mut Firewall) -> Result<Vec<String>, Refusal>,
    ) -> Response {
        let Some(firewall) = &mut self.plane.firewall else { return no_firewall() };
        let result = change(firewall);
        self.dirty = true;
        self.settle();
        match result {
            Err(refusal) => refused(refusal),
            Ok(odd) => {
                let lines: Vec<_> = odd.iter().map(|text| format!("warning: {text}")).collect();
                odd.iter().for_each(|text| tracing::warn!("{text}"));
                Response::Done { message: lines.join("\n") }
            }
        }
    }

    fn rule_show(&self, name: Option<&str>, answer: &Sender<Response>) {
        // A client that is gone needs no answer.
        let send = |response| answer.send(response).is_ok();
        let Some(firewall) = &self.plane.firewall else {
            send(no_firewall());
            return;
        };
        match firewall.rows(name) {
            Err(refusal) => drop(send(refused(refusal))),
            Ok(rows) => {
                for rows in rows.chunks(ROWS_PER_RESPONSE) {
                    if !send(Response::Rules { rows: rows.to_vec() }) {
                        return;
                    }
                }
            }
        }
    }
}
