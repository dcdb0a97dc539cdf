//! A lost connection made again, where nobody above can tell that it was lost.
//!
//! ```text
//! lost ─► the ring gives back what it has ─► a thread connects ─► what was under way goes out once more
//! ```
//!
//! Only then may a request be answered as if nothing had happened:
//!
//! * **What was acknowledged is there.** A server that was started anew may have forgotten what no flush has covered.
//!   So each change is sent with FUA: the server acknowledges it when it is durable, and there is nothing to forget.
//! * **What was under way is made once, or twice at once.** A server that still runs may make a write of the old
//!   connection at any time later, over what was written since by the new one; the protocol has nothing against it.
//!   So changes go out once more only when the server is known to have ended: it has closed the
//!   [`witness`](super::witness), too, and its process, which is one of this machine, has ended. A server of which that
//!   cannot be known is alive. Reads can always go out once more, and so can what was not sent yet:
//!   before the first request after a rest, a queue looks whether its connection is still there.
//!
//! A server that is stopped in order may refuse what it has not begun yet (`ESHUTDOWN`), and answers what it has. What
//! it refused was not carried out, so that is sent to the next server, whichever that is.
//!
//! Anything else is lost, and the device is latched as without this.
//!
//! qemu (`reconnect-delay`) and the kernel (`nbd-client -persist`) send everything once more, and then say yes to a
//! flush whatever the server has forgotten.
//!
//! A thread connects, bounded by a time that each answer begins anew; the queue's own thread waits for nothing. A
//! request that is lost with its connection again and again, while others are answered, is given up. A server of one
//! connection at a time has no witness, so only its reads are sent again, and what was not sent yet.
//!
//! Without this, or where the server can do no FUA, a volume whose next flush must fail is better opened anew, by
//! somebody who knows what happened to the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cryptline_sys::{Ring, Waker};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::NbdShared;
use super::pool::Link;
use super::queue::NbdQueue;
use crate::{Completion, Fault};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// How often one request goes out once more while others are answered: it may be what ends the server.
pub(super) const REWINDS_MAX: u8 = 8;

/// Steps of a queue after the loss of its connection.
pub(super) enum Down {
    /// Everything of it that the ring has comes back first. `again`: nothing has been answered since the last loss.
    Ending { again: bool },
    /// Another is being made.
    Waiting(ConnectAttempt),
}

/// A connection that was lost.
#[derive(Clone, Copy)]
pub(super) struct LostLink {
    /// When it was made, as servers go.
    pub age: u32,
    /// Changes were under way on it.
    pub had_changes: bool,
    /// Set if it was of no use at all, so the next one may wait.
    pub again: bool,
}

/// A thread that connects.
pub(super) struct ConnectAttempt(Arc<AttemptSlot>);

#[derive(Default)]
struct AttemptSlot {
    /// A connection, or that there is none.
    result: Mutex<Option<Option<Link>>>,
    /// Nobody waits any more.
    is_over: AtomicBool,
}

/// Tells the queue however the thread ends.
struct EndReport {
    slot: Arc<AttemptSlot>,
    made: Option<Link>,
    waker: Waker,
}

impl Drop for EndReport {
    fn drop(&mut self) {
        *cryptline_sys::lock(&self.slot.result) = Some(self.made.take());
        self.waker.wake();
    }
}

impl ConnectAttempt {
    fn start(shared: &Arc<NbdShared>, lost: LostLink, until: Instant, waker: &Waker) -> Option<Self> {
        let slot = Arc::<AttemptSlot>::default();
        let mut report = EndReport { slot: Arc::clone(&slot), made: None, waker: waker.clone() };
        let shared = Arc::clone(shared);
        let connect = move || {
            report.made = shared.connect_again(lost, until, &report.slot.is_over);
        };
        let thread = std::thread::Builder::new().name("nbd-reconnect".to_owned());
        thread.spawn(connect).ok().map(|_| Self(slot))
    }

    fn result(&self) -> Option<Option<Link>> {
        cryptline_sys::lock(&self.0.result).take()
    }
}

