//! The kernels of modules: the text of a program from their sources, and the records of their flows.
//!
//! ```text
//!  modules.h │ names of its own, #line 1 "FILE" │ source │ module_NAME │ …next module… │ begin.h │ module_end
//!  launches:   module_begin ─▶ [sort by alike work] ─▶ [sort by flow] ─▶ module_NAME, one a module, in their order ─▶ [module_end]
//! ```
//!
//! All modules are one stage, so one segment: one upload, one decode, one flow state (GASPP §7.3). A module that keeps something
//! for a flow, or has flows ignored, processes the packets of a flow in their order; others take all packets at once, in an
//! order in which neighbours do alike work, where that is quicker ([`ScheduleForm`]).
//!
//! The device decodes the frames, which it has for the modules anyway ([`super::decoded`]): the worker does not look into them.
//!
//! A flow's record has 16 words, which modules share out in their order. The first word of each share is the generation of
//! the place, so that a new flow begins with zeros whichever of its packets comes first, and the bit that has later modules
//! ignore the flow. Hash tables are the first slots of the state; they stay on the device.
//!
//! A launch cannot be stopped, so its work has a bound: that of each packet by its budget ([`control::module_source`]), and that of all
//! packets by a number for each group that the device runs at once, which is the kernels' `job` ([`Part`]).
//!
//! There is no CPU form. Where the device cannot process a packet, the modules' `on_failure` decides.

use std::collections::HashSet;
use std::fmt::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use chunk::{Columns, Packet, Rows, Verdict};
use control::config::{Config, ModuleEntry, OnFailure, module_groups};
use control::module_source::{self as source, FUNCTIONS, Source};
use controlplane::module::{MODULE_DROP, MODULE_FAILED};
use device::accelerator::{PayloadUse, StateForm};
use engine::{
    KernelForm, KernelStep, Parameter, Part, ScheduleForm, Scratch, Shade, Shard, SortKey, Step,
};

use kernels::{KernelFile, Spec, files};

use super::columns::{ModuleColumns, ModuleView, RECORD_WORDS};
use super::decoded;
use super::patterns::{Automata, Place};
use crate::router::kernels::DECODE_HEADER;

/// What modules use.
const HEADER: &str = include_str!("kernels/modules.h");

/// The first kernel, which decodes; behind [`DECODE_HEADER`].
const BEGIN: &str = include_str!("kernels/begin.h");

/// Contexts by which packets are put side by side, at most.
const SCHEDULED_CONTEXTS: usize = 4;

/// Its hash table.
const TABLE: &str = include_str!("kernels/table.h");

/// The search for patterns, where a module has some; behind [`PATTERNS`].
const MATCHES: &str = include_str!("kernels/matches.h");

/// What it stands on.
pub const PATTERNS: KernelFile = KernelFile {
    name: "patterns",
    text: "",
    headers: files::LITERALS.headers,
    constants: files::LITERALS.constants,
    kernels: &[],
    ..KernelFile::NONE
};

/// The functions of AES, where a module uses some.
pub const AES: KernelFile = KernelFile {
    name: "aes",
    text: "",
    headers: &[files::headers::AES],
    kernels: &[],
    ..KernelFile::NONE
};

/// Slots by which the state grows, at least.
const STEP_SLOTS: usize = 1024;

const RECORD_BYTES: usize = 4 * RECORD_WORDS;

/// Names of macros that a module may not use for something else: those of the dialect, of the header and of modules.
fn reserved() -> HashSet<&'static str> {
    static ALL: OnceLock<String> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let spec = Spec::new("modules", &[&files::EMPTY, &PATTERNS, &AES], ModuleColumns::COLUMNS);
        let columns = chunk::dialect(ModuleColumns::COLUMNS);
        [&kernels::source(&spec), &columns, TABLE, HEADER, MATCHES].join("\n")
    });
    let macros = all.lines().filter_map(|line| line.trim().strip_prefix("#define "));
    let end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let names = macros.map(|rest| rest.split(end).next().unwrap_or_default());
    let own = [
        "STATE",
        "FLOW",
        "DROP_MODULE_DROP",
        "DROP_MODULE_FAILED",
        "SORTED",
        "SCHEDULED",
        "SCRATCH",
        "STAGE_NUMBER",
        "OWN_ROW_WORDS",
        "OWN_CONTEXTS",
        "OWN_USES_TIME",
        "OWN_MODULES",
        "OWN_PATTERNS_REGION",
    ];
    names.chain(FUNCTIONS).chain(own).collect()
}

