//! The dashboard on a screen: what the user has chosen, and how the tables are laid out.
//!
//! ```text
//!  Shadeline 0.1.0  router  up 2 min 3 s …                every 1 s
//!  Ports ──────────────────────────────────────────────────────────
//!  Stages ─────────────────────────  Drops ────────────────────────
//!  Hottest rules ──────────────────  Workers ──────────────────────
//!                                    Devices ──────────────────────
//!  q quit  Tab table  …
//! ```
//!
//! A narrow screen has one column. Where there is no room for all rows, every table gets some; where there is none for
//! that either, the last tables go, but never the selected one. A table without room for its columns loses those of the
//! highest rank.

use std::collections::HashMap;

use control::metrics::Snapshot;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::Answer;
use super::model::{self, Cell, Column, History, Look, Table};

/// A screen of fewer columns has one column of tables.
const WIDE: u16 = 100;

/// Columns between two tables, and between the columns of a table.
const GAP: u16 = 2;

/// Lines of a table besides its rows: its title and the titles of its columns.
const HEAD: u16 = 2;

const HELP: &[[&str; 2]] = &[
    ["q, Ctrl-C", "quit"],
    ["Tab, Shift-Tab", "select a table"],
    ["Left, Right", "sort the table by another column"],
    ["r", "reverse the order"],
    ["Up, Down, Home", "scroll the table"],
    ["Enter", "show the table alone, or all tables"],
    ["p", "pause: keep these figures"],
    ["?", "show or hide this help"],
];

/// The dashboard: the newest snapshots, and what the user has chosen.
#[derive(Default)]
pub(super) struct Top {
    now: Option<Snapshot>,
    before: Option<Snapshot>,
    history: History,
    /// Tables that are shown instead of those of the snapshots.
    tables: Option<Vec<Table>>,
    /// The title of the selected table; empty: none is.
    selected: String,
    /// By title of a table: the column, and whether the largest value is first. `None`: as the instance has them.
    order: HashMap<String, Option<(usize, bool)>>,
    /// Rows of the selected table that are scrolled away.
    scrolled: usize,
    is_alone: bool,
    is_paused: bool,
    is_helping: bool,
    /// Whether colours may be used.
    has_colours: bool,
    /// Shown at the right of the first line.
    pub(super) note: String,
}

impl Top {
    /// A dashboard without figures.
    pub(super) fn new(has_colours: bool, note: String) -> Self {
        Self { has_colours, note, ..Self::default() }
    }

    /// A new answer; one that comes during a pause is not shown.
    pub(super) fn take_answer(&mut self, answer: Answer) {
        if !self.is_paused {
            self.tables = answer.tables;
            self.take(answer.snapshot);
        }
    }

    /// A new snapshot; one that comes during a pause is not shown.
    pub(super) fn take(&mut self, snapshot: Snapshot) {
        if self.is_paused {
            return;
        }
        let before = self.now.take();
        // Another instance at the same socket: nothing of the one before counts.
        let goes_on = |b: &Snapshot| b.runtime.uptime_s <= snapshot.runtime.uptime_s;
        self.before = before.filter(goes_on);
        if self.before.is_none() {
            self.history = History::default();
        }
        self.history.add(&snapshot, self.before.as_ref());
        self.now = Some(snapshot);
    }

