//! What is kept of a flow.

/// What rules remember of a flow. It belongs to the flow as long as it lives; nothing is taken from the heap before a rule
/// needs it.
#[derive(Debug, Default)]
pub struct FlowState {
    pub(crate) is_dropped: bool,
    pub(crate) is_passed: bool,
    /// What applications are spoken, by sender: Suricata's names.
    pub(crate) application: [Option<&'static str>; 2],
}

impl FlowState {
    /// The application that `sender` speaks, by Suricata's name (`http`, `tls`, …), is known now.
    pub fn set_application(&mut self, sender: crate::Sender, name: &'static str) {
        self.application[sender.index()] = Some(name);
    }

    /// Whether a rule dropped the flow: what follows of it is not inspected.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped
    }

    /// Whether a rule passed the flow: what follows of it is not inspected.
    pub fn is_passed(&self) -> bool {
        self.is_passed
    }
}
