//! The HTTP port: the metrics, and the dashboard beside them.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::connections::{Clients, Connections, Limits};
use super::hosts::Hosts;
use super::text::Metrics;

/// The port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("metrics on {address}: {source}; change `system.metrics`")]
pub struct ServeError {
    /// Where.
    pub address: SocketAddr,
    /// Why.
    pub source: io::Error,
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
    /// Hears why the server ended by itself; it starts again.
    pub failed: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The dashboard: everything that it needs is in the page, so it works without any other server.
const PAGE: &str = include_str!("top.html");

/// How long after its end a server starts again that nobody stopped.
const AGAIN: Duration = Duration::from_millis(500);

/// What stands in the page where the number of an answer goes.
const NONCE: &str = "NONCE";

/// Serves `GET /metrics`, `GET /` (the dashboard) and `GET /api/top.json` on `address` from a thread of its own.
///
/// Requests are answered whose host is an address, `localhost`, the name of this machine or one of `hosts`. At most 64
/// clients are connected at the same time; another one takes the place of the one of the address with the most connections
/// to which nothing has been sent for the longest time. A client that does not complete its request in five seconds, or to
/// which nothing has been sent for ten, is disconnected.
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
    // The first of them here, where it can be said that it fails.
    let mut runtime = Some(new_runtime().map_err(error)?);
    let (stop, mut stopped) = oneshot::channel::<()>();
    let Sources { metrics, snapshot, failed } = sources;
    let clients: Arc<Clients> = Arc::default();
    let counted = clients.clone();
    let metrics = move || {
        let mut own = Metrics::default();
        counted.metrics(&mut own);
        metrics() + &own.text()
    };
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
            // Nothing of a server that failed is used by the next one but the port.
            let mut once = || {
                let runtime = runtime.take().map_or_else(new_runtime, Ok)?;
                let listener = (&listener, clients.clone(), limits);
                serve_once(runtime, listener, router.clone(), &mut stopped)
            };
            loop {
                match catch_unwind(AssertUnwindSafe(&mut once)) {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => failed(&error.to_string()),
                    Err(_) => failed("it panicked"),
                }
                thread::sleep(AGAIN);
            }
        })
        .map_err(error)?;
    Ok(Serving { address: bound, stop: Some(stop), thread: Some(thread) })
}

fn new_runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Answers requests until `stopped` ends.
///
/// # Errors
/// The server has ended by itself; in words.
fn serve_once(
    runtime: Runtime,
    (listener, clients, limits): (&TcpListener, Arc<Clients>, Limits),
    router: Router,
    stopped: &mut oneshot::Receiver<()>,
) -> io::Result<()> {
    let listener = {
        let _inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
        Connections::new(listener, clients, limits)
    };
    let mut server = runtime.spawn(axum::serve(listener, router).into_future());
    let ended = runtime.block_on(poll_fn(|context| {
        if Pin::new(&mut *stopped).poll(context).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut server).poll(context).map(Some)
    }));
    // Connections that are open now are cut, with the runtime.
    runtime.shutdown_background();
    match ended {
        None => Ok(()),
        Some(Ok(done)) => Err(done.err().unwrap_or_else(|| io::Error::other("the server ended"))),
        Some(Err(error)) => Err(io::Error::other(error)),
    }
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
