//! The routing information base: the routes of all sources, and which of them are in use.
//!
//! Several sources may have a route for the same prefix: the router's own addresses, the configuration, the
//! control socket, the kernel's tables, a routes file. All their routes are kept; per prefix the
//! best one that resolves is installed in the forwarding tables. Smaller is better:
//!
//! | source | preference |
//! |---|---|
//! | connected (an interface's addresses) | 0 |
//! | static (`[[route]]`), api (control socket) | 1 |
//! | kernel | 10 |
//! | file (`[[routes]]`) | 20 |
//!
//! Then the smaller metric wins, then the newer route. A source has one route per prefix, the
//! latest one; static routes have one for each metric, and those of equal metric form one group.
//!
//! ```text
//!  RibChange ─▶ candidates of a prefix ─▶ best that resolves ─▶ FibBuilder ┐ commit():
//!  interfaces, objects ─▶ legs resolve to paths ─▶ next-hop records ───────┴▶ one version
//! ```
//!
//! Routes that agree in source, metric and target share one *origin*, whose number is that of their
//! next hop in the forwarding tables. So a million routes of a file cost nothing beyond the table
//! builder's own map: only prefixes with several candidates, or with one that does not resolve, are
//! kept beside it. And a gateway that moves to another interface is one record changed.
//!
//! A leg resolves to a path where its interface is up. A leg without an interface takes the one
//! whose subnet holds the gateway; failing that, one step through the RIB: the longest route for the
//! gateway, except the default route, that resolves without such a step itself.
//!
//! Thread rule: one owner, the control thread. Readers see whole versions.

mod connected;
mod family;
mod manager;
mod origins;
mod resolve;
mod routes;
mod types;

#[cfg(test)]
mod tests;

pub use manager::{Loaded, RibManager, RibStats, RouteView};
pub use resolve::spread;
pub use types::{Leg, RibChange, RibError, RouteSource, Source, Target};
