//! The last flush of a server.

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Fault, Gate, OpenError};
use rustix::io::Errno;

/// Whether everything that was written is durable; if not, the name of the first volume that is not, and why.
pub type Flushed = Result<(), (String, Fault)>;

/// Flushes every volume, even after one has failed. Call when no client writes any more.
pub fn flush_all<'a>(
    volumes: impl IntoIterator<Item = (&'a str, &'a Gate)>,
    backend: BackendChoice,
) -> Flushed {
    let mut result = Ok(());
    for (name, gate) in volumes {
        if gate.geometry().read_only {
            continue;
        }
        let flushed = Blocking::new(gate, backend)
            .map_err(|error| match error {
                OpenError::Remote { .. } => Fault::Lost,
                _ => Fault::Io(Errno::IO),
            })
            .and_then(|mut volume| volume.flush())
            .map_err(|fault| (name.to_owned(), fault));
        result = result.and(flushed);
    }
    result
}