/// The name of a file as a compiler is told it.
fn shown(file: &str) -> String {
    file.replace(['"', '\\', '\n', '\r'], "_")
}

/// A module with a source.
#[derive(Clone, Debug)]
struct Own {
    entry: ModuleEntry,
    source: Source,
    /// Its number among all modules, and the bits of the contexts that it sees; 0: all.
    number: usize,
    contexts: u32,
    /// Where its share of a flow's record begins, and how many words that has.
    share: (usize, usize),
    /// Entries of its hash table, and the slot where that begins.
    table: (usize, usize),
    patterns: Place,
}

impl Own {
    fn is_stateful(&self) -> bool {
        self.share.1 > 0
    }

    /// The verdict of packets that it cannot process.
    fn failed(&self) -> &'static str {
        match self.entry.on_failure {
            OnFailure::Drop => "DROP_MODULE_FAILED",
            OnFailure::Pass => "VERDICT_NEXT",
        }
    }
}

/// All modules with a source, checked.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    all: Vec<Own>,
    /// Slots before those of flows.
    first_slot: usize,
    contexts: Vec<String>,
    /// Bits that number flows and workers.
    bits: (u32, u32),
    /// The region of the patterns in a device's image.
    region: usize,
}

impl Sources {
    /// Those of a configuration, for each of its stages.
    ///
    /// # Errors
    /// What is wrong with a source, with its file and line; the states are too large.
    pub fn of(config: &Config) -> Result<Vec<Self>, String> {
        let automata = Automata::of(config)?;
        let groups = module_groups(&config.modules).into_iter();
        groups.map(|group| Self::of_group(config, &automata, group)).collect()
    }

