//! The other side of the socket: every operation, by asking a daemon.

use super::document::method;
use crate::api::API_VERSION;
use crate::api::error::{Answer, ApiError, Kind};
use crate::ops::line::{Line, ToLine};
use crate::ops::watch::StatusShow;
use crate::ops::{Carried, Operation, Perform};
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
                    .hint(format!("sudo {}", StatusShow::default().line()))
            }
            _ => ApiError::new(Kind::Unreachable, format!("no daemon answers on {socket}: {error}"))
                .hint(Line::serve(&[("socket", &socket), ("disks", &"DIR_OR_DEVICE")])),
        }
    }

    fn cut_off(&self, error: &hyper::Error) -> ApiError {
        let socket = self.socket.display();
        ApiError::new(Kind::Unreachable, format!("the daemon on {socket} broke off: {error}"))
            .offer(&StatusShow::default())
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

/// A path with its parts in the places of their names.
fn filled(path: &str, parts: &[String]) -> String {
    let mut parts = parts.iter();
    let fill = |word: &str| match word.starts_with('{') {
        true => part(parts.next().expect("a path has as many parts as names")),
        false => word.into(),
    };
    path.split('/').map(fill).collect::<Vec<String>>().join("/")
}

fn with_query(path: &str, query: &impl Serialize) -> String {
    let query = serde_urlencoded::to_string(query).expect("queries are flat");
    if query.is_empty() { path.into() } else { format!("{path}?{query}") }
}

fn part(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl<O: Operation> Perform<O> for Client {
    fn perform(&self, operation: &O) -> Answer<O::Answer> {
        let mut path = filled(O::PATH, &operation.parts());
        let body = match O::CARRIED {
            Carried::Nothing => Vec::new(),
            Carried::Query => {
                path = with_query(&path, operation);
                Vec::new()
            }
            Carried::Body => serde_json::to_vec(operation).expect("operations have string keys only"),
        };
        self.ask(method(&O::METHOD), &path, body)
    }
}
