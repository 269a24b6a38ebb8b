//! PTX that travels inside the program, for a CUDA driver without its compiler.
//!
//! `cargo xtask dist` lists the programs that this build can ask a device for, compiles each with NVRTC and
//! builds the release with the result inside. Programs are put together at run time, so their PTX is found
//! by the whole text that was compiled: another text is another program, and an old pack never gives a
//! wrong kernel.
//!
//! ```text
//! text bytes  PTX bytes  text …  PTX …      once for each program; both numbers u64, little-endian
//! ```
//!
//! The list is made by asking: a [`Recorder`] is a driver whose only work is to remember what it is asked to
//! build. The data path sets up its kernels on it just as on a GPU, so the texts are the true ones.
//!
//! Threads: plain data, any thread.

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::driver::{
    Api, Arguments, DeviceInfo, Driver, Event, Kernel, Memory, Program, Queue, Shape, prologue,
};
use crate::{DeviceError, nvrtc};

/// What PTX is compiled for: the oldest architecture that CUDA 13 knows. The driver translates it for newer
/// ones.
pub const TARGET: &str = "compute_75";

/// Empty but in a build of `cargo xtask dist`.
static PACK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/programs.ptx"));

/// The PTX of a program, if this build brings it.
pub fn ptx(program: &Program) -> Option<&'static str> {
    find(PACK, program)
}

/// The PTX of a program in a pack of [`pack`].
pub fn find<'a>(pack: &'a [u8], program: &Program) -> Option<&'a str> {
    if pack.is_empty() {
        return None;
    }
    let wanted = text(program);
    entries(pack).find(|(text, _)| *text == wanted).map(|(_, ptx)| ptx)
}

/// Compiles programs into a pack, each once, on as many threads as there are processors. The order is that of `programs`.
///
/// # Errors
/// As [`nvrtc::compile`]; that of the first program that has one.
pub fn pack(programs: &[Program]) -> Result<Vec<u8>, DeviceError> {
    let mut texts = HashSet::new();
    let all: Vec<_> = programs.iter().filter(|program| texts.insert(text(program))).collect();
    let next = AtomicUsize::new(0);
    let one = || {
        let at = next.fetch_add(1, Ordering::Relaxed);
        all.get(at).map(|program| (at, nvrtc::compile(program, TARGET, &[])))
    };
    let work = || std::iter::from_fn(one).collect::<Vec<_>>();
    let mut compiled = thread::scope(|scope| {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        let done =
            threads.into_iter().map(|own| own.join().unwrap_or_else(|own| resume_unwind(own)));
        done.flatten().collect::<Vec<_>>()
    });
    compiled.sort_by_key(|(at, _)| *at);
    let mut pack = Vec::new();
    for ((_, compiled), program) in compiled.into_iter().zip(all) {
        let ptx = compiled?.code;
        add(&mut pack, program, String::from_utf8_lossy(&ptx).trim_end_matches('\0'));
    }
    Ok(pack)
}

fn add(pack: &mut Vec<u8>, program: &Program, ptx: &str) {
    let text = text(program);
    for len in [text.len(), ptx.len()] {
        pack.extend_from_slice(&(len as u64).to_le_bytes());
    }
    pack.extend_from_slice(text.as_bytes());
    pack.extend_from_slice(ptx.as_bytes());
}

/// What the compiler is given.
fn text(program: &Program) -> String {
    prologue(program) + &program.source
}

/// Text and PTX of each program; a pack that is cut short ends early.
fn entries(pack: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = pack;
    std::iter::from_fn(move || {
        let text_bytes = number(&mut rest)?;
        let ptx_bytes = number(&mut rest)?;
        let text = rest.split_off(..text_bytes)?;
        let ptx = rest.split_off(..ptx_bytes)?;
        Some((std::str::from_utf8(text).ok()?, std::str::from_utf8(ptx).ok()?))
    })
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    let bytes = rest.split_off(..8)?;
    usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

/// A driver that remembers the programs it is asked to build. Everything else succeeds and does nothing.
pub struct Recorder {
    info: DeviceInfo,
    programs: Recorded,
    handles: u32,
}

/// The programs that a [`Recorder`] was asked to build; clones see the same list.
#[derive(Clone, Debug, Default)]
pub struct Recorded(Arc<Mutex<Vec<Program>>>);

impl Recorded {
    /// A driver that adds to the list.
    pub fn driver(&self) -> Recorder {
        let info = DeviceInfo {
            api: Api::Cuda,
            number: 0,
            name: "recorder".into(),
            driver: "none".into(),
            memory_bytes: 1 << 40,
            units: 1,
            group_items_max: 1024, // as every CUDA device
            group_bytes: 48 << 10,
            is_gpu: true,
            target: TARGET.replace("compute", "sm"),
        };
        Recorder { info, programs: self.clone(), handles: 0 }
    }

    /// Adds a program that is built outside of any data path.
    pub fn add(&self, program: Program) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(program);
    }

    /// What was built so far, each text once, in order.
    pub fn programs(&self) -> Vec<Program> {
        let mut programs: Vec<Program> = Vec::new();
        for program in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if !programs.iter().any(|known| text(known) == text(program)) {
                programs.push(program.clone());
            }
        }
        programs
    }
}

