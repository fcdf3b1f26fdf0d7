//! Every byte layout of the protocol, as pure functions: bytes to values and values to bytes. No sockets, no state.
//! All numbers travel big-endian.
//!
//! Invariants
//! 1. Parsers accept any bytes and never read past what they were given.
//! 2. A parsed string is UTF-8 and at most [`STRING_MAX`] bytes.

/// The server's first eight bytes.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Starts every option, and follows [`INIT_MAGIC`].
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Starts every option reply.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Starts every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Starts a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Starts a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// The longest string of the protocol, in bytes.
pub const STRING_MAX: usize = 4096;
/// The bytes of an option's header.
pub const OPTION_HEADER: usize = 16;
/// The bytes of a request's header.
pub const REQUEST_HEADER: usize = 28;

/// Handshake flags (16 bits), and the client's answer (32 bits), which has the same two.
pub mod handshake {
    /// Fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// No padding after `NBD_OPT_EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags.
pub mod flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// The export takes no writes.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// FUA is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The disks seek.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// TRIM is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES and NO_HOLE are understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// DF is understood.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers what was answered on all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// FAST_ZERO is understood.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options of the handshake.
pub mod option {
    /// Choose an export, the old way: no errors possible.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// Name the exports.
    pub const LIST: u32 = 3;
    /// Encrypt.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and choose it.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Name the metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use extended headers.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of option replies.
pub mod rep {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export.
    pub const SERVER: u32 = 2;
    /// A piece of information about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The option is not known here.
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    /// The option's data is wrong.
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    /// The option's data is too long.
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

/// Types of information about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// A sentence for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum block size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Requests.
pub mod cmd {
    /// Read.
    pub const READ: u16 = 0;
    /// Write.
    pub const WRITE: u16 = 1;
    /// Disconnect.
    pub const DISC: u16 = 2;
    /// Flush.
    pub const FLUSH: u16 = 3;
    /// Trim.
    pub const TRIM: u16 = 4;
    /// Read ahead.
    pub const CACHE: u16 = 5;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Block status.
    pub const BLOCK_STATUS: u16 = 7;

    /// Answer when durable.
    pub const FLAG_FUA: u16 = 1 << 0;
    /// Keep room for the zeroes.
    pub const FLAG_NO_HOLE: u16 = 1 << 1;
    /// Answer a read in one content chunk.
    pub const FLAG_DF: u16 = 1 << 2;
    /// Answer with one extent.
    pub const FLAG_REQ_ONE: u16 = 1 << 3;
    /// Zero only if that is fast.
    pub const FLAG_FAST_ZERO: u16 = 1 << 4;
}

/// Chunks of structured replies.
pub mod chunk {
    /// Nothing follows.
    pub const NONE: u16 = 0;
    /// Bytes at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeroes at an offset.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of one metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error.
    pub const ERROR: u16 = 1 << 15 | 1;
    /// The last chunk of its reply.
    pub const FLAG_DONE: u16 = 1 << 0;
}

/// Why bytes from a client make no sense; the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadMagic;

/// The header of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionHeader {
    /// Which option.
    pub option: u32,
    /// How many bytes of data follow.
    pub len: u32,
}

impl OptionHeader {
    /// Parses an option's header.
    pub fn parse(bytes: &[u8; OPTION_HEADER]) -> Result<OptionHeader, BadMagic> {
        let mut fields = Fields(bytes);
        match (fields.u64(), fields.u32(), fields.u32()) {
            (Some(OPTION_MAGIC), Some(option), Some(len)) => Ok(OptionHeader { option, len }),
            _ => Err(BadMagic),
        }
    }
}

/// The data of INFO and GO.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InfoQuery<'a> {
    /// The export.
    pub export: &'a str,
    /// What the client wants to know.
    pub infos: Vec<u16>,
}

impl InfoQuery<'_> {
    /// Parses the data; `None` when it is not well-formed.
    pub fn parse(data: &[u8]) -> Option<InfoQuery<'_>> {
        let mut fields = Fields(data);
        let export = fields.string()?;
        let count = fields.u16()? as usize;
        if fields.0.len() != count * 2 {
            return None;
        }
        let infos = std::iter::from_fn(|| fields.u16()).collect();
        Some(InfoQuery { export, infos })
    }
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaQuery<'a> {
    /// The export.
    pub export: &'a str,
    /// Names of contexts, or patterns.
    pub queries: Vec<&'a str>,
}

