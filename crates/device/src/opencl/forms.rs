//! A defect of PoCL before 7.0, and what keeps clear of it.
//!
//! PoCL loads the code of a kernel for each number of work items in a group, and again for each launch that has more work
//! items than all before; so there are several forms of a kernel. At the end of a launch it looks up the form by kernel and
//! group alone, and finds the one that was used last. Where that is another one whose users have all been counted down, an
//! assertion (`pocl_release_dlhandle_cache`) ends the process.
//!
//! Here no launch of a kernel is under way while a larger form of it is loaded. From then on the larger form is found
//! first and serves all launches, and the counts are right.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use opencl_sys::*;

use super::library::Library;

/// As long as that it waits for launches that are under way; a device that hangs is somebody else's concern.
const PATIENCE: Duration = Duration::from_secs(5);

/// A kernel: a hash of its program and its name; and the work items of a group.
pub(super) type Key = (u64, usize);

/// The forms of all kernels of this process.
#[derive(Default)]
pub(super) struct Forms {
    all: HashMap<Key, Form>,
}

#[derive(Default)]
struct Form {
    /// Work items of the largest launch.
    largest: usize,
    /// That launch may be under way yet.
    is_growing: bool,
    /// Events of launches that were not done when it was last looked.
    running: Vec<Retained>,
}

/// An event that has a reference of its own.
struct Retained(cl_event);

// SAFETY: OpenCL's objects may be used from any thread (appendix A.2 of the standard).
unsafe impl Send for Retained {}

impl Forms {
    /// A launch of so many work items follows. Where it brings a larger form, all others of its kernel end first; and so does
    /// one that brings a larger form before any other begins.
    pub(super) fn before(&mut self, cl: &Library, key: Key, items: usize) {
        let form = self.all.entry(key).or_default();
        form.forget_done(cl);
        if form.is_growing || items > form.largest {
            form.wait(cl);
            form.is_growing = false;
        }
    }

    /// This is the event of the launch that [`Forms::before`] was told of. A larger form is loaded by the end of it. Nobody waits for
    /// that here, so that a kernel that runs for too long is seen while it runs.
    pub(super) fn after(&mut self, cl: &Library, key: Key, items: usize, event: cl_event) {
        // SAFETY: an event that the caller has not released.
        if unsafe { (cl.clRetainEvent)(event) } != CL_SUCCESS {
            return;
        }
        let form = self.all.entry(key).or_default();
        form.running.push(Retained(event));
        if items > form.largest {
            form.largest = items;
            form.is_growing = true;
        }
    }

    /// A driver has ended: no events are kept that hold what it had.
    pub(super) fn forget_done(&mut self, cl: &Library) {
        self.all.values_mut().for_each(|form| form.forget_done(cl));
    }
}

impl Form {
    fn forget_done(&mut self, cl: &Library) {
        self.running.retain(|event| !event.give_back(cl));
    }

    fn wait(&mut self, cl: &Library) {
        let begin = Instant::now();
        while !self.running.is_empty() && begin.elapsed() < PATIENCE {
            self.forget_done(cl);
            std::thread::yield_now();
        }
    }
}

impl Retained {
    /// Whether the command has ended, well or not; its reference is given back then.
    fn give_back(&self, cl: &Library) -> bool {
        let mut status: cl_int = CL_SUCCESS;
        // SAFETY: the reference holds the event; room for the one integer asked for.
        let code = unsafe {
            let (at, size) = ((&raw mut status).cast(), size_of::<cl_int>());
            let what = CL_EVENT_COMMAND_EXECUTION_STATUS;
            (cl.clGetEventInfo)(self.0, what, size, at, std::ptr::null_mut())
        };
        let is_running = code == CL_SUCCESS && status > CL_COMPLETE;
        if !is_running {
            // SAFETY: the caller drops it now. What the call says can only be that the device is lost.
            let _ = unsafe { (cl.clReleaseEvent)(self.0) };
        }
        !is_running
    }
}
