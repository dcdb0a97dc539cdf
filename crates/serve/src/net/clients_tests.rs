//! Places: who gets one, and who gives one up.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};

use super::*;

const PLACES: ClientLimits = ClientLimits { handshakes: 4, transmissions: 3, lanes: 6 };

/// A connection from 127.0.0.`host`: our end and theirs.
fn connection(host: u8) -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
    let theirs = TcpStream::from(socket.unwrap());
    let from = std::net::SocketAddr::from(([127, 0, 0, host], 0));
    rustix::net::bind(&theirs, &from).unwrap();
    rustix::net::connect(&theirs, &listener.local_addr().unwrap()).unwrap();
    (Socket::tcp(listener.accept().unwrap().0).unwrap(), theirs)
}

struct Hall {
    clients: Arc<Clients>,
    next: u64,
}

struct Guest {
    member: ClientPlace,
    ours: Socket,
    theirs: TcpStream,
}

impl Hall {
    fn new() -> Self {
        Self { clients: Clients::new(PLACES), next: 0 }
    }

    fn enter(&mut self, host: u8) -> Result<Guest, NoPlace> {
        self.next += 1;
        let (ours, theirs) = connection(host);
        let member = self.clients.enter(self.next, &ours)?;
        Ok(Guest { member, ours, theirs })
    }

    /// Many in a row, of which those that are displaced leave.
    fn flood(&mut self, host: u8) -> Vec<Guest> {
        let mut guests = Vec::new();
        for _ in 0..20 {
            guests.push(self.enter(host).unwrap());
            guests.retain(|guest| !guest.member.is_displaced());
        }
        guests
    }
}

#[test]
fn silent_clients_of_one_peer_displace_each_other_and_nobody_else() {
    let mut hall = Hall::new();
    let honest = hall.enter(1).unwrap();
    let mut first = hall.enter(2).unwrap();
    let mut silent = hall.flood(2);
    let late = hall.enter(3).unwrap();
    silent.extend(hall.flood(2));
    let kept = silent.iter().filter(|guest| !guest.member.is_displaced());
    assert_eq!(kept.count(), 2);
    assert!(!silent.last().unwrap().member.is_displaced());
    assert_eq!(honest.member.begin_transmission(0), Ok(()));
    assert_eq!(late.member.begin_transmission(0), Ok(()));
    assert_eq!(first.member.begin_transmission(0), Err(NoPlace::Displaced));
    assert_eq!(first.theirs.read(&mut [0]).unwrap(), 0, "it was cut off");
}

#[test]
fn of_peers_with_one_handshake_each_the_oldest_gives_way() {
    let mut hall = Hall::new();
    let guests: Vec<_> = (1..=5).map(|host| hall.enter(host).unwrap()).collect();
    let displaced = guests.iter().map(|guest| guest.member.is_displaced());
    assert_eq!(displaced.collect::<Vec<_>>(), [true, false, false, false, false]);
}

#[test]
fn transmissions_have_their_own_places_and_are_never_displaced() {
    let mut hall = Hall::new();
    let mut inside = Vec::new();
    for _ in 0..PLACES.transmissions - 1 {
        let guest = hall.enter(1).unwrap();
        guest.member.begin_transmission(0).unwrap();
        inside.push(guest);
    }
    let two: Vec<_> = (0..2).map(|_| hall.enter(1).unwrap()).collect();
    assert_eq!(two[0].member.begin_transmission(0), Ok(()));
    let full = Err(NoPlace::Transmissions(PLACES.transmissions));
    assert_eq!(two[1].member.begin_transmission(0), full);
    assert_eq!(hall.enter(2).map(drop), full);
    assert_eq!(two[1].member.begin_transmission(1), full, "they are as many as may be, whatever they use");
    inside.pop();
    assert_eq!(two[1].member.begin_transmission(0), Ok(()));
    assert!(inside.iter().all(|guest| !guest.member.is_displaced()));
}

#[test]
fn clients_that_have_left_a_medium_that_hangs_take_the_places_of_its_own_clients_only() {
    let mut hall = Hall::new();
    let mut stuck = Vec::new();
    for _ in 0..PLACES.transmissions {
        let Guest { member, ours, theirs } = hall.enter(1).unwrap();
        member.begin_transmission(0).unwrap();
        drop(theirs);
        while !ours.has_left() {
            std::thread::yield_now();
        }
        stuck.push((member, ours));
    }
    let full = Err(NoPlace::Transmissions(PLACES.transmissions));
    let own = hall.enter(1).unwrap();
    assert_eq!(own.member.begin_transmission(0), full);
    let others: Vec<_> = (0..PLACES.transmissions).map(|_| hall.enter(1).unwrap()).collect();
    for other in &others {
        assert_eq!(other.member.begin_transmission(1), Ok(()));
    }
    // Their threads are not piled up either.
    assert_eq!(hall.enter(1).map(drop), full);
    drop(stuck);
    assert_eq!(own.member.begin_transmission(0), full, "all places are taken by those who are served");
}

/// A client that only sends no more is served, and has a lane's memory.
#[test]
fn clients_that_have_left_or_stopped_sending_take_no_more_memory_than_there_is() {
    let mut hall = Hall::new();
    let mut quiet = Vec::new();
    for number in 0..PLACES.lanes {
        let guest = hall.enter(1).unwrap();
        assert_eq!(guest.member.begin_transmission(number as u64), Ok(()));
        guest.theirs.shutdown(std::net::Shutdown::Write).unwrap();
        while !guest.ours.has_left() {
            std::thread::yield_now();
        }
        quiet.push(guest);
    }
    let late = hall.enter(1).unwrap();
    assert_eq!(late.member.begin_transmission(99), Err(NoPlace::Lanes(PLACES.lanes)));
    // One that ends meanwhile is waited for.
    let one = quiet.pop();
    let end = std::thread::spawn(move || drop(one));
    assert_eq!(late.member.begin_transmission(99), Ok(()));
    end.join().unwrap();
}

#[test]
fn threads_that_do_not_end_are_not_piled_up() {
    let mut hall = Hall::new();
    let most = PLACES.handshakes * (1 + DISPLACED);
    let guests: Vec<_> = (0..most).map(|_| hall.enter(1).unwrap()).collect();
    assert_eq!(hall.enter(2).map(drop), Err(NoPlace::Handshakes));
    drop(guests);
    assert!(hall.enter(2).is_ok());
}

#[test]
fn dismissal_asks_first_and_ends_all_after_the_grace() {
    let mut hall = Hall::new();
    let guest = hall.enter(1).unwrap();
    let orders = Arc::clone(guest.member.orders());
    assert!(!orders.is_stopping());
    let clients = Arc::clone(&hall.clients);
    let ending = std::thread::spawn(move || clients.dismiss(Whom::All, Duration::ZERO));
    while !orders.is_abandoned() {
        std::thread::yield_now();
    }
    assert!(orders.is_stopping() && !ending.is_finished());
    drop(guest);
    ending.join().unwrap();
}

#[test]
fn dismissal_does_not_wait_for_a_thread_that_never_ends() {
    let mut hall = Hall::new();
    let guest = hall.enter(1).unwrap();
    hall.clients.dismiss(Whom::All, Duration::ZERO);
    assert!(guest.member.orders().is_abandoned());
}
