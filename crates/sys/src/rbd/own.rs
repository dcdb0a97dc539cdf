//! Properties that an image has by its own word, whatever the configuration of the client says.

use std::ffi::{CStr, c_int};
use std::ptr;

use super::image::RbdImage;
use super::library::{ConfigOption, MirrorInfo};
use super::{RbdCall, RbdError};

/// Settings that no connection may have on, and the words for off.
const OFF: [(&CStr, [&[u8]; 2]); 2] =
    [(c"rbd_cache", [b"false", b"0"]), (c"rbd_persistent_cache_mode", [b"disabled", b""])];
/// How often the list of settings may have become longer since it was asked how long it is.
const TRIES: usize = 8;
/// From librbd.h: mirroring is on.
const MIRROR_ENABLED: c_int = 1;

/// A setting that caches, and outranks what a connection has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RbdOwnSetting {
    /// Its name.
    pub name: &'static str,
    /// Set if it is the pool's, and not the image's.
    pub is_of_pool: bool,
}

impl RbdImage {
    /// Returns the setting that makes the library keep data back, if any does. Asks the cluster.
    pub fn cache_setting(&self) -> Result<Option<RbdOwnSetting>, RbdError> {
        let none = ConfigOption { name: ptr::null_mut(), value: ptr::null_mut(), source: 0 };
        let mut options = Vec::new();
        for _ in 0..TRIES {
            let mut count = c_int::try_from(options.len()).unwrap_or(c_int::MAX);
            let (library, image) = (self.0.library, self.0.handle);
            // SAFETY: the image is open; `count` says how many options there is room for, and its place and theirs
            // live through the call.
            let code = unsafe { (library.rbd_config_image_list)(image, options.as_mut_ptr(), &raw mut count) };
            let len = usize::try_from(count).unwrap_or(0);
            if code == -libc::ERANGE {
                options.resize(len, none);
                continue;
            }
            RbdError::check(RbdCall::Stat, code)?;
            let found = options.iter().take(len).find_map(on);
            // SAFETY: the library has filled in the first `count` options, whose texts are released once: here.
            unsafe { (library.rbd_config_image_list_cleanup)(options.as_mut_ptr(), count) };
            return Ok(found);
        }
        Err(RbdError::of(RbdCall::Stat, -libc::ERANGE))
    }

    /// Tells if it is the copy of an image of another cluster, which alone writes to it. Asks the cluster.
    pub fn is_mirror(&self) -> Result<bool, RbdError> {
        let mut info = MirrorInfo { global_id: ptr::null_mut(), state: 0, primary: false };
        let (library, image) = (self.0.library, self.0.handle);
        // SAFETY: the image is open; at most the given number of bytes is written to `info`, which lives through the
        // call, as C's declaration of it has them.
        let code = unsafe { (library.rbd_mirror_image_get_info)(image, &raw mut info, size_of::<MirrorInfo>()) };
        RbdError::check(RbdCall::Stat, code)?;
        let is_mirror = info.state == MIRROR_ENABLED && !info.primary;
        // SAFETY: the library has filled it in, and its text is released once: here.
        unsafe { (library.rbd_mirror_image_get_info_cleanup)(&raw mut info) };
        Ok(is_mirror)
    }
}

/// The setting, if it is one of those and on.
fn on(option: &ConfigOption) -> Option<RbdOwnSetting> {
    if option.name.is_null() || option.value.is_null() {
        return None;
    }
    // SAFETY: the library has filled in both with texts that end with a zero, which live until the list is released.
    let (name, value) = unsafe { (CStr::from_ptr(option.name), CStr::from_ptr(option.value)) };
    let (name, off) = OFF.iter().find(|(known, _)| *known == name)?;
    let is_off = off.iter().any(|off| value.to_bytes().eq_ignore_ascii_case(off));
    (!is_off).then_some(RbdOwnSetting { name: name.to_str().unwrap_or_default(), is_of_pool: option.source == 1 })
}
