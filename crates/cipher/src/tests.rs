//! Ciphers against the kernel, and at the ends of things.

mod kernel_golden;
#[cfg(target_os = "linux")]
mod page_end;
mod xts_edges;
