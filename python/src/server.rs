//! A volume served over NBD while the program goes on.

use std::sync::{Mutex, PoisonError};

use cryptline_serve::nbd::{Background, Listener};
use pyo3::prelude::*;

use crate::disk::Disk;
use crate::errors;

/// A server that runs.
#[pyclass(frozen, module = "cryptline._cryptline")]
pub struct Server(Mutex<Option<Background>>);

#[pymethods]
impl Server {
    /// Ends it; everything that clients have written is durable then.
    fn stop(&self, python: Python<'_>) -> PyResult<()> {
        python.detach(|| {
            let running = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(running) = running else {
                return Ok(());
            };
            let stopped = running.stop().map_err(|error| errors::of_io(&error))?;
            stopped.map_err(|(_, fault)| errors::of_fault(fault))
        })
    }
}

/// Serves a disk to all who connect to a socket that listens.
#[pyfunction]
pub fn serve(disk: &Disk, descriptor: u32, name: &str) -> PyResult<Server> {
    let disk = disk.get()?;
    let socket = cryptline_sys::duplicate_fd(descriptor).and_then(Listener::of_socket);
    let block = disk.volume().info().logical_block;
    let running = socket.and_then(|socket| Background::start(disk.gate(), block, name, socket));
    let running = running.map_err(|error| errors::of_io(&error))?;
    Ok(Server(Mutex::new(Some(running))))
}
