use super::read::Spans;
use super::types::*;
use super::walk::Walk;
use super::*;
pub(super) fn check(_c: &Config, _s: &Spans, _k: &KnownStages, _w: &mut Walk<'_>) {}
