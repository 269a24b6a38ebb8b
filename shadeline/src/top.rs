//! `shadeline ctl top`: a dashboard in the terminal.
//!
//! ```text
//!  control socket ─snapshot─▶ asking thread ─▶ queue ─┬▶ model: tables, with rates ─▶ view ─▶ screen
//!                                              keys ──┘
//! ```
//!
//! `ctl flows top` is the same with other tables ([`flows`]). The instance is asked on a thread of its own, so that keys work while it is busy. Without a terminal, or with --once,
//! the tables are printed once, with the rates of one interval.

mod flows;
mod model;
mod view;

use std::borrow::Cow;
use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use control::api::table::print;
use control::api::{Client, Request, Response};
use control::metrics::Snapshot;
use files::output::shown;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::Value;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{line, put};
use flows::Flows;
use model::Table;
use view::Top;

/// How long a key may wait for its effect.
const LOOK: Duration = Duration::from_millis(50);

/// After this silence the screen says that there is no answer.
const SILENCE: Duration = Duration::from_secs(3);

/// What a dashboard shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The instance: ports, stages, drops, rules, workers, devices.
    Instance,
    /// Its flows.
    Flows,
}

/// What the instance answered.
struct Answer {
    snapshot: Snapshot,
    /// Instead of those of the snapshot.
    tables: Option<Vec<Table>>,
}

/// Shows what an instance does, until the user quits.
pub(crate) fn run(
    client: Client,
    interval: Duration,
    once: bool,
    subject: Subject,
) -> Result<(), Failure> {
    if once || !std::io::stdout().is_terminal() {
        return print_once(client, interval, subject);
    }
    let interrupt = Interrupt::listen_on_terminal()?;
    let answers = ask(client, interval, subject)?;
    // Before the screen is taken: an instance that refuses is a line of text.
    let first = answers.recv().map_err(Failure::other)??;
    let note = format!("every {}", control::config::units::format_duration(interval));
    let mut top = Top::new(crate::color::is_on(std::io::stdout()), note);
    top.take_answer(first);
    // This also restores the terminal when something panics.
    let mut terminal = ratatui::try_init().map_err(Failure::other)?;
    let ended = watch(&mut terminal, &mut top, &answers, &interrupt);
    let restored = ratatui::try_restore().map_err(Failure::other);
    ended.and(restored).and_then(|()| interrupt.check())
}

