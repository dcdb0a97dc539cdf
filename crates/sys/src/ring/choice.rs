//! Which engine a ring is to use, and which it does.

#[cfg(doc)]
use super::Io;
use super::Simulation;

/// Which engine a ring should use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// io_uring where the kernel lets us, else system calls.
    #[default]
    Auto,
    /// io_uring or an error.
    IoUring,
    /// io_uring that takes [`Io::Fuse`], too, or an error.
    WideIoUring,
    /// `preadv2`/`pwritev2` and `poll`.
    Syscalls,
    /// A kernel of a test's making.
    Simulated(Simulation),
}

/// Which engine a ring uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring; `fixed_buffers` once an arena has been registered.
    IoUring {
        /// Set if an arena is registered with the kernel.
        fixed_buffers: bool,
    },
    /// `preadv2`/`pwritev2` and `poll`.
    Syscalls,
    /// A kernel of a test's making.
    Simulated(Simulation),
}
