//! A disk that at some moment begins to take requests and never answer, as storage behind a network can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cryptline_engine::{Geometry, Operation};
use cryptline_testkit::scripted::{answering, geometry};
use cryptline_testkit::suite::Fresh;

/// A disk of zeros that from some moment on answers flushes and nothing else.
#[derive(Clone, Default)]
pub struct Silent {
    is_silent: Arc<AtomicBool>,
    taken: Arc<AtomicUsize>,
}

impl Silent {
    /// It, ready to be served.
    pub fn stack(&self) -> Fresh {
        let disk = self.clone();
        let geometry = Geometry { cache: false, ..geometry(1 << 30) };
        Fresh::new(answering(geometry, move |request| match &mut request.operation {
            Operation::Flush => Some(Ok(())),
            Operation::Read(buffer) if !disk.is_silent.load(Ordering::Relaxed) => {
                buffer.fill(0);
                Some(Ok(()))
            }
            _ => {
                disk.taken.fetch_add(1, Ordering::Relaxed);
                None
            }
        }))
    }

    /// From now on it answers flushes and nothing else.
    pub fn fall_silent(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    /// Requests that it has not answered so far.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}
