//! The handshake: which export, and which extensions. One thread, strictly question and answer.
//!
//! Invariants
//! 1. At most [`OPTION_MAX`] bytes of an option are ever in memory; what is longer is skipped or ends the session.
//! 2. A metadata context counts only if it was chosen for the very name the client then enters with.
//! 3. Time is bounded by the streams (the server puts a deadline on them), not here.

use super::wire::{self, InfoQuery, MetaQuery, OPTION_HEADER, OptionHeader, flag, handshake, info, option, rep};
use crate::export::{Exports, Volume, VolumeShape};
use std::io::{self, Read, Write};
use std::sync::Arc;
use weft_engine::limits::REQUEST_MAX;
use weft_engine::units::{BLOCK, ByteCount};

/// The most bytes of an option that are looked at.
pub const OPTION_MAX: u32 = 64 << 10;
/// The most bytes of an option that are skipped to answer "too big"; more ends the session.
const SKIP_MAX: u32 = 32 << 20;
/// The one metadata context, and its number.
const ALLOCATION: &str = "base:allocation";
/// The number of `base:allocation` in replies.
pub const ALLOCATION_ID: u32 = 1;

/// What both sides agreed on.
pub struct Session {
    /// The export's name, as the server lists it.
    pub name: String,
    /// The export.
    pub volume: Arc<dyn Volume>,
    /// What it is; its size is whole sectors.
    pub shape: VolumeShape,
    /// Structured replies.
    pub structured: bool,
    /// `base:allocation` was chosen.
    pub status: bool,
}

/// Takes a client through the handshake. `None`: it left, or was sent away, in good order. `entered` is told what it
/// has chosen before the client hears that it may.
pub fn negotiate(
    input: &mut impl Read,
    output: &mut impl Write,
    exports: &dyn Exports,
    entered: &dyn Fn(&Session) -> io::Result<()>,
) -> io::Result<Option<Session>> {
    let mut talk = Talk { input, output, out: Vec::new(), exports, structured: false, chosen: None, padding: true };
    talk.greet()?;
    loop {
        let next = talk.option()?;
        if let Next::Transmission(session) = &next {
            entered(session)?;
        }
        let sent = talk.send();
        match next {
            // It may be gone already.
            Next::End => return Ok(None),
            Next::Option => sent?,
            Next::Transmission(session) => return sent.map(|()| Some(*session)),
        }
    }
}

/// The block sizes told to clients: minimum, preferred, maximum. The protocol wants the preferred size to be a power
/// of two, and a stripe need not be one: it is rounded **up**, so that one preferred request holds a stripe at least.
pub fn block_sizes(shape: &VolumeShape) -> (u32, u32, u32) {
    let preferred = shape.preferred.clamp(BLOCK.max(shape.sector as u64), REQUEST_MAX.0);
    (shape.sector, preferred.next_power_of_two() as u32, REQUEST_MAX.0 as u32)
}

enum Next {
    Option,
    Transmission(Box<Session>),
    End,
}

struct Talk<'a, I, O> {
    input: &'a mut I,
    output: &'a mut O,
    out: Vec<u8>,
    exports: &'a dyn Exports,
    structured: bool,
    /// The name for which `base:allocation` was chosen.
    chosen: Option<String>,
    /// Whether 124 zeroes end EXPORT_NAME.
    padding: bool,
}

