//! The HTTP port of the metrics.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::sync::oneshot;

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

/// Serves `GET /metrics` on `address` from a thread of its own; `source` makes the text of each scrape.
pub fn serve(
    address: SocketAddr,
    source: Arc<dyn Fn() -> String + Send + Sync>,
) -> Result<Serving, ServeError> {
    let error = |source| ServeError { address, source };
    let listener = TcpListener::bind(address).map_err(error)?;
    listener.set_nonblocking(true).map_err(error)?;
    let bound = listener.local_addr().map_err(error)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(error)?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(error)?
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let router = Router::new()
        .route(
            "/metrics",
            get(move || async move { ([(CONTENT_TYPE, super::CONTENT_TYPE)], source()) }),
        )
        .route("/", get(|| async { "metrics are at /metrics\n" }));
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
