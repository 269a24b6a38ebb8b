//! Names of ports, for what a stage says of a packet under trace.

use std::sync::Arc;

use controlplane::Interfaces;

/// Names of interfaces by number, as far as they are known: a stage by itself, in tests and measurements, knows none.
/// A name keeps its number while a program runs.
#[derive(Clone, Debug, Default)]
pub struct PortNames(Arc<[String]>);

impl PortNames {
    /// Those of a program.
    pub fn of(interfaces: &Interfaces) -> Self {
        Self(interfaces.names().into())
    }

    /// A port's name, or `port N`.
    pub fn name(&self, port: u16) -> String {
        self.0.get(usize::from(port)).cloned().unwrap_or_else(|| format!("port {port}"))
    }
}
