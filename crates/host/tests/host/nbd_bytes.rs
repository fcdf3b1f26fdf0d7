//! Whatever bytes arrive, a conversation ends: no panic, no hang, no memory beyond its share. The clients here are
//! byte strings: valid sessions, valid sessions with damage, and noise.

use crate::common::{Memory, Reversed, Shelf, shape};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weft_engine::error::ErrorKind;
use weft_host::errno::{NBD_EINVAL, NBD_ENOSPC};
use weft_host::export::{Done, Op, Volume, VolumeShape};
use weft_host::nbd::room::Account;
use weft_host::nbd::transmit::Share;
use weft_host::nbd::wire::{OPTION_MAGIC, OPTION_REPLY_MAGIC, Request, SIMPLE_REPLY_MAGIC, cmd, option, rep};
use weft_host::nbd::{Line, Room, converse};

const SIZE: u64 = 1 << 20;

/// A client's side of a session.
#[derive(Clone, Default)]
struct Script(Vec<u8>);

impl Script {
    fn new() -> Script {
        Script(3u32.to_be_bytes().to_vec())
    }

    fn option(mut self, option: u32, data: &[u8]) -> Script {
        self.0.extend(OPTION_MAGIC.to_be_bytes());
        self.0.extend(option.to_be_bytes());
        self.0.extend((data.len() as u32).to_be_bytes());
        self.0.extend(data);
        self
    }

    fn go(self, name: &str) -> Script {
        let data = [&(name.len() as u32).to_be_bytes(), name.as_bytes(), &[0, 1, 0, 3]].concat();
        self.option(option::GO, &data)
    }

    fn allocation(self, name: &str) -> Script {
        let string = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
        let data = [string(name), 1u32.to_be_bytes().to_vec(), string("base:allocation")].concat();
        self.option(option::SET_META_CONTEXT, &data)
    }

    fn request(mut self, command: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Script {
        self.0.extend(Request { flags, command, cookie, offset, len }.to_bytes());
        self
    }

    fn bytes(mut self, byte: u8, len: usize) -> Script {
        self.0.extend(std::iter::repeat_n(byte, len));
        self
    }
}

const LINE: Line<'_> = Line { hangup: &|| {}, at_ease: &|| Ok(()), at_once: None, lends: None };

fn account() -> Arc<Account> {
    Arc::new(Room::usual().open(Box::new(|| {})))
}

/// Plays `client` to its end against a volume and gives what the server said, and whether it left in good order.
fn play(client: &[u8], reversed: bool) -> (Vec<u8>, bool) {
    let memory = Memory::new(shape(SIZE, 512));
    let volume: Arc<dyn Volume> = if reversed { Reversed::new(memory) } else { memory };
    let shelf = Shelf::of([("pool/disk", volume)]);
    let mut said = Vec::new();
    let share = Share { requests: 8, bytes: 64 << 10 };
    let stop = AtomicBool::new(false);
    let memory = (share, account());
    let result = converse(&mut &client[..], &mut said, &*shelf, memory, &stop, &|_| Ok(()), &LINE);
    (said, result.is_ok())
}

/// The option replies after the greeting: (option, type). The rest is the transmission.
fn option_replies(said: &[u8]) -> (Vec<(u32, u32)>, &[u8]) {
    let number = |at: usize| u32::from_be_bytes(said[at..at + 4].try_into().unwrap());
    let mut at = 18;
    let mut replies = Vec::new();
    while said.len() >= at + 20 && said[at..at + 8] == OPTION_REPLY_MAGIC.to_be_bytes() {
        replies.push((number(at + 8), number(at + 12)));
        at += 20 + number(at + 16) as usize;
    }
    (replies, &said[at..])
}

/// Simple replies without data: cookie -> error.
fn simple_errors(mut said: &[u8]) -> BTreeMap<u64, u32> {
    let mut errors = BTreeMap::new();
    while !said.is_empty() {
        assert_eq!(said[..4], SIMPLE_REPLY_MAGIC.to_be_bytes());
        let error = u32::from_be_bytes(said[4..8].try_into().unwrap());
        let former = errors.insert(u64::from_be_bytes(said[8..16].try_into().unwrap()), error);
        assert_eq!(former, None, "answered twice");
        said = &said[16..];
    }
    errors
}

/// A volume that has no room for what begins at 4 MiB or later, and answers in reverse.
struct Half(Arc<Reversed>);

impl Volume for Half {
    fn shape(&self) -> VolumeShape {
        self.0.shape()
    }

