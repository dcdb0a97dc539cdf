//! The part of the Python module that is in Rust. `cryptline/__init__.py` puts Python's file interface around it.
//!
//! ```text
//! disk     an open volume       medium   a Python file object that a volume lies on
//! header   create, key slots, copy        server   NBD
//! errors   failures as exceptions
//! ```
//!
//! The interpreter's lock is released around everything that may take time; only calls of file objects take it.

/// Gives a builder those of some settings that were given.
macro_rules! with {
    ($builder:ident, $($setting:ident: $value:expr),+) => {
        $(if let Some(value) = $value {
            $builder = $builder.$setting(value);
        })+
    };
}

mod disk;
mod errors;
mod header;
mod medium;
mod server;

use pyo3::prelude::*;

/// cryptline's own part of the module.
#[pymodule(gil_used = true)]
fn _cryptline(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let python = module.py();
    module.add("Error", python.get_type::<errors::Error>())?;
    module.add("WrongKey", python.get_type::<errors::WrongKey>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<disk::Disk>()?;
    module.add_class::<server::Server>()?;
    module.add_function(wrap_pyfunction!(disk::open, module)?)?;
    module.add_function(wrap_pyfunction!(header::create, module)?)?;
    module.add_function(wrap_pyfunction!(header::copy, module)?)?;
    module.add_function(wrap_pyfunction!(header::inspect, module)?)?;
    module.add_function(wrap_pyfunction!(header::edit, module)?)?;
    module.add_function(wrap_pyfunction!(server::serve, module)?)?;
    Ok(())
}
