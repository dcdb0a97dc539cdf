//! Ceph's two libraries: this program's own, which are found where the system's would be loaded. An image is whatever the
//! simulation says it is; requests end on its threads.
//!
//! Each function has the signature and the contract of its namesake in librados.h and librbd.h.

#![allow(clippy::missing_safety_doc)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::os::{real, real_dlsym};

type Handle = *mut c_void;
type Callback = unsafe extern "C" fn(Handle, *mut c_void);
type Update = unsafe extern "C" fn(*mut c_void);

/// Of a write that is to be durable when it ends (librados.h).
const FUA: c_int = 0x80;
/// The features of an image (features.h): it has one writer, whose lock is exclusive.
const EXCLUSIVE_LOCK: u64 = 1 << 2;

/// An image of a cluster. Numbers are those of errno.h.
pub trait Image: Send + Sync {
    /// Opens it; with `writes`, to write to it.
    fn open(&self, writes: bool) -> Result<(), c_int>;
    /// Closes it: who has asked for something has had the answer.
    fn close(&self);
    /// Takes the lock of whoever writes.
    fn lock(&self) -> Result<(), c_int>;
    /// Bytes in it.
    fn size(&self) -> Result<u64, c_int>;
    /// Has `watch` told of changes, until that is taken back.
    fn watch(&self, watch: Option<Watch>);
    /// Takes a request.
    fn take(&self, request: Request) -> Result<(), (Request, c_int)>;
}

static IMAGE: Mutex<Option<Arc<dyn Image>>> = Mutex::new(None);

/// Puts an image into the only cluster that there is.
pub fn put_image(image: Option<Arc<dyn Image>>) {
    *slot() = image;
}

fn slot() -> MutexGuard<'static, Option<Arc<dyn Image>>> {
    IMAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The image, where there is one.
fn with(action: impl FnOnce(&dyn Image) -> Result<(), c_int>) -> c_int {
    let image = slot().clone();
    let result = image.as_deref().map_or(Err(libc::ENOENT), action);
    result.map_or_else(|errno| -errno, |()| 0)
}

/// Whoever wants to know of changes of an image.
pub struct Watch(Update, *mut c_void);

// SAFETY: the library calls from threads of its own, and whoever asks for that must expect it (librbd.h).
unsafe impl Send for Watch {}

impl Watch {
    /// Says that something has changed.
    pub fn tell(&self) {
        // SAFETY: whoever has given both lets them be used until the watch is taken back, before which no call is begun.
        unsafe { (self.0)(self.1) }
    }
}

/// Operation that a request wants. Numbers are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Read,
    Write { durable: bool },
    Flush,
    Zero,
}

struct Completion {
    call: Callback,
    argument: *mut c_void,
    result: isize,
}

/// A request under way.
pub struct Request {
    pub wish: Wish,
    pub offset: u64,
    pub len: usize,
    memory: *mut u8,
    completion: *mut Completion,
}

// SAFETY: the memory and the completion are the library's until the callback, on whichever of its threads (librbd.h).
unsafe impl Send for Request {}

impl Request {
    /// The bytes to be written.
    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: until the callback the caller lets the library read so many bytes there.
        unsafe { std::slice::from_raw_parts(self.memory, self.len) }.to_vec()
    }

    /// Gives out what was read.
    pub fn fill(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.len);
        // SAFETY: until the callback the caller lets the library write so many bytes there.
        unsafe { self.memory.copy_from_nonoverlapping(bytes.as_ptr(), len) };
    }

    /// Ends it: bytes that were read, 0, or a negative error number.
    pub fn end(self, result: isize) {
        // SAFETY: the completion is alive until its owner releases it, in the callback or later; nothing of it is used here
        // after the call.
        unsafe {
            (*self.completion).result = result;
            let (call, argument) = ((*self.completion).call, (*self.completion).argument);
            call(self.completion.cast(), argument);
        }
    }
}

// ---- loading ----

/// Both libraries.
static LIBRARY: u8 = 0;

