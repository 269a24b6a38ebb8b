//! `[l7]`.

use std::path::PathBuf;

use super::port::path;
use crate::config::kinds::{Custom, Kind, context, custom, words};
use crate::config::section::{Reload, Setting};
use crate::config::values::{Value, Walk, wrong_kind};

crate::section! {
    /// Application labels of flows ([l7.md](l7.md)): a monitor, or a stage of a router, switch or wire, behind `flow`.
    #[derive(Eq)]
    pub struct L7("l7") {
        /// Folder with patterns of applications in files with the extension `.pat`, in the format of l7-filter; subfolders, too.
        /// They are read again at each reload.
        live patterns: Option<PathBuf> = None, path().optional();
        /// Minimum confidence of a label for rules, contexts, events and counters. `low`: a port alone is enough. `medium`: one
        /// direction matches. `high`: both directions match, or one matches no other protocol.
        live confidence: Sureness = Sureness::Medium, words();
        /// Contexts that packets of an application get, such as `{ bittorrent = "bulk" }`, for later stages with `context` in
        /// `[stage.NAME]`.
        rebuild contexts: Vec<(String, String)> = Vec::new(), ContextsOf(table()).shown("none");
    }
    also {
        /// The file has the section.
        is_on: bool = false;
    }
}

crate::words! {
    /// `l7.confidence`.
    pub enum Sureness {
        /// A port alone, too.
        Low = "low",
        /// One direction fits.
        Medium = "medium",
        /// Both fit, or one fits no other protocol.
        High = "high",
    }
}

/// Names, each with the context that its packets get.
struct ContextsOf(Custom<Vec<(String, String)>>);

fn table() -> Custom<Vec<(String, String)>> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let Some(table) = value.get_ref().as_table() else {
            return wrong_kind(walk, value, "a table such as { bittorrent = \"bulk\" }");
        };
        let mut all = Vec::new();
        for (name, own) in table {
            all.push((name.get_ref().to_string(), context().read(walk, own)?));
        }
        Some(all)
    };
    let text = |all: &Vec<(String, String)>| {
        let all = all.iter().map(|(name, context)| format!("{name} = {context}"));
        all.collect::<Vec<_>>().join(", ")
    };
    custom("table", "`{ APPLICATION = \"CONTEXT\" }`", read, text).bare()
}

impl Kind for ContextsOf {
    type Value = Vec<(String, String)>;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<Self::Value> {
        self.0.read(walk, value)
    }

    fn text(&self, value: &Self::Value) -> String {
        self.0.text(value)
    }

    fn toml(&self, value: &Self::Value) -> Option<String> {
        self.0.toml(value)
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn allowed(&self) -> String {
        self.0.allowed()
    }

    fn settings(&self, value: &Self::Value, key: String, reload: Reload, out: &mut Vec<Setting>) {
        let contexts = value.iter().map(|own| own.1.clone()).collect();
        out.push(Setting { text: self.text(value), key, reload, contexts });
    }
}
