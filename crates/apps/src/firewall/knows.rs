//! What a firewall knows of packets beside their headers: by the stages before it.

use control::config::Config;
use control::firewall::Conditions;

/// Whether a firewall of a configuration comes behind the stage that tracks flows, in each of its pipelines.
pub(super) fn has_states(name: &str, config: &Config) -> bool {
    is_behind(name, config, crate::flow::STAGE)
}

/// The same for the one that labels them.
pub(super) fn has_applications(name: &str, config: &Config) -> bool {
    is_behind(name, config, crate::l7::STAGE)
}

fn is_behind(name: &str, config: &Config, kind: &str) -> bool {
    let mut own = config.in_use().filter(|own| own.named(super::STAGE).any(|stage| stage == name));
    own.all(|own| super::is_behind(own, own.stages.iter().position(|stage| stage == name), kind))
}

/// Whether the firewall can know what a rule asks.
pub(super) fn may_ask(
    conditions: &Conditions,
    (has_states, has_applications): (bool, bool),
) -> Result<(), String> {
    if let Some(name) = conditions.application.as_deref().filter(|_| !has_applications) {
        return Err(format!(
            "`application` is `{name}`, but nothing before the firewall labels flows: add [l7], in a [pipeline.NAME] the \
             stages `flow` and `l7` before the firewall; an instance that began without [l7] needs a restart"
        ));
    }
    match conditions.state {
        Some(states) if !has_states => Err(format!(
            "`state` is `{states}`, but nothing before the firewall tracks flows: add [flow], in a [pipeline.NAME] the \
             stage `flow` before the firewall; an instance that began without [flow] needs a restart"
        )),
        _ => Ok(()),
    }
}
