//! Headers, made here and by others.

pub(crate) mod common;
mod made_by_cryptsetup;
mod made_by_qemu;
mod made_here;
mod other_contents;
