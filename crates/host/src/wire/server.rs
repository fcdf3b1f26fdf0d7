//! The daemon's side of the socket: HTTP + JSON, described at `/openapi.json`.
//!
//! Invariants
//! 1. Whatever arrives, the answer is JSON: the value asked for, or the error form.
//! 2. Operations run off the socket's thread, so that a long check never keeps a status waiting.
//! 3. Who does not finish its request in time, or does not take the answer, is sent away; until then a connection is
//!    one of few.

mod timed;
mod undated;

use super::document::{document, method};
use crate::api::API_VERSION;
use crate::api::error::{Answer, ApiError, Kind};
use crate::ops::{Carried, Operation, Perform, VisitFor, Weft, every_for};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use axum::{Extension, Json, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use timed::Timed;
use tokio::sync::{Semaphore, oneshot, watch};

/// How long a stopping server waits for requests under way.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and its body.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// Connections at a time; the next waits for one of them to end.
const CONNECTIONS_MAX: usize = 64;
/// How long to wait where the system has no descriptor to spare.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A server that runs on a thread of its own.
pub struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `weft` on `listener`, from now until [`Server::stop`].
    pub fn start(listener: UnixListener, weft: Arc<impl Weft>) -> io::Result<Server> {
        Server::with_timeout(listener, weft, REQUEST_WITHIN)
    }

    /// Makes a server whose requests must arrive whole within `timeout`.
    pub fn with_timeout(listener: UnixListener, weft: Arc<impl Weft>, timeout: Duration) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let listener = {
            let _inside = runtime.enter();
            tokio::net::UnixListener::from_std(listener)?
        };
        let thread = std::thread::Builder::new().name("weft-api".into()).spawn(move || {
            runtime.block_on(async {
                let (end, ending) = watch::channel(());
                let router = router(weft);
                let accepting = tokio::spawn(accept(listener, router.layer(Extension(timeout)), timeout, ending));
                let _ = stopped.await;
                accepting.abort();
                let _ = accepting.await;
                let _ = end.send(());
                let _ = tokio::time::timeout(STOP_TIMEOUT, end.closed()).await;
            });
            runtime.shutdown_timeout(STOP_TIMEOUT);
        })?;
        Ok(Server { stop: Some(stop), thread: Some(thread) })
    }

    /// Accepts no more requests, and returns when those under way are answered.
    pub fn stop(mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves whoever connects; each connection ends when `ending` is told, its last request answered.
async fn accept(listener: tokio::net::UnixListener, router: Router, timeout: Duration, ending: watch::Receiver<()>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(place) = places.clone().acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor, or no memory: it may pass.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if !undated::is_possible(SystemTime::now()) {
            tokio::spawn(async move {
                let _place = place;
                undated::refuse(stream, timeout).await;
            });
            continue;
        }
        let (service, mut ending) = (TowerToHyperService::new(router.clone()), ending.clone());
        tokio::spawn(async move {
            let _place = place;
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(timeout)
                .serve_connection(TokioIo::new(Timed::new(stream, timeout)), service);
            let (mut connection, mut ended) = (pin!(connection), pin!(ending.changed()));
            let mut told = false;
            // How it ends is the client's business.
            let _ = poll_fn(|context| {
                if !told && ended.as_mut().poll(context).is_ready() {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
                connection.as_mut().poll(context)
            })
            .await;
        });
    }
}

type Reply<T> = Result<Json<T>, ApiError>;

/// All operations, below the version of the API, each at its path.
fn router<W: Weft>(weft: Arc<W>) -> Router {
    let mut paths = Paths::<W>(Router::new());
    every_for(&mut paths);
    Router::new()
        .route("/openapi.json", axum::routing::get(async || Json(document())))
        .nest(&format!("/{API_VERSION}"), paths.0)
        .fallback(unknown)
        // It holds for the routes that are there by now.
        .method_not_allowed_fallback(unknown)
        .with_state(weft)
}

/// Paths that are being given their operations.
struct Paths<W>(Router<Arc<W>>);

impl<W: Weft> VisitFor<W> for Paths<W> {
    fn visit<O: Operation>(&mut self)
    where
        W: Perform<O>,
    {
        let filter = MethodFilter::try_from(method(&O::METHOD)).expect("it is one of four");
        self.0 = std::mem::take(&mut self.0).route(O::PATH, on(filter, answer::<O, W>));
    }
}

async fn unknown(method: axum::http::Method, uri: Uri) -> ApiError {
    ApiError::new(Kind::NotFound, format!("no operation {method} {}; /openapi.json lists them", uri.path()))
}

/// Reads an operation, and performs it off this thread (invariant 2).
async fn answer<O: Operation, W: Weft + Perform<O>>(State(weft): State<Arc<W>>, request: Request) -> Reply<O::Answer> {
    let operation: O = read(request).await?;
    match tokio::task::spawn_blocking(move || weft.perform(&operation)).await {
        Ok(answer) => answer.map(Json),
        Err(_) => Err(ApiError::new(Kind::Internal, "the daemon made a mistake in this request; its log says which")),
    }
}

/// Reads an operation from its path, and from its query or its body; what is none is refused in the error form.
async fn read<O: Operation>(request: Request) -> Answer<O> {
    let (mut head, body) = request.into_parts();
    let refused = |text: String| ApiError::new(Kind::InvalidInput, text);
    let parts: Vec<String> = match O::FIELDS {
        [] => Vec::new(),
        _ => Path::from_request_parts(&mut head, &()).await.map_err(|error| refused(error.body_text()))?.0,
    };
    let mut operation: O = match O::CARRIED {
        Carried::Nothing | Carried::Query => {
            Query::from_request_parts(&mut head, &()).await.map_err(|error| refused(error.body_text()))?.0
        }
        Carried::Body => {
            let timeout = head.extensions.get::<Duration>().copied().unwrap_or(REQUEST_WITHIN);
            let read = Json::from_request(Request::from_parts(head, body), &());
            let read = tokio::time::timeout(timeout, read).await;
            let read = read.map_err(|_| refused("the request did not arrive whole in time".into()))?;
            read.map_err(|error| refused(error.body_text()))?.0
        }
    };
    operation.place(parts)?;
    Ok(operation)
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match self.kind {
            Kind::InvalidInput => StatusCode::BAD_REQUEST,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::AlreadyExists | Kind::NotPossible | Kind::ReadOnly => StatusCode::CONFLICT,
            Kind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
            Kind::Frozen | Kind::Closed | Kind::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Lost | Kind::Corrupt | Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(self)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Visit, every};

    /// How many operations there are.
    struct Counted(usize);

    impl Visit for Counted {
        fn visit<O: Operation>(&mut self) {
            self.0 += 1;
        }
    }

    #[test]
    fn the_document_lists_every_operation_with_its_types() {
        let document = serde_json::to_value(document()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let operations: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        let mut listed = Counted(0);
        every(&mut listed);
        assert!(listed.0 >= 38);
        assert_eq!(operations, listed.0, "{:?}", paths.keys());
        for schema in ["PoolInfo", "VdiskCreate", "Change", "EventPage", "Explanation", "JobInfo", "DiskAdd"] {
            assert!(document["components"]["schemas"][schema].is_object(), "{schema}");
        }
    }
}
