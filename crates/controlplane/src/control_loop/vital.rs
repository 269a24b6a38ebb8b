//! Threads that a live program cannot do without.

use std::sync::mpsc::SyncSender;

use super::Event;

/// Held by a thread, or by a closure that it runs: if the thread panics, the control loop ends the program.
pub struct Vital {
    name: String,
    events: SyncSender<Event>,
}

impl Vital {
    /// For the thread of this name.
    pub fn new(name: &str, events: &SyncSender<Event>) -> Self {
        Self { name: name.to_owned(), events: events.clone() }
    }
}

impl Drop for Vital {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The program ends already where nobody hears of it.
            let _ = self.events.send(Event::Died(std::mem::take(&mut self.name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_thread_that_panics_is_heard_of() {
        let (events, inbox) = sync_channel(4);
        for panics in [false, true] {
            let vital = Vital::new("mirror", &events);
            let thread = std::thread::spawn(move || {
                let _vital = vital;
                assert!(!panics, "as it should");
            });
            assert_eq!(thread.join().is_err(), panics);
            let died = inbox.try_recv();
            assert_eq!(matches!(died, Ok(Event::Died(name)) if name == "mirror"), panics);
        }
    }
}
