//! Writes that are encrypted ahead of their turn, where no helper takes them.

use cryptline_sys::BackendChoice;

use super::*;
use crate::base::{RamDevice, ZonedDevice};
use crate::cipher_map::CipherMap;
use crate::cipher_map::{CipherRange, Zeroes};
use crate::dispatch::{CipherPace, Dispatch, DispatchMode, HelperThreads};
use crate::layer::crypt::any_cipher;
use crate::layer::{DelayDevice, zoned};
use crate::zone::ZoneLayout;
use crate::{Channel, Gate, Submitted};

const BLOCK: usize = 128 * 1024;
const ZONE: u64 = 1 << 20;

/// Zones over memory that takes its time.
fn zones() -> Gate {
    let ram = Gate::new(RamDevice::new(4 * ZONE).unwrap());
    let slow = Gate::new(DelayDevice::new(ram, "write=200us".parse().unwrap()));
    let layout = ZoneLayout::new(4 * ZONE, ZONE).unwrap();
    Gate::new(ZonedDevice::in_memory(slow, layout).unwrap())
}

fn filled(byte: u8) -> Buffer {
    let mut buffer = Buffer::alloc(BLOCK).unwrap();
    buffer.fill(byte);
    buffer
}

#[test]
fn what_no_helper_takes_is_encrypted_here_after_some_passes_or_when_there_is_nothing_else() {
    let (lower, mut ring) = (zones(), Ring::new(BackendChoice::Syscalls, 64).unwrap());
    let range = CipherRange { len: 4 * ZONE, cipher: Some(any_cipher()) };
    let cipher_map = Arc::new(CipherMap::new(vec![range], Zeroes::Decrypt));
    let helpers = Some((HelperThreads::deaf(1), CipherPace::of(&any_cipher())));
    let policy = SharingPolicy::over(lower.traits(), Dispatch::both(DispatchMode::Auto), helpers);
    let cipher = PlacedCipher { cipher_map, start: 0, watch: Arc::default() };
    let mut exchange = Exchange::open(policy, None, cipher, lower.geometry(), &mut ring).unwrap();
    exchange.under_way = 3;
    for zone in 0..2 {
        let (mut out, has_other_work) = (CryptOut::new(64), zone == 0);
        let request = Request::write(zone * ZONE, filled(1), false, zone);
        assert!(exchange.plan(&request));
        exchange.take(request, &mut out);
        assert_eq!(exchange.slots.waiting(), 1);
        out.polls = true;
        let mut poll = |exchange: &mut Exchange| {
            exchange.begin_poll();
            if has_other_work {
                exchange.came_back(0);
            }
            exchange.turn(false, &mut TURN.clone(), &mut out);
            !out.has_sent_all()
        };
        for _ in 0..if has_other_work { PASSES_MAX } else { 0 } {
            assert!(!poll(&mut exchange));
            assert_eq!(exchange.slots.waiting(), 1);
        }
        assert!(poll(&mut exchange), "it goes to the medium");
        assert_eq!((exchange.slots.waiting(), exchange.lent), (0, 0));
    }
}

#[test]
fn writes_that_no_helper_takes_are_written_all_the_same() {
    let options = crate::layer::CryptOptions {
        dispatch: Dispatch::both(DispatchMode::Auto),
        helpers: Some(HelperThreads::deaf(1)),
        ..Default::default()
    };
    let gate = zoned::encrypted(zones(), any_cipher(), options).unwrap();
    let mut channel = Channel::open(&gate, BackendChoice::Auto, 32).unwrap();
    let mut done = Vec::new();
    for index in 0..8u8 {
        for zone in 0..2 {
            let offset = zone * ZONE + u64::from(index) * BLOCK as u64;
            let request = Request::write(offset, filled(index), false, 0);
            if let Submitted::Done(completion) = channel.submit(request) {
                done.push(completion);
            }
        }
    }
    while done.len() < 16 {
        channel.wait(&mut done).unwrap();
    }
    done.drain(..).for_each(|it| it.result.unwrap());
    for index in 0..16u8 {
        let (zone, index) = (u64::from(index / 8), index % 8);
        let offset = zone * ZONE + u64::from(index) * BLOCK as u64;
        let request = Request::read(offset, filled(0xff), 0);
        if let Submitted::Done(completion) = channel.submit(request) {
            done.push(completion);
        }
        while done.is_empty() {
            channel.wait(&mut done).unwrap();
        }
        let completion = done.pop().unwrap();
        completion.result.unwrap();
        let buffer = completion.request.data.expect("a read comes back with its data");
        assert!(buffer.iter().all(|byte| *byte == index));
    }
}

/// They go to the medium as one request each, so their parts take no operation that others could need.
#[test]
fn many_large_writes_that_wait_leave_reads_their_operations() {
    let options = crate::layer::CryptOptions {
        dispatch: Dispatch::both(DispatchMode::Auto),
        helpers: Some(HelperThreads::deaf(1)),
        ..Default::default()
    };
    let ram = Gate::new(RamDevice::new(32 * ZONE).unwrap());
    let slow = Gate::new(DelayDevice::new(ram, "write=1ms".parse().unwrap()));
    let layout = ZoneLayout::new(32 * ZONE, ZONE).unwrap();
    let zones = Gate::new(ZonedDevice::in_memory(slow, layout).unwrap());
    let gate = zoned::encrypted(zones, any_cipher(), options).unwrap();
    let mut channel = Channel::open(&gate, BackendChoice::Auto, 64).unwrap();
    let mut done = Vec::new();
    for zone in 0..32 {
        let data = Buffer::alloc(usize::try_from(ZONE).unwrap()).unwrap();
        let request = Request::write(zone * ZONE, data, false, 0);
        if let Submitted::Done(completion) = channel.submit(request) {
            done.push(completion);
        }
    }
    if let Submitted::Done(completion) = channel.submit(Request::flush(0)) {
        done.push(completion);
    }
    while done.len() < 33 {
        channel.wait(&mut done).unwrap();
    }
    done.drain(..).for_each(|it| it.result.unwrap());
}