impl<I: Read, O: Write> Talk<'_, I, O> {
    fn greet(&mut self) -> io::Result<()> {
        wire::put_greeting(&mut self.out);
        self.send()?;
        let mut flags = [0; 4];
        self.input.read_exact(&mut flags)?;
        let flags = u32::from_be_bytes(flags);
        let known = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
        if flags & !u32::from(known) != 0 {
            return Err(violation("unknown client flags"));
        }
        self.padding = flags & u32::from(handshake::NO_ZEROES) == 0;
        Ok(())
    }

    fn option(&mut self) -> io::Result<Next> {
        let mut header = [0; OPTION_HEADER];
        self.input.read_exact(&mut header)?;
        let header = OptionHeader::parse(&header).map_err(|_| violation("wrong option magic"))?;
        if header.len > OPTION_MAX {
            return self.too_big(header);
        }
        let mut data = vec![0; header.len as usize];
        self.input.read_exact(&mut data)?;
        let next = match header.option {
            option::EXPORT_NAME => self.export_name(&data)?,
            option::ABORT => {
                self.reply(option::ABORT, rep::ACK, &[]);
                Next::End
            }
            option::LIST => self.list(&data),
            option::INFO | option::GO => self.info(header.option, &data),
            option::STRUCTURED_REPLY => self.structured_reply(&data),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(header.option, &data),
            unknown => self.reply(unknown, rep::ERR_UNSUP, &[]),
        };
        Ok(next)
    }

    fn too_big(&mut self, header: OptionHeader) -> io::Result<Next> {
        if header.len > SKIP_MAX || header.option == option::EXPORT_NAME {
            return Err(violation("an option is too long"));
        }
        let len = u64::from(header.len);
        if io::copy(&mut (&mut *self.input).take(len), &mut io::sink())? < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if header.option == option::SET_META_CONTEXT {
            self.chosen = None;
        }
        Ok(self.reply(header.option, rep::ERR_TOO_BIG, b"the option's data is too long"))
    }

    fn export_name(&mut self, data: &[u8]) -> io::Result<Next> {
        let asked = wire::parse_name(data).ok_or_else(|| violation("a bad export name"))?;
        let session = self.session(asked).ok_or_else(|| violation("no such export"))?;
        wire::put_export(&mut self.out, session.shape.size, flags(&session), self.padding);
        Ok(Next::Transmission(Box::new(session)))
    }

    fn list(&mut self, data: &[u8]) -> Next {
        if !data.is_empty() {
            return self.reply(option::LIST, rep::ERR_INVALID, b"LIST has no data");
        }
        for name in self.exports.list() {
            if name.len() <= wire::STRING_MAX {
                let len = (name.len() as u32).to_be_bytes();
                wire::put_option_reply(&mut self.out, option::LIST, rep::SERVER, &[&len, name.as_bytes()]);
            }
        }
        self.reply(option::LIST, rep::ACK, &[])
    }

    fn info(&mut self, option: u32, data: &[u8]) -> Next {
        let Some(query) = InfoQuery::parse(data) else {
            return self.reply(option, rep::ERR_INVALID, b"malformed request for information");
        };
        let Some(session) = self.session(query.export) else {
            return self.reply(option, rep::ERR_UNKNOWN, b"no export of that name");
        };
        let shape = session.shape;
        self.put_info(option, info::EXPORT, &[&shape.size.to_be_bytes(), &flags(&session).to_be_bytes()]);
        // These are sent unasked too: a client that knows them does better with them.
        let (minimum, preferred, maximum) = block_sizes(&shape);
        let sizes = [minimum.to_be_bytes(), preferred.to_be_bytes(), maximum.to_be_bytes()];
        self.put_info(option, info::BLOCK_SIZE, &[sizes.as_flattened()]);
        if query.infos.contains(&info::NAME) {
            self.put_info(option, info::NAME, &[session.name.as_bytes()]);
        }
        if query.infos.contains(&info::DESCRIPTION) {
            self.put_info(option, info::DESCRIPTION, &[describe(&shape).as_bytes()]);
        }
        self.reply(option, rep::ACK, &[]);
        if option == option::GO { Next::Transmission(Box::new(session)) } else { Next::Option }
    }

    fn structured_reply(&mut self, data: &[u8]) -> Next {
        if !data.is_empty() {
            return self.reply(option::STRUCTURED_REPLY, rep::ERR_INVALID, b"STRUCTURED_REPLY has no data");
        }
        self.structured = true;
        self.reply(option::STRUCTURED_REPLY, rep::ACK, &[])
    }

    fn meta_context(&mut self, option: u32, data: &[u8]) -> Next {
        let setting = option == option::SET_META_CONTEXT;
        if setting {
            // Whatever happens now, the former choice is gone.
            self.chosen = None;
        }
        if !self.structured {
            return self.reply(option, rep::ERR_INVALID, b"structured replies come first");
        }
        let Some(query) = MetaQuery::parse(data) else {
            return self.reply(option, rep::ERR_INVALID, b"malformed metadata query");
        };
        if self.find(query.export).is_none() {
            return self.reply(option, rep::ERR_UNKNOWN, b"no export of that name");
        }
        let named = query.queries.contains(&ALLOCATION);
        let listed = named || query.queries.is_empty() || query.queries.contains(&"base:");
        if setting && named {
            self.chosen = Some(query.export.into());
        }
        if if setting { named } else { listed } {
            let id = if setting { ALLOCATION_ID } else { 0 };
            let parts: [&[u8]; 2] = [&id.to_be_bytes(), ALLOCATION.as_bytes()];
            wire::put_option_reply(&mut self.out, option, rep::META_CONTEXT, &parts);
        }
        self.reply(option, rep::ACK, &[])
    }

    fn session(&self, asked: &str) -> Option<Session> {
        let (name, volume) = self.find(asked)?;
        let mut shape = volume.shape();
        shape.size -= shape.size % u64::from(shape.sector);
        let status = self.chosen.as_deref() == Some(asked);
        Some(Session { name, volume, shape, structured: self.structured, status })
    }

    /// The export called `asked`. The empty name means the only export, if there is only one.
    fn find(&self, asked: &str) -> Option<(String, Arc<dyn Volume>)> {
        if let Some(volume) = self.exports.open(asked) {
            return Some((asked.into(), volume));
        }
        let mut names = self.exports.list();
        let only = if asked.is_empty() && names.len() == 1 { names.pop()? } else { return None };
        self.exports.open(&only).map(|volume| (only, volume))
    }

    fn put_info(&mut self, option: u32, kind: u16, parts: &[&[u8]]) {
        let kind = kind.to_be_bytes();
        let data = [&[&kind[..]], parts].concat();
        wire::put_option_reply(&mut self.out, option, rep::INFO, &data);
    }

    fn reply(&mut self, option: u32, kind: u32, message: &[u8]) -> Next {
        wire::put_option_reply(&mut self.out, option, kind, &[message]);
        Next::Option
    }

    fn send(&mut self) -> io::Result<()> {
        self.output.write_all(&self.out)?;
        self.out.clear();
        self.output.flush()
    }
}