    /// Those of the modules at these places of the file.
    fn of_group(config: &Config, automata: &Automata, group: Range<usize>) -> Result<Self, String> {
        let contexts = config.contexts();
        let bit = |name: &String| contexts.iter().position(|own| own == name).map_or(0, |n| 1 << n);
        let mut made = Self { contexts: contexts.clone(), ..Self::default() };
        let reserved = reserved();
        let mut words = 0;
        for (number, entry) in config.modules.iter().enumerate() {
            if !group.contains(&number) {
                continue;
            }
            let Some(file) = &entry.source else { continue };
            let source = source::read(&file.text);
            let source = source.map_err(|problem| format!("{}:{problem}", file.path.display()))?;
            let refused = |is_word: &dyn Fn(&str) -> bool, message: String| {
                let problem = source::problem_of(&file.text, is_word, message);
                Err(format!("{}:{problem}", file.path.display()))
            };
            let mut names = source.names.iter().chain(&source.macros);
            let meaning = "has a meaning already: use another name";
            if let Some(name) = names.find(|name| reserved.contains(name.as_str())) {
                return refused(&|word| word == name, format!("`{name}` {meaning}"));
            }
            let mut parameters = entry.parameters.iter().map(|(name, _)| name);
            if let Some(name) = parameters.find(|name| reserved.contains(name.as_str())) {
                return Err(format!("module {}: the parameter `{name}` {meaning}", entry.name));
            }
            let patterns = automata.places[number];
            match (source.uses_patterns, patterns.len > 0) {
                (true, false) if entry.patterns.is_none() => {
                    let message = "a search for patterns, of which the module has none: add `patterns = \"FILE\"`";
                    return refused(&|word| word.starts_with("match_"), message.into());
                }
                (false, true) => {
                    let path = file.path.display();
                    return Err(format!(
                        "module {}: {path} looks for no patterns: remove `patterns`, or use match_begin and match_next",
                        entry.name
                    ));
                }
                _ => {}
            }
            let count = match source.state_words {
                0 if !source.ignores => 0,
                own => own + 1,
            };
            let share = (words, count);
            words += count;
            if words > RECORD_WORDS {
                return Err(format!(
                    "module {}: the modules keep more than {} words for a flow",
                    entry.name, RECORD_WORDS
                ));
            }
            let entries =
                if source.has_table { entry.table.next_power_of_two() as usize } else { 0 };
            let table = (entries, made.first_slot);
            made.first_slot += (8 * entries).div_ceil(RECORD_BYTES);
            made.all.push(Own {
                contexts: entry.context.iter().map(bit).fold(0, |bits, own| bits | own),
                entry: entry.clone(),
                source,
                number,
                share,
                table,
                patterns,
            });
        }
        // One more than there are flows: a packet of none has its own number.
        let bits = |count: usize| usize::BITS - count.leading_zeros();
        made.bits = (bits(config.flow.flows + 1), bits(config.system.workers.max(1)));
        Ok(made)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether one reads streams.
    pub fn reads_streams(&self) -> bool {
        self.stream_readers().next().is_some()
    }

    /// Whether one reads UDP datagrams.
    pub fn reads_datagrams(&self) -> bool {
        self.all.iter().any(|own| own.source.layers[2])
    }

    /// The numbers of those that read streams.
    pub fn stream_readers(&self) -> impl Iterator<Item = usize> {
        self.all.iter().filter(|own| own.source.layers[4]).map(|own| own.number)
    }

    /// The numbers of those that change packets.
    pub fn changers(&self) -> impl Iterator<Item = usize> {
        self.all.iter().filter(|own| own.source.changes_packets).map(|own| own.number)
    }

    /// Whether one keeps something for a flow.
    pub fn has_state(&self) -> bool {
        self.all.iter().any(Own::is_stateful)
    }

    /// The first one with a hash table.
    pub fn with_table(&self) -> Option<&str> {
        self.all.iter().find(|own| own.source.has_table).map(|own| &*own.entry.name)
    }

    /// Whether one changes packets.
    pub fn changes_packets(&self) -> bool {
        self.all.iter().any(|own| own.source.changes_packets)
    }

    /// The patterns are in this region of a device's image.
    #[must_use]
    pub fn with_region(self, region: usize) -> Self {
        Self { region, ..self }
    }

    /// Whether one looks for patterns.
    fn uses_patterns(&self) -> bool {
        self.all.iter().any(|own| own.source.uses_patterns)
    }

    /// The files of kernels that the text needs.
    pub fn files(&self) -> &'static [&'static KernelFile] {
        let uses_aes = self.all.iter().any(|own| own.source.uses_aes);
        match (self.uses_patterns(), uses_aes) {
            (false, false) => &[],
            (true, false) => &[&PATTERNS],
            (false, true) => &[&AES],
            (true, true) => &[&PATTERNS, &AES],
        }
    }

    /// Whether one looks at the time.
    pub fn uses_time(&self) -> bool {
        self.all.iter().any(|own| own.source.uses_time)
    }

