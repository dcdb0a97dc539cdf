//! `zoned`: writes reach each zone in the order in which they were submitted, by construction.
//!
//! ```text
//! front
//!   │        admission (admit.rs)   gives each write its place, appends too, before it is encrypted
//!   ▼
//! crypt      encrypts in any order, here or on other threads
//!   │
//!   ▼
//!   │        release (release.rs)   lets a write through when it is at its zone's end
//! medium
//! ```
//!
//! The place of a write in its zone is also its ticket: the next to be let through is the one that
//! starts where the last ended. So nothing has to be sorted, and encryption may run ahead as far as
//! it likes. One write of each zone is in flight at a time; a medium that answers at once never has
//! one in flight, so there they follow each other without a pause. Zones do not wait for each other.
//!
//! * An **append** is a write at the place that admission gives it: its IV depends on that.
//! * An **action** (reset, finish, close, open) waits for the writes of its zone before it, and the
//!   writes after it wait for the action.
//! * A write that was **refused** below changed nothing: those behind it are refused too, and the
//!   zone goes on from where the first of them should have been.
//! * A write that **failed** leaves the zone's write pointer unknown. The zone is frozen: all later
//!   writes fail until it has been reported again, or reset.
//!
//! The state of a zone (`state.rs`) is shared by all queues behind a lock that is held for some
//! instructions, never across I/O, and never together with another. Two queues wait for each other
//! only where they write to one zone.
//!
//! The lock is no atomic word, because the place, what is under way and what has failed change together. `crypt` must
//! not split a write here, and `dispatch=queue` applies to reads only, as in dm-crypt.
//!
//! Where the medium takes time and several writes are under way, they are encrypted ahead of their turn: they lie in
//! the slots for a helper, and the submitter encrypts them when there is nothing else, or after it has passed them over
//! eight times.

mod admit;
mod release;
mod state;

use std::sync::Arc;

use cryptline_cipher::SectorCipher;

use self::admit::Admission;
use self::release::Release;
use self::state::ZoneStates;
use super::{CryptDevice, CryptOptions};
use crate::OpenError;
use crate::gate::Gate;

/// The clear disk over an encrypted one: [`CryptDevice`], and where `lower` has zones, what keeps
/// their order.
///
/// Errors: as [`CryptDevice::new`]; or the zones of `lower` can not be reported.
pub fn encrypted(lower: Gate, cipher: SectorCipher, options: CryptOptions) -> Result<Gate, OpenError> {
    if lower.geometry().zones.is_none() {
        return Ok(Gate::new(CryptDevice::new(lower, cipher, options)?));
    }
    let states = Arc::new(ZoneStates::new(&lower)?);
    let start = options.start;
    let released = Gate::new(Release::new(lower, Arc::clone(&states)));
    let crypt = Gate::new(CryptDevice::new(released, cipher, options)?);
    Ok(Gate::new(Admission::new(crypt, states, start)))
}

/// A zoned device without a cipher, whose writes are kept in order. A device without zones comes
/// back as it is.
///
/// Errors: its zones can not be reported.
pub fn ordered(lower: Gate) -> Result<Gate, OpenError> {
    if lower.geometry().zones.is_none() {
        return Ok(lower);
    }
    let states = Arc::new(ZoneStates::new(&lower)?);
    let released = Gate::new(Release::new(lower, Arc::clone(&states)));
    Ok(Gate::new(Admission::new(released, states, 0)))
}