    fn submit(&self, op: Op, done: Done) {
        match op {
            Op::Write { offset, .. } if offset >= 4 << 20 => done(Err(ErrorKind::NoSpace)),
            op => self.0.submit(op, done),
        }
    }
}

#[test]
fn a_long_write_arrives_whole_and_has_one_answer_which_is_the_error_of_any_of_its_parts() {
    const LEN: u32 = (9 << 20) + 512;
    let talk = |volume: Arc<dyn Volume>, client: &[u8]| {
        let shelf = Shelf::of([("pool/disk", volume)]);
        let (mut said, stop) = (Vec::new(), AtomicBool::new(false));
        let memory = (Share { requests: 8, bytes: 64 << 10 }, account());
        converse(&mut &client[..], &mut said, &*shelf, memory, &stop, &|_| Ok(()), &LINE).unwrap();
        option_replies(&said).1.to_vec()
    };
    let written: Vec<u8> = (0..LEN).map(|at| (at / 4096 * 7 + at % 251) as u8).collect();
    let mut script = Script::new().go("pool/disk").request(cmd::WRITE, cmd::FLAG_FUA, 1, 512, LEN);
    script.0.extend(&written);
    let memory = Memory::new(shape(16 << 20, 512));
    let said = talk(Reversed::new(memory.clone()), &script.0);
    assert_eq!(simple_errors(&said), BTreeMap::from([(1, 0)]));
    let said = talk(memory, &Script::new().go("pool/disk").request(cmd::READ, 0, 2, 512, LEN).0);
    assert!(said[16..] == written, "what is read is what was written");
    let said = talk(Arc::new(Half(Reversed::new(Memory::new(shape(16 << 20, 512))))), &script.0);
    assert_eq!(simple_errors(&said), BTreeMap::from([(1, NBD_ENOSPC)]));
}

#[test]
fn a_refused_write_is_consumed_and_the_next_request_is_understood() {
    let script = Script::new()
        .go("pool/disk")
        .request(cmd::WRITE, 0, 1, SIZE, 4096)
        .bytes(7, 4096)
        .request(cmd::WRITE, 0, 2, 3, 100)
        .bytes(7, 100)
        .request(cmd::WRITE, 1 << 14, 3, 0, 512)
        .bytes(7, 512)
        .request(cmd::WRITE, 0, 4, 0, (32 << 20) + 512)
        .bytes(7, (32 << 20) + 512)
        .request(cmd::WRITE, cmd::FLAG_FUA, 5, 0, 512)
        .bytes(7, 512)
        .request(cmd::FLUSH, 0, 6, 0, 0);
    let (said, fine) = play(&script.0, false);
    let (_, replies) = option_replies(&said);
    let wanted = [(1, NBD_ENOSPC), (2, NBD_EINVAL), (3, NBD_EINVAL), (4, NBD_EINVAL), (5, 0), (6, 0)];
    assert!(fine);
    assert_eq!(simple_errors(replies), BTreeMap::from(wanted));
}

#[test]
fn every_request_read_whole_is_answered_once_even_when_answers_come_out_of_order_and_the_client_stops_sending() {
    let mut script = Script::new().go("pool/disk");
    for cookie in 0..500 {
        let at = cookie * 512 % SIZE;
        script = match cookie % 3 {
            0 => script.request(cmd::WRITE, 0, cookie, at, 512).bytes(1, 512),
            1 => script.request(cmd::TRIM, 0, cookie, at, 512),
            _ => script.request(cmd::WRITE_ZEROES, cmd::FLAG_NO_HOLE, cookie, at, 512),
        };
    }
    // The last one is cut short: it was never read whole, so it must have no effect and disturb nothing.
    script = script.request(cmd::WRITE, 0, 9999, 0, 4096).bytes(1, 4095);
    let (said, _) = play(&script.0, true);
    let errors = simple_errors(option_replies(&said).1);
    assert!((0..500).all(|cookie| errors.get(&cookie) == Some(&0)));
}

#[test]
fn options_are_answered_as_the_specification_says() {
    let script = Script::new()
        .option(option::STARTTLS, &[])
        .option(option::EXTENDED_HEADERS, &[])
        .option(77, b"whatever")
        .option(option::LIST, b"data")
        .option(option::LIST, &[])
        .allocation("pool/disk")
        .option(option::STRUCTURED_REPLY, b"x")
        .option(option::STRUCTURED_REPLY, &[])
        .allocation("pool/other")
        .allocation("pool/disk")
        .go("pool/other")
        .option(option::GO, b"xx")
        .option(option::GO, &[0; 70_000])
        .option(option::ABORT, &[]);
    let (said, fine) = play(&script.0, false);
    let wanted = [
        (option::STARTTLS, rep::ERR_UNSUP),
        (option::EXTENDED_HEADERS, rep::ERR_UNSUP),
        (77, rep::ERR_UNSUP),
        (option::LIST, rep::ERR_INVALID),
        (option::LIST, rep::SERVER),
        (option::LIST, rep::ACK),
        (option::SET_META_CONTEXT, rep::ERR_INVALID),
        (option::STRUCTURED_REPLY, rep::ERR_INVALID),
        (option::STRUCTURED_REPLY, rep::ACK),
        (option::SET_META_CONTEXT, rep::ERR_UNKNOWN),
        (option::SET_META_CONTEXT, rep::META_CONTEXT),
        (option::SET_META_CONTEXT, rep::ACK),
        (option::GO, rep::ERR_UNKNOWN),
        (option::GO, rep::ERR_INVALID),
        (option::GO, rep::ERR_TOO_BIG),
        (option::ABORT, rep::ACK),
    ];
    assert!(fine);
    assert_eq!(option_replies(&said).0, wanted);
}

#[test]
fn an_old_client_gets_size_flags_and_its_padding() {
    let script = Script(1u32.to_be_bytes().to_vec()).option(option::EXPORT_NAME, b"pool/disk");
    let (said, fine) = play(&script.0, false);
    assert!(fine);
    assert_eq!(said.len(), 18 + 8 + 2 + 124);
    assert_eq!(said[18..26], SIZE.to_be_bytes());
    let unknown = Script::new().option(option::EXPORT_NAME, b"pool/other");
    assert!(!play(&unknown.0, false).1);
}

#[test]
fn unknown_client_flags_wrong_magic_and_monstrous_options_end_the_session() {
    assert!(!play(&[0xff; 4], false).1);
    let mut magic = Script::new().option(option::LIST, &[]).0;
    magic[5] ^= 1;
    assert!(!play(&magic, false).1);
    let mut monster = Script::new().option(option::GO, &[]).0;
    monster[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(!play(&monster, false).1);
    let mut request = Script::new().go("").request(cmd::FLUSH, 0, 1, 0, 0).0;
    let at = request.len() - 28;
    request[at] ^= 1;
    assert!(!play(&request, false).1);
}

#[test]
fn a_client_that_takes_no_replies_ends_its_conversation_when_the_output_fails() {
    struct Broken(usize);
    impl Write for Broken {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.0 < bytes.len() {
                return Err(std::io::ErrorKind::BrokenPipe.into());
            }
            self.0 -= bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut script = Script::new().go("pool/disk");
    for cookie in 0..1000 {
        script = script.request(cmd::READ, 0, cookie, 0, 4096);
    }
    let volume: Arc<dyn Volume> = Reversed::new(Memory::new(shape(SIZE, 512)));
    let shelf = Shelf::of([("pool/disk", volume)]);
    let share = Share { requests: 8, bytes: 64 << 10 };
    let stop = AtomicBool::new(false);
    let mut input = &script.0[..];
    let memory = (share, account());
    let result = converse(&mut input, &mut Broken(600), &*shelf, memory, &stop, &|_| Ok(()), &LINE);
    assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
}

/// A session in good form; requests may be anything.
fn sessions() -> impl Strategy<Value = Vec<u8>> {
    let request = (0u16..9, 0u16..40, any::<u64>(), prop_oneof![0..2 * SIZE, any::<u64>()], 0u32..70_000);
    let name = prop_oneof![Just("pool/disk"), Just(""), Just("nobody")];
    (any::<bool>(), any::<bool>(), name, vec(request, 0..30)).prop_map(|(structured, status, name, requests)| {
        let mut script = Script::new();
        if structured {
            script = script.option(option::STRUCTURED_REPLY, &[]);
        }
        if status {
            script = script.allocation(name);
        }
        script = script.go(name);
        for (command, flags, cookie, offset, len) in requests {
            let (offset, len) = if cookie % 4 == 0 { (offset, len) } else { (offset & !511, len & !511) };
            script = script.request(command, flags, cookie, offset, len);
            if command == cmd::WRITE {
                script = script.bytes(cookie as u8, len as usize);
            }
        }
        script.0
    })
}

/// What damage does to a byte string.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let hits = vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6);
    (sessions(), hits, any::<proptest::sample::Index>(), vec(any::<u8>(), 0..40), any::<bool>()).prop_map(
        |(mut bytes, hits, place, noise, cut)| {
            // Most of the bytes are payload: the damage belongs among the headers.
            let head = bytes.len().min(200);
            for (place, byte) in hits {
                bytes[place.index(head)] = byte;
            }
            let place = place.index(head);
            if cut {
                bytes.drain(place..(place + noise.len()).min(head));
            } else {
                bytes.splice(place..place, noise);
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn valid_and_damaged_sessions_end(client in prop_oneof![sessions(), damaged()], reversed: bool) {
        play(&client, reversed);
    }

    #[test]
    fn noise_ends(noise in vec(any::<u8>(), 0..2000), greeted: bool) {
        let start = if greeted { Script::new().go("").0 } else { Script::new().0 };
        play(&[start, noise].concat(), false);
    }
}