fn library() -> *mut c_void {
    ptr::from_ref(&LIBRARY).cast_mut().cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: null or a text that ends with a zero, as dlopen(3) wants it.
    let is_ours =
        !name.is_null() && matches!(unsafe { CStr::from_ptr(name) }.to_bytes(), b"librados.so.2" | b"librbd.so.1");
    if is_ours { library() } else { real!(dlopen(name, flags) as fn(*const c_char, c_int) -> *mut c_void) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    if handle != library() {
        // SAFETY: as dlsym(3) has it.
        return unsafe { real_dlsym(handle, name) };
    }
    // SAFETY: a text that ends with a zero, as dlsym(3) wants it.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    FUNCTIONS
        .iter()
        .find(|(known, _)| known.as_bytes() == name)
        .map_or(ptr::null_mut(), |(_, address)| address.0.cast_mut())
}

/// The address of a function.
struct Address(*const c_void);

// SAFETY: it is only handed on, and what lies behind it never changes.
unsafe impl Sync for Address {}

macro_rules! functions {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name), Address($name as *const c_void))),*]
    };
}

static FUNCTIONS: [(&str, Address); 45] = functions![
    rados_create2,
    rados_conf_read_file,
    rados_conf_parse_env,
    rados_conf_set,
    rados_conf_get,
    rados_connect,
    rados_shutdown,
    rados_ioctx_create,
    rados_ioctx_destroy,
    rados_ioctx_set_namespace,
    rados_notify2,
    rados_buffer_free,
    rbd_version,
    rbd_open,
    rbd_open_read_only,
    rbd_close,
    rbd_stat,
    rbd_get_size,
    rbd_get_features,
    rbd_get_flags,
    rbd_get_stripe_count,
    rbd_get_overlap,
    rbd_mirror_image_get_info,
    rbd_mirror_image_get_info_cleanup,
    rbd_config_image_list,
    rbd_config_image_list_cleanup,
    rbd_get_id,
    rbd_snap_get_id,
    rbd_snap_get_namespace_type,
    rbd_lock_acquire,
    rbd_lock_get_owners,
    rbd_lock_get_owners_cleanup,
    rbd_watchers_list,
    rbd_watchers_list_cleanup,
    rbd_update_watch,
    rbd_update_unwatch,
    rbd_diff_iterate2,
    rbd_aio_create_completion,
    rbd_aio_get_return_value,
    rbd_aio_release,
    rbd_aio_read,
    rbd_aio_write2,
    rbd_aio_flush,
    rbd_aio_discard,
    rbd_aio_write_zeroes,
];

// ---- librados ----

/// Gives out an address that nobody looks behind.
///
/// SAFETY: `place` is one for a handle.
unsafe fn give(place: *mut Handle) -> c_int {
    // SAFETY: by the condition above.
    unsafe { place.write(library()) };
    0
}

unsafe extern "C" fn rados_create2(place: *mut Handle, _: *const c_char, _: *const c_char, _: u64) -> c_int {
    // SAFETY: as librados.h has it.
    unsafe { give(place) }
}
extern "C" fn rados_conf_read_file(_: Handle, _: *const c_char) -> c_int {
    0
}
extern "C" fn rados_conf_parse_env(_: Handle, _: *const c_char) -> c_int {
    0
}
extern "C" fn rados_conf_set(_: Handle, _: *const c_char, _: *const c_char) -> c_int {
    0
}
extern "C" fn rados_conf_get(_: Handle, _: *const c_char, _: *mut c_char, _: usize) -> c_int {
    -libc::ENOENT
}
extern "C" fn rados_connect(_: Handle) -> c_int {
    0
}
extern "C" fn rados_shutdown(_: Handle) {}
unsafe extern "C" fn rados_ioctx_create(_: Handle, _: *const c_char, place: *mut Handle) -> c_int {
    // SAFETY: as librados.h has it.
    unsafe { give(place) }
}
extern "C" fn rados_ioctx_destroy(_: Handle) {}
extern "C" fn rados_ioctx_set_namespace(_: Handle, _: *const c_char) {}
extern "C" fn rados_notify2(
    _: Handle,
    _: *const c_char,
    _: *const c_char,
    _: c_int,
    _: u64,
    _: *mut *mut c_char,
    _: *mut usize,
) -> c_int {
    -libc::ENOENT
}
extern "C" fn rados_buffer_free(_: *mut c_char) {}

