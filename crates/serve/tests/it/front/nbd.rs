//! NBD as a front under test, with a client of our own.

use cryptline_engine::Fault;
use cryptline_nbd::NbdError;
use cryptline_nbd::wire::{cmd, cmd_flag};
use cryptline_serve::lane::Poll;
use cryptline_testkit::suite::Fresh;
use rustix::io::Errno;

use crate::common::raw::{Raw, Style, say};
use crate::common::{Served, Setup};
use crate::front::client::{Ask, Client, How, Outcome, POLL, Server};

/// With structured replies: reads are answered piece by piece.
pub fn structured(over: Fresh, how: How) -> Box<dyn Server> {
    serve(over, how, Poll::default(), Style::Structured)
}

/// The same on a server that looks out for requests before it waits.
pub fn polled(over: Fresh, how: How) -> Box<dyn Server> {
    serve(over, how, POLL, Style::Structured)
}

/// With simple replies: reads are answered whole.
pub fn simple(over: Fresh, how: How) -> Box<dyn Server> {
    serve(over, how, Poll::default(), Style::Simple)
}

fn serve(over: Fresh, how: How, poll: Poll, style: Style) -> Box<dyn Server> {
    let setup = Setup::new(over).backend(how.backend);
    let setup = setup.with(|options| {
        options.grace = how.grace;
        options.poll = poll;
    });
    let served = setup.start();
    Box::new(Nbd { served, style })
}

struct Nbd {
    served: Served,
    style: Style,
}

impl Server for Nbd {
    fn connect(&self) -> Box<dyn Client> {
        Box::new(Raw::connect_as(&self.served, self.style))
    }

    fn connections(&self) -> usize {
        self.served.connections()
    }

    fn stop(&self) {
        self.served.stop();
    }

    fn is_over(&self) -> bool {
        self.served.is_over()
    }

    fn log(&self) -> Vec<String> {
        self.served.log()
    }

    fn end(self: Box<Self>) -> Result<(), Fault> {
        self.served.end().map_err(|(_, fault)| fault)
    }
}

impl Client for Raw {
    fn send(&mut self, asks: &[Ask]) -> Vec<u64> {
        let (mut marks, mut bytes) = (Vec::new(), Vec::new());
        for ask in asks {
            let (cookie, request) = encode(self, ask);
            marks.push(cookie);
            bytes.extend(request);
        }
        say(&mut self.stream, &bytes);
        marks
    }

    fn answer(&mut self) -> (u64, Outcome) {
        let answer = Self::answer(self);
        (answer.cookie, answer.outcome.map_err(number))
    }

    fn wait_until_cut_off(&mut self) {
        assert!(self.is_closed());
    }
}

fn encode(client: &mut Raw, ask: &Ask) -> (u64, Vec<u8>) {
    let fua = |durable| if durable { cmd_flag::FUA } else { 0 };
    let (command, flags) = match ask {
        Ask::Read(_) => (cmd::READ, 0),
        Ask::Cache(_) => (cmd::CACHE, 0),
        Ask::Write { offset, data, durable } => return client.encode_write(fua(*durable), *offset, data),
        Ask::Zero(_, how) => {
            let fast = if how.fast { cmd_flag::FAST_ZERO } else { 0 };
            let solid = if how.may_unmap { 0 } else { cmd_flag::NO_HOLE };
            (cmd::WRITE_ZEROES, fua(how.durable) | fast | solid)
        }
        Ask::Discard { durable, .. } => (cmd::TRIM, fua(*durable)),
        Ask::Flush => (cmd::FLUSH, 0),
    };
    let range = ask.range();
    client.encode(command, flags, (range.offset, range.len))
}

fn number(error: NbdError) -> Errno {
    Errno::from_raw_os_error(i32::try_from(error.code()).expect("a small number"))
}
