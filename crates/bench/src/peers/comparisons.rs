//! Which number of ours is compared with the same of whom.

use super::generators::Load;
use super::servers::Server;
use crate::report::Quantity;

/// A number of ours to the same of the best of others.
pub struct Comparison {
    pub name: &'static str,
    pub ours: Server,
    pub load: Load,
    /// All of them must be there.
    pub others: &'static [Server],
    /// What the best of several is.
    pub best: &'static str,
    pub goal: Option<f64>,
    pub of: Quantity,
}

impl Comparison {
    /// The speed of the encrypted disk.
    const fn speed(name: &'static str, load: Load, others: &'static [Server], goal: f64) -> Self {
        Self { name, ours: Server::Cryptline, load, others, best: "", goal: Some(goal), of: Quantity::Speed }
    }

    const fn of(mut self, quantity: Quantity) -> Self {
        self.of = quantity;
        self
    }

    const fn without_goal(mut self) -> Self {
        self.goal = None;
        self
    }

    const fn ours(mut self, server: Server) -> Self {
        self.ours = server;
        self
    }

    const fn best(mut self, best: &'static str) -> Self {
        self.best = best;
        self
    }
}

const OUR_PLAIN: &[Server] = &[Server::CryptlinePlain];
const NBDKIT: &[Server] = &[Server::Nbdkit];
const PLAIN: &[Server] = &[Server::NbdkitPlain];
const CHAIN: &[Server] = &[Server::NbdkitOverNbd];
const QEMU: &[Server] = &[Server::QemuNbd, Server::Qsd];
const PEERS: &[Server] = &[Server::QemuNbd, Server::Qsd, Server::Nbdkit];

/// All figures.
pub const COMPARISONS: [Comparison; 18] = {
    use Load::{RandRead, RandReadMiddle, RandReadOne, RandWrite, Read, Write};
    [
        Comparison::speed("encrypted_over_plain_nbd_4k", RandRead, OUR_PLAIN, 0.93),
        Comparison::speed("encrypted_over_plain_nbd_128k", RandReadMiddle, OUR_PLAIN, 0.97),
        Comparison::speed("encrypted_over_plain_nbd_1m", Read, OUR_PLAIN, 0.95),
        Comparison::speed("encrypted_over_plain_nbd_1m_write", Write, OUR_PLAIN, 0.95),
        Comparison::speed("over_best_peer_4k_randread", RandRead, PEERS, 2.0).best(", the fastest"),
        Comparison::speed("p99_over_best_peer_4k_randread", RandRead, PEERS, 0.5)
            .best(", the lowest")
            .of(Quantity::P99),
        Comparison::speed("over_qemu_1m_read", Read, QEMU, 6.0).best(", the faster of qemu's"),
        Comparison::speed("over_nbdkit_luks_4k_qd1", RandReadOne, NBDKIT, 1.5),
        Comparison::speed("over_nbdkit_plain_4k_qd1", RandReadOne, PLAIN, 1.0),
        Comparison::speed("p50_over_nbdkit_plain_4k_qd1", RandReadOne, PLAIN, 1.0).of(Quantity::P50),
        // What looking out costs.
        Comparison::speed("cpu_over_nbdkit_luks_4k_qd1", RandReadOne, NBDKIT, 1.0)
            .of(Quantity::ProcessorTime)
            .without_goal(),
        Comparison::speed("cpu_asleep_over_nbdkit_luks_4k_qd1", RandReadOne, NBDKIT, 1.0)
            .ours(Server::CryptlineAsleep)
            .of(Quantity::ProcessorTime),
        Comparison::speed("over_nbdkit_plain_128k", RandReadMiddle, PLAIN, 0.95),
        Comparison::speed("over_nbdkit_plain_1m", Read, PLAIN, 0.95),
        Comparison::speed("over_nbdkit_plain_1m_write", Write, PLAIN, 0.9),
        Comparison::speed("over_nbdkit_plain_4k_randwrite", RandWrite, PLAIN, 1.0),
        Comparison::speed("nbd_chain_over_plain_128k", RandReadMiddle, PLAIN, 0.6)
            .ours(Server::CryptlineOverNbd)
            .best(", which serves the plain file without another server below"),
        Comparison::speed("nbd_chain_over_nbdkit_luks_4k_qd32", RandRead, CHAIN, 1.5).ours(Server::CryptlineOverNbd),
    ]
};
