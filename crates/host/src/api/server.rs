//! The daemon's side of the socket: HTTP + JSON, described at `/openapi.json`.
//!
//! Invariants
//! 1. Whatever arrives, the answer is JSON: the value asked for, or the error form.
//! 2. Operations run off the socket's thread, so that a long check never keeps a status waiting.
//! 3. Who does not finish its request in time, or does not take the answer, is sent away; until then a connection is
//!    one of few.

mod patient;
mod undated;
mod upkeep;

use super::error::{Answer, ApiError, Kind};
use super::export::{ExportAdd, ExportInfo, ExportRemove};
use super::mount::{MountForget, MountInfo};
use super::name::VdiskName;
use super::pool::{ChangeQuery, CheckQuery, CheckReport, DiskInfo, PoolCreate, PoolInfo, PoolQuery};
use super::vdisk::{ExplainQuery, Explanation, VdiskCreate, VdiskInfo, VdiskResize};
use super::watch::{Change, EventPage, EventQuery, Stat, StatQuery, Status, Version};
use super::{API_VERSION, Control};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use patient::Patient;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokio::sync::{Semaphore, oneshot, watch};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long a stopping server waits for requests under way.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
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
    /// Serves `control` on `listener`, from now until [`Server::stop`].
    pub fn start(listener: UnixListener, control: Arc<dyn Control>) -> io::Result<Server> {
        Server::with_patience(listener, control, REQUEST_WITHIN)
    }

    /// Makes a server whose requests must arrive whole within `patience`.
    pub fn with_patience(listener: UnixListener, control: Arc<dyn Control>, patience: Duration) -> io::Result<Server> {
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
                let router = routes().split_for_parts().0.with_state(control);
                let accepting = tokio::spawn(accept(listener, router.layer(Extension(patience)), patience, ending));
                let _ = stopped.await;
                accepting.abort();
                let _ = accepting.await;
                let _ = end.send(());
                let _ = tokio::time::timeout(STOP_PATIENCE, end.closed()).await;
            });
            runtime.shutdown_timeout(STOP_PATIENCE);
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
async fn accept(listener: tokio::net::UnixListener, router: Router, patience: Duration, ending: watch::Receiver<()>) {
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
                undated::refuse(stream, patience).await;
            });
            continue;
        }
        let (service, mut ending) = (TowerToHyperService::new(router.clone()), ending.clone());
        tokio::spawn(async move {
            let _place = place;
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(patience)
                .serve_connection(TokioIo::new(Patient::new(stream, patience)), service);
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

/// The OpenAPI document of everything the server answers.
pub fn document() -> utoipa::openapi::OpenApi {
    routes().split_for_parts().1
}

type Shared = State<Arc<dyn Control>>;
type Reply<T> = Result<Json<T>, ApiError>;

#[derive(OpenApi)]
#[openapi(info(
    title = "weft control API",
    description = "Storage pools and virtual disks. Errors have the form of `ApiError`."
))]
struct Document;

fn routes() -> OpenApiRouter<Arc<dyn Control>> {
    let v1 = OpenApiRouter::new()
        .routes(routes!(version))
        .routes(routes!(status))
        .routes(routes!(stat))
        .routes(routes!(events))
        .routes(routes!(pool_list, pool_create))
        .routes(routes!(pool_show, pool_remove))
        .routes(routes!(pool_check))
        .routes(routes!(disk_list))
        .routes(routes!(disk_show))
        .routes(routes!(vdisk_list, vdisk_create))
        .routes(routes!(vdisk_show, vdisk_resize, vdisk_remove))
        .routes(routes!(explain))
        .routes(routes!(export_list, export_add))
        .routes(routes!(export_remove))
        .routes(routes!(mount_list, mount_note, mount_forget))
        .merge(upkeep::routes());
    let plain: Router<Arc<dyn Control>> = Router::new()
        .route("/openapi.json", axum::routing::get(async || Json(document())))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown);
    OpenApiRouter::with_openapi(Document::openapi()).merge(plain.into()).nest(&format!("/{API_VERSION}"), v1)
}

async fn unknown(method: axum::http::Method, uri: Uri) -> ApiError {
    ApiError::new(Kind::NotFound, format!("no operation {method} {}; /openapi.json lists them", uri.path()))
}

/// Runs `operation` off this thread (invariant 2).
async fn answer<T, F>(control: Arc<dyn Control>, operation: F) -> Reply<T>
where
    T: Serialize + Send + 'static,
    F: FnOnce(&dyn Control) -> Answer<T> + Send + 'static,
{
    match tokio::task::spawn_blocking(move || operation(&*control)).await {
        Ok(answer) => answer.map(Json),
        Err(_) => Err(ApiError::new(Kind::Internal, "the daemon made a mistake in this request; its log says which")),
    }
}

