//! Serves one volume until killed: `nbd_null ADDRESS [memory]`. What the NBD server costs by itself.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Memory, Null, Shelf, shape};
use std::sync::Arc;
use weft_host::export::Volume;
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
