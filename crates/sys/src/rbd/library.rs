//! The two libraries and the functions that are used of them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use super::RbdError;
use super::encryption::EncryptionLoadFn;
use super::ending::arrange_end;

/// `rados_t`, `rados_ioctx_t`, `rbd_image_t` and `rbd_completion_t`: addresses that only the library looks behind.
pub(super) type Handle = *mut c_void;
/// `rbd_callback_t`.
pub(super) type Callback = unsafe extern "C" fn(Handle, *mut c_void);
/// `rbd_update_callback_t`.
pub(super) type UpdateCallback = unsafe extern "C" fn(*mut c_void);
/// Callback of `rbd_diff_iterate2`.
pub(super) type DiffCallback = unsafe extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;

/// `rbd_image_info_t`.
#[repr(C)]
pub(super) struct ImageInfo {
    pub size: u64,
    pub object_size: u64,
    pub objects: u64,
    pub order: c_int,
    pub block_name_prefix: [c_char; 24],
    pub parent_pool: i64,
    pub parent_name: [c_char; 96],
}

/// `rbd_config_option_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ConfigOption {
    pub name: *mut c_char,
    pub value: *mut c_char,
    /// 0 for a configuration, 1 for the pool, 2 for the image.
    pub source: c_int,
}

/// `rbd_mirror_image_info_t`.
#[repr(C)]
pub(super) struct MirrorInfo {
    pub global_id: *mut c_char,
    /// 1 where it is mirrored.
    pub state: c_int,
    pub primary: bool,
}

/// `rbd_image_watcher_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Watcher {
    pub address: *mut c_char,
    /// The number of the client.
    pub id: i64,
    pub cookie: u64,
}