fn flags(session: &Session) -> u16 {
    let shape = &session.shape;
    let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::CAN_MULTI_CONN;
    if shape.read_only {
        flags |= flag::READ_ONLY;
    } else {
        flags |= flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
    }
    if shape.rotational {
        flags |= flag::ROTATIONAL;
    }
    if session.structured {
        flags |= flag::SEND_DF;
    }
    flags
}

fn describe(shape: &VolumeShape) -> String {
    let access = if shape.read_only { ", read-only" } else { "" };
    format!(
        "weft virtual disk of {}, sectors of {}, stripes of {}{access}",
        ByteCount(shape.size),
        ByteCount(shape.sector.into()),
        ByteCount(shape.preferred),
    )
}

/// The client broke the protocol; the connection ends.
pub fn violation(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_size_told_is_a_power_of_two_that_holds_a_stripe() {
        let shape = |sector, preferred| VolumeShape {
            size: 1 << 30,
            sector,
            preferred,
            strip: 4096,
            read_only: false,
            rotational: false,
        };
        assert_eq!(block_sizes(&shape(512, 192 << 10)), (512, 256 << 10, 32 << 20));
        assert_eq!(block_sizes(&shape(4096, 256 << 10)), (4096, 256 << 10, 32 << 20));
        assert_eq!(block_sizes(&shape(4096, 0)), (4096, 4096, 32 << 20));
        assert_eq!(block_sizes(&shape(512, 120 << 20)), (512, 32 << 20, 32 << 20));
    }
}
