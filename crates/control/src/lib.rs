//! Configuration, RIB, rtnetlink mirror, API and metrics.
