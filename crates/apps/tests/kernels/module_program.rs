//! A program of the modules of the examples.

use apps::modules::columns::ModuleColumns as M;
use apps::modules::kernels::Sources;
use chunk::{Columns, Verdict};
use control::config::{ModulePatterns, ModuleSource};
use controlplane::module::{MODULE_DROP, MODULE_FAILED};
use kernels::{KernelFile, Spec, files};

/// Name, source and parameters of a module.
type Example = (&'static str, &'static str, &'static [(&'static str, u32)]);

/// The modules of the program below: examples with their parameters.
const MODULES: [Example; 6] = [
    (
        "elephant",
        include_str!("../../../../examples/modules/elephant.k"),
        &[("LIMIT", 130), ("TRUSTED", 22)],
    ),
    ("http_host", include_str!("../../../../examples/modules/http_host.k"), &[]),
    ("port_counter", include_str!("../../../../examples/modules/port_counter.k"), &[]),
    ("ttl_floor", include_str!("../../../../examples/modules/ttl_floor.k"), &[("FLOOR", 5)]),
    ("xor_payload", include_str!("../../../../examples/modules/xor_payload.k"), &[("KEY", 0x55)]),
    ("word_filter", include_str!("../../../../examples/modules/word_filter.k"), &[]),
];

pub(crate) const ROWS: usize = 10;

/// Words of the scratch memory before those of rows: what each module has done in the job.
pub(crate) const DONE_WORDS: usize = MODULES.len();

/// A program of the modules, as a segment makes it, but for the memory around it: the place of the row in `tables`, which has
/// zeros for shards and then the rows in order of their flows. Modules that keep nothing take the rows from the last one on.
/// Groups have so many items at most.
pub(crate) fn program(items: u32) -> (String, Vec<&'static str>) {
    let text = "mode = \"wire\"\n[port.a]\n[port.b]\n";
    let (mut config, _) =
        control::config::parse(text, &apps::known_stages()).expect("a configuration");
    for (name, text, parameters) in MODULES {
        let file = format!("{name}.k");
        config.modules.push(control::config::ModuleEntry {
            name: name.into(),
            source: Some(ModuleSource { path: (&file).into(), file, text: text.into() }),
            parameters: parameters.iter().map(|(name, value)| ((*name).into(), *value)).collect(),
            table: 64,
            // There is no image of tables here: it finds nothing.
            patterns: (name == "word_filter").then(|| ModulePatterns {
                all: control::module_patterns::read(b"word").expect("a pattern").into(),
                ..Default::default()
            }),
            ..Default::default()
        });
    }
    let all = Sources::of(&config).expect("modules");
    let [sources] = &all[..] else { panic!("modules with a source are one stage") };
    let files: Vec<&KernelFile> =
        [&files::EMPTY].into_iter().chain(sources.files().iter().copied()).collect();
    let spec = Spec::new("modules", &files, M::COLUMNS).with_group_items(items);
    let [drop, failed] = [MODULE_DROP, MODULE_FAILED].map(|reason| Verdict::drop(reason).0);
    let own = format!(
        "\n#define DROP_MODULE_DROP {drop:#x}u\n\
         #define DROP_MODULE_FAILED {failed:#x}u\n\
         #define COL_SHARD(arena) ((GLOBAL const uint *)tables)\n\
         #define SORTED(arena) ((GLOBAL const uint *)tables + {ROWS}u)\n\
         #define STATE_RECORD(arena, state, row, slot) ((state) + 64u * (slot))\n\
         #define SCRATCH(arena) job_area((arena), 0u)\n\
         #define STAGE_NUMBER 0\n\
         #define OWN_PATTERNS_REGION 0u\n\
         #define SCHEDULED(arena, i) (JOB_FIRST(arena) + job_rows(arena) - 1u - (i))\n{}",
        sources.text()
    );
    let names = [
        "module_begin",
        "module_elephant",
        "module_http_host",
        "module_port_counter",
        "module_ttl_floor",
        "module_xor_payload",
        "module_word_filter",
        "module_end",
    ];
    (kernels::source_with(&spec, &own), names.to_vec())
}

/// Words of scratch memory for a row, in the first area of the job.
pub(crate) const ROW_WORDS: usize = apps::modules::decoded::WORDS + 16;

/// Slots of the state: 8 of the table with 64 entries, and those of flows.
pub(crate) const SLOTS: usize = 8 + 4;
