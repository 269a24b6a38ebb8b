//! A device and memory for the tests.

use std::collections::HashMap;
use std::sync::Once;
use std::time::Duration;

use device::driver::{Api, Arguments, Driver, Kernel, Memory, Program, Queue, Shape};
use device::{Backend, DeviceError, probe};
use kernels::known::{Known, Place};
use kernels::{Launch, Spec};

/// Longer than anything here takes; PoCL compiles a kernel at its first launch.
const LIMIT: Duration = Duration::from_secs(300);

/// An open device with one queue.
pub(crate) struct Bed {
    driver: Box<dyn Driver>,
    queue: Queue,
    built: HashMap<String, HashMap<&'static str, Kernel>>,
    nothing: Memory,
}

/// Memory of a launch, by what it is for.
#[derive(Clone, Copy)]
pub(crate) struct Memories {
    pub(crate) arena: Memory,
    pub(crate) payload: Memory,
    pub(crate) tables: Memory,
    pub(crate) state: Memory,
}

/// The device that the tests run on: the first of OpenCL, unless another one is named.
fn device_of_tests() -> (Api, u32) {
    let named = testkit::named_backend().map(|name| name.parse::<Backend>().expect("a backend"));
    named.and_then(Backend::device).unwrap_or((Api::OpenCl, 0))
}

/// PoCL's compiled kernels go into a folder of this test program.
fn own_cache() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("POCL_CACHE_DIR").is_some() {
            return;
        }
        let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/pocl-kernels");
        std::fs::create_dir_all(folder).expect("a folder below the target directory");
        // SAFETY: every test opens its device here, and the once lets none on before it is done; no thread
        // reads the environment until then.
        unsafe { std::env::set_var("POCL_CACHE_DIR", folder) };
    });
}