    /// A key; whether the user wants to leave.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let tables = self.tables();
        match key.code {
            KeyCode::Char('c') if is_control => return true,
            KeyCode::Char('q') => return true,
            KeyCode::Esc if self.is_helping => self.is_helping = false,
            KeyCode::Esc if self.is_alone => self.is_alone = false,
            KeyCode::Esc => return true,
            KeyCode::Char('?' | 'h') => self.is_helping = !self.is_helping,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Tab => self.select(&tables, 1),
            KeyCode::BackTab => self.select(&tables, tables.len().saturating_sub(1)),
            KeyCode::Right => self.sort(&tables, 1),
            KeyCode::Left => self.sort(&tables, -1),
            KeyCode::Char('r') => {
                if let Some(table) = self.chosen(&tables)
                    && let Some((column, is_descending)) = self.order_of(table)
                {
                    let order = Some((column, !is_descending));
                    self.order.insert(table.title.clone(), order);
                }
            }
            KeyCode::Down => {
                let rows = self.chosen(&tables).map_or(0, |table| table.rows.len());
                self.scrolled = (self.scrolled + 1).min(rows.saturating_sub(1));
            }
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Home => self.scrolled = 0,
            KeyCode::Enter => {
                if self.chosen(&tables).is_none() {
                    self.select(&tables, 0);
                }
                self.is_alone = !self.is_alone;
            }
            _ => {}
        }
        false
    }

    /// Draws everything.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.height == 0 || area.width == 0 {
            return;
        }
        frame.render_widget(Paragraph::new(self.first_line(area.width)), row_of(area, 0));
        let tables = self.tables();
        // On a screen of three lines the tables need them all.
        let has_keys = area.height > 4;
        let room = Rect { y: area.y + 1, height: area.height - 1 - u16::from(has_keys), ..area };
        for (table, place) in self.laid_out(&tables, room) {
            self.draw_table(frame, table, place);
        }
        if self.now.is_none() && room.height > 0 {
            frame.render_widget(Paragraph::new("waiting for the instance"), row_of(room, 0));
        }
        if has_keys {
            let keys =
                "q quit  Tab table  ←→ sort  r reverse  ↑↓ scroll  Enter alone  p pause  ? help";
            let keys = Line::styled(keys, self.quiet());
            frame.render_widget(Paragraph::new(keys), row_of(area, area.height - 1));
        }
        if self.is_helping {
            self.draw_help(frame, area);
        }
    }

    fn tables(&self) -> Vec<Table> {
        if let Some(tables) = &self.tables {
            return tables.clone();
        }
        let history = Some(&self.history);
        let tables = |now| model::tables(now, self.before.as_ref(), history);
        self.now.as_ref().map(tables).unwrap_or_default()
    }

    fn chosen<'t>(&self, tables: &'t [Table]) -> Option<&'t Table> {
        tables.iter().find(|table| table.title == self.selected)
    }

    fn select(&mut self, tables: &[Table], steps: usize) {
        let at = tables.iter().position(|table| table.title == self.selected);
        let next = match at {
            Some(at) => (at + steps) % tables.len(),
            // Backwards begins at the last one.
            None if steps > 1 => tables.len() - 1,
            None => 0,
        };
        self.selected = tables.get(next).map(|table| table.title.clone()).unwrap_or_default();
        self.scrolled = 0;
    }

    fn order_of(&self, table: &Table) -> Option<(usize, bool)> {
        let by_default = || table.hottest_by.map(|column| (column, true));
        self.order.get(&table.title).copied().unwrap_or_else(by_default)
    }

    /// Sorts the selected table, or the first one, by the next column; before the first column it is in its own order.
    fn sort(&mut self, tables: &[Table], step: isize) {
        if self.chosen(tables).is_none() {
            self.select(tables, 0);
        }
        let Some(table) = self.chosen(tables) else { return };
        let columns = table.columns.len() as isize;
        let at = self.order_of(table).map_or(-1, |(column, _)| column as isize);
        let next = (at + 1 + step).rem_euclid(columns + 1) - 1;
        let order = usize::try_from(next).ok();
        let order = order.map(|column| (column, table.columns[column].is_number));
        let title = table.title.clone();
        self.order.insert(title, order);
    }

    fn first_line(&self, width: u16) -> Line<'_> {
        let mut spans = vec![Span::styled("Shadeline", Style::new().add_modifier(Modifier::BOLD))];
        if let Some(now) = &self.now {
            let runtime = &now.runtime;
            spans.push(Span::raw(format!(" {}  ", runtime.version)));
            spans.push(Span::styled(runtime.mode.clone(), self.accent()));
            for [title, value] in model::facts(runtime) {
                spans.push(Span::styled(format!("  {title} "), self.quiet()));
                spans.push(Span::raw(value));
            }
        }
        let note = if self.is_paused { "paused" } else { &self.note };
        let used: usize = spans.iter().map(Span::width).sum();
        let room = usize::from(width).saturating_sub(used);
        let length = Span::raw(note).width();
        let style =
            if self.is_paused || note.starts_with("no ") { self.bad() } else { self.quiet() };
        if length + usize::from(GAP) <= room {
            spans.push(Span::raw(" ".repeat(room - length)));
            spans.push(Span::styled(note.to_owned(), style));
        } else if self.is_paused || note.starts_with("no ") {
            // What the figures are worth is said before what they are.
            spans = vec![Span::styled(note.to_owned(), style)];
        }
        Line::from(spans)
    }

    /// Where each table is drawn.
    fn laid_out<'t>(&self, tables: &'t [Table], room: Rect) -> Vec<(&'t Table, Rect)> {
        if let Some(table) = self.chosen(tables).filter(|_| self.is_alone) {
            return vec![(table, room)];
        }
        let Some((first, others)) = tables.split_first() else { return Vec::new() };
        if room.width < WIDE || others.len() < 2 {
            return self.in_column(&tables.iter().collect::<Vec<_>>(), room);
        }
        // At least half of the lines are for the other tables.
        let most = (room.height / 2).max(HEAD + 1);
        let height = (wanted(first) + 1).min(most).min(room.height);
        let mut places = self.in_column(&[first], Rect { height, ..room });
        let below = Rect { y: room.y + height, height: room.height - height, ..room };
        let width = (below.width - GAP) / 2;
        let right = below.width - GAP - width;
        // Those that may be long are left: stages, and what is hottest.
        let is_left = |table: &&Table| table.title == "Stages" || table.hottest_by.is_some();
        let is_left = |table: &&Table| is_left(table) && table.title != "Drops";
        let (left, other): (Vec<_>, Vec<_>) = others.iter().partition(is_left);
        places.extend(self.in_column(&left, Rect { width, ..below }));
        let x = below.x + width + GAP;
        places.extend(self.in_column(&other, Rect { x, width: right, ..below }));
        places
    }

    /// One below the other.
    fn in_column<'t>(&self, tables: &[&'t Table], room: Rect) -> Vec<(&'t Table, Rect)> {
        let wants: Vec<u16> = tables.iter().map(|table| wanted(table)).collect();
        let chosen = tables.iter().position(|table| table.title == self.selected);
        let mut y = room.y;
        let mut places = Vec::new();
        for (table, height) in tables.iter().zip(shares(room.height, &wants, chosen)) {
            if height > 0 {
                places.push((*table, Rect { y, height, ..room }));
            }
            y += height;
        }
        places
    }

    fn draw_table(&self, frame: &mut Frame<'_>, table: &Table, place: Rect) {
        let is_chosen = table.title == self.selected;
        let order = self.order_of(table);
        let rows = model::in_order(table, order);
        let room = usize::from(place.height.saturating_sub(HEAD));
        let scrolled =
            if is_chosen { self.scrolled.min(rows.len().saturating_sub(room)) } else { 0 };
        let shown = &rows[scrolled.min(rows.len())..(scrolled + room).min(rows.len())];

        let mut title = vec![Span::styled(
            table.title.clone(),
            if is_chosen {
                Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED)
            } else {
                Style::new().add_modifier(Modifier::BOLD)
            },
        )];
        let mut note = table.note.clone();
        if shown.len() < rows.len() {
            let range = format!("{} to {} of {}", scrolled + 1, scrolled + shown.len(), rows.len());
            note = if note.is_empty() { range } else { format!("{range}, {note}") };
        }
        if !note.is_empty() {
            title.push(Span::styled(format!(" ({note})"), self.quiet()));
        }
        let used: usize = title.iter().map(Span::width).sum();
        let rule = usize::from(place.width).saturating_sub(used + 1);
        title.push(Span::styled(format!(" {}", "─".repeat(rule)), self.quiet()));
        frame.render_widget(Paragraph::new(Line::from(title)), row_of(place, 0));
        if rows.is_empty() {
            if place.height > 1 {
                let text = Line::styled(table.empty, self.quiet());
                frame.render_widget(Paragraph::new(text), row_of(place, 1));
            }
            return;
        }
        if place.height < HEAD {
            return;
        }

        let columns = columns_of(table, &rows, place.width);
        let heads = columns.iter().map(|(at, width)| {
            let Column { title, is_number, .. } = table.columns[*at];
            let mark = match order {
                Some((by, true)) if by == *at => "▾",
                Some((by, false)) if by == *at => "▴",
                _ => "",
            };
            Span::styled(padded(&format!("{title}{mark}"), *width, is_number), self.quiet())
        });
        frame.render_widget(Paragraph::new(with_gaps(heads)), row_of(place, 1));
        for (line, row) in shown.iter().enumerate() {
            let cells = columns.iter().map(|(at, width)| {
                let cell: &Cell = &row[*at];
                let text = padded(&cell.text, *width, table.columns[*at].is_number);
                Span::styled(text, self.style(cell.look))
            });
            let place = row_of(place, HEAD + line as u16);
            frame.render_widget(Paragraph::new(with_gaps(cells)), place);
        }
    }

    fn draw_help(&self, frame: &mut Frame<'_>, area: Rect) {
        let keys = HELP.iter().map(|[key, _]| key.len()).max().unwrap_or(0);
        let lines: Vec<String> =
            HELP.iter().map(|[key, what]| format!(" {key:keys$}  {what} ")).collect();
        let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 2;
        let height = lines.len() as u16 + 2;
        let (width, height) = (width.min(area.width), height.min(area.height));
        let place = Rect {
            x: area.x + (area.width - width) / 2,
            y: area.y + (area.height - height) / 2,
            width,
            height,
        };
        frame.render_widget(Clear, place);
        let block = ratatui::widgets::Block::bordered().title(" Keys ");
        let text: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(text).block(block), place);
    }

    fn style(&self, look: Look) -> Style {
        match look {
            Look::Plain => Style::new(),
            Look::Name => Style::new().add_modifier(Modifier::BOLD),
            Look::Drawing => self.accent(),
            Look::Warning => self.bad(),
        }
    }

    fn coloured(&self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn accent(&self) -> Style {
        self.coloured(Color::Cyan)
    }

    fn quiet(&self) -> Style {
        if self.has_colours { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }

    /// Without colours it is underlined.
    fn bad(&self) -> Style {
        let plain = if self.has_colours { Modifier::BOLD } else { Modifier::UNDERLINED };
        self.coloured(Color::LightRed).add_modifier(plain)
    }
}

/// Lines that a table fills with all of its rows.
fn wanted(table: &Table) -> u16 {
    // A text stands for rows and titles where there are none.
    let rows = if table.rows.is_empty() { 1 } else { table.rows.len() + 1 };
    u16::try_from(rows).unwrap_or(u16::MAX - HEAD) + 1
}

/// What each of several tables gets of these lines: all that it wants, or a fair part, but never less than a row with its
/// titles. Tables for which there is not even that get nothing; the last ones first, and `chosen` never. Lines that are
/// left over separate the tables.
fn shares(lines: u16, wants: &[u16], chosen: Option<usize>) -> Vec<u16> {
    const LEAST: u16 = HEAD + 1;
    let mut shares = vec![0; wants.len()];
    let mut left = lines;
    let order = chosen.into_iter().chain((0..wants.len()).filter(|at| Some(*at) != chosen));
    for (n, at) in order.enumerate() {
        let least = LEAST.min(wants[at]);
        // Of a screen too short for one table, that table gets all.
        shares[at] = if n == 0 {
            least.min(left)
        } else if least <= left {
            least
        } else {
            0
        };
        left -= shares[at];
    }
    while left > 0 {
        let mut is_settled = true;
        for (share, want) in shares.iter_mut().zip(wants) {
            if *share > 0 && *share < *want && left > 0 {
                *share += 1;
                left -= 1;
                is_settled = false;
            }
        }
        if is_settled {
            break;
        }
    }
    let shown = shares.iter_mut().filter(|share| **share > 0);
    shown.take(left.into()).for_each(|share| *share += 1);
    shares
}

/// The columns of a table for which there is room, each with its width.
fn columns_of(table: &Table, rows: &[&[Cell]], room: u16) -> Vec<(usize, usize)> {
    let natural = |at: usize| {
        let title = Span::raw(table.columns[at].title).width() + 1;
        let cells = rows.iter().map(|row| Span::raw(row[at].text.as_str()).width());
        cells.chain([title]).max().unwrap_or(title)
    };
    let mut columns: Vec<(usize, usize)> =
        (0..table.columns.len()).map(|at| (at, natural(at))).collect();
    let room = usize::from(room);
    let total = |columns: &[(usize, usize)]| {
        let widths: usize = columns.iter().map(|(_, width)| width).sum();
        widths + usize::from(GAP) * columns.len().saturating_sub(1)
    };
    // Text in the last column is cut before the column goes.
    const TEXT_LEAST: usize = 12;
    loop {
        let all = total(&columns);
        if all <= room {
            break;
        }
        let excess = all - room;
        if let Some((at, width)) = columns.last_mut()
            && !table.columns[*at].is_number
            && *width >= TEXT_LEAST + excess
        {
            *width -= excess;
            break;
        }
        let worst =
            columns.iter().enumerate().max_by_key(|(n, (at, _))| (table.columns[*at].rank, *n));
        match worst {
            Some((n, (at, _))) if table.columns[*at].rank > 0 => drop(columns.remove(n)),
            _ => break,
        }
    }
    // What is left of names that are too long.
    let excess = total(&columns).saturating_sub(room);
    if let Some((_, width)) = columns.first_mut() {
        *width = width.saturating_sub(excess).max(1);
    }
    columns
}

/// Text of exactly this width; what is cut off is marked.
fn padded(text: &str, width: usize, is_right: bool) -> String {
    let own = Span::raw(text).width();
    if own <= width {
        let pad = " ".repeat(width - own);
        return if is_right { pad + text } else { format!("{text}{pad}") };
    }
    let mut cut = String::new();
    for c in text.chars() {
        if Span::raw(format!("{cut}{c}")).width() + 1 > width {
            break;
        }
        cut.push(c);
    }
    let pad = width.saturating_sub(Span::raw(cut.as_str()).width() + 1);
    cut + "…" + &" ".repeat(pad)
}

fn with_gaps<'a>(cells: impl Iterator<Item = Span<'a>>) -> Line<'a> {
    let mut spans = Vec::new();
    for cell in cells {
        if !spans.is_empty() {
            spans.push(Span::raw(" ".repeat(usize::from(GAP))));
        }
        spans.push(cell);
    }
    Line::from(spans)
}