/// Draws, and takes keys and snapshots, until the user or a signal ends it, or the instance is gone.
fn watch(
    terminal: &mut DefaultTerminal,
    top: &mut Top,
    answers: &mpsc::Receiver<Result<Answer, Failure>>,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let every = top.note.clone();
    let (mut heard, mut is_stale) = (Instant::now(), true);
    while !interrupt.stop.load(Ordering::Relaxed) {
        let silent = heard.elapsed();
        let note = match silent > SILENCE {
            true => format!("no answer for {} s", silent.as_secs()),
            false => every.clone(),
        };
        is_stale |= note != top.note;
        top.note = note;
        if std::mem::take(&mut is_stale) {
            terminal.draw(|frame| top.draw(frame)).map_err(Failure::other)?;
        }
        if event::poll(LOOK).map_err(Failure::other)? {
            match event::read().map_err(Failure::other)? {
                Event::Key(key) if key.kind != KeyEventKind::Release && top.key(key) => {
                    return Ok(());
                }
                _ => is_stale = true,
            }
        }
        match answers.try_recv() {
            Ok(snapshot) => {
                top.take_answer(snapshot?);
                (heard, is_stale) = (Instant::now(), true);
            }
            Err(TryRecvError::Empty) => {}
            // It ends after its error only.
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
    Ok(())
}

/// Asks for a snapshot in each interval, on a thread of its own, until that fails or nobody takes it.
fn ask(
    mut client: Client,
    interval: Duration,
    subject: Subject,
) -> Result<mpsc::Receiver<Result<Answer, Failure>>, Failure> {
    client.set_timeout(Some(super::ctl::PATIENCE)).map_err(Failure::other)?;
    let (send, answers) = mpsc::sync_channel(1);
    let asking = move || {
        let mut next = Instant::now();
        let mut flows = (subject == Subject::Flows).then(|| Flows::new(interval));
        loop {
            let answer = snapshot(&mut client).and_then(|snapshot| {
                let tables = flows.as_mut().map(|flows| flows.ask(&mut client)).transpose()?;
                Ok(Answer { snapshot, tables })
            });
            let is_last = answer.is_err();
            if send.send(answer).is_err() || is_last {
                return;
            }
            // After a long answer the next one is not asked for at once.
            next = (next + interval).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    };
    std::thread::Builder::new().name("asking".into()).spawn(asking).map_err(Failure::other)?;
    Ok(answers)
}

fn snapshot(client: &mut Client) -> Result<Snapshot, Failure> {
    let request = Request::show("snapshot").asked(false);
    let responses = client.call(&request).map_err(Failure::other)?;
    let fields = responses.into_iter().find_map(|response| match response {
        Response::Object { fields, .. } => Some(serde_json::Value::Object(fields)),
        _ => None,
    });
    let another = |why: String| {
        Failure::other(format!(
            "unexpected answer ({why}): does the instance have another version?"
        ))
    };
    let mut fields = fields.ok_or_else(|| another("no snapshot".to_owned()))?;
    make_shown(&mut fields);
    serde_json::from_value(fields).map_err(|error| another(error.to_string()))
}

/// The tables as text, with the rates of one interval.
fn print_once(client: Client, interval: Duration, subject: Subject) -> Result<(), Failure> {
    let answers = ask(client, interval, subject)?;
    let before = answers.recv().map_err(Failure::other)??;
    // The instance may be a while in answering.
    let now = loop {
        match answers.recv_timeout(super::ctl::PATIENCE) {
            Ok(answer) => break answer?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(error) => return Err(Failure::other(error)),
        }
    };
    let Answer { snapshot, tables } = now;
    let tables = tables.unwrap_or_else(|| model::tables(&snapshot, Some(&before.snapshot), None));
    put!("{}", text(&snapshot, &tables))
}

/// All tables one below the other, each in its first order.
fn text(now: &Snapshot, tables: &[Table]) -> String {
    let mut text = format!("Shadeline {}, {}", now.runtime.version, now.runtime.mode);
    for [title, value] in model::facts(&now.runtime) {
        text += &format!(", {title} {value}");
    }
    text.push('\n');
    for table in tables {
        let note = if table.note.is_empty() { String::new() } else { format!(" ({})", table.note) };
        line!(&mut text, "\n{}{note}", table.title);
        // Bars are for the screen.
        let is_drawing =
            |at: usize| table.rows.first().is_some_and(|row| row[at].look == model::Look::Drawing);
        let shown: Vec<usize> = (0..table.columns.len()).filter(|at| !is_drawing(*at)).collect();
        let title = |at: &usize| {
            let column = table.columns[*at];
            format!("{}{}", if column.is_number { ">" } else { "" }, column.title)
        };
        let rows = model::in_order(table, table.hottest_by.map(|column| (column, true)));
        let cells = rows.iter().map(|row| shown.iter().map(|at| row[*at].text.clone()).collect());
        let cells: Vec<Vec<String>> = cells.collect();
        if cells.is_empty() {
            line!(&mut text, "{}", table.empty);
        } else {
            text += &print(&shown.iter().map(title).collect::<Vec<_>>(), &cells);
        }
    }
    text
}

/// Names in a snapshot, as a terminal may get them.
fn make_shown(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(other) = shown(text) {
                *text = other;
            }
        }
        Value::Array(all) => all.iter_mut().for_each(make_shown),
        Value::Object(fields) => fields.values_mut().for_each(make_shown),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_frame_is_text() {
        let (before, now) = model::tests::snapshots();
        let text = text(&now, &model::tables(&now, Some(&before), None));
        let expected = "\
Shadeline 0.1.0, router, up 2 min 3 s, tables 34.0 MiB, resident 300.0 MiB

Ports
port  state  received          bits       sent          bits  lost  total lost  errors  kind
lan   up     1.00 M/s   8.00 Gbit/s   20.0 k/s  160.0 Mbit/s  3 /s           3       0  af_packet
";
        assert!(text.starts_with(expected), "{text}");
        for line in
            ["\nStages\nstage     packets  ns/packet      total\n", "\nHottest rules (3 in all)\n"]
        {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(text.is_ascii(), "{text}");
    }
}
