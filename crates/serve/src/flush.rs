//! Flushes that no client asks for: the last one of a server, above all.

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Fault, Gate, OpenError};
use rustix::io::Errno;

/// Whether everything that was written is durable; if not, the name of the first volume that is not, and why.
pub type Flushed = Result<(), (String, Fault)>;

/// Flushes every volume, even after one has failed. Call when no client writes any more.
pub fn flush_all<'a>(volumes: impl IntoIterator<Item = (&'a str, &'a Gate)>, backend: BackendChoice) -> Flushed {
    let mut result = Ok(());
    for (name, gate) in volumes {
        let flushed = flush(gate, backend).unwrap_or_else(|error| {
            Err(match error {
                OpenError::Remote { .. } => Fault::Lost,
                _ => Fault::Io(Errno::IO),
            })
        });
        result = result.and(flushed.map_err(|fault| (name.to_owned(), fault)));
    }
    result
}

/// Flushes one volume, whoever writes.
///
/// # Errors
/// Where it cannot be asked to: that says nothing of what was written.
pub fn flush(gate: &Gate, backend: BackendChoice) -> Result<Result<(), Fault>, OpenError> {
    if gate.geometry().read_only {
        return Ok(Ok(()));
    }
    Ok(Blocking::new(gate, backend)?.flush())
}