impl Recorder {
    fn handle(&mut self) -> u32 {
        self.handles += 1;
        self.handles
    }
}

impl Driver for Recorder {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn build(&mut self, program: &Program, names: &[&str]) -> Result<Vec<Kernel>, DeviceError> {
        self.programs.add(program.clone());
        Ok(names.iter().map(|_| Kernel(self.handle())).collect())
    }

    fn allocate(&mut self, _: usize) -> Result<Memory, DeviceError> {
        Ok(Memory(self.handle()))
    }

    fn free(&mut self, _: Memory) {}

    fn queue(&mut self) -> Result<Queue, DeviceError> {
        Ok(Queue(self.handle()))
    }

    // SAFETY: reads nothing.
    unsafe fn upload(
        &mut self,
        _: Queue,
        _: *const [u8],
        _: Memory,
        _: usize,
    ) -> Result<(), DeviceError> {
        Ok(())
    }

    // SAFETY: writes nothing.
    unsafe fn download(
        &mut self,
        _: Queue,
        _: Memory,
        _: usize,
        _: *mut [u8],
    ) -> Result<(), DeviceError> {
        Ok(())
    }

    fn copy(
        &mut self,
        _: Queue,
        _: (Memory, usize),
        _: (Memory, usize),
        _: usize,
    ) -> Result<(), DeviceError> {
        Ok(())
    }

    fn launch(&mut self, _: Queue, _: Kernel, _: Shape, _: &Arguments) -> Result<(), DeviceError> {
        Ok(())
    }

    fn event(&mut self, _: Queue) -> Result<Event, DeviceError> {
        Ok(Event(self.handle()))
    }

    fn is_done(&mut self, _: Event) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait_for(&mut self, _: Queue, _: Event) -> Result<(), DeviceError> {
        Ok(())
    }

    // SAFETY: forgets the memory at once.
    unsafe fn register(&mut self, _: *mut [u8]) -> Result<Option<Memory>, DeviceError> {
        Ok(None)
    }

    fn unregister(&mut self, _: *mut u8) -> Result<(), DeviceError> {
        Ok(())
    }

    fn abandon(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(source: &str, defines: &[(&str, &str)]) -> Program {
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let defines = defines.iter().map(own).collect();
        Program { name: "test".into(), source: source.into(), defines, ptx: None }
    }

    #[test]
    fn ptx_is_found_by_the_whole_text_and_by_nothing_less() {
        let (one, two) = (program("one", &[]), program("two", &[("A", "1")]));
        let mut pack = Vec::new();
        add(&mut pack, &one, "// PTX of one");
        add(&mut pack, &two, "");
        assert_eq!(find(&pack, &one), Some("// PTX of one"));
        assert_eq!(find(&pack, &two), Some(""));
        for other in [program("one ", &[]), program("", &[]), program("two", &[("A", "2")])] {
            assert_eq!(find(&pack, &other), None, "{other:?}");
        }
        let renamed = Program { name: "renamed".into(), ..one };
        assert_eq!(find(&pack, &renamed), Some("// PTX of one"), "the name is for messages");
        assert_eq!(find(&[], &two), None);
    }

    #[test]
    fn a_pack_that_is_cut_short_gives_what_is_whole() {
        let (one, two) = (program("one", &[]), program("two", &[]));
        let mut pack = Vec::new();
        add(&mut pack, &one, "1");
        let first = pack.len();
        add(&mut pack, &two, "2");
        for len in 0..pack.len() {
            let cut = &pack[..len];
            assert_eq!(find(cut, &one), (len >= first).then_some("1"), "{len}");
            assert_eq!(find(cut, &two), None, "{len}");
        }
        // Lengths beyond everything.
        assert_eq!(find(&[0xff; 64], &one), None);
    }

    #[test]
    fn what_is_asked_for_is_recorded_once() {
        let recorded = Recorded::default();
        let mut driver = recorded.driver();
        for source in ["one", "two", "one"] {
            assert_eq!(driver.build(&program(source, &[]), &["a", "b"]).unwrap().len(), 2);
        }
        let sources: Vec<_> = recorded.programs().into_iter().map(|p| p.source).collect();
        assert_eq!(sources, ["one", "two"]);
    }

    /// In the tests' own build, and in one of `cargo xtask dist`.
    #[test]
    fn this_builds_own_pack_is_whole() {
        let bytes: usize = entries(PACK).map(|(text, ptx)| 16 + text.len() + ptx.len()).sum();
        assert_eq!(bytes, PACK.len());
    }
}
