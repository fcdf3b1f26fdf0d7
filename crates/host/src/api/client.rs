//! The other side of the socket: [`Control`] by asking a daemon.

use super::error::{Answer, ApiError, Kind};
use super::export::{ExportAdd, ExportInfo, ExportRemove};
use super::job::{JobInfo, JobStart, JobSteer};
use super::mount::{MountForget, MountInfo};
use super::name::VdiskName;
use super::pool::{ChangeQuery, CheckQuery, CheckReport, DiskInfo, PoolCreate, PoolInfo, PoolQuery};
use super::upkeep::{DiskAdd, DiskRemove, DiskReplace, DiskSet, Importable, PoolImport, PoolSet, Rename};
use super::vdisk::{ExplainQuery, Explanation, VdiskCreate, VdiskInfo, VdiskResize};
use super::watch::{Change, EventPage, EventQuery, Stat, StatQuery, Status, Version};
use super::{API_VERSION, Control};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;

/// How long a daemon may take to listen after it was started, and how often a client looks.
const STARTING: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(20);

/// Asks the daemon on one socket, a connection per question.
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the daemon that listens on `socket`. Nothing is connected yet.
    pub fn new(socket: impl Into<PathBuf>) -> Client {
        Client { socket: socket.into() }
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Any GET, as text: for what is no operation, such as `/openapi.json`.
    pub fn get_text(&self, path: &str) -> Answer<String> {
        let (_, body) = self.exchange(Method::GET, path, Vec::new())?;
        String::from_utf8(body).map_err(|_| self.garbled("not UTF-8"))
    }

    fn get<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Answer<T> {
        self.ask(Method::GET, &with_query(path, query), Vec::new())
    }

    fn delete<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Answer<T> {
        self.ask(Method::DELETE, &with_query(path, query), Vec::new())
    }

    fn send<T: DeserializeOwned>(&self, method: Method, path: &str, body: &impl Serialize) -> Answer<T> {
        self.ask(method, path, serde_json::to_vec(body).expect("requests have string keys only"))
    }

    fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Vec<u8>) -> Answer<T> {
        let (ok, body) = self.exchange(method, &format!("/{API_VERSION}{path}"), body)?;
        if ok {
            return serde_json::from_slice(&body).map_err(|error| self.garbled(&error.to_string()));
        }
        Err(serde_json::from_slice(&body).unwrap_or_else(|error| self.garbled(&error.to_string())))
    }

    /// One request, one answer: whether it is a value, and its bytes.
    fn exchange(&self, method: Method, path: &str, body: Vec<u8>) -> Answer<(bool, Vec<u8>)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ApiError::new(Kind::Internal, format!("no I/O loop: {error}")))?;
        runtime.block_on(async {
            let stream = self.connect().await.map_err(|error| self.unreachable(&error))?;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| self.cut_off(&error))?;
            let driving = tokio::spawn(connection);
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("host", "weft")
                .header("content-type", "application/json")
                .header("connection", "close")
                .body(Full::new(Bytes::from(body)))
                .expect("paths are percent-encoded");
            let response = sender.send_request(request).await.map_err(|error| self.cut_off(&error))?;
            let ok = response.status().is_success();
            let body = response.into_body().collect().await.map_err(|error| self.cut_off(&error))?;
            driving.abort();
            Ok((ok, body.to_bytes().to_vec()))
        })
    }

    /// Connects to the daemon, and gives one that was started in the line before the time to listen.
    async fn connect(&self) -> io::Result<UnixStream> {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(&self.socket).await {
                Err(error) if may_be_starting(&error) && begun.elapsed() < STARTING => tokio::time::sleep(STEP).await,
                connected => return connected,
            }
        }
    }

    fn unreachable(&self, error: &io::Error) -> ApiError {
        let socket = self.socket.display();
        match error.kind() {
            io::ErrorKind::PermissionDenied => {
                ApiError::new(Kind::Unreachable, format!("you may not use the daemon's socket {socket}"))
                    .hint("sudo weft status")
            }
            _ => ApiError::new(Kind::Unreachable, format!("no daemon answers on {socket}: {error}"))
                .hint(format!("weft serve --socket {socket} --disks DIR_OR_DEVICE")),
        }
    }

    fn cut_off(&self, error: &hyper::Error) -> ApiError {
        let socket = self.socket.display();
        ApiError::new(Kind::Unreachable, format!("the daemon on {socket} broke off: {error}")).hint("weft status")
    }

    fn garbled(&self, why: &str) -> ApiError {
        let socket = self.socket.display();
        ApiError::new(Kind::Internal, format!("what answers on {socket} is no weft of this version: {why}"))
            .hint("weft version --verbose")
    }
}

