//! Which stages and pipelines this program knows.

use std::sync::OnceLock;

use control::config::{Config, KnownStages};
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
    let is_usual = |list: &Vec<&'static str>| list.is_sorted_by_key(|stage| rank(stage));
    known.pipelines().into_iter().filter(is_usual).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_pipelines_are_in_the_usual_order() {
        let lists: Vec<_> = usual().iter().map(|stages| stages.join(" ")).collect();
        let expected = [
            "decode nat flow l7 modules firewall rpf route nat_source rewrite",
            "decode nat flow l7 modules firewall route nat_source rewrite",
            "decode nat flow l7 modules rpf route nat_source rewrite",
            "decode nat flow l7 modules route nat_source rewrite",
            "decode nat flow l7 firewall rpf route nat_source rewrite",
            "decode nat flow l7 firewall route nat_source rewrite",
            "decode nat flow l7 rpf route nat_source rewrite",
            "decode nat flow l7 route nat_source rewrite",
            "decode nat flow modules firewall rpf route nat_source rewrite",
            "decode nat flow modules firewall route nat_source rewrite",
            "decode nat flow modules rpf route nat_source rewrite",
            "decode nat flow modules route nat_source rewrite",
            "decode nat flow firewall rpf route nat_source rewrite",
            "decode nat flow firewall route nat_source rewrite",
            "decode nat flow rpf route nat_source rewrite",
            "decode nat flow route nat_source rewrite",
            "decode nat modules firewall rpf route nat_source rewrite",
            "decode nat modules firewall route nat_source rewrite",
            "decode nat modules rpf route nat_source rewrite",
            "decode nat modules route nat_source rewrite",
            "decode nat firewall rpf route nat_source rewrite",
            "decode nat firewall route nat_source rewrite",
            "decode nat rpf route nat_source rewrite",
            "decode nat route nat_source rewrite",
            "decode flow l7 modules firewall rpf route rewrite",
            "decode flow l7 modules firewall route rewrite",
            "decode flow l7 modules rpf route rewrite",
            "decode flow l7 modules route rewrite",
            "decode flow l7 firewall rpf route rewrite",
            "decode flow l7 firewall route rewrite",
            "decode flow l7 rpf route rewrite",
            "decode flow l7 route rewrite",
            "decode flow modules firewall rpf route rewrite",
            "decode flow modules firewall route rewrite",
            "decode flow modules rpf route rewrite",
            "decode flow modules route rewrite",
            "decode flow firewall rpf route rewrite",
            "decode flow firewall route rewrite",
            "decode flow rpf route rewrite",
            "decode flow route rewrite",
            "decode modules firewall rpf route rewrite",
            "decode modules firewall route rewrite",
            "decode modules rpf route rewrite",
            "decode modules route rewrite",
            "decode firewall rpf route rewrite",
            "decode firewall route rewrite",
            "decode rpf route rewrite",
            "decode route rewrite",
            "bridge_in flow l7 modules firewall bridge bridge_out",
            "bridge_in flow l7 modules bridge bridge_out",
            "bridge_in flow l7 firewall bridge bridge_out",
            "bridge_in flow l7 bridge bridge_out",
            "bridge_in flow modules firewall bridge bridge_out",
            "bridge_in flow modules bridge bridge_out",
            "bridge_in flow firewall bridge bridge_out",
            "bridge_in flow bridge bridge_out",
            "bridge_in modules firewall bridge bridge_out",
            "bridge_in modules bridge bridge_out",
            "bridge_in firewall bridge bridge_out",
            "bridge_in bridge bridge_out",
            "ndn_decode name_lookup pit",
            "flow l7 modules firewall wire",
            "flow l7 modules firewall monitor",
            "flow l7 modules wire",
            "flow l7 modules monitor",
            "flow l7 firewall wire",
            "flow l7 firewall monitor",
            "flow l7 wire",
            "flow l7 monitor",
            "flow modules firewall wire",
            "flow modules firewall monitor",
            "flow modules wire",
            "flow modules monitor",
            "flow firewall wire",
            "flow firewall monitor",
            "flow wire",
            "flow monitor",
            "modules firewall wire",
            "modules firewall monitor",
            "modules wire",
            "modules monitor",
            "firewall wire",
            "firewall monitor",
            "wire",
            "monitor",
        ];
        assert_eq!(lists, expected);
        assert_eq!(known().pipelines().len(), 746);
    }

    #[test]
    fn a_shipped_pipeline_is_of_its_application() {
        for mode in known().modes {
            assert_eq!(mode.main().name, mode.name);
        }
    }
}
