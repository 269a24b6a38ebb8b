//! Names of ports, for what a stage says of a packet under trace.

use std::sync::Arc;

use control::config::Config;
use controlplane::Interfaces;

/// Names of interfaces by number, as far as they are known: a stage by itself, in tests and measurements, knows none.
/// They never change while a program runs.
#[derive(Clone, Debug, Default)]
pub struct PortNames(Arc<[String]>);

impl PortNames {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Self {
        Self(Interfaces::of(config).names().into())
    }

    /// A port's name, or `port N`.
    pub fn name(&self, port: u16) -> String {
        self.0.get(usize::from(port)).cloned().unwrap_or_else(|| format!("port {port}"))
    }
}