impl Bed {
    /// The first OpenCL device; none, and the test is skipped, where there is none.
    pub(crate) fn open() -> Option<Bed> {
        own_cache();
        let (api, number) = device_of_tests();
        match probe::open(api, number) {
            Ok(mut driver) => {
                let queue = driver.queue().expect("a queue");
                let nothing = driver.allocate(64).expect("64 bytes");
                Some(Bed { driver, queue, built: HashMap::new(), nothing })
            }
            // A device that was named must be there.
            Err(DeviceError::Absent(reason)) if testkit::named_backend().is_none() => {
                testkit::skip(&format!("no OpenCL platform ({reason})"));
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// No memory to speak of for every argument.
    pub(crate) fn memories(&self) -> Memories {
        let nothing = self.nothing;
        Memories { arena: nothing, payload: nothing, tables: nothing, state: nothing }
    }

    /// Memory that holds these bytes.
    pub(crate) fn memory(&mut self, bytes: &[u8]) -> Memory {
        let memory = self.memory_of(bytes.len());
        if !bytes.is_empty() {
            self.write(memory, 0, bytes);
        }
        memory
    }

    /// Memory of which nothing is written yet.
    pub(crate) fn memory_of(&mut self, bytes: usize) -> Memory {
        self.driver.allocate(bytes.max(64)).expect("memory")
    }

    /// Memory that holds these words.
    pub(crate) fn memory_of_words(&mut self, words: &[u32]) -> Memory {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.memory(&bytes)
    }

    /// Gives memory back.
    pub(crate) fn free(&mut self, memory: Memory) {
        self.driver.free(memory);
    }

    pub(crate) fn write(&mut self, memory: Memory, at: usize, bytes: &[u8]) {
        // SAFETY: the bytes are borrowed until `finish` has seen the copy done.
        unsafe { self.driver.upload(self.queue, &raw const *bytes, memory, at) }.expect("upload");
        self.finish();
    }

    /// Reads from the start of memory.
    pub(crate) fn read(&mut self, memory: Memory, bytes: &mut [u8]) {
        // SAFETY: the bytes are borrowed, for us alone, until `finish` has seen the copy done.
        unsafe { self.driver.download(self.queue, memory, 0, &raw mut *bytes) }.expect("download");
        self.finish();
    }

    pub(crate) fn read_words(&mut self, memory: Memory, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; 4 * count];
        self.read(memory, &mut bytes);
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    /// Runs launches of a program in their order, and waits for them.
    pub(crate) fn run(&mut self, spec: &Spec, memories: Memories, launches: &[Launch]) {
        let key = format!("{} {}", spec.name, spec.group_items);
        if !self.built.contains_key(&key) {
            self.build(&key, kernels::source(spec), spec.kernels());
        }
        self.launch(&key, memories, launches);
    }

    /// Builds a text whose kernels `launch` finds under a name.
    pub(crate) fn build(&mut self, key: &str, source: String, names: Vec<&'static str>) {
        let program = Program { name: key.to_string(), source, defines: Vec::new(), ptx: None };
        let built = self.driver.build(&program, &names).unwrap_or_else(|e| panic!("{e}"));
        self.built.insert(key.to_string(), names.into_iter().zip(built).collect());
    }

    /// Launches kernels that were built under a name, in order, and waits for them.
    pub(crate) fn launch(&mut self, key: &str, memories: Memories, launches: &[Launch]) {
        for launch in launches {
            let kernel = self.built[key][launch.kernel];
            let shape = Shape { groups: launch.groups, items: launch.items };
            let Memories { arena, payload, tables, state } = memories;
            let arguments = Arguments { arena, payload, tables, state, job: launch.job };
            self.driver.launch(self.queue, kernel, shape, &arguments).expect(launch.kernel);
        }
        self.finish();
    }

    /// What a kernel did wrong with a known answer.
    pub(crate) fn failure(&mut self, known: &Known) -> Option<String> {
        let memories = Memories {
            arena: self.memory(&known.arena),
            payload: self.memory(&known.payload),
            tables: self.memory_of(known.tables.bytes),
            state: self.memory(&known.state),
        };
        if self.name().contains("Oclgrind") && known.tables.bytes > 0 {
            // It forgets what the first write initialised when a second one follows (version 21.10).
            let mut whole = vec![0; known.tables.bytes];
            for (at, part) in &known.tables.parts {
                whole[*at..][..part.len()].copy_from_slice(part);
            }
            self.write(memories.tables, 0, &whole);
        } else {
            for (at, part) in &known.tables.parts {
                self.write(memories.tables, *at, part);
            }
        }
        self.run(&known.spec, memories, &known.launches);
        let mut wrong = None;
        for expected in &known.expected {
            let memory = match expected.place {
                Place::Arena => memories.arena,
                Place::Payload => memories.payload,
                Place::Tables => memories.tables,
                Place::State => memories.state,
            };
            let mut found = vec![0; expected.at + expected.bytes.len()];
            self.read(memory, &mut found);
            if let Some(i) =
                (0..expected.bytes.len()).find(|i| found[expected.at + i] != expected.bytes[*i])
            {
                wrong = Some(format!(
                    "{:?}: {:?} at {}",
                    known.kernels,
                    expected.place,
                    expected.at + i
                ));
            }
        }
        for memory in [memories.arena, memories.payload, memories.tables, memories.state] {
            self.free(memory);
        }
        wrong
    }

    /// What the device calls itself.
    pub(crate) fn name(&self) -> &str {
        &self.driver.info().name
    }

    fn finish(&mut self) {
        let event = self.driver.event(self.queue).expect("an event");
        assert!(self.driver.wait(event, LIMIT).expect("nothing failed"), "it hangs");
    }
}

/// A launch with one work item for each of `rows`.
pub(crate) fn over_rows(kernel: &'static str, rows: usize, items: u32) -> Launch {
    let shape = Shape::of_rows(rows, items);
    Launch { kernel, groups: shape.groups, items: shape.items, job: 0 }
}

/// Sizes of groups that every kernel is run with.
pub(crate) const GROUP_ITEMS: [u32; 4] = [32, 64, 128, 256];

/// Numbers of rows: none, few, around a group's end, thousands.
pub(crate) const ROWS: [usize; 7] = [0, 1, 3, 64, 257, 1000, 4099];
