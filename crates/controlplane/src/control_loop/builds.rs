//! What is being built on other threads, and the requests that wait for it.
//!
//! A build is for one part, or for all of them (a reload). A request that changes tables waits while a build for its part
//! runs, and behind requests for the same part that wait already; requests for other parts go on.

use std::collections::VecDeque;

/// What a build or a request changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The part of this number.
    Part(usize),
    /// All parts.
    All,
}

impl Target {
    fn meets(self, other: Target) -> bool {
        self == Target::All || other == Target::All || self == other
    }
}

/// Builds that run, and requests `R` in the order in which they came.
pub(super) struct Builds<R> {
    running: Vec<Target>,
    waiting: VecDeque<(Target, R)>,
}

impl<R> Default for Builds<R> {
    fn default() -> Self {
        Self { running: Vec::new(), waiting: VecDeque::new() }
    }
}

impl<R> Builds<R> {
    /// A build has begun.
    pub(super) fn begin(&mut self, target: Target) {
        self.running.push(target);
    }

    /// A build has ended.
    pub(super) fn end(&mut self, target: Target) {
        if let Some(at) = self.running.iter().position(|own| *own == target) {
            self.running.swap_remove(at);
        }
    }

    /// Whether a request must wait.
    pub(super) fn holds(&self, target: Target) -> bool {
        let waiting = self.waiting.iter().map(|(own, _)| own);
        self.running.iter().chain(waiting).any(|own| own.meets(target))
    }

    /// Keeps a request until [`Builds::next`] gives it.
    pub(super) fn wait(&mut self, target: Target, request: R) {
        self.waiting.push_back((target, request));
    }

    /// The first request that waits for no build and for no request before it.
    pub(super) fn next(&mut self) -> Option<R> {
        let is_free = |at: usize| {
            let target = self.waiting[at].0;
            let before = self.waiting.range(..at).map(|(own, _)| own);
            !self.running.iter().chain(before).any(|own| own.meets(target))
        };
        let at = (0..self.waiting.len()).find(|at| is_free(*at))?;
        self.waiting.remove(at).map(|(_, request)| request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_builds_of_its_own_part() {
        let mut builds = Builds::default();
        builds.begin(Target::Part(1));
        assert!(!builds.holds(Target::Part(0)) && builds.holds(Target::Part(1)));
        assert!(builds.holds(Target::All));
        builds.wait(Target::Part(1), "first");
        builds.wait(Target::Part(1), "second");
        assert_eq!(builds.next(), None);
        builds.end(Target::Part(1));
        assert_eq!(builds.next(), Some("first"));
        // The first builds something itself.
        builds.begin(Target::Part(1));
        assert_eq!(builds.next(), None);
        builds.end(Target::Part(1));
        assert_eq!(builds.next(), Some("second"));
        assert_eq!(builds.next(), None);
        assert!(!builds.holds(Target::All));
    }

    #[test]
    fn nothing_overtakes_a_reload_and_a_reload_overtakes_nothing() {
        let mut builds = Builds::default();
        builds.begin(Target::Part(1));
        builds.wait(Target::All, "reload");
        assert!(builds.holds(Target::Part(0)));
        builds.wait(Target::Part(0), "later");
        assert_eq!(builds.next(), None);
        builds.begin(Target::Part(2));
        builds.end(Target::Part(1));
        assert_eq!(builds.next(), None);
        builds.end(Target::Part(2));
        assert_eq!(builds.next(), Some("reload"));
        builds.begin(Target::All);
        assert_eq!(builds.next(), None);
        builds.end(Target::All);
        assert_eq!(builds.next(), Some("later"));
    }
}
