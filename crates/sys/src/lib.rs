//! Every unsafe operating-system touch of cryptline, and nothing else.
mod secret;
pub use secret::SecretBuf;

/// The size of a memory page in bytes.
#[must_use]
pub fn page_size() -> usize {
    rustix::param::page_size()
}