fn may_be_starting(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn with_query(path: &str, query: &impl Serialize) -> String {
    let query = serde_urlencoded::to_string(query).expect("queries are flat");
    if query.is_empty() { path.into() } else { format!("{path}?{query}") }
}

fn part(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn disk_path(pool: &str, disk: &str) -> String {
    format!("/pools/{}/disks/{}", part(pool), part(disk))
}

fn vdisk_path(vdisk: &VdiskName) -> String {
    format!("/vdisks/{}/{}", part(&vdisk.pool), part(&vdisk.vdisk))
}

impl Control for Client {
    fn version(&self) -> Answer<Version> {
        self.get("/version", &())
    }

    fn status(&self, query: &PoolQuery) -> Answer<Status> {
        self.get("/status", query)
    }

    fn stat(&self, query: &StatQuery) -> Answer<Stat> {
        self.get("/stat", query)
    }

    fn events(&self, query: &EventQuery) -> Answer<EventPage> {
        self.get("/events", query)
    }

    fn pool_list(&self) -> Answer<Vec<PoolInfo>> {
        self.get("/pools", &())
    }

    fn pool_show(&self, pool: &str) -> Answer<PoolInfo> {
        self.get(&format!("/pools/{}", part(pool)), &())
    }

    fn pool_create(&self, request: &PoolCreate) -> Answer<Change> {
        self.send(Method::POST, "/pools", request)
    }

    fn pool_remove(&self, pool: &str, how: ChangeQuery) -> Answer<Change> {
        self.delete(&format!("/pools/{}", part(pool)), &how)
    }

    fn pool_check(&self, pool: &str, how: CheckQuery) -> Answer<CheckReport> {
        self.send(Method::POST, &with_query(&format!("/pools/{}/check", part(pool)), &how), &())
    }

    fn pool_rename(&self, pool: &str, request: &Rename) -> Answer<Change> {
        self.send(Method::POST, &format!("/pools/{}/rename", part(pool)), request)
    }

    fn pool_set(&self, pool: &str, request: &PoolSet) -> Answer<Change> {
        self.send(Method::PATCH, &format!("/pools/{}", part(pool)), request)
    }

    fn pool_export(&self, pool: &str, how: ChangeQuery) -> Answer<Change> {
        self.send(Method::POST, &with_query(&format!("/pools/{}/export", part(pool)), &how), &())
    }

    fn importable(&self) -> Answer<Vec<Importable>> {
        self.get("/imports", &())
    }

    fn pool_import(&self, request: &PoolImport) -> Answer<Change> {
        self.send(Method::POST, "/imports", request)
    }

    fn job_list(&self, query: &PoolQuery) -> Answer<Vec<JobInfo>> {
        self.get("/jobs", query)
    }

    fn job_show(&self, job: &str) -> Answer<JobInfo> {
        self.get(&format!("/jobs/{}", part(job)), &())
    }

    fn job_start(&self, pool: &str, request: JobStart) -> Answer<Change> {
        self.send(Method::POST, &format!("/pools/{}/jobs", part(pool)), &request)
    }

    fn job_steer(&self, job: &str, request: JobSteer) -> Answer<Change> {
        self.send(Method::PATCH, &format!("/jobs/{}", part(job)), &request)
    }

    fn disk_list(&self, query: &PoolQuery) -> Answer<Vec<DiskInfo>> {
        self.get("/disks", query)
    }

    fn disk_show(&self, disk: &str) -> Answer<DiskInfo> {
        self.get(&format!("/disks/{}", part(disk)), &())
    }

    fn disk_add(&self, pool: &str, request: &DiskAdd) -> Answer<Change> {
        self.send(Method::POST, &format!("/pools/{}/disks", part(pool)), request)
    }

    fn disk_remove(&self, pool: &str, disk: &str, how: DiskRemove) -> Answer<Change> {
        self.delete(&disk_path(pool, disk), &how)
    }

    fn disk_replace(&self, pool: &str, disk: &str, request: &DiskReplace) -> Answer<Change> {
        self.send(Method::POST, &format!("{}/replace", disk_path(pool, disk)), request)
    }

    fn disk_set(&self, pool: &str, disk: &str, request: &DiskSet) -> Answer<Change> {
        self.send(Method::PATCH, &disk_path(pool, disk), request)
    }

    fn vdisk_list(&self, query: &PoolQuery) -> Answer<Vec<VdiskInfo>> {
        self.get("/vdisks", query)
    }

    fn vdisk_show(&self, vdisk: &VdiskName) -> Answer<VdiskInfo> {
        self.get(&vdisk_path(vdisk), &())
    }

    fn vdisk_create(&self, request: &VdiskCreate) -> Answer<Change> {
        self.send(Method::POST, "/vdisks", request)
    }

    fn vdisk_resize(&self, vdisk: &VdiskName, request: &VdiskResize) -> Answer<Change> {
        self.send(Method::PATCH, &vdisk_path(vdisk), request)
    }

    fn vdisk_rename(&self, vdisk: &VdiskName, request: &Rename) -> Answer<Change> {
        self.send(Method::POST, &format!("{}/rename", vdisk_path(vdisk)), request)
    }

    fn vdisk_remove(&self, vdisk: &VdiskName, how: ChangeQuery) -> Answer<Change> {
        self.delete(&vdisk_path(vdisk), &how)
    }

    fn vdisk_clear(&self, vdisk: &VdiskName, how: ChangeQuery) -> Answer<Change> {
        self.send(Method::POST, &format!("{}/clear", vdisk_path(vdisk)), &how)
    }

    fn explain(&self, vdisk: &VdiskName, query: ExplainQuery) -> Answer<Explanation> {
        self.get(&format!("{}/explain", vdisk_path(vdisk)), &query)
    }

    fn export_list(&self) -> Answer<Vec<ExportInfo>> {
        self.get("/exports", &())
    }

    fn export_add(&self, request: &ExportAdd) -> Answer<Change> {
        self.send(Method::POST, "/exports", request)
    }

    fn export_remove(&self, vdisk: &VdiskName, how: &ExportRemove) -> Answer<Change> {
        self.delete(&format!("/exports/{}/{}", part(&vdisk.pool), part(&vdisk.vdisk)), how)
    }

    fn mount_list(&self) -> Answer<Vec<MountInfo>> {
        self.get("/mounts", &())
    }

    fn mount_note(&self, mount: &MountInfo) -> Answer<Change> {
        self.send(Method::POST, "/mounts", mount)
    }

    fn mount_forget(&self, which: &MountForget) -> Answer<Change> {
        self.delete("/mounts", which)
    }
}
