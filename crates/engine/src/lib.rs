//! Stages, segments, workers, masters, order and counters.
