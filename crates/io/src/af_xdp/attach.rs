//! The XDP program and its map, by `bpf(2)`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::Mode;

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROGRAM_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const PROGRAM_HAS_FRAGS: u32 = 1 << 5;
const FLAG_SKB_MODE: u32 = 1 << 1;
const FLAG_DRV_MODE: u32 = 1 << 2;

/// One instruction: code, registers (destination in the low half), offset, immediate.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// The parts of `union bpf_attr` that are used, each zero where nothing is said.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
}

#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program_fd: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// A program on an interface. It is detached when this is dropped, or the process ends.
#[derive(Debug)]
pub(super) struct Attachment {
    map: OwnedFd,
    _link: OwnedFd,
    pub(super) mode: Mode,
    pub(super) is_multi_buffer: bool,
    /// One of its queues has met a frame of several segments.
    pub(super) has_met_segments: AtomicBool,
}

impl Attachment {
    /// Hands the frames of receive queue `queue` to `socket`.
    pub(super) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = socket.as_raw_fd();
        let update = MapUpdate {
            map_fd: self.map.as_raw_fd() as u32,
            padding: 0,
            key: address(&queue),
            value: address(&socket),
            flags: 0,
        };
        // SAFETY: key and value are four bytes each, as the map was made, and alive.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &update) }.map(drop)
    }

    /// Stops the delivery of frames of receive queue `queue`, and waits until the kernel has
    /// finished with those that it is about to hand over.
    pub(super) fn clear(&self, queue: u32) -> io::Result<()> {
        let delete = MapUpdate {
            map_fd: self.map.as_raw_fd() as u32,
            padding: 0,
            key: address(&queue),
            value: 0,
            flags: 0,
        };
        // SAFETY: the key is four bytes, as the map was made, and alive.
        match unsafe { bpf(BPF_MAP_DELETE_ELEM, &delete) } {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The global barrier is an RCU grace period; the receive path runs in RCU read sections.
        const MEMBARRIER_CMD_GLOBAL: libc::c_long = 1;
        // SAFETY: takes no pointers.
        match unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// How often attaching is tried where another program is there, and how long each waits. A program goes with its last descriptor,
/// and a child that another thread has begun holds a copy of it until it executes a program of its own.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// Attaches the program to the interface of index `interface`.
pub(super) fn attach(
    interface: u32,
    queues: u32,
    mode: Mode,
    multi_buffer: bool,
) -> io::Result<Attachment> {
    let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
    for _ in 1..TRIES {
        match attach_once(interface, queues, mode, multi_buffer) {
            Err(error) if is_busy(&error) => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
    attach_once(interface, queues, mode, multi_buffer)
}

fn attach_once(
    interface: u32,
    queues: u32,
    mode: Mode,
    multi_buffer: bool,
) -> io::Result<Attachment> {
    let create = MapCreate {
        map_type: MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        max_entries: queues,
        ..MapCreate::default()
    };
    // SAFETY: no pointers in it.
    let map = owned(unsafe { bpf(BPF_MAP_CREATE, &create) }?);
    let modes: &[Mode] = match mode {
        Mode::Auto => &[Mode::Native, Mode::Skb],
        Mode::Native => &[Mode::Native],
        Mode::Skb => &[Mode::Skb],
    };
    let multi_buffers: &[bool] = if multi_buffer { &[true, false] } else { &[false] };
    let mut first_error = None;
    for &mode in modes {
        for &is_multi_buffer in multi_buffers {
            let link = load(&map, is_multi_buffer).and_then(|program| {
                let create = LinkCreate {
                    program_fd: program.as_raw_fd() as u32,
                    interface,
                    attach_type: ATTACH_TYPE_XDP,
                    flags: if mode == Mode::Native { FLAG_DRV_MODE } else { FLAG_SKB_MODE },
                };
                // SAFETY: no pointers in it.
                unsafe { bpf(BPF_LINK_CREATE, &create) }.map(owned)
            });
            match link {
                Ok(link) => {
                    let has_met_segments = AtomicBool::new(false);
                    return Ok(Attachment {
                        map,
                        _link: link,
                        mode,
                        is_multi_buffer,
                        has_met_segments,
                    });
                }
                // What the first, most wanted way met tells most.
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
    }
    let error = first_error.unwrap_or_else(|| io::ErrorKind::Unsupported.into());
    Err(match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => {
            io::Error::new(io::ErrorKind::ResourceBusy, "another XDP program is attached to it")
        }
        _ => error,
    })
}

/// Loads the program: frames of a queue that has a socket go there, others on to the kernel.
fn load(map: &OwnedFd, multi_buffer: bool) -> io::Result<OwnedFd> {
    const R1: u8 = 1;
    const R2: u8 = 2;
    const R3: u8 = 3;
    const XDP_PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    /// Where `struct xdp_md` has the number of the receive queue.
    const RX_QUEUE_INDEX: i16 = 16;
    /// In the source half of the first word of a 64-bit load: the value is a map's descriptor.
    const PSEUDO_MAP_FD: u8 = 1 << 4;
    let instruction =
        |code, registers, offset, immediate| Instruction { code, registers, offset, immediate };
    let program = [
        instruction(0x61, R2 | R1 << 4, RX_QUEUE_INDEX, 0), // r2 = context->rx_queue_index
        instruction(0x18, R1 | PSEUDO_MAP_FD, 0, map.as_raw_fd()), // r1 = map
        instruction(0, 0, 0, 0),                            //      (its upper half)
        instruction(0xb7, R3, 0, XDP_PASS),                 // r3 = what to do without a socket
        instruction(0x85, 0, 0, REDIRECT_MAP),              // r0 = bpf_redirect_map(r1, r2, r3)
        instruction(0x95, 0, 0, 0),                         // return r0
    ];
    let mut name = [0; 16];
    name[..9].copy_from_slice(b"shadeline");
    let mut load = ProgramLoad {
        program_type: PROGRAM_TYPE_XDP,
        instruction_count: program.len() as u32,
        instructions: address(&program),
        license: c"Dual MIT/GPL".as_ptr() as u64,
        flags: if multi_buffer { PROGRAM_HAS_FRAGS } else { 0 },
        name,
        expected_attach_type: ATTACH_TYPE_XDP,
        ..ProgramLoad::default()
    };
    // SAFETY: the instructions and the license, which ends in NUL, are alive; there is no log.
    let loaded = unsafe { bpf(BPF_PROG_LOAD, &load) };
    let error = match loaded {
        Ok(fd) => return Ok(owned(fd)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
        Err(error) => error,
    };
    // Once more, for what the verifier has to say.
    let mut log = vec![0u8; 16 << 10];
    load.log_level = 1;
    load.log_size = log.len() as u32;
    load.log = log.as_mut_ptr() as u64;
    // SAFETY: as above, and the log is writable for its length.
    match unsafe { bpf(BPF_PROG_LOAD, &load) } {
        Ok(fd) => Ok(owned(fd)),
        Err(_) => {
            let log = String::from_utf8_lossy(&log);
            let log = log.trim_end_matches('\0').trim().replace('\n', "; ");
            Err(io::Error::new(error.kind(), format!("{error}: verifier: {log}")))
        }
    }
}

fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value) as u64
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: only called with a descriptor that `bpf` just made, which has no other user.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The system call; descriptors that it makes are closed at `exec`.
///
/// # Safety
/// `attribute` is the part of `union bpf_attr` that belongs to `command`, and its pointers are valid
/// for what the command does with them.
unsafe fn bpf<T>(command: libc::c_long, attribute: &T) -> io::Result<i32> {
    let size = size_of::<T>() as libc::c_long;
    // SAFETY: by the contract.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attribute), size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
