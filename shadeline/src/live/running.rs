//! The engine that carries the packets, as the control loop, which replaces it, and the thread that ends the program share
//! it.
//!
//! ```text
//!             hold               carry
//!   Carries ────────▶ Held ─────────────▶ Carries
//!      │ end            │ fail
//!      ▼                ▼
//!    Ended            Failed
//! ```
//!
//! Whoever comes first has it: a program that ends while the engine is held waits for the next one, and an engine that was
//! ended is not to be held any more.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// See the head of this file.
pub(super) struct Running<E>(Arc<(Mutex<State<E>>, Condvar)>);

enum State<E> {
    Carries(E),
    /// None runs yet, or one is being replaced.
    Held,
    Ended,
    /// Packets are not carried any more, for this reason.
    Failed(String),
}

impl<E> Clone for Running<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E> Running<E> {
    /// No engine yet: it is held.
    pub(super) fn new() -> Self {
        Self(Arc::new((Mutex::new(State::Held), Condvar::new())))
    }

    /// Takes the engine, to be replaced or to be given back; `None` if the program ends.
    pub(super) fn hold(&self) -> Option<E> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Held) {
            State::Carries(engine) => Some(engine),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Whether an engine carries packets.
    pub(super) fn carries(&self) -> bool {
        matches!(*self.lock(), State::Carries(_))
    }

    /// This engine carries the packets from now on.
    pub(super) fn carry(&self, engine: E) {
        self.set(State::Carries(engine));
    }

    /// The engine that was held is gone, and there is none in its place.
    pub(super) fn fail(&self, why: String) {
        self.set(State::Failed(why));
    }

    /// Whoever held the engine is gone, and the engine with it.
    pub(super) fn lose(&self) {
        let mut state = self.lock();
        if matches!(*state, State::Held) {
            *state = State::Failed("no packets are carried any more".into());
            self.0.1.notify_all();
        }
    }

    /// Whether the engine `is_finished`, or there is none any more.
    pub(super) fn is_over(&self, is_finished: impl FnOnce(&E) -> bool) -> bool {
        match &*self.lock() {
            State::Carries(engine) => is_finished(engine),
            State::Held => false,
            State::Ended | State::Failed(_) => true,
        }
    }

    /// Takes the engine for good, once it is not held any more.
    ///
    /// # Errors
    /// There is none, and why.
    pub(super) fn end(&self) -> Result<Option<E>, String> {
        let (_, changed) = &*self.0;
        let is_held = |state: &mut State<E>| matches!(state, State::Held);
        let state = changed.wait_while(self.lock(), is_held);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Ended) {
            State::Carries(engine) => Ok(Some(engine)),
            State::Failed(why) => Err(why),
            State::Held | State::Ended => Ok(None),
        }
    }

    fn set(&self, state: State<E>) {
        *self.lock() = state;
        self.0.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_first_has_the_engine() {
        let running = Running::new();
        assert!(running.hold().is_none() && !running.is_over(|_: &u8| true), "none yet");
        running.carry(1);
        assert!(running.is_over(|engine| *engine == 1) && !running.is_over(|engine| *engine == 2));
        // A replacement comes first: the end waits for the next engine.
        assert_eq!(running.hold(), Some(1));
        let ends = running.clone();
        let end = std::thread::spawn(move || ends.end());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!end.is_finished());
        running.carry(2);
        assert_eq!(end.join().unwrap(), Ok(Some(2)));
        // The end came first.
        assert!(running.hold().is_none() && running.is_over(|_| false));
        assert_eq!(running.end(), Ok(None));
    }

    #[test]
    fn an_engine_that_is_gone_is_an_error_of_the_run() {
        let running = Running::<u8>::new();
        running.fail("a worker died".into());
        running.lose(); // it says no more than is known
        assert!(running.is_over(|_| false) && running.hold().is_none());
        assert_eq!(running.end(), Err("a worker died".into()));
    }
}
