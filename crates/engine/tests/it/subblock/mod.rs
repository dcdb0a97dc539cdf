//! Blocks smaller than a cipher sector: what excludes what, what comes back, what reaches the medium.
//!
//! | module | what is asked |
//! |---|---|
//! | `bytes` | blocks of a single byte |
//! | `exclusion` | who waits for whom, and what is put into one rewrite |
//! | `faults` | a part that fails fails its request, once, and leaves no claim behind |
//! | `ranges` | discards and zeroes of parts of sectors |
//! | `durable` | a durable write is one durable point |
//! | `stamps` | many threads, and every block always somebody's |
//! | `crash` | the power fails between any two writes, and within one |
//! | `dropped` | queues that end in the middle of a rewrite |
//! | `holes` | places that were never written |
//!
//! Most of it runs over a disk that does its work when the test says so (`testkit::scripted`).

mod bytes;
mod crash;
mod dropped;
mod durable;
mod exclusion;
mod faults;
mod holes;
mod ranges;
mod stamps;

use cryptline_engine::layer::{CryptDevice, CryptOptions, Exclusion, SubBlockDevice, SubBlockOptions, Zeroes};
use cryptline_engine::{Completion, Gate, Op, Request};
use cryptline_testkit::model::ModelDisk;
use cryptline_testkit::scripted::{Manner, Scripted};
use cryptline_testkit::suite::devices::{self, INLINE, Layout};
use cryptline_testkit::suite::{Driver, Setup, fill};

/// Bytes in a cipher sector of all volumes here.
const SECTOR: u64 = 4096;
/// Bytes in a block.
const BLOCK: u64 = 512;

/// Null in large sectors: what is written is what lies on the medium.
const NULL_4096: Layout =
    Layout { cipher: "cipher_null-ecb", key_bytes: 0, sector_size: 4096, start: 5 * 4096, iv_offset: 0 };

/// A volume over `lower` in blocks of 512 bytes.
fn in_small_blocks(lower: Gate, layout: &Layout, exclusion: Exclusion, zeroes: Zeroes) -> Gate {
    let options = CryptOptions {
        start: layout.start,
        allow_discards: true,
        logical_block: Some(512),
        zeroes,
        dispatch: INLINE,
        ..CryptOptions::default()
    };
    let clear = CryptDevice::new(lower, devices::cipher(layout), options).expect("it fits");
    let clear = Gate::new(clear);
    if exclusion == Exclusion::Shared && clear.geometry().logical_block == 512 {
        return clear;
    }
    let options = SubBlockOptions { logical_block: 512, sector: layout.sector_size, exclusion };
    Gate::new(SubBlockDevice::new(clear, options).expect("smaller blocks"))
}

/// An empty disk with room for 16 sectors of data.
fn small(manner: Manner) -> Scripted {
    Scripted::new(manner, manner.start + 16 * SECTOR)
}

/// A volume on a disk that does its work when it is told to, filled, with two queues into it.
struct Scene {
    stage: Scripted,
    gate: Gate,
    model: ModelDisk,
    one: Driver,
    other: Driver,
}

impl Scene {
    fn new(setup: Setup, stage: Scripted, layout: &Layout, exclusion: Exclusion, zeroes: Zeroes) -> Self {
        println!("{setup:?}");
        let gate = in_small_blocks(stage.gate(), layout, exclusion, zeroes);
        let mut one = Driver::new(&gate, setup);
        let model = one.fill_device(1);
        stage.forget();
        Self { other: Driver::new(&gate, setup), stage, gate, model, one }
    }
}

/// Calls `play` for every backend, and media that answer at once and later.
fn each_backend_and_medium(start: u64, block: u32, mut play: impl FnMut(Setup, Manner)) {
    for setup in SETUPS {
        for at_once in [true, false] {
            play(setup, Manner { block, at_once, start });
        }
    }
}

/// Queues by io_uring and by system calls: what wakes them is not the same.
const SETUPS: [Setup; 2] = [Setup::ALL[0], Setup::ALL[2]];

/// A write of the pattern of `seed`, entered in the model too.
fn write(driver: &Driver, model: &mut ModelDisk, (offset, len): (u64, u64), seed: u64, token: u64) -> Request {
    let request = driver.write_request(offset, len, seed, token);
    model.write(offset, request.data.as_ref().expect("a write has data"));
    request
}

/// The same write, durable.
fn durably(request: Request) -> Request {
    Request { op: Op::WriteFua, ..request }
}

fn discard(offset: u64, len: u64, token: u64) -> Request {
    Request::new(Op::Discard, offset, len, token)
}

fn cache(offset: u64, len: u64, token: u64) -> Request {
    Request::new(Op::Cache, offset, len, token)
}

fn zero(offset: u64, len: u64, token: u64) -> Request {
    Request::new(Op::ZeroUnmap, offset, len, token)
}

/// The bytes of `seed`'s pattern.
fn pattern(offset: u64, len: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).expect("a length in memory")];
    fill(&mut bytes, offset, seed);
    bytes
}

/// The bytes of a finished transfer.
fn data_of(completion: &Completion) -> &[u8] {
    completion.request.data.as_ref().expect("it carries data")
}

/// Turns until nothing more happens by itself; what ended meanwhile.
fn settle_all(drivers: &mut [&mut Driver]) -> Vec<Completion> {
    let mut ended = Vec::new();
    let mut idle = 0;
    while idle < 20 {
        let before = ended.len();
        for driver in drivers.iter_mut() {
            ended.extend(driver.turn());
        }
        idle = if ended.len() > before { 0 } else { idle + 1 };
    }
    ended
}

/// The same, where none of them may fail: their tokens in order.
fn settle(drivers: &mut [&mut Driver]) -> Vec<u64> {
    let ended = settle_all(drivers);
    let tokens = ended.iter().map(|completion| {
        completion.result.expect("no fault was planned");
        completion.request.token
    });
    let mut tokens: Vec<u64> = tokens.collect();
    tokens.sort_unstable();
    tokens
}
