//! New volumes, and the key slots of those that exist.

use std::ffi::{c_char, c_int};

use cryptline::luks::edit::LastSlot;

use crate::call::{CallFailure, Out, Outcome, call, give_text, text};
use crate::options::{
    CRYPTLINE_LAST_SLOT, cryptline_create_options, cryptline_key_options, cryptline_open_options, options,
};

/// Makes a LUKS volume in a new file, or on a device that is there. A file gets its name when it is whole.
/// `*data_size` (if not null) is then the size of the decrypted disk in bytes.
///
/// # Safety
/// `target` is a text; `given` points to options whose pointers are null or what their fields say; `data_size` is null
/// or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_create(
    target: *const c_char,
    given: *const cryptline_create_options,
    data_size: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: the caller promises the same of each.
        let (create, place) = unsafe {
            let target = text(target, "the target")?;
            let place = Out::optional(data_size, "the place for the size")?;
            (options(given)?.create(target)?, place)
        };
        let created = create.create()?;
        if let Some(place) = place {
            place.set(created.data_size);
        }
        Ok(())
    })
}

/// Contents of a LUKS header, as a JSON object: version, label, `keyslots`, `tokens` and so on. No key is needed; of the
/// options only `header` counts, and they may be null. For `room` and `needed` see cryptline_info.
///
/// # Safety
/// `target` is a text; `given` is null or points to options; `room` bytes can be written at `json`; `needed` is null or
/// a place for a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_key_list(
    target: *const c_char,
    given: *const cryptline_open_options,
    json: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller promises the same of each.
        let open = unsafe { options(given)?.open(text(target, "the target")?)? };
        let found = open.inspect()?.to_json();
        // SAFETY: the caller promises the same.
        unsafe { give_text(&found, json, room, needed) }
    })
}

/// Adds a passphrase; `*slot` (if not null) is the number of its key slot.
///
/// # Safety
/// `target` is a text; `given` points to options whose pointers are null or what their fields say; `slot` is null or a
/// place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_key_add(
    target: *const c_char,
    given: *const cryptline_key_options,
    slot: *mut u32,
) -> c_int {
    // SAFETY: the caller promises the same.
    unsafe {
        edit(target, given, slot, |header, given| {
            of_slot(header, &given).add_key(&given.new_slot()?).map_err(Into::into)
        })
    }
}

/// Puts the new passphrase in the place of the one that is given.
///
/// # Safety
/// As cryptline_key_add.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_key_change(
    target: *const c_char,
    given: *const cryptline_key_options,
    slot: *mut u32,
) -> c_int {
    // SAFETY: the caller promises the same.
    unsafe {
        edit(target, given, slot, |header, given| {
            of_slot(header, &given).change_key(&given.new_slot()?).map_err(Into::into)
        })
    }
}

/// Removes a key slot: with CRYPTLINE_KEY_SLOT that one, where the passphrase (if one is given) must open another;
/// otherwise the one that the passphrase opens. The last one is kept without CRYPTLINE_LAST_SLOT.
///
/// # Safety
/// As cryptline_key_add.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_key_remove(
    target: *const c_char,
    given: *const cryptline_key_options,
    slot: *mut u32,
) -> c_int {
    // SAFETY: the caller promises the same.
    unsafe {
        edit(target, given, slot, |header, given| {
            let last = if given.flags & CRYPTLINE_LAST_SLOT != 0 { LastSlot::Remove } else { LastSlot::Keep };
            let removed = match given.slot() {
                Some(slot) => header.kill_slot(slot, last),
                None => header.remove_key(last),
            };
            removed.map_err(Into::into)
        })
    }
}

/// Only the slot that is meant, where one is.
fn of_slot(header: cryptline::Header, given: &cryptline_key_options) -> cryptline::Header {
    header.with(given.slot(), cryptline::Header::key_slot)
}

/// # Safety
/// As cryptline_key_add.
unsafe fn edit(
    target: *const c_char,
    given: *const cryptline_key_options,
    slot: *mut u32,
    work: impl FnOnce(cryptline::Header, cryptline_key_options) -> Outcome<cryptline::Edited>,
) -> c_int {
    call(|| {
        if given.is_null() {
            return Err(CallFailure::invalid("the options are null"));
        }
        // SAFETY: the caller promises the same of each.
        let (header, given, place) = unsafe {
            let target = text(target, "the target")?;
            let given = options(given)?;
            let place = Out::optional(slot, "the place for the key slot")?;
            (given.header(target)?, given, place)
        };
        let edited = work(header, given)?;
        if let (Some(place), Some(slot)) = (place, edited.slot) {
            place.set(slot);
        }
        Ok(())
    })
}
