//! A volume served over NBD while the program goes on.

use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};

use cryptline_serve::nbd::{Background, Listener};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::disk::Disk;
use crate::{errors, medium};

/// A server that runs.
#[pyclass(frozen, module = "cryptline._cryptline")]
pub struct Server {
    running: Mutex<Option<Background>>,
}

impl Server {
    /// Server that is to end, once.
    fn take(&self) -> Option<Background> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // In a forked child there is nothing to wait for, and dropping it does nothing.
        running.take().filter(Background::runs_here)
    }
}

/// Ends a server without waiting, since its last flush may need what this thread has.
fn end_elsewhere(running: Background) {
    // Without a thread to be had, it runs on.
    let running = ManuallyDrop::new(running);
    let end = move || drop(ManuallyDrop::into_inner(running));
    let _ = std::thread::Builder::new().spawn(end);
}

#[pymethods]
impl Server {
    /// Ends it; everything that clients have written is durable then.
    fn stop(&self, python: Python<'_>) -> PyResult<()> {
        let Some(running) = self.take() else {
            return Ok(());
        };
        if medium::is_inside() {
            end_elsewhere(running);
            let text = "the server was stopped inside of a file object, so its last flush was not waited for";
            return Err(PyRuntimeError::new_err(text));
        }
        python.detach(|| {
            let stopped = running.stop().map_err(|error| errors::of_io(&error))?;
            stopped.map_err(|(_, fault)| errors::of_fault(fault))
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(running) = self.take() else {
            return;
        };
        if medium::is_inside() {
            return end_elsewhere(running);
        }
        // Its last flush may call a file object, which takes the interpreter's lock.
        Python::attach(|python| python.detach(move || drop(running)));
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
    Ok(Server { running: Mutex::new(Some(running)) })
}