#[utoipa::path(get, path = "/version", responses((status = OK, body = Version)))]
async fn version(State(control): Shared) -> Reply<Version> {
    answer(control, |control| control.version()).await
}

#[utoipa::path(get, path = "/status", params(PoolQuery), responses((status = OK, body = Status)))]
async fn status(State(control): Shared, Asked(query): Asked<PoolQuery>) -> Reply<Status> {
    answer(control, move |control| control.status(&query)).await
}

#[utoipa::path(get, path = "/stat", params(StatQuery), responses((status = OK, body = Stat)))]
async fn stat(State(control): Shared, Asked(query): Asked<StatQuery>) -> Reply<Stat> {
    answer(control, move |control| control.stat(&query)).await
}

#[utoipa::path(get, path = "/events", params(EventQuery), responses((status = OK, body = EventPage)))]
async fn events(State(control): Shared, Asked(query): Asked<EventQuery>) -> Reply<EventPage> {
    answer(control, move |control| control.events(&query)).await
}

#[utoipa::path(get, path = "/pools", responses((status = OK, body = Vec<PoolInfo>)))]
async fn pool_list(State(control): Shared) -> Reply<Vec<PoolInfo>> {
    answer(control, |control| control.pool_list()).await
}

#[utoipa::path(post, path = "/pools", request_body = PoolCreate, responses((status = OK, body = Change)))]
async fn pool_create(State(control): Shared, Told(request): Told<PoolCreate>) -> Reply<Change> {
    answer(control, move |control| control.pool_create(&request)).await
}

#[utoipa::path(get, path = "/pools/{pool}", params(("pool" = String, Path)), responses((status = OK, body = PoolInfo)))]
async fn pool_show(State(control): Shared, Word(pool): Word) -> Reply<PoolInfo> {
    answer(control, move |control| control.pool_show(&pool)).await
}

#[utoipa::path(delete, path = "/pools/{pool}", params(("pool" = String, Path), ChangeQuery),
    responses((status = OK, body = Change)))]
async fn pool_remove(State(control): Shared, Word(pool): Word, Asked(how): Asked<ChangeQuery>) -> Reply<Change> {
    answer(control, move |control| control.pool_remove(&pool, how)).await
}

#[utoipa::path(post, path = "/pools/{pool}/check", params(("pool" = String, Path), CheckQuery),
    responses((status = OK, body = CheckReport)))]
async fn pool_check(State(control): Shared, Word(pool): Word, Asked(how): Asked<CheckQuery>) -> Reply<CheckReport> {
    answer(control, move |control| control.pool_check(&pool, how)).await
}

#[utoipa::path(get, path = "/disks", params(PoolQuery), responses((status = OK, body = Vec<DiskInfo>)))]
async fn disk_list(State(control): Shared, Asked(query): Asked<PoolQuery>) -> Reply<Vec<DiskInfo>> {
    answer(control, move |control| control.disk_list(&query)).await
}

#[utoipa::path(get, path = "/disks/{disk}", params(("disk" = String, Path)), responses((status = OK, body = DiskInfo)))]
async fn disk_show(State(control): Shared, Word(disk): Word) -> Reply<DiskInfo> {
    answer(control, move |control| control.disk_show(&disk)).await
}

#[utoipa::path(get, path = "/vdisks", params(PoolQuery), responses((status = OK, body = Vec<VdiskInfo>)))]
async fn vdisk_list(State(control): Shared, Asked(query): Asked<PoolQuery>) -> Reply<Vec<VdiskInfo>> {
    answer(control, move |control| control.vdisk_list(&query)).await
}

#[utoipa::path(post, path = "/vdisks", request_body = VdiskCreate, responses((status = OK, body = Change)))]
async fn vdisk_create(State(control): Shared, Told(request): Told<VdiskCreate>) -> Reply<Change> {
    answer(control, move |control| control.vdisk_create(&request)).await
}

#[utoipa::path(get, path = "/vdisks/{pool}/{vdisk}", params(("pool" = String, Path), ("vdisk" = String, Path)),
    responses((status = OK, body = VdiskInfo)))]
async fn vdisk_show(State(control): Shared, Named(name): Named) -> Reply<VdiskInfo> {
    answer(control, move |control| control.vdisk_show(&name)).await
}

#[utoipa::path(patch, path = "/vdisks/{pool}/{vdisk}", params(("pool" = String, Path), ("vdisk" = String, Path)),
    request_body = VdiskResize, responses((status = OK, body = Change)))]