/// A line of a place; an empty one where it has none.
fn row_of(place: Rect, line: u16) -> Rect {
    let height = u16::from(line < place.height);
    Rect { y: place.y + line.min(place.height.saturating_sub(1)), height, ..place }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::tests::snapshots;
    use super::*;

    fn top() -> Top {
        let (before, now) = snapshots();
        let mut top = Top { note: "every 1 s".to_owned(), ..Top::default() };
        top.take(before);
        top.take(now);
        top
    }

    fn drawn(top: &Top, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| top.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let mut text = String::new();
        for y in 0..height {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn press(top: &mut Top, keys: &[KeyCode]) -> bool {
        keys.iter().any(|code| top.key(KeyEvent::new(*code, KeyModifiers::NONE)))
    }

    /// The frame as it was looked at; `UPDATE_GOLDEN=1` writes it anew.
    #[test]
    fn a_frame_is_as_it_was() {
        let path = testkit::repository().join("shadeline/src/top/frame.txt");
        let frame = drawn(&top(), 100, 30);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &frame).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        assert_eq!(frame, expected, "\n{frame}");
    }

    #[test]
    fn a_wide_screen_has_lines() {
        let text = drawn(&top(), 150, 40);
        assert!(text.matches("last minute").count() == 2 && text.contains("  █  "), "{text}");
    }

    #[test]
    fn no_screen_is_too_small() {
        let mut many = snapshots().1;
        many.interfaces = (0..40)
            .map(|n| control::api::InterfaceRow {
                name: format!("a port with a long name 名前 {n}"),
                ..many.interfaces[0].clone()
            })
            .collect();
        let mut full = top();
        full.take(many);
        let all = [KeyCode::Tab, KeyCode::Enter, KeyCode::Char('?'), KeyCode::Right, KeyCode::Down];
        for mut top in [Top::default(), top(), full] {
            for _ in 0..8 {
                for key in all {
                    for (width, height) in [
                        (1, 1),
                        (1, 40),
                        (200, 1),
                        (2, 2),
                        (9, 3),
                        (20, 5),
                        (40, 10),
                        (80, 24),
                        (99, 7),
                        (100, 4),
                        (250, 80),
                    ] {
                        drawn(&top, width, height);
                    }
                    assert!(!press(&mut top, &[key]));
                }
            }
        }
        assert!(drawn(&Top::default(), 80, 24).contains("waiting for the instance"));
    }

    #[test]
    fn a_short_screen_keeps_the_selected_table() {
        let mut top = top();
        let text = drawn(&top, 60, 8);
        assert!(text.contains("Ports") && !text.contains("Devices"), "{text}");
        press(&mut top, &[KeyCode::BackTab]);
        let text = drawn(&top, 60, 8);
        assert!(text.contains("Devices") && text.contains("sim"), "{text}");
        // All tables with all rows, where there is room.
        let text = drawn(&top, 60, 60);
        for name in ["wan", "rewrite", "ttl_expired", "default", "given up", "sim"] {
            assert_eq!(text.contains(name), name != "given up", "{name}: {text}");
        }
    }

    #[test]
    fn keys_do_what_the_help_says() {
        let mut top = top();
        let first = |top: &Top| {
            let text = drawn(top, 120, 40);
            let heads = ["\nport ", "\nport▾", "\nport▴"];
            let at = heads.iter().find_map(|head| text.find(head)).unwrap();
            text[at + 1..].lines().nth(1).unwrap().split(' ').next().unwrap().to_owned()
        };
        assert_eq!(first(&top), "lan");
        // By name the first is the first; `received` has the largest first.
        press(&mut top, &[KeyCode::Tab, KeyCode::Right]);
        assert_eq!(first(&top), "lan");
        press(&mut top, &[KeyCode::Char('r')]);
        assert_eq!(first(&top), "wan");
        press(&mut top, &[KeyCode::Right, KeyCode::Right]);
        assert!(drawn(&top, 120, 40).contains("received▾"));
        assert_eq!(first(&top), "lan");
        press(&mut top, &[KeyCode::Left, KeyCode::Left, KeyCode::Left]);
        assert!(!drawn(&top, 120, 40).contains("port▴"), "in the instance's own order again");
        // Alone, and all again.
        press(&mut top, &[KeyCode::Enter]);
        let text = drawn(&top, 120, 40);
        assert!(text.contains("Ports") && !text.contains("Stages"), "{text}");
        assert!(!press(&mut top, &[KeyCode::Esc]));
        assert!(drawn(&top, 120, 40).contains("Stages"));
        press(&mut top, &[KeyCode::Char('?')]);
        assert!(drawn(&top, 120, 40).contains("select a table"));
        assert!(!press(&mut top, &[KeyCode::Esc]));
        assert!(!drawn(&top, 120, 40).contains("select a table"));
        // A pause keeps what is shown.
        press(&mut top, &[KeyCode::Char('p')]);
        let mut later = snapshots().1;
        later.runtime.uptime_s = 7200.0;
        top.take(later.clone());
        let text = drawn(&top, 120, 40);
        assert!(text.contains("paused") && text.contains("up 2 min 3 s"), "{text}");
        press(&mut top, &[KeyCode::Char('p')]);
        top.take(later);
        assert!(drawn(&top, 120, 40).contains("up 2 h 0 min"));
        assert!(press(&mut top, &[KeyCode::Char('q')]) && press(&mut top, &[KeyCode::Esc]));
        assert!(top.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }

    #[test]
    fn lines_are_shared_fairly() {
        assert_eq!(shares(20, &[4, 5], None), [5, 6]);
        assert_eq!(shares(10, &[4, 5], None), [5, 5]);
        assert_eq!(shares(10, &[20, 4], None), [6, 4]);
        assert_eq!(shares(10, &[20, 2], None), [8, 2]);
        assert_eq!(shares(10, &[20, 20], None), [5, 5]);
        assert_eq!(shares(5, &[20, 20, 20], None), [5, 0, 0]);
        assert_eq!(shares(5, &[20, 20, 20], Some(2)), [0, 0, 5]);
        assert_eq!(shares(1, &[20], None), [1]);
        assert_eq!(shares(0, &[20, 3], None), [0, 0]);
        assert_eq!(shares(3, &[], None), [0u16; 0]);
    }

    #[test]
    fn columns_go_by_their_rank() {
        let (before, now) = snapshots();
        let tables = model::tables(&now, Some(&before), None);
        let titles = |table: &Table, width| {
            let rows = model::in_order(table, None);
            let columns = columns_of(table, &rows, width);
            columns.iter().map(|(at, _)| table.columns[*at].title).collect::<Vec<_>>()
        };
        let drops = &tables[2];
        assert_eq!(titles(drops, 100), ["reason", "now", "packets", "what to do"]);
        assert_eq!(titles(drops, 45), ["reason", "now", "packets", "what to do"]);
        assert_eq!(titles(drops, 33), ["reason", "now", "packets"]);
        assert_eq!(titles(drops, 20), ["reason", "packets"]);
        assert_eq!(titles(&tables[0], 40), ["port", "received", "sent", "lost"]);
        assert_eq!(padded("waiting", 4, false), "wai…");
        assert_eq!(padded("名前が", 4, false), "名… ");
        assert_eq!(padded("7", 3, true), "  7");
    }
}
