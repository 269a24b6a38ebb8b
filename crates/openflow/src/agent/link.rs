//! The connection to a controller from outside: when to try again, and what the switch does without one.

use std::time::Duration;

/// Attempts to reach one controller: at once, and then after pauses that double (Open vSwitch, `reconnect`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connector {
    min: Duration,
    max: Duration,
    backoff: Duration,
    state: Link,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// The next attempt is at this time.
    Waiting(Duration),
    /// An attempt is under way.
    Connecting,
    /// Since this time.
    Connected(Duration),
}

impl Connector {
    /// Pauses from `min` to `max`. The first attempt is due.
    pub fn new(min: Duration, max: Duration) -> Self {
        let max = max.max(min);
        Self { min, max, backoff: Duration::ZERO, state: Link::Waiting(Duration::ZERO) }
    }

    /// When to try; `None`: an attempt is under way, or there is a connection.
    pub fn due(&self) -> Option<Duration> {
        match self.state {
            Link::Waiting(at) => Some(at),
            _ => None,
        }
    }

    /// An attempt begins.
    pub fn connecting(&mut self) {
        self.state = Link::Connecting;
    }

    /// The controller has said HELLO.
    pub fn connected(&mut self, now: Duration) {
        self.state = Link::Connected(now);
    }

    /// The attempt failed, or the connection is gone. One that lasted as long as its pause begins again with the shortest.
    pub fn failed(&mut self, now: Duration) {
        let lasted = match self.state {
            Link::Connected(since) => now.saturating_sub(since),
            _ => Duration::ZERO,
        };
        self.backoff = if self.backoff.is_zero() || !lasted.is_zero() && lasted >= self.backoff {
            self.min
        } else {
            (self.backoff * 2).min(self.max)
        };
        self.state = Link::Waiting(now + self.backoff);
    }
}

/// What a switch does when no controller can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailMode {
    /// It goes on with the flows that it has; what no flow takes is dropped.
    #[default]
    Secure,
    /// It becomes a learning switch.
    Standalone,
}

/// How packets are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// By the flows.
    Flows,
    /// By the learning switch alone (NORMAL).
    Standalone,
}

/// Follows whether any controller is there.
#[derive(Clone, Debug)]
pub struct FailSafe {
    mode: FailMode,
    grace: Duration,
    /// Without a controller since.
    alone: Option<Duration>,
    is_standalone: bool,
}

impl FailSafe {
    /// `grace`: time without a controller after which the mode counts (Open vSwitch: three probe intervals).
    pub fn new(mode: FailMode, grace: Duration, now: Duration) -> Self {
        Self { mode, grace, alone: Some(now), is_standalone: false }
    }

    /// What counts now. When it changes from [`Forwarding::Standalone`] to flows, the caller empties the tables of the
    /// flow that did it.
    pub fn update(&mut self, has_controller: bool, now: Duration) -> Forwarding {
        if has_controller {
            self.alone = None;
            self.is_standalone = false;
        } else {
            let since = *self.alone.get_or_insert(now);
            let is_over = now.saturating_sub(since) >= self.grace;
            self.is_standalone |= is_over && self.mode == FailMode::Standalone;
        }
        if self.is_standalone { Forwarding::Standalone } else { Forwarding::Flows }
    }

    /// When [`FailSafe::update`] has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        let waits = self.mode == FailMode::Standalone && !self.is_standalone;
        self.alone.filter(|_| waits).map(|since| since + self.grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut link = Connector::new(s(1), s(8));
        let mut now = s(0);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let due = link.due().unwrap();
            pauses.push((due - now).as_secs());
            now = due;
            link.connecting();
            assert_eq!(link.due(), None);
            link.failed(now);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 8]);
        link.connecting();
        link.connected(now);
        assert_eq!(link.due(), None);
        link.failed(now + s(3));
        assert_eq!(
            link.due(),
            Some(now + s(11)),
            "shorter than its pause: a controller that flaps"
        );
        link.connected(now);
        link.failed(now + s(100));
        assert_eq!(link.due(), Some(now + s(101)));
    }

    #[test]
    fn standalone_after_the_grace_only() {
        let mut safe = FailSafe::new(FailMode::Standalone, s(15), s(0));
        assert_eq!(safe.update(false, s(14)), Forwarding::Flows);
        assert_eq!(safe.deadline(), Some(s(15)));
        assert_eq!(safe.update(false, s(15)), Forwarding::Standalone);
        assert_eq!(safe.deadline(), None);
        assert_eq!(safe.update(true, s(20)), Forwarding::Flows);
        assert_eq!(safe.update(false, s(21)), Forwarding::Flows);
        assert_eq!(safe.update(false, s(36)), Forwarding::Standalone);

        let mut safe = FailSafe::new(FailMode::Secure, s(15), s(0));
        assert_eq!(safe.update(false, s(1000)), Forwarding::Flows);
        assert_eq!(safe.deadline(), None);
    }
}