async fn vdisk_resize(State(control): Shared, Named(name): Named, Told(request): Told<VdiskResize>) -> Reply<Change> {
    answer(control, move |control| control.vdisk_resize(&name, &request)).await
}

#[utoipa::path(delete, path = "/vdisks/{pool}/{vdisk}",
    params(("pool" = String, Path), ("vdisk" = String, Path), ChangeQuery), responses((status = OK, body = Change)))]
async fn vdisk_remove(State(control): Shared, Named(name): Named, Asked(how): Asked<ChangeQuery>) -> Reply<Change> {
    answer(control, move |control| control.vdisk_remove(&name, how)).await
}

#[utoipa::path(get, path = "/vdisks/{pool}/{vdisk}/explain",
    params(("pool" = String, Path), ("vdisk" = String, Path), ExplainQuery),
    responses((status = OK, body = Explanation)))]
async fn explain(State(control): Shared, Named(name): Named, Asked(query): Asked<ExplainQuery>) -> Reply<Explanation> {
    answer(control, move |control| control.explain(&name, query)).await
}

#[utoipa::path(get, path = "/exports", responses((status = OK, body = Vec<ExportInfo>)))]
async fn export_list(State(control): Shared) -> Reply<Vec<ExportInfo>> {
    answer(control, |control| control.export_list()).await
}

#[utoipa::path(post, path = "/exports", request_body = ExportAdd, responses((status = OK, body = Change)))]
async fn export_add(State(control): Shared, Told(request): Told<ExportAdd>) -> Reply<Change> {
    answer(control, move |control| control.export_add(&request)).await
}

#[utoipa::path(delete, path = "/exports/{pool}/{vdisk}",
    params(("pool" = String, Path), ("vdisk" = String, Path), ExportRemove), responses((status = OK, body = Change)))]
async fn export_remove(State(control): Shared, Named(name): Named, Asked(how): Asked<ExportRemove>) -> Reply<Change> {
    answer(control, move |control| control.export_remove(&name, &how)).await
}

#[utoipa::path(get, path = "/mounts", responses((status = OK, body = Vec<MountInfo>)))]
async fn mount_list(State(control): Shared) -> Reply<Vec<MountInfo>> {
    answer(control, |control| control.mount_list()).await
}

#[utoipa::path(post, path = "/mounts", request_body = MountInfo, responses((status = OK, body = Change)))]
async fn mount_note(State(control): Shared, Told(mount): Told<MountInfo>) -> Reply<Change> {
    answer(control, move |control| control.mount_note(&mount)).await
}

#[utoipa::path(delete, path = "/mounts", params(MountForget), responses((status = OK, body = Change)))]
async fn mount_forget(State(control): Shared, Asked(which): Asked<MountForget>) -> Reply<Change> {
    answer(control, move |control| control.mount_forget(&which)).await
}

/// The query of a request, refused in the error form.
struct Asked<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Asked<T>, ApiError> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(Asked(query)),
            Err(refused) => Err(ApiError::new(Kind::InvalidInput, refused.body_text())),
        }
    }
}

/// The body of a request, refused in the error form.
struct Told<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Told<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Told<T>, ApiError> {
        let patience = request.extensions().get::<Duration>().copied().unwrap_or(REQUEST_WITHIN);
        let read = tokio::time::timeout(patience, Json::from_request(request, state)).await;
        let Ok(read) = read else {
            return Err(ApiError::new(Kind::InvalidInput, "the request did not arrive whole in time"));
        };
        match read {
            Ok(Json(body)) => Ok(Told(body)),
            Err(refused) => Err(ApiError::new(Kind::InvalidInput, refused.body_text())),
        }
    }
}

/// The one name in a path, refused in the error form.
struct Word(String);

impl<S: Send + Sync> FromRequestParts<S> for Word {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Word, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(word)) => Ok(Word(word)),
            Err(refused) => Err(ApiError::new(Kind::InvalidInput, refused.body_text())),
        }
    }
}

/// The virtual disk that a path names.
struct Named(VdiskName);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Named, ApiError> {
        match Path::<(String, String)>::from_request_parts(parts, state).await {
            Ok(Path((pool, vdisk))) => Ok(Named(format!("{pool}/{vdisk}").parse()?)),
            Err(refused) => Err(ApiError::new(Kind::InvalidInput, refused.body_text())),
        }
    }
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

    #[test]
    fn the_document_lists_every_operation_with_its_types() {
        let document = serde_json::to_value(document()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let operations: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(operations, 38, "{:?}", paths.keys());
        for schema in ["PoolInfo", "VdiskCreate", "Change", "EventPage", "Explanation", "JobInfo", "DiskAdd"] {
            assert!(document["components"]["schemas"][schema].is_object(), "{schema}");
        }
    }
}