// ---- librbd: an image ----

unsafe extern "C" fn rbd_version(major: *mut c_int, minor: *mut c_int, extra: *mut c_int) {
    // SAFETY: three places for numbers, as librbd.h has it.
    unsafe {
        major.write(1);
        minor.write(17);
        extra.write(0);
    }
}
unsafe extern "C" fn rbd_open(_: Handle, _: *const c_char, place: *mut Handle, _: *const c_char) -> c_int {
    match with(|image| image.open(true)) {
        // SAFETY: as librbd.h has it.
        0 => unsafe { give(place) },
        code => code,
    }
}
unsafe extern "C" fn rbd_open_read_only(_: Handle, _: *const c_char, place: *mut Handle, _: *const c_char) -> c_int {
    match with(|image| image.open(false)) {
        // SAFETY: as librbd.h has it.
        0 => unsafe { give(place) },
        code => code,
    }
}
extern "C" fn rbd_close(_: Handle) -> c_int {
    with(|image| {
        image.close();
        Ok(())
    })
}
/// Size, bytes of an object, objects, order; then names.
unsafe extern "C" fn rbd_stat(_: Handle, info: *mut u64, len: usize) -> c_int {
    with(|image| {
        let size = image.size()?;
        // SAFETY: there is room for so many bytes, of which the first are these numbers (librbd.h).
        unsafe {
            info.cast::<u8>().write_bytes(0, len);
            info.write(size);
            info.add(1).write(4096);
        }
        Ok(())
    })
}
unsafe extern "C" fn rbd_get_size(_: Handle, place: *mut u64) -> c_int {
    with(|image| {
        let size = image.size()?;
        // SAFETY: a place for a number, as librbd.h has it.
        unsafe { place.write(size) };
        Ok(())
    })
}

/// A number that never changes.
///
/// SAFETY: `place` is one for a number.
unsafe fn number(place: *mut u64, value: u64) -> c_int {
    // SAFETY: by the condition above.
    unsafe { place.write(value) };
    0
}

unsafe extern "C" fn rbd_get_features(_: Handle, place: *mut u64) -> c_int {
    // SAFETY: as librbd.h has it.
    unsafe { number(place, EXCLUSIVE_LOCK) }
}
unsafe extern "C" fn rbd_get_flags(_: Handle, place: *mut u64) -> c_int {
    // SAFETY: as librbd.h has it.
    unsafe { number(place, 0) }
}
unsafe extern "C" fn rbd_get_stripe_count(_: Handle, place: *mut u64) -> c_int {
    // SAFETY: as librbd.h has it.
    unsafe { number(place, 1) }
}
unsafe extern "C" fn rbd_get_overlap(_: Handle, place: *mut u64) -> c_int {
    // SAFETY: as librbd.h has it.
    unsafe { number(place, 0) }
}
unsafe extern "C" fn rbd_mirror_image_get_info(_: Handle, info: *mut u8, len: usize) -> c_int {
    // SAFETY: there is room for so many bytes (librbd.h); zeros are an image that is not mirrored.
    unsafe { info.write_bytes(0, len) };
    0
}
extern "C" fn rbd_mirror_image_get_info_cleanup(_: *mut c_void) {}
unsafe extern "C" fn rbd_config_image_list(_: Handle, _: *mut c_void, count: *mut c_int) -> c_int {
    // SAFETY: a place for a number, as librbd.h has it.
    unsafe { count.write(0) };
    0
}
extern "C" fn rbd_config_image_list_cleanup(_: *mut c_void, _: c_int) {}
unsafe extern "C" fn rbd_get_id(_: Handle, id: *mut c_char, len: usize) -> c_int {
    if len < 2 {
        return -libc::ERANGE;
    }
    // SAFETY: there is room for so many bytes, as librbd.h has it.
    unsafe {
        id.write(b'1'.cast_signed());
        id.add(1).write(0);
    }
    0
}
extern "C" fn rbd_snap_get_id(_: Handle, _: *const c_char, _: *mut u64) -> c_int {
    -libc::ENOENT
}
extern "C" fn rbd_snap_get_namespace_type(_: Handle, _: u64, _: *mut c_int) -> c_int {
    -libc::ENOENT
}
extern "C" fn rbd_lock_acquire(_: Handle, _: c_int) -> c_int {
    with(|image| image.lock())
}
extern "C" fn rbd_lock_get_owners(_: Handle, _: *mut c_int, _: *mut *mut c_char, _: *mut usize) -> c_int {
    -libc::ENOENT
}
extern "C" fn rbd_lock_get_owners_cleanup(_: *mut *mut c_char, _: usize) {}
extern "C" fn rbd_watchers_list(_: Handle, _: *mut c_void, _: *mut usize) -> c_int {
    -libc::ENOENT
}
extern "C" fn rbd_watchers_list_cleanup(_: *mut c_void, _: usize) {}
unsafe extern "C" fn rbd_update_watch(_: Handle, place: *mut u64, call: Update, argument: *mut c_void) -> c_int {
    // SAFETY: as librbd.h has it.
    unsafe { number(place, 1) };
    with(|image| {
        image.watch(Some(Watch(call, argument)));
        Ok(())
    })
}
extern "C" fn rbd_update_unwatch(_: Handle, _: u64) -> c_int {
    with(|image| {
        image.watch(None);
        Ok(())
    })
}
type Run = unsafe extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;

