//! Serves one volume until killed: `nbd_null ADDRESS [memory]`. What the NBD server costs by itself.

#[allow(dead_code, reason = "tests use the rest")]
#[path = "../tests/host/common/mod.rs"]
mod common;

use common::{Memory, Shelf, shape};
use std::sync::Arc;
use weft_host::export::{Done, Extent, ExtentKind, Op, Pieces, Reply, Volume, VolumeShape};
use weft_host::nbd::{Config, Server};

fn main() {
    let mut args = std::env::args().skip(1);
    let address = args.next().expect("usage: nbd_null unix:PATH|tcp:HOST:PORT [memory]");
    let memory = args.next().is_some();
    let volume: Arc<dyn Volume> =
        if memory { Memory::new(shape(1 << 30, 512)) } else { Arc::new(Null(shape(16 << 30, 512))) };
    let address = address.parse().expect("an address");
    let server = Server::start(&address, Shelf::of([("v", volume)]), Config::default()).expect("a free address");
    println!("{}", server.address());
    loop {
        std::thread::park();
    }
}

/// Answers everything at once with nothing done: what the server itself costs.
struct Null(VolumeShape);

impl Volume for Null {
    fn shape(&self) -> VolumeShape {
        self.0
    }

    fn submit(&self, op: Op, done: Done) {
        done(Ok(match op {
            Op::Read { len, .. } => {
                let mut pieces = Pieces::new();
                pieces.push_zeroes(len.into());
                Reply::Data(pieces)
            }
            Op::Status { len, .. } => Reply::Extents(vec![Extent { len, kind: ExtentKind::Data }]),
            _ => Reply::Done,
        }));
    }
}