impl MetaQuery<'_> {
    /// Parses the data; `None` when it is not well-formed.
    pub fn parse(data: &[u8]) -> Option<MetaQuery<'_>> {
        let mut fields = Fields(data);
        let export = fields.string()?;
        let count = fields.u32()?;
        let mut queries = Vec::new();
        for _ in 0..count {
            queries.push(fields.string()?);
        }
        fields.0.is_empty().then_some(MetaQuery { export, queries })
    }
}

/// A name that is all of an option's data (EXPORT_NAME).
pub fn parse_name(data: &[u8]) -> Option<&str> {
    if data.len() > STRING_MAX {
        return None;
    }
    std::str::from_utf8(data).ok()
}

/// The header of a request, as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Command flags.
    pub flags: u16,
    /// The command.
    pub command: u16,
    /// The client's name for the request.
    pub cookie: u64,
    /// In bytes.
    pub offset: u64,
    /// In bytes.
    pub len: u32,
}

impl Request {
    /// Parses a request's header.
    pub fn parse(bytes: &[u8; REQUEST_HEADER]) -> Result<Request, BadMagic> {
        let mut fields = Fields(bytes);
        let request = (|| {
            let magic = fields.u32()?;
            let (flags, command) = (fields.u16()?, fields.u16()?);
            let (cookie, offset, len) = (fields.u64()?, fields.u64()?, fields.u32()?);
            (magic == REQUEST_MAGIC).then_some(Request { flags, command, cookie, offset, len })
        })();
        request.ok_or(BadMagic)
    }