    /// The entries of the configuration with their numbers.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &ModuleEntry)> {
        self.all.iter().map(|own| (own.number, &own.entry))
    }

    /// A bit for each.
    pub fn bits(&self) -> u32 {
        self.all.iter().fold(0, |bits, own| bits | 1 << own.number)
    }

    fn limit(&self) -> Option<Duration> {
        self.all.iter().map(|own| own.entry.time_limit).max()
    }

    fn slots_per_step(&self) -> usize {
        self.first_slot.max(STEP_SLOTS).next_power_of_two()
    }

    fn keeps(&self) -> bool {
        self.has_state() || self.first_slot > 0
    }

    /// Whether one takes packets in any order.
    fn has_unordered(&self) -> bool {
        self.all.iter().any(|own| !own.is_stateful())
    }

    /// Contexts by which packets are put side by side.
    fn scheduled_contexts(&self) -> u32 {
        self.contexts.len().min(SCHEDULED_CONTEXTS) as u32
    }

    /// Words of scratch memory for each row: what was decoded, and where modules keep something for a flow, that of a
    /// packet without one.
    pub fn row_words(&self) -> usize {
        decoded::WORDS + if self.has_state() { RECORD_WORDS } else { 0 }
    }

    /// Words before those of the rows, in which modules count what they did in a job.
    fn modules(&self) -> usize {
        self.all.len()
    }

    /// What a compiler says of the program, with the places and names of the sources.
    pub fn explained(&self, log: &str) -> String {
        let of_line = |line: &str| {
            let mut line = line.to_owned();
            for own in &self.all {
                let Some(file) = &own.entry.source else { continue };
                line = line.replace(&format!("own_{}_", own.entry.name), "");
                let Some(rest) = line.strip_prefix(&format!("{}:", shown(&file.file))) else {
                    continue;
                };
                let mut parts = rest.splitn(3, ':');
                let mut number = || parts.next().and_then(|part| part.parse::<usize>().ok());
                if let (Some(at), Some(column)) = (number(), number())
                    && let Some(message) = parts.next()
                {
                    let column = own.source.column(at, column);
                    return format!("{}:{at}:{column}:{message}", file.path.display());
                }
                return format!("{}:{rest}", file.path.display());
            }
            line
        };
        log.lines().map(of_line).collect::<Vec<_>>().join("\n")
    }

    /// The text of the program.
    pub fn text(&self) -> String {
        let (row_words, contexts) = (self.row_words(), (1 << self.scheduled_contexts()) - 1);
        let modules = self.modules();
        let mut text = format!(
            "#define OWN_MODULES {modules}u\n#define OWN_ROW_WORDS {row_words}u\n#define OWN_CONTEXTS {contexts:#x}u\n#define OWN_USES_TIME {}\n\
             #line 1 \"table.h\"\n{TABLE}\n#line 1 \"modules.h\"\n{HEADER}",
            u32::from(self.uses_time())
        );
        if self.uses_patterns() {
            text = text + "\n#line 1 \"matches.h\"\n" + MATCHES;
        }
        for own in &self.all {
            // Writing to a String cannot fail.
            let _ = self.module(own, &mut text);
        }
        let _ =
            write!(text, "\n#line 1 \"decode.h\"\n{DECODE_HEADER}\n#line 1 \"begin.h\"\n{BEGIN}");
        if self.has_state() {
            let words = |i: usize| {
                let pair = |j: usize| {
                    format!("(ulong)words[{}] << 32 | words[{}]", 4 * i + j + 1, 4 * i + j)
                };
                format!(
                    "        COL_MODULE_RECORD{i}(arena)[row] = ulong2_of({}, {});\n",
                    pair(0),
                    pair(2)
                )
            };
            let first = self.first_slot;
            let _ = write!(
                text,
                "
KERNEL(module_end)
{{
    const uint row = JOB_FIRST(arena) + GLOBAL_ID;
    if (GLOBAL_ID < job_rows(arena) && COL_MODULE_SLOT(arena)[row] != NO_SLOT) {{
        GLOBAL const uint *words =
            (GLOBAL const uint *)STATE_RECORD(arena, state, row, {first}u + COL_MODULE_SLOT(arena)[row]);
{}    }}
}}
",
                (0..4).map(words).collect::<String>()
            );
        }
        text
    }

    fn module(&self, own: &Own, text: &mut String) -> std::fmt::Result {
        let (name, number, source) = (&own.entry.name, own.number, &own.source);
        let Some(file) = &own.entry.source else { return Ok(()) };
        let shown = shown(&file.file);
        let mut defined: Vec<&str> = Vec::new();
        writeln!(text, "#line 1 \"before {shown}\"")?;
        for word in &source.names {
            writeln!(text, "#define {word} own_{name}_{word}")?;
            defined.push(word);
        }
        for (parameter, value) in &own.entry.parameters {
            writeln!(text, "#define {parameter} {value:#x}u")?;
            defined.push(parameter);
        }
        let contexts: Vec<(String, u32)> = (self.contexts.iter().zip(0..32))
            .map(|(context, number)| {
                let word =
                    |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
                (format!("CONTEXT_{}", context.chars().map(word).collect::<String>()), 1 << number)
            })
            .collect();
        for (context, bit) in &contexts {
            if !defined.contains(&context.as_str()) {
                writeln!(text, "#define {context} {bit:#x}u")?;
                defined.push(context);
            }
        }
        for function in FUNCTIONS {
            let call = function.to_ascii_lowercase();
            match function {
                "MODULE_STREAM" => writeln!(
                    text,
                    "#define {function}(packet, piece) FN uint own_{name}_{call}(PRIVATE packet_t *packet, PRIVATE const piece_t *piece, PRIVATE uint *own_budget)"
                )?,
                _ => writeln!(
                    text,
                    "#define {function}(packet) FN uint own_{name}_{call}(PRIVATE packet_t *packet, PRIVATE uint *own_budget)"
                )?,
            }
            defined.push(function);
        }
        writeln!(text, "#define STATE struct own_state_of_{name}")?;
        writeln!(
            text,
            "#define FLOW(packet) ((GLOBAL struct own_state_of_{name} *)(packet)->own_flow)"
        )?;
        defined.extend(["STATE", "FLOW"]);
        writeln!(text, "#line 1 \"{shown}\"\n{}\n#line 1 \"behind {shown}\"", source.bounded)?;
        for word in defined.iter().copied().chain(source.macros.iter().map(String::as_str)) {
            writeln!(text, "#undef {word}")?;
        }
        let layers = FUNCTIONS.iter().zip(["ETH", "IP", "UDP", "TCP", "STREAM"]).zip(source.layers);
        let mut calls = String::new();
        for ((function, layer), _) in layers.filter(|(_, is_there)| *is_there) {
            let call = function.to_ascii_lowercase();
            if layer == "STREAM" {
                write!(
                    calls,
                    "    const uint pieces = own_pieces(arena, row);
    for (uint i = 0u; act == PASS && i < pieces; i++) {{
        if (i > 0u && own_may_go_on(spent, groups) == 0u) {{
            packet.own_error = 1u;
            break;
        }}
        own_piece(&piece, &packet, arena, row, i);
        left = OWN_LOOPS;
        act = own_{name}_{call}(&packet, &piece, &left);
        packet.own_error |= own_account(spent, left);
        by = BY_STREAM;
    }}
"
                )?;
                continue;
            }
            if layer == "UDP" {
                // A fragment has no layer of its own; one that completes a datagram brings that.
                write!(
                    calls,
                    "    if (act == PASS && (COL_MODULE_LAYERS(arena)[row] & LAYER_JOINED) != 0u) {{
        packet_t whole = packet;
        own_join(&whole);
        left = OWN_LOOPS;
        act = own_{name}_{call}(&whole, &left);
        packet.own_error |= whole.own_error | own_account(spent, left);
        packet.context |= whole.context;
    }}
"
                )?;
            }
            writeln!(
                calls,
                "    if (act == PASS && (layers & LAYER_{layer}) != 0u) {{
        left = OWN_LOOPS;
        act = own_{name}_{call}(&packet, &left);
        packet.own_error |= own_account(spent, left);
    }}"
            )?;
        }
        let mask = own.table.0.saturating_sub(1);
        let (bit, failed) = (1u32 << number, own.failed());
        let piece = if source.layers[4] { "piece_t piece;\n    " } else { "" };
        let Place { at, len } = own.patterns;
        // A region that is shorter is of another version: it has no patterns.
        let patterns = match len {
            0 => String::new(),
            _ => format!(
                "    const region_t patterns = table_region(tables, OWN_PATTERNS_REGION);
    packet.own_patterns = patterns.words + {at}u;
    packet.own_patterns_len = patterns.len < {}u ? 0u : {len}u;
",
                u64::from(at) + u64::from(len)
            ),
        };
        write!(
            text,
            "
FN void own_run_{name}(GLOBAL uchar *arena, GLOBAL uchar *payload, GLOBAL const uint *decoded, GLOBAL uint *words,
                       GLOBAL uint *table, GLOBAL const uchar *tables, uint row, GLOBAL uint *spent, uint groups)
{{
    if (own_may_go_on(spent, groups) == 0u) {{
        own_fail(arena, row, {bit:#x}u, 0u, {failed});
        return;
    }}
    packet_t packet;
    {piece}const uint layers = own_load(&packet, arena, payload, decoded, row);
    packet.own_flow = words + 1;
    packet.own_table = table;
    packet.own_mask = {mask}u;
    packet.own_patterns = words;
    packet.own_patterns_len = 0u;
{patterns}    uint act = PASS, left, by = 0u;
{calls}    if (act > DUMP) {{
        act = PASS;
        packet.own_error = 1u;
    }}
    own_store(&packet, arena, row, {number}u, act, by);
}}
"
        )?;
        self.kernel(own, text)
    }

    fn kernel(&self, own: &Own, text: &mut String) -> std::fmt::Result {
        let (name, contexts, first) = (&own.entry.name, own.contexts, self.first_slot);
        let bit = 1u32 << own.number;
        let (offset, count) = own.share;
        let failed = own.failed();
        // Its place among those with a source.
        let place = self.all.iter().position(|other| other.number == own.number).unwrap_or(0);
        let spent = format!("own_spent(SCRATCH(arena), {place}u), job");
        write!(
            text,
            "
KERNEL(off_module_{name})
{{
    if (GLOBAL_ID < job_rows(arena))
        own_fail(arena, JOB_FIRST(arena) + GLOBAL_ID, {bit:#x}u, {contexts:#x}u, {failed});
}}
"
        )?;
        let table = match own.table {
            (0, _) => "(GLOBAL uint *)arena".to_owned(),
            (_, slot) => format!("(GLOBAL uint *)STATE_RECORD(arena, state, row, {slot}u)"),
        };
        if !own.is_stateful() {
            return write!(
                text,
                "
KERNEL(module_{name})
{{
    if (GLOBAL_ID < job_rows(arena)) {{
        const uint row = SCHEDULED(arena, GLOBAL_ID);
        if (own_sees(arena, row, {bit:#x}u, {contexts:#x}u))
            own_run_{name}(arena, payload, own_decoded(SCRATCH(arena), arena, row), (GLOBAL uint *)arena, {table}, tables, row, {spent});
    }}
}}
"
            );
        }
        let own_words = decoded::WORDS;
        write!(
            text,
            "
KERNEL(module_{name})
{{
    if (GLOBAL_ID < job_rows(arena)) {{
        GLOBAL const uint *sorted = SORTED(arena);
        const uint first = sorted[GLOBAL_ID], before = sorted[GLOBAL_ID == 0u ? 0u : GLOBAL_ID - 1u];
        const uint shard = COL_SHARD(arena)[first], slot = COL_MODULE_SLOT(arena)[first];
        const uint begins = GLOBAL_ID == 0u || slot == NO_SLOT || COL_SHARD(arena)[before] != shard ||
                            COL_MODULE_SLOT(arena)[before] != slot;
        // The packets of a flow, in their order.
        for (uint i = GLOBAL_ID; begins != 0u && i < job_rows(arena); i++) {{
            const uint row = sorted[i];
            if (i != GLOBAL_ID &&
                (slot == NO_SLOT || COL_SHARD(arena)[row] != shard || COL_MODULE_SLOT(arena)[row] != slot))
                break;
            GLOBAL uint *decoded = own_decoded(SCRATCH(arena), arena, row), *words = decoded + {own_words}u + {offset}u;
            if (slot != NO_SLOT) {{
                words = (GLOBAL uint *)STATE_RECORD(arena, state, row, {first}u + slot) + {offset}u;
                own_renew(words, COL_MODULE_GENERATION(arena)[row], {count}u);
            }}
            if (own_sees(arena, row, {bit:#x}u, {contexts:#x}u))
                own_run_{name}(arena, payload, decoded, words, {table}, tables, row, {spent});
            if ((COL_MODULE_IGNORED(arena)[row] & {bit:#x}u) != 0u)
                words[0] |= IGNORES;
            if ((words[0] & IGNORES) != 0u)
                COL_MODULE_IGNORED(arena)[row] |= {bit:#x}u;
        }}
    }}
}}
"
        )
    }

    /// What a device runs.
    pub fn form(&self) -> KernelForm {
        let mut steps: Vec<KernelStep> = vec![Step::rows("module_begin", 64).into()];
        let schedule = self.has_unordered().then(|| {
            steps.push(KernelStep::Schedule);
            // Whether it is seen, length, layer.
            ScheduleForm { key: "module_key".into(), bits: 1 + 5 + 2 + self.scheduled_contexts() }
        });
        if self.has_state() {
            steps.push(KernelStep::Sort);
        }
        for own in &self.all {
            let ModuleEntry { name, source, time_limit, .. } = &own.entry;
            let file = source.as_ref().map_or("", |source| &source.file);
            let part = Part {
                name: format!("module {name} ({file})").into(),
                instead: format!("off_module_{name}").into(),
            };
            let step = Step::rows(format!("module_{name}"), 64);
            steps.push(step.with_part(part, *time_limit).into());
        }
        if self.has_state() {
            steps.push(Step::rows("module_end", 64).into());
        }
        let state = StateForm { record_bytes: RECORD_BYTES, slots_per_step: self.slots_per_step() };
        let (flows, workers) = self.bits;
        let sort = [
            SortKey { column: Shard::SHARD, bits: workers },
            SortKey { column: ModuleColumns::MODULE_SLOT, bits: flows },
        ];
        let mut parameters =
            [("DROP_MODULE_DROP", MODULE_DROP), ("DROP_MODULE_FAILED", MODULE_FAILED)]
                .map(|(name, reason)| (name.into(), Parameter::U32(Verdict::drop(reason).0)))
                .to_vec();
        if self.uses_patterns() {
            let region = Parameter::U32(self.region as u32);
            parameters.push(("OWN_PATTERNS_REGION".into(), region));
        }
        let bytes_per_row = 4 * self.row_words();
        let scratch = Scratch {
            bytes: 4 * self.modules(),
            bytes_per_row,
            is_zeroed: self.has_state(),
            is_first: false,
        };
        KernelForm {
            files: self.files(),
            text: self.text().into(),
            file: "modules".into(),
            parameters,
            steps,
            payload: Some(PayloadUse {
                at: ModuleColumns::MODULE_AT,
                len: ModuleColumns::MODULE_LEN,
                writes: self.changes_packets(),
            }),
            time_limit: self.limit(),
            scratch: Some(scratch),
            schedule,
            sort: if self.has_state() { sort.to_vec() } else { Vec::new() },
            state: self.keeps().then_some(state),
            ..KernelForm::default()
        }
    }
}

/// The shade of the stage: kernels without a CPU form.
pub struct KernelShade {
    sources: Arc<Sources>,
    /// Packets that one of these modules would have seen are dropped if the device fails.
    drops: u32,
    records: Mutex<Vec<[u32; RECORD_WORDS]>>,
}

impl KernelShade {
    /// That of a worker.
    pub fn new(sources: Arc<Sources>) -> Self {
        let is_drop = |own: &&Own| own.entry.on_failure == OnFailure::Drop;
        let drops = sources.all.iter().filter(is_drop).fold(0, |bits, own| bits | 1 << own.number);
        Self { sources, drops, records: Mutex::default() }
    }

    /// Its sources.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    fn records(&self) -> MutexGuard<'_, Vec<[u32; RECORD_WORDS]>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There are flows in so many places.
    pub fn reserve(&self, slots: usize) {
        if self.sources.has_state() {
            let mut records = self.records();
            if records.len() < slots {
                records.resize(slots, [0; RECORD_WORDS]);
            }
        }
    }

    /// The records of flows go on, where the modules are the same.
    pub fn inherit(&self, before: &Self) {
        let shares = |sources: &Sources| {
            let of = |own: &Own| (own.entry.name.clone(), own.entry.source.clone(), own.share);
            sources.all.iter().map(of).collect::<Vec<_>>()
        };
        if shares(&self.sources) == shares(&before.sources) {
            std::mem::swap(&mut *self.records(), &mut *before.records());
        }
    }
}

impl<T: Sync + 'static> Shade<T> for KernelShade {
    /// Only for packets that the device has failed to process.
    fn shade(&self, rows: &mut Rows, _: &T) {
        let view = ModuleColumns::view(rows);
        for row in 0..view.verdict.len() {
            if !Verdict(view.verdict[row]).is_next() {
                continue;
            }
            // None of them is `seen`, which says that they failed.
            let sees = view.module_sees[row];
            (view.module_seen[row], view.module_error[row]) = (0, sees);
            (view.module_by[row], view.module_ignored[row]) = (0, 0);
            if sees & self.drops != 0 {
                view.verdict[row] = Verdict::drop(MODULE_FAILED).0;
            }
        }
    }

    fn kernels(&self) -> Option<KernelForm> {
        Some(self.sources.form())
    }

    fn needs_device(&self) -> bool {
        true
    }

    fn explained(&self, log: &str) -> String {
        self.sources.explained(log)
    }

    fn without_device(&self) -> Vec<String> {
        let of = |(_, ModuleEntry { name, source, on_failure, .. }): (usize, &ModuleEntry)| {
            let file = source.as_ref().map_or("", |source| &source.file);
            let packets = match on_failure {
                OnFailure::Pass => "pass",
                OnFailure::Drop => "are dropped",
            };
            format!(
                "module {name} ({file}) runs no more, until the next start or a reload of engine or sources: its packets {packets}"
            )
        };
        self.sources.entries().map(of).collect()
    }

    fn state_slots(&self) -> usize {
        self.sources.first_slot + self.records().len()
    }

    fn state(&self, step: usize, bytes: &mut [u8]) {
        let (per_step, first) = (self.sources.slots_per_step(), self.sources.first_slot);
        let records = self.records();
        let slots = bytes.chunks_exact_mut(RECORD_BYTES).zip(step * per_step..);
        for (to, slot) in slots.filter(|(_, slot)| *slot >= first) {
            let Some(record) = records.get(slot - first) else { break };
            for (to, word) in to.chunks_exact_mut(4).zip(record) {
                to.copy_from_slice(&word.to_le_bytes());
            }
        }
    }

    /// A simulated device is refused, so nobody shades with it.
    fn twin(&self) -> Option<Arc<dyn Shade<T>>> {
        Some(Arc::new(Self::new(self.sources.clone())))
    }

    fn retired(&self, rows: &mut Rows, _: &mut [Packet]) {
        if !self.sources.has_state() {
            return;
        }
        let view = ModuleColumns::view(rows);
        let mut records = self.records();
        for row in 0..view.verdict.len() {
            let slot = view.module_slot[row] as usize;
            if let Some(record) = records.get_mut(slot) {
                *record = record_of(&view, row);
            }
        }
    }
}

fn record_of(view: &ModuleView<'_>, row: usize) -> [u32; RECORD_WORDS] {
    let pairs = [
        view.module_record0[row],
        view.module_record1[row],
        view.module_record2[row],
        view.module_record3[row],
    ];
    let word = |i: usize| (pairs[i / 4][i % 4 / 2] >> (32 * (i % 2))) as u32;
    std::array::from_fn(word)
}
