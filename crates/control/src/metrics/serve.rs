//! The HTTP port: the metrics, and the dashboard beside them.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::sync::oneshot;

use super::connections::{Connections, Limits};
use super::hosts::Hosts;

/// The port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("metrics on {address}: {source}; change `system.metrics`")]
pub struct ServeError {
    /// Where.
    pub address: SocketAddr,
    /// Why.
    pub source: std::io::Error,
}

/// A running server; dropping it closes the port.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Who answers the requests of the server.
#[derive(Clone)]
pub struct Sources {
    /// The text of each scrape.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// A [`Snapshot`](super::Snapshot) as JSON; `None` where the instance is stopping.
    pub snapshot: Arc<dyn Fn() -> Option<String> + Send + Sync>,
}

/// The dashboard: everything that it needs is in the page, so it works without any other server.
const PAGE: &str = include_str!("top.html");

/// What stands in the page where the number of an answer goes.
const NONCE: &str = "NONCE";

/// Serves `GET /metrics`, `GET /` (the dashboard) and `GET /api/top.json` on `address` from a thread of its own.
///
/// Requests are answered whose host is an address, `localhost`, the name of this machine or one of `hosts`. At most 64
/// clients are connected at the same time; one to which nothing has been sent for ten seconds is disconnected.
///
/// # Errors
/// The address is in use, or it is not one of this machine.
pub fn serve(
    address: SocketAddr,
    hosts: &[String],
    sources: Sources,
) -> Result<Serving, ServeError> {
    serve_within(Limits::default(), address, hosts, sources)
}

/// [`serve`] with other limits.
pub(super) fn serve_within(
    limits: Limits,
    address: SocketAddr,
    hosts: &[String],
    sources: Sources,
) -> Result<Serving, ServeError> {
    let error = |source| ServeError { address, source };
    let listener = TcpListener::bind(address).map_err(error)?;
    listener.set_nonblocking(true).map_err(error)?;
    let bound = listener.local_addr().map_err(error)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(error)?;
    let listener = {
        let _inside = runtime.enter();
        Connections::new(tokio::net::TcpListener::from_std(listener).map_err(error)?, limits)
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let Sources { metrics, snapshot } = sources;
    let hosts = Hosts::with(hosts);
    let router = Router::new()
        .route(
            "/metrics",
            get(move || async move { ([(CONTENT_TYPE, super::CONTENT_TYPE)], metrics()) }),
        )
        .route("/api/top.json", get(move || async move { json(snapshot()) }))
        .route("/", get(|| async { page() }))
        .layer(from_fn(move |request: Request, next: Next| {
            let checked = hosts.check(request.uri(), request.headers());
            async move {
                match checked {
                    Ok(()) => next.run(request).await,
                    Err(why) => (StatusCode::MISDIRECTED_REQUEST, why).into_response(),
                }
            }
        }));
    let thread = thread::Builder::new()
        .name("metrics".into())
        .spawn(move || {
            // Connections that are open at the stop are cut, with the runtime.
            runtime.spawn(axum::serve(listener, router).into_future());
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })
        .map_err(error)?;
    Ok(Serving { address: bound, stop: Some(stop), thread: Some(thread) })
}

/// The dashboard. The browser runs the script of this very answer and loads nothing from elsewhere, whatever text a
/// port or a rule may have as its name.
fn page() -> impl IntoResponse {
    let nonce = nonce();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let quoted = |value: &str| format!("nonce=\"{value}\"");
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (CONTENT_SECURITY_POLICY, policy),
        (CACHE_CONTROL, "no-store".to_owned()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (REFERRER_POLICY, "no-referrer".to_owned()),
    ];
    (headers, PAGE.replace(&quoted(NONCE), &quoted(&nonce)))
}

/// A number that no other answer has.
fn nonce() -> String {
    let mut bytes = [0; 16];
    // It cannot fail on a kernel that runs this program; the page is good without it, its policy weaker.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A snapshot, or that there is none.
fn json(snapshot: Option<String>) -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    match snapshot {
        Some(text) => (StatusCode::OK, headers, text),
        None => (StatusCode::SERVICE_UNAVAILABLE, headers, "null".to_owned()),
    }
}

impl Serving {
    /// Where it listens: with port 0 asked for, the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