    /// The bytes of the header.
    pub fn to_bytes(self) -> [u8; REQUEST_HEADER] {
        let mut bytes = [0; REQUEST_HEADER];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// Appends the server's greeting.
pub fn put_greeting(out: &mut Vec<u8>) {
    out.extend(INIT_MAGIC.to_be_bytes());
    out.extend(OPTION_MAGIC.to_be_bytes());
    out.extend((handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
}

/// Appends the answer to EXPORT_NAME.
pub fn put_export(out: &mut Vec<u8>, size: u64, flags: u16, padding: bool) {
    out.extend(size.to_be_bytes());
    out.extend(flags.to_be_bytes());
    if padding {
        out.extend([0; 124]);
    }
}

/// Appends a reply of type `kind` to `option`, its data being all of `parts`.
pub fn put_option_reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((len as u32).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Appends a simple reply's header; `error` 0 is success, and then a read's bytes follow.
pub fn put_simple_reply(out: &mut Vec<u8>, error: u32, cookie: u64) {
    out.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    out.extend(error.to_be_bytes());
    out.extend(cookie.to_be_bytes());
}

/// Appends a chunk's header; `len` bytes follow.
pub fn put_chunk(out: &mut Vec<u8>, flags: u16, kind: u16, cookie: u64, len: u32) {
    out.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    out.extend(flags.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out.extend(len.to_be_bytes());
}

/// Appends the head of a chunk of `len` bytes read at `offset`; the bytes follow.
pub fn put_data_chunk(out: &mut Vec<u8>, flags: u16, cookie: u64, offset: u64, len: u32) {
    put_chunk(out, flags, chunk::OFFSET_DATA, cookie, len + 8);
    out.extend(offset.to_be_bytes());
}

/// Appends a chunk that says that `len` bytes at `offset` read as zeroes.
pub fn put_hole_chunk(out: &mut Vec<u8>, flags: u16, cookie: u64, offset: u64, len: u32) {
    put_chunk(out, flags, chunk::OFFSET_HOLE, cookie, 12);
    out.extend(offset.to_be_bytes());
    out.extend(len.to_be_bytes());
}

/// Appends the chunk that ends a structured reply with an error.
pub fn put_error_chunk(out: &mut Vec<u8>, cookie: u64, error: u32, message: &str) {
    let len = message.len().min(STRING_MAX);
    put_chunk(out, chunk::FLAG_DONE, chunk::ERROR, cookie, 6 + len as u32);
    out.extend(error.to_be_bytes());
    out.extend((len as u16).to_be_bytes());
    out.extend_from_slice(&message.as_bytes()[..len]);
}

/// Appends the chunk of metadata context `context`: (length, status flags) each.
pub fn put_status_chunk(out: &mut Vec<u8>, cookie: u64, context: u32, extents: &[(u32, u32)]) {
    put_chunk(out, chunk::FLAG_DONE, chunk::BLOCK_STATUS, cookie, 4 + 8 * extents.len() as u32);
    out.extend(context.to_be_bytes());
    for (len, status) in extents {
        out.extend(len.to_be_bytes());
        out.extend(status.to_be_bytes());
    }
}

/// What is left to parse.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string with its 32-bit length in front.
    fn string(&mut self) -> Option<&'a str> {
        let len = self.u32()? as usize;
        if len > STRING_MAX || len > self.0.len() {
            return None;
        }
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        std::str::from_utf8(head).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn info_query(export: &str, infos: &[u16]) -> Vec<u8> {
        let mut data = (export.len() as u32).to_be_bytes().to_vec();
        data.extend(export.as_bytes());
        data.extend((infos.len() as u16).to_be_bytes());
        infos.iter().for_each(|info| data.extend(info.to_be_bytes()));
        data
    }

    #[test]
    fn an_info_query_is_parsed_and_any_cut_or_added_byte_is_refused() {
        let data = info_query("pool/disk", &[info::NAME, info::BLOCK_SIZE]);
        let parsed = InfoQuery::parse(&data).unwrap();
        assert_eq!((parsed.export, &parsed.infos[..]), ("pool/disk", &[info::NAME, info::BLOCK_SIZE][..]));
        for end in 0..data.len() {
            assert_eq!(InfoQuery::parse(&data[..end]), None, "cut at {end}");
        }
        let longer = [&data[..], &[0]].concat();
        assert_eq!(InfoQuery::parse(&longer), None);
    }

    #[test]
    fn a_name_longer_than_the_protocol_allows_is_refused_even_when_it_is_all_there() {
        assert!(InfoQuery::parse(&info_query(&"x".repeat(STRING_MAX), &[])).is_some());
        assert!(InfoQuery::parse(&info_query(&"x".repeat(STRING_MAX + 1), &[])).is_none());
        assert!(parse_name(&vec![b'x'; STRING_MAX + 1]).is_none());
        assert!(parse_name(b"\xff").is_none());
    }

    #[test]
    fn a_meta_query_that_claims_more_queries_than_it_holds_is_refused_without_making_room_for_them() {
        let mut data = 0u32.to_be_bytes().to_vec();
        data.extend(u32::MAX.to_be_bytes());
        assert_eq!(MetaQuery::parse(&data), None);
        let mut data = 0u32.to_be_bytes().to_vec();
        data.extend(1u32.to_be_bytes());
        data.extend(5u32.to_be_bytes());
        data.extend(b"base:");
        assert_eq!(MetaQuery::parse(&data).map(|query| query.queries), Some(vec!["base:"]));
    }

    #[test]
    fn chunks_carry_the_length_of_what_follows() {
        let mut out = Vec::new();
        put_error_chunk(&mut out, 7, 22, "no");
        assert_eq!(out.len(), 20 + 8);
        assert_eq!(out[16..20], 8u32.to_be_bytes());
        out.clear();
        put_status_chunk(&mut out, 7, 1, &[(512, 0), (1024, 3)]);
        assert_eq!(out[16..20], ((out.len() - 20) as u32).to_be_bytes());
    }

    proptest! {
        #[test]
        fn a_request_survives_the_wire_and_no_other_magic_is_taken(
            flags: u16, command: u16, cookie: u64, offset: u64, len: u32, wrong in 0usize..4, bit in 0u8..8,
        ) {
            let request = Request { flags, command, cookie, offset, len };
            let mut bytes = request.to_bytes();
            prop_assert_eq!(Request::parse(&bytes), Ok(request));
            bytes[wrong] ^= 1 << bit;
            prop_assert_eq!(Request::parse(&bytes), Err(BadMagic));
        }

        #[test]
        fn no_bytes_make_a_parser_panic(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (InfoQuery::parse(&data), MetaQuery::parse(&data), parse_name(&data));
        }
    }
}
