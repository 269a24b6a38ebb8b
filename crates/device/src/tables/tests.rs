//! Keys in images: they are where the newest version needs them, and nowhere else.

use std::sync::{Arc, Mutex};

use super::*;
use crate::driver::{Api, DeviceInfo};

/// Memory of a device whose kernels do nothing.
type Memories = Arc<Mutex<Vec<Option<Vec<u8>>>>>;

struct Host {
    memories: Memories,
    info: DeviceInfo,
    /// What was freed with keys in it.
    freed: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Driver for Host {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn build(&mut self, _: &Program, names: &[&str]) -> Result<Vec<Kernel>, DeviceError> {
        Ok(names.iter().map(|_| Kernel(0)).collect())
    }
    fn allocate(&mut self, bytes: usize) -> Result<Memory, DeviceError> {
        let mut all = self.memories.lock().unwrap();
        all.push(Some(vec![0; bytes]));
        Ok(Memory(all.len() as u32 - 1))
    }
    fn free(&mut self, memory: Memory) {
        let gone = self.memories.lock().unwrap()[memory.0 as usize].take();
        self.freed.lock().unwrap().extend(gone);
    }
    fn queue(&mut self) -> Result<Queue, DeviceError> {
        Ok(Queue(0))
    }
    // SAFETY: the conditions are the trait's.
    unsafe fn upload(
        &mut self,
        _: Queue,
        bytes: *const [u8],
        to: Memory,
        at: usize,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's.
        let bytes = unsafe { &*bytes };
        let mut all = self.memories.lock().unwrap();
        let own = all[to.0 as usize].as_mut().expect("memory");
        own[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    // SAFETY: as above.
    unsafe fn download(
        &mut self,
        _: Queue,
        _: Memory,
        _: usize,
        _: *mut [u8],
    ) -> Result<(), DeviceError> {
        unreachable!("nothing comes back")
    }
    fn copy(
        &mut self,
        _: Queue,
        _: (Memory, usize),
        _: (Memory, usize),
        _: usize,
    ) -> Result<(), DeviceError> {
        unreachable!("nothing is copied there")
    }
    fn launch(&mut self, _: Queue, _: Kernel, _: Shape, _: &Arguments) -> Result<(), DeviceError> {
        Ok(())
    }
    fn event(&mut self, _: Queue) -> Result<Event, DeviceError> {
        Ok(Event(0))
    }
    fn is_done(&mut self, _: Event) -> Result<bool, DeviceError> {
        Ok(true)
    }
    fn wait_for(&mut self, _: Queue, _: Event) -> Result<(), DeviceError> {
        Ok(())
    }
    // SAFETY: as above.
    unsafe fn register(&mut self, _: *mut [u8]) -> Result<Option<Memory>, DeviceError> {
        Ok(None)
    }
    fn unregister(&mut self, _: *mut u8) -> Result<(), DeviceError> {
        Ok(())
    }
    fn abandon(&mut self) {}
}

/// A version: a region of numbers, one of keys, and one more of numbers; and by version what changed.
struct Versions {
    all: Arc<Mutex<Vec<[Vec<u32>; 3]>>>,
}

impl TableSource<[Vec<u32>; 3]> for Versions {
    fn regions<'a>(&self, tables: &'a [Vec<u32>; 3]) -> Vec<Cow<'a, [u32]>> {
        tables.iter().map(|words| Cow::Borrowed(&words[..])).collect()
    }
    fn changes(&self, from: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        let all = self.all.lock().unwrap();
        for pair in all[from as usize..=to as usize].windows(2) {
            for (region, words) in pair[1].iter().enumerate() {
                if *words != pair[0][region] {
                    change(region, Change::Replace(words));
                }
            }
        }
        true
    }
    fn secrets(&self, _: &[Vec<u32>; 3]) -> Vec<usize> {
        vec![1]
    }
}

fn key(number: u32) -> Vec<u32> {
    (0..16).map(|word| 0xfeed_0000 | number << 8 | word).collect()
}

#[test]
fn keys_end_with_their_version() {
    let (memories, freed) = (Memories::default(), Arc::new(Mutex::new(Vec::new())));
    let info = DeviceInfo {
        api: Api::OpenCl,
        number: 0,
        name: String::new(),
        driver: String::new(),
        memory_bytes: 1 << 30,
        units: 1,
        group_items_max: 256,
        group_bytes: 1 << 14,
        is_gpu: false,
        target: String::new(),
    };
    let mut driver = Host { memories: memories.clone(), info, freed: freed.clone() };
    let all = Arc::new(Mutex::new(vec![[vec![1; 40], key(1), vec![2; 9]]]));
    let mut images = Images::new(Box::new(Versions { all: all.clone() }), &mut driver).unwrap();
    let patience = Duration::from_secs(1);
    let finds =
        |bytes: &[u8], key: &[u32]| bytes.chunks_exact(4).any(|word| word == key[3].to_le_bytes());
    let holders = |number: u32| {
        let all = memories.lock().unwrap();
        let with = all.iter().flatten().filter(|bytes| finds(bytes, &key(number)));
        with.count()
    };
    let bring =
        |images: &mut Images<[Vec<u32>; 3]>, driver: &mut Host, version: u64, used: bool| {
            let tables = all.lock().unwrap()[version as usize].clone();
            let newest = images.newest;
            let users = |image| if used && image == newest { vec![Event(0)] } else { Vec::new() };
            let found = images.bring(driver, &tables, version, Queue(0), &users, patience).unwrap();
            let image = images.images[found.unwrap()].as_ref().unwrap();
            let at = 4 * image.layout.region(1).offset_words;
            let all = memories.lock().unwrap();
            let bytes = &all[image.memory.0 as usize].as_ref().unwrap()[at..at + 64];
            assert_eq!(bytes, as_bytes(&tables[1]), "version {version}");
        };
    let next = |change: &dyn Fn(&mut [Vec<u32>; 3])| {
        let mut all = all.lock().unwrap();
        let mut tables = all.last().unwrap().clone();
        change(&mut tables);
        all.push(tables);
    };
    next(&|tables| tables[0][3] = 9); // 1: the same key in both images
    next(&|tables| tables[1] = key(2)); // 2
    next(&|tables| tables[2][0] = 7); // 3: the image of version 1 gets the second key
    next(&|tables| tables[1] = key(3)); // 4
    next(&|tables| tables[0] = vec![5; 9000]); // 5: images are sent whole
    next(&|tables| tables[2][0] = 8); // 6
    bring(&mut images, &mut driver, 0, false);
    bring(&mut images, &mut driver, 1, false);
    assert_eq!(holders(1), 2);
    bring(&mut images, &mut driver, 2, true);
    assert_eq!((holders(1), holders(2)), (1, 1), "a job still uses the older one");
    bring(&mut images, &mut driver, 2, false);
    assert_eq!((holders(1), holders(2)), (0, 1));
    bring(&mut images, &mut driver, 1, false); // a late job of the version before
    assert_eq!((holders(1), holders(2)), (1, 1));
    bring(&mut images, &mut driver, 2, false);
    assert_eq!((holders(1), holders(2)), (0, 1));
    bring(&mut images, &mut driver, 3, false);
    assert_eq!((holders(1), holders(2)), (0, 2));
    for version in 4..=6 {
        bring(&mut images, &mut driver, version, false);
        bring(&mut images, &mut driver, version, false);
        assert_eq!(holders(2), 0, "version {version}");
    }
    assert_eq!(holders(3), 2);
    assert!(images.has_keys());
    images.wipe_all(&mut driver, patience);
    assert_eq!(holders(3), 0);
    let freed = freed.lock().unwrap();
    assert!(!freed.is_empty() && freed.iter().all(|bytes| (1..4).all(|n| !finds(bytes, &key(n)))));
}
