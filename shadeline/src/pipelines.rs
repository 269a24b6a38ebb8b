//! Which stages and pipelines this program knows.

use std::sync::OnceLock;

use control::config::{Config, KnownStages, StageKind};
use controlplane::Descriptor;

/// The applications of this program.
static DESCRIPTORS: OnceLock<Vec<&'static Descriptor>> = OnceLock::new();

/// Adds applications to the shipped ones, before anything else is asked.
pub(crate) fn add(own: &[&'static Descriptor]) {
    let all = [apps::DESCRIPTORS, own].concat();
    // A second call would come from a second program in this process; the first one applies.
    let _ = DESCRIPTORS.set(all);
}

/// The applications of this program.
pub(crate) fn descriptors() -> &'static [&'static Descriptor] {
    DESCRIPTORS.get_or_init(|| apps::DESCRIPTORS.to_vec())
}

/// The stages and pipelines that this program knows.
pub(crate) fn known() -> KnownStages {
    apps::known_of(descriptors())
}

/// A configuration of a pipeline with these stages, everything else by default.
///
/// # Errors
/// Why they are not a pipeline.
pub(crate) fn with_stages(config: &mut Config, stages: &[&str]) -> Result<(), String> {
    config.pipeline = known().pipeline("of stages", stages)?;
    config.stage_lines = vec![vec![None; stages.len()]];
    Ok(())
}

/// The pipelines whose programs a build brings along: their stages in the usual order. Others compile theirs when they
/// start.
pub(crate) fn usual() -> Vec<Vec<&'static str>> {
    let known = known();
    let rank = |stage: &str| known.kinds.iter().position(|kind| kind.name == stage);
    let leads = |stage: &&str| known.kind(stage).is_some_and(|kind| !kind.leads_to.is_empty());
    let is_usual = |list: &Vec<&'static str>| {
        // What a last stage leads to has its order from there.
        let end = list.iter().position(leads).map_or(list.len(), |at| at + 1);
        list[..end].is_sorted_by_key(|stage| rank(stage))
    };
    known.pipelines().into_iter().filter(is_usual).collect()
}

/// The shortest pipelines with a stage that the file must say something for: that stage, and one behind which nothing follows.
pub(crate) fn of_needed_keys() -> Vec<Vec<&'static str>> {
    let known = known();
    let is_needed = |kind: &&StageKind| kind.settings.is_needed();
    let pairs = known
        .kinds
        .iter()
        .filter(is_needed)
        .flat_map(|kind| known.kinds.iter().map(|end| vec![kind.name, end.name]));
    pairs.filter(|stages| known.arrange(stages).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those with all stages that may stand in them, and what is left of these without some of them.
    #[test]
    fn the_usual_pipelines_are_in_the_usual_order() {
        let all = usual();
        let is_part = |list: &[&str], of: &[&str]| {
            let mut rest = of.iter();
            list.iter().all(|stage| rest.any(|other| other == stage))
        };
        let is_longest = |list: &&Vec<&'static str>| {
            !all.iter().any(|other| other.len() > list.len() && is_part(list, other))
        };
        let longest: Vec<_> = all.iter().filter(is_longest).map(|list| list.join(" ")).collect();
        let expected = [
            "decode esp_in nat flow l7 modules ids firewall rpf route esp_out nat_source rewrite",
            "bridge_in flow l7 modules ids firewall bridge bridge_out",
            "ndn_decode name_lookup pit",
            "flow l7 modules ids firewall wire",
            "flow l7 modules ids firewall openflow bridge_in bridge bridge_out",
            "flow l7 modules ids firewall monitor",
        ];
        assert_eq!(longest, expected);
        for shortest in ["decode route rewrite", "bridge_in bridge bridge_out", "wire", "monitor"] {
            assert!(all.iter().any(|list| list.join(" ") == shortest), "{shortest}");
        }
        // Before an OpenFlow switch there may be what may be before a wire.
        let every = known().pipelines();
        let ends = |lists: &[Vec<&str>], last: &str| {
            lists.iter().filter(|list| list.last() == Some(&last)).count()
        };
        for lists in [&all, &every] {
            assert_eq!(ends(lists, "openflow"), ends(lists, "wire"));
        }
        // Behind it there is nothing, or the switch that NORMAL is.
        let has = |list: &&Vec<&str>| list.contains(&"openflow");
        let with = |lists: &[Vec<&str>]| lists.iter().filter(has).count();
        for lists in [&all, &every] {
            assert_eq!(with(lists), 2 * ends(lists, "openflow"));
        }
        let others = |lists: &[Vec<&str>]| lists.len() - with(lists);
        assert_eq!((others(&all), others(&every)), (221, 6682));
    }

    #[test]
    fn stages_that_need_keys_are_before_an_end() {
        let all = of_needed_keys();
        assert!(all.contains(&vec!["cipher", "wire"]), "{all:?}");
        assert!(all.iter().all(|stages| !usual().contains(stages)));
    }

    #[test]
    fn a_shipped_pipeline_is_of_its_application() {
        for mode in known().modes {
            assert_eq!(mode.main().name, mode.name);
        }
    }
}
