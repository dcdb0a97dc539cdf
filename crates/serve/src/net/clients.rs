//! Clients that are connected, and those that must leave.
//!
//! ```text
//! accept ─► handshake (few places, short) ─► transmission (a limited number) ─► gone
//!               └─► gives way to a newer one, when the places are taken
//! ```
//!
//! Anybody can begin thousands of handshakes at little cost. So handshakes have a limit of their own and do
//! not count as connections. When the limit is reached, a new client is still accepted; the *oldest
//! handshake of the peer that has the most* gives way to it. A peer is an address (for IPv6 the 64 bits of
//! one network), or on a Unix socket a user.
//!
//! * An attacker with one address displaces only itself: all other handshakes stay until they are done.
//! * An attacker with many addresses, or with ours, must open as many new connections as there are
//!   places within the time that one handshake takes, again and again.
//! * A client in transmission is never displaced.
//!
//! A client that has left while its thread waits for a medium counts no more among all, and still among those who use the
//! same: a medium that never answers takes the places of its own clients, and nobody else's. But its lane has memory, and
//! where that is limited there is a lane more for nobody. One that only sends no more looks the same from here.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cryptline_sys::lock;
use rustix::net::Shutdown;

use super::{ClientPeer, Socket};
use crate::lane::Orders;

/// Displaced handshakes, for each place, whose threads have not noticed yet.
const DISPLACED: usize = 4;
/// How long clients that are to leave at once are waited for.
pub(crate) const DISMISSED_WITHIN: Duration = Duration::from_secs(1);
/// How long a new client waits for these, on a machine that is slow to end them.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    /// Its place is somebody else's; its thread has not noticed yet.
    Displaced,
    Transmission,
}

struct ClientRecord {
    phase: Phase,
    peer: ClientPeer,
    /// To cut the client off.
    socket: Socket,
    orders: Arc<Orders>,
    /// The number of what it uses, once that is known.
    uses: Option<u64>,
}

/// Clients that are to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom {
    /// Everybody.
    All,
    /// Those in transmission that use what has this number.
    Using(u64),
}

impl Whom {
    fn is(self, client: &ClientRecord) -> bool {
        match self {
            Self::All => true,
            Self::Using(number) => client.uses == Some(number),
        }
    }
}

/// Why a client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// As many as there may be are served already.
    #[error("refused a client: {0} are connected already, which is the limit")]
    Transmissions(usize),
    /// There is memory for no more lanes.
    #[error(
        "refused a client: there is memory for {0}, and some that have left still wait for a medium that does not answer"
    )]
    Lanes(usize),
    /// As many as there may be are in the handshake, and none can give way.
    #[error("refused a client: too many handshakes at once")]
    Handshakes,
    /// Slow while others waited.
    #[error("its handshake took too long while others waited, so it gave way to a newer client")]
    Displaced,
}

impl NoPlace {
    /// For the person at the client, who can do nothing about the rest.
    pub fn for_client(self) -> &'static str {
        match self {
            Self::Transmissions(_) | Self::Lanes(_) => "the server has as many clients as it may have; try again later",
            Self::Handshakes | Self::Displaced => "the handshake took too long while others waited",
        }
    }
}

/// The lack of a place.
#[derive(Clone, Copy)]
struct Lack {
    why: NoPlace,
    /// Some who have it have left, and are about to end.
    may_end: bool,
}

/// How many clients there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientLimits {
    pub handshakes: usize,
    /// Not counting those who have left.
    pub transmissions: usize,
    /// Counting them.
    pub lanes: usize,
}

/// Everybody who is connected.
pub(crate) struct Clients {
    places: ClientLimits,
    /// By number: the oldest first.
    live: Mutex<BTreeMap<u64, ClientRecord>>,
    changed: Condvar,
}

impl Clients {
    pub fn new(places: ClientLimits) -> Arc<Self> {
        Arc::new(Self { places, live: Mutex::default(), changed: Condvar::new() })
    }

    /// A place for a new client's handshake, for as long as the value lives.
    pub fn enter(self: &Arc<Self>, id: u64, socket: &Socket) -> Result<ClientPlace, NoPlace> {
        let peer = socket.peer();
        let mut live = self.with_room_to_displace()?;
        if self.is_full(&live) {
            return Err(NoPlace::Transmissions(self.places.transmissions));
        }
        let handshakes = count(&live, Phase::Handshake);
        if handshakes >= self.places.handshakes
            && let Some(client) = who_gives_way(&live, peer).and_then(|id| live.get_mut(&id))
        {
            client.phase = Phase::Displaced;
            client.socket.shutdown(Shutdown::Both);
        }
        let orders = Arc::default();
        let socket = socket.clone();
        let client = ClientRecord { phase: Phase::Handshake, peer, socket, orders: Arc::clone(&orders), uses: None };
        live.insert(id, client);
        Ok(ClientPlace { clients: Arc::clone(self), id, orders })
    }

    /// Tells if as many are served as may be. Only then is looked who of them has left.
    fn is_full(&self, live: &BTreeMap<u64, ClientRecord>) -> bool {
        let most = self.places.transmissions;
        let is_served = |client: &&ClientRecord| client.phase == Phase::Transmission && !client.socket.has_left();
        count(live, Phase::Transmission) >= most && live.values().filter(is_served).count() >= most
    }