/// Declares the table of functions and how it is filled.
macro_rules! functions {
    ($($library:ident { $(fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions by their own names.
        pub(super) struct Library {
            $($(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Library {
            /// From what was loaded.
            fn find($($library: &LoadedLibrary),*) -> Result<Self, RbdError> {
                Ok(Self {
                    $($($name: {
                        let name = concat!(stringify!($name), "\0");
                        let address = $library.symbol(name)?;
                        // SAFETY: the library has a function of this name, whose C declaration (librados.h and
                        // librbd.h, unchanged since Ceph 15) is the one in this table; data and function addresses
                        // have the same form on every system that has dlsym; the library is never unloaded.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(address) }
                    },)*)*
                })
            }
        }
    };
}

functions! {
    rados {
    fn rados_create2(*mut Handle, *const c_char, *const c_char, u64) -> c_int;
    fn rados_conf_read_file(Handle, *const c_char) -> c_int;
    fn rados_conf_parse_env(Handle, *const c_char) -> c_int;
    fn rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
    fn rados_conf_get(Handle, *const c_char, *mut c_char, usize) -> c_int;
    fn rados_connect(Handle) -> c_int;
    fn rados_shutdown(Handle);
    fn rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
    fn rados_ioctx_destroy(Handle);
    fn rados_ioctx_set_namespace(Handle, *const c_char);
    fn rados_notify2(Handle, *const c_char, *const c_char, c_int, u64, *mut *mut c_char, *mut usize) -> c_int;
    fn rados_buffer_free(*mut c_char);
    }
    rbd {
    fn rbd_version(*mut c_int, *mut c_int, *mut c_int);
    fn rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    fn rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    fn rbd_close(Handle) -> c_int;
    fn rbd_stat(Handle, *mut ImageInfo, usize) -> c_int;
    fn rbd_get_size(Handle, *mut u64) -> c_int;
    fn rbd_get_features(Handle, *mut u64) -> c_int;
    fn rbd_get_flags(Handle, *mut u64) -> c_int;
    fn rbd_get_stripe_count(Handle, *mut u64) -> c_int;
    fn rbd_get_overlap(Handle, *mut u64) -> c_int;
    fn rbd_mirror_image_get_info(Handle, *mut MirrorInfo, usize) -> c_int;
    fn rbd_mirror_image_get_info_cleanup(*mut MirrorInfo);
    fn rbd_config_image_list(Handle, *mut ConfigOption, *mut c_int) -> c_int;
    fn rbd_config_image_list_cleanup(*mut ConfigOption, c_int);
    fn rbd_get_id(Handle, *mut c_char, usize) -> c_int;
    fn rbd_snap_get_id(Handle, *const c_char, *mut u64) -> c_int;
    fn rbd_snap_get_namespace_type(Handle, u64, *mut c_int) -> c_int;
    fn rbd_lock_acquire(Handle, c_int) -> c_int;
    fn rbd_lock_get_owners(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
    fn rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
    fn rbd_watchers_list(Handle, *mut Watcher, *mut usize) -> c_int;
    fn rbd_watchers_list_cleanup(*mut Watcher, usize);
    fn rbd_update_watch(Handle, *mut u64, UpdateCallback, *mut c_void) -> c_int;
    fn rbd_update_unwatch(Handle, u64) -> c_int;
    fn rbd_diff_iterate2(Handle, *const c_char, u64, u64, u8, u8, DiffCallback, *mut c_void) -> c_int;
    fn rbd_aio_create_completion(*mut c_void, Callback, *mut Handle) -> c_int;
    fn rbd_aio_get_return_value(Handle) -> isize;
    fn rbd_aio_release(Handle);
    fn rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
    fn rbd_aio_write2(Handle, u64, usize, *const c_char, Handle, c_int) -> c_int;
    fn rbd_aio_flush(Handle, Handle) -> c_int;
    fn rbd_aio_discard(Handle, u64, u64, Handle) -> c_int;
    fn rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
    }
}

impl Library {
    /// Loads both libraries with the first call.
    ///
    /// Errors: this program cannot load any, they are not there, or too old.
    pub fn get() -> Result<&'static Self, RbdError> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            Self::load().map_err(|error| match error {
                RbdError::Library(why) => why,
                other => format!("{other:?}"),
            })
        });
        library.as_ref().map_err(|why| RbdError::Library(why.clone()))
    }

    fn load() -> Result<Self, RbdError> {
        if cfg!(target_feature = "crt-static") {
            return Err(RbdError::Library(
                "this program is linked statically and cannot load librbd; take a build for glibc, or serve the image with \
                 `qemu-nbd -t --shared=0 -f raw rbd:POOL/IMAGE` and open nbd://"
                    .to_owned(),
            ));
        }
        let rados = LoadedLibrary::open(c"librados.so.2")?;
        let rbd = LoadedLibrary::open(c"librbd.so.1")?;
        let library = Self::find(&rados, &rbd)?;
        arrange_end();
        Ok(library)
    }

    /// A function that only comparisons need, and older libraries do not have.
    pub fn encryption_load() -> Result<EncryptionLoadFn, RbdError> {
        Self::get()?;
        let address = LoadedLibrary::open(c"librbd.so.1")?.symbol("rbd_encryption_load\0")?;
        // SAFETY: the library has a function of this name, whose C declaration (librbd.h, unchanged since Ceph 16) is
        // that of the type; data and function addresses have the same form, and the library is never unloaded.
        Ok(unsafe { std::mem::transmute::<*mut c_void, EncryptionLoadFn>(address) })
    }
}

/// A library that is there until the process ends.
struct LoadedLibrary(*mut c_void);

impl LoadedLibrary {
    fn open(name: &CStr) -> Result<Self, RbdError> {
        // SAFETY: the name ends with a zero. Running the library's constructors is what is asked for: it is the system's
        // own, found where the system's linker finds libraries.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(missing(last_error()));
        }
        Ok(Self(handle))
    }

    /// `name` ends with a zero.
    fn symbol(&self, name: &str) -> Result<*mut c_void, RbdError> {
        let name = CStr::from_bytes_with_nul(name.as_bytes()).map_err(|_| RbdError::Name)?;
        // SAFETY: the handle is one of dlopen's, never closed, and the name ends with a zero.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            return Err(missing(last_error()));
        }
        Ok(address)
    }
}

fn missing(why: String) -> RbdError {
    RbdError::Library(format!(
        "Ceph's libraries cannot be loaded ({why}); install the packages librbd1 and librados2, version 15 or newer"
    ))
}

fn last_error() -> String {
    // SAFETY: takes nothing; gives null or a text that ends with a zero and lasts until this thread's next call of
    // the dl family, and it is copied before that.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "no reason given".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}
