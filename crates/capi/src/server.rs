//! A volume served over NBD, by threads of the library.

use std::ffi::{OsStr, c_char, c_int};
use std::sync::{Mutex, PoisonError};

use cryptline_serve::nbd::{Background, Listener};
use rustix::io::Errno;

use crate::call::{CallFailure, Out, Outcome, call, optional_text, utf8};
use crate::disk::{cryptline_volume, disk};
use crate::handle::{HandleTable, unknown};

/// A server that runs.
pub struct cryptline_server {
    _opaque: [u8; 0],
}

/// The server is taken out to be stopped.
static SERVERS: HandleTable<Mutex<Option<Background>>> = HandleTable::new("server");

/// Serves a volume over NBD to all who connect to `fd`, a listening Unix or TCP socket, until the server is stopped. The
/// socket is duplicated, and its file description becomes non-blocking. There is no TLS: whoever can connect has the
/// disk. `name` is the export's name; null for the empty one.
///
/// The volume can be used meanwhile, and closed.
///
/// # Safety
/// `server` is a place for a handle; `name` is null or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_serve_nbd(
    server: *mut *mut cryptline_server,
    volume: *mut cryptline_volume,
    fd: c_int,
    name: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: the caller promises the same of each.
        let (place, name) = unsafe {
            let place = Out::new(server, "the place for the server")?;
            place.set(std::ptr::null_mut());
            (place, optional_text(name))
        };
        let running = start(volume, fd, name)?;
        place.set(SERVERS.add(Mutex::new(Some(running))));
        Ok(())
    })
}

fn start(volume: *const cryptline_volume, fd: c_int, name: Option<&OsStr>) -> Outcome<Background> {
    let disk = disk(volume)?;
    let name = name.map_or(Ok(""), |name| utf8(name, "the name"))?;
    let number = u32::try_from(fd).map_err(|_| CallFailure::new(Errno::BADF, "the descriptor is not open"))?;
    let socket = cryptline_sys::duplicate_fd(number)?;
    let listener = Listener::of_socket(socket).map_err(|error| {
        let advice = "use a Unix or TCP socket after listen()";
        CallFailure::invalid(format!("descriptor {number}: {error}; {advice}"))
    })?;
    let block = disk.volume().info().logical_block;
    Background::start(disk.gate(), block, name, listener).map_err(|error| match error.raw_os_error() {
        Some(_) => error.into(),
        None => CallFailure::invalid(error.to_string()),
    })
}

/// Stops a server: what it has taken is finished, for 5 seconds at most, and everything is made durable. Where that
/// fails, so does this; the server is gone either way. In a forked process, its parent's server goes on, and this fails
/// with -EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn cryptline_server_stop(server: *mut cryptline_server) -> c_int {
    call(|| {
        let running = SERVERS.take(server)?.lock().unwrap_or_else(PoisonError::into_inner).take();
        let running = running.ok_or_else(|| unknown("server"))?;
        if !running.runs_here() {
            let text = "the server runs in the process that this one was forked from; stop it there";
            return Err(CallFailure::new(Errno::BADF, text));
        }
        match running.stop()? {
            Ok(()) => Ok(()),
            Err((_, fault)) => Err(fault.into()),
        }
    })
}