/// All of it is data.
unsafe extern "C" fn rbd_diff_iterate2(
    _: Handle,
    _: *const c_char,
    offset: u64,
    len: u64,
    _: u8,
    _: u8,
    call: Run,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's function and its argument, as librbd.h has it.
    unsafe { call(offset, usize::try_from(len).unwrap_or(usize::MAX), 1, argument) }
}

// ---- librbd: requests ----

unsafe extern "C" fn rbd_aio_create_completion(argument: *mut c_void, call: Callback, place: *mut Handle) -> c_int {
    let made = Box::into_raw(Box::new(Completion { call, argument, result: 0 }));
    // SAFETY: a place for a handle, as librbd.h has it.
    unsafe { place.write(made.cast()) };
    0
}
unsafe extern "C" fn rbd_aio_get_return_value(completion: Handle) -> isize {
    // SAFETY: one that was made above and not released.
    unsafe { (*completion.cast::<Completion>()).result }
}
unsafe extern "C" fn rbd_aio_release(completion: Handle) {
    // SAFETY: one that was made above, released once: here.
    drop(unsafe { Box::from_raw(completion.cast::<Completion>()) });
}

fn take(wish: Wish, offset: u64, len: usize, memory: *mut u8, completion: Handle) -> c_int {
    let request = Request { wish, offset, len, memory, completion: completion.cast() };
    with(|image| image.take(request).map_err(|(_, errno)| errno))
}

extern "C" fn rbd_aio_read(_: Handle, offset: u64, len: usize, memory: *mut c_char, completion: Handle) -> c_int {
    take(Wish::Read, offset, len, memory.cast(), completion)
}
extern "C" fn rbd_aio_write2(
    _: Handle,
    offset: u64,
    len: usize,
    memory: *const c_char,
    completion: Handle,
    flags: c_int,
) -> c_int {
    take(Wish::Write { durable: flags & FUA != 0 }, offset, len, memory.cast_mut().cast(), completion)
}
extern "C" fn rbd_aio_flush(_: Handle, completion: Handle) -> c_int {
    take(Wish::Flush, 0, 0, ptr::null_mut(), completion)
}
extern "C" fn rbd_aio_discard(_: Handle, offset: u64, len: u64, completion: Handle) -> c_int {
    take(Wish::Zero, offset, usize::try_from(len).unwrap_or(usize::MAX), ptr::null_mut(), completion)
}
extern "C" fn rbd_aio_write_zeroes(
    _: Handle,
    offset: u64,
    len: usize,
    completion: Handle,
    _: c_int,
    _: c_int,
) -> c_int {
    take(Wish::Zero, offset, len, ptr::null_mut(), completion)
}