impl Drop for ConnectAttempt {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

impl NbdShared {
    fn connect_again(&self, lost: LostLink, until: Instant, is_over: &AtomicBool) -> Option<Link> {
        if lost.had_changes && !self.is_server_gone(lost.age, until) {
            return None;
        }
        if lost.again {
            std::thread::sleep(PAUSE);
        }
        while !is_over.load(Ordering::Relaxed) && !self.is_lost() {
            if let Ok(link) = self.fresh_link(until, is_over) {
                return Some(link);
            }
            if Instant::now() + PAUSE >= until {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        None
    }
}

/// Tells if an answer only says that the server is about to end, where another is waited for.
pub(super) fn is_put_off(reconnect: Option<Duration>, result: Result<(), Fault>) -> bool {
    reconnect.is_some() && result == Err(Fault::Io(Errno::SHUTDOWN))
}

impl NbdQueue {
    /// Keeps a request for the next server, which this one has refused because it ends. Not without end.
    pub(super) fn put_off(&mut self, index: usize) -> bool {
        let pending = self.pending.get_mut(index);
        if pending.is_none_or(|pending| pending.rewind(true) > REWINDS_MAX) {
            return false;
        }
        self.waiting.push_back(index);
        self.is_leaving = true;
        true
    }

    /// Hangs up where the server is about to end, and has answered everything.
    pub(super) fn leave(&mut self, done: &mut Vec<Completion>) {
        if self.is_leaving && self.intake.is_answered() {
            self.hang_up(done);
        }
    }

    /// The connection is gone, though the server has broken no rule.
    pub(super) fn hang_up(&mut self, done: &mut Vec<Completion>) {
        if self.is_broken || self.down.is_some() {
            return;
        }
        let Some(patience) = self.patience() else {
            return self.give_up(done);
        };
        let again = self.until.is_some();
        let until = *self.until.get_or_insert_with(|| Instant::now() + patience);
        if self.shared.is_lost() || Instant::now() >= until {
            return self.give_up(done);
        }
        self.shut();
        self.down = Some(Down::Ending { again });
    }

    /// Looks whether the server has hung up while nothing was under way, before something is: nothing is lost then.
    pub(super) fn look_for_end(&mut self, ring: &mut Ring) {
        if self.shared.reconnect.is_none() || !self.is_up() {
            return;
        }
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(self.connection.socket(), &mut [0; 1], flags) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            // Nobody has asked for anything, so through TLS it may be its end.
            Ok((1.., _)) if self.connection.is_secure() => self.take_unasked(),
            Ok((1.., _)) => return,
            // There is nothing that this could end.
            _ => self.hang_up(&mut Vec::new()),
        }
        if !self.is_up() {
            ring.stay_awake();
        }
    }

    /// Goes on with making another, as far as that goes without waiting.
    pub(super) fn recover(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        let made = match &self.down {
            None => return,
            Some(Down::Ending { again }) if self.is_still() => return self.begin_again(*again, done),
            Some(Down::Ending { .. }) => return,
            Some(Down::Waiting(attempt)) => attempt.result(),
        };
        let Some(made) = made else { return };
        self.down = None;
        let replaced = made.and_then(|mut link| {
            let records = link.records.take();
            self.connection.replace(ring, Arc::clone(&link.socket), records).then_some(link)
        });
        match replaced {
            None => self.give_up(done),
            link => (self.link, self.is_leaving) = (link, false),
        }
    }

    /// Everything that the ring had is here: what was under way waits again.
    fn begin_again(&mut self, again: bool, done: &mut Vec<Completion>) {
        self.take_payloads(done);
        let (mut had_changes, mut is_hopeless) = (false, false);
        for index in 0..self.pending.capacity() {
            let Some(pending) = self.pending.get_mut(index) else {
                continue;
            };
            if pending.cookie.is_some() {
                had_changes |= pending.is_change();
                is_hopeless |= pending.rewind(!again) > REWINDS_MAX;
                self.waiting.push_back(index);
            }
        }
        self.intake.forget();
        let age = self.link.as_ref().map_or(0, |link| link.age);
        let lost = LostLink { age, had_changes, again };
        let attempt = match (self.until, &self.waker) {
            (Some(until), Some(waker)) if !is_hopeless => ConnectAttempt::start(&self.shared, lost, until, waker),
            _ => None,
        };
        match attempt {
            Some(attempt) => self.down = Some(Down::Waiting(attempt)),
            None => {
                self.down = None;
                self.give_up(done);
            }
        }
    }
}
