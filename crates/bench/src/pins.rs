//! Processors of their own for servers and for those that make load.

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::machine::cores;

/// The processors of servers and generators.
#[derive(Clone, Copy, Debug)]
pub struct Pins {
    pub server: usize,
    pub client: usize,
    /// Of a server that another lies over: a third one, or where there is none, that of the client. Beside the server
    /// it would only show that two programs on one processor are slower than one.
    pub below: usize,
}

impl Pins {
    /// The first two that this process may use; with one processor there is nothing to choose.
    pub fn choose() -> Option<Self> {
        let allowed = (cores() > 1).then(allowed_processors)?;
        match allowed[..] {
            [server, client, ref others @ ..] => {
                Some(Self { server, client, below: others.first().copied().unwrap_or(client) })
            }
            _ => None,
        }
    }
}

/// The processors that this process may use, in order.
fn allowed_processors() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => Vec::new(),
    }
}
