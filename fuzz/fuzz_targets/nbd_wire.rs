//! Any bytes into every parser of the NBD wire; a request that parses must survive the way back.
//! Run with `cargo +nightly fuzz run nbd_wire`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_host::nbd::wire::{InfoQuery, MetaQuery, OptionHeader, Request, STRING_MAX, parse_name};

fuzz_target!(|data: &[u8]| {
    if let Some(query) = InfoQuery::parse(data) {
        assert!(query.export.len() <= STRING_MAX);
    }
    if let Some(query) = MetaQuery::parse(data) {
        assert!(query.queries.iter().all(|one| one.len() <= STRING_MAX));
    }
    let _ = parse_name(data);
    if let Some(header) = data.first_chunk() {
        let _ = OptionHeader::parse(header);
    }
    if let Some(header) = data.first_chunk()
        && let Ok(request) = Request::parse(header)
    {
        assert_eq!(&request.to_bytes(), header);
    }
});
