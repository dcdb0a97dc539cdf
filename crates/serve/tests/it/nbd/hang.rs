//! A medium that hangs, and who waits for it: its own clients, and nobody else.

use cryptline_serve::UNANSWERED;
use cryptline_testkit::scripted::{Call, Silent};
use cryptline_testkit::suite::Fresh;

use crate::common::raw::{Raw, Style, greeted};
use crate::common::stack::VolatileDisk;
use crate::common::{BACKENDS, Setup, pattern, wait_until};

/// Clients that each export has at a time, and the server.
const PLACES: usize = 3;

#[test]
fn healthy_export_greets_serves_and_is_flushed_beside_one_that_hangs() {
    for backend in BACKENDS {
        let (hung, well) = (Silent::new(1 << 20), VolatileDisk::new(1 << 20));
        let setup = Setup::new(Fresh::new(hung.gate())).export("well", "", well.stack()).backend(backend);
        let served = setup.with(|options| options.max_connections = PLACES).start();
        hung.fall_silent(&Call::ALL);
        let connect = |export| Raw::negotiate(greeted(&served), export, Style::Structured);
        // They leave what they have asked for to the server.
        for taken in 1..=PLACES {
            connect("").send_write(0, 0, &[1; 4096]);
            wait_until("it has been asked", || hung.taken() == taken);
        }
        let data = pattern(0, 4096, 2);
        // A thread takes a moment to end, so one place is left for who comes next.
        let mut clients: Vec<_> = (1..PLACES).map(|_| connect("well")).collect();
        for client in &mut clients {
            client.write(0, &data).expect("written");
            client.flush().expect("flushed");
            assert!(client.read(0, 4096) == data);
        }
        drop(clients);
        wait_until("they have left", || served.connections() == PLACES);
        let mut last = connect("well");
        last.write(4096, &data).expect("written");
        assert_ne!(well.stable()[4096..8192], data[..]);
        assert_eq!(served.end(), Err((String::new(), UNANSWERED)));
        assert_eq!(well.stable()[4096..8192], data[..], "it was not flushed");
    }
}