    /// Limit that keeps one more from using what has the number `uses`.
    fn lack(&self, live: &BTreeMap<u64, ClientRecord>, uses: u64) -> Option<Lack> {
        let ClientLimits { transmissions, lanes, .. } = self.places;
        let own = || live.values().filter(|client| client.uses == Some(uses));
        if own().count() >= transmissions {
            let may_end = own().filter(|client| !client.socket.has_left()).count() < transmissions;
            return Some(Lack { why: NoPlace::Transmissions(transmissions), may_end });
        }
        if self.is_full(live) {
            return Some(Lack { why: NoPlace::Transmissions(transmissions), may_end: false });
        }
        let is_all = count(live, Phase::Transmission) >= lanes;
        is_all.then_some(Lack { why: NoPlace::Lanes(lanes), may_end: true })
    }

    /// Everybody, once one more may give way: those who did no longer count, but they have threads.
    fn with_room_to_displace(&self) -> Result<MutexGuard<'_, BTreeMap<u64, ClientRecord>>, NoPlace> {
        let deadline = Instant::now() + PATIENCE;
        let mut live = lock(&self.live);
        let has_too_many = |live: &BTreeMap<u64, ClientRecord>| {
            count(live, Phase::Handshake) >= self.places.handshakes
                && count(live, Phase::Displaced) >= self.places.handshakes * DISPLACED
        };
        while has_too_many(&live) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NoPlace::Handshakes);
            }
            let waited = self.changed.wait_timeout(live, left);
            live = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(live)
    }

    /// Takes no more requests of these.
    pub fn tell_to_leave(&self, whom: Whom) {
        for client in lock(&self.live).values().filter(|client| whom.is(client)) {
            client.orders.stop();
            client.socket.shutdown(Shutdown::Read);
        }
    }

    /// Ends these: no more requests at once, nothing more at all after `grace`. Returns when the last of them
    /// has left, or [`DISMISSED_WITHIN`] later: the thread of one that has not left then is in the system's hands.
    pub fn dismiss(&self, whom: Whom, grace: Duration) {
        self.tell_to_leave(whom);
        let mut live = lock(&self.live);
        let deadline = Instant::now() + grace;
        while live.values().any(|client| whom.is(client)) {
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                if now > deadline + DISMISSED_WITHIN {
                    return;
                }
                for client in live.values().filter(|client| whom.is(client)) {
                    client.orders.abandon();
                    client.socket.shutdown(Shutdown::Both);
                }
            }
            let wait = left.max(Duration::from_millis(100));
            let waited = self.changed.wait_timeout(live, wait);
            live = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn count(live: &BTreeMap<u64, ClientRecord>, phase: Phase) -> usize {
    live.values().filter(|client| client.phase == phase).count()
}

/// The oldest handshake of the peer that has the most, counting the newcomer; among equal peers, the
/// oldest of all.
fn who_gives_way(live: &BTreeMap<u64, ClientRecord>, newcomer: ClientPeer) -> Option<u64> {
    let handshakes = || live.iter().filter(|(_, it)| it.phase == Phase::Handshake);
    let mut counts = HashMap::from([(newcomer, 1)]);
    for (_, client) in handshakes() {
        *counts.entry(client.peer).or_insert(0) += 1;
    }
    // Among equals, `min_by_key` takes the first, which is the oldest.
    let chosen = handshakes().min_by_key(|(_, client)| std::cmp::Reverse(counts[&client.peer]));
    chosen.map(|(id, _)| *id)
}

/// One client's place; free again when this is dropped, however its thread ends.
pub(crate) struct ClientPlace {
    clients: Arc<Clients>,
    id: u64,
    orders: Arc<Orders>,
}

impl ClientPlace {
    /// The client's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns what the server wants of the client's lane.
    pub fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    /// Takes a place in transmission in exchange for that of the handshake, to use what has the number `uses`. Those who
    /// have left it and are about to end are waited for.
    pub fn begin_transmission(&self, uses: u64) -> Result<(), NoPlace> {
        let deadline = Instant::now() + PATIENCE;
        let mut live = lock(&self.clients.live);
        let lack = loop {
            let lack = self.clients.lack(&live, uses);
            let left = deadline.saturating_duration_since(Instant::now());
            if lack.is_none_or(|lack| !lack.may_end) || left.is_zero() {
                break lack;
            }
            let waited = self.clients.changed.wait_timeout(live, left);
            live = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        match live.get_mut(&self.id) {
            Some(client) if client.phase == Phase::Handshake => {
                if let Some(lack) = lack {
                    return Err(lack.why);
                }
                client.phase = Phase::Transmission;
                client.uses = Some(uses);
                Ok(())
            }
            _ => Err(NoPlace::Displaced),
        }
    }

    /// Tells if its place was given to somebody else.
    pub fn is_displaced(&self) -> bool {
        let live = lock(&self.clients.live);
        (live.get(&self.id)).is_some_and(|client| client.phase == Phase::Displaced)
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        lock(&self.clients.live).remove(&self.id);
        self.clients.changed.notify_all();
    }
}

#[cfg(test)]
#[path = "clients_tests.rs"]
mod tests;
