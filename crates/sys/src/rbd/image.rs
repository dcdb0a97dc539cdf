//! An open image.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::changes::RbdChanges;
use super::cluster::{CephPool, Cluster, text};
use super::ending::arrange_end_once_opened;
use super::library::{Handle, ImageInfo, Library};
use super::{RbdCall, RbdError};
use crate::lock;

/// From features.h: stripes other than whole objects, the lock, the object map, what makes it answer at once, and an
/// image that is moving here from another.
const FEATURE_STRIPING: u64 = 1 << 1;
const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
const FEATURE_FAST_DIFF: u64 = 1 << 4;
const FEATURE_MIGRATING: u64 = 1 << 11;
/// The first version that tells of all data of clones and of striped images (ceph issue 53784).
const DIFF_IS_WHOLE: (c_int, c_int) = (1, 17);
const FLAG_FAST_DIFF_INVALID: u64 = 1 << 1;
/// More than the id of any image has bytes.
const ID_MAX: usize = 96;
/// How long the end waits for requests that nobody waits for any more: whoever closes it may be about to end a process.
const UNDER_WAY_MAX: Duration = Duration::from_secs(2);
/// How long the cluster may take to be told of the end.
const END_MAX: Duration = Duration::from_secs(10);

/// An open image. Cheap to clone; the last one closes it.
///
/// An image that still has requests under way when the time to close it is over is left open until the process ends:
/// their memory and its own stay valid.
#[derive(Clone)]
pub struct RbdImage(pub(super) Arc<OpenImage>);

pub(super) struct OpenImage {
    pub library: &'static Library,
    pub handle: Handle,
    watch: Option<u64>,
    pub changes: Arc<RbdChanges>,
    pub under_way: Arc<UnderWay>,
    /// Not here where it was left open.
    pub pool: Option<CephPool>,
}

// SAFETY: librbd documents an image as usable from any thread at once; it is closed once, by the owner of the last
// reference.
unsafe impl Send for OpenImage {}
// SAFETY: as above.
unsafe impl Sync for OpenImage {}

/// The tables of queues that may still be used by requests under way.
#[derive(Default)]
pub(super) struct UnderWay {
    tables: Mutex<usize>,
    fewer: Condvar,
}

impl UnderWay {
    pub fn add(&self) {
        *lock(&self.tables) += 1;
    }

    pub fn remove(&self) {
        *lock(&self.tables) -= 1;
        self.fewer.notify_all();
    }

    /// Waits until there is none; whether that is so before the time is over.
    pub fn wait(&self, limit: Duration) -> bool {
        let tables = lock(&self.tables);
        let waited = self.fewer.wait_timeout_while(tables, limit, |tables| *tables > 0);
        waited.is_ok_and(|(tables, _)| *tables == 0)
    }
}

impl RbdImage {
    /// Opens an image, or a snapshot of it, which is read-only.
    pub fn open(
        cluster: &Cluster,
        pool: &str,
        namespace: Option<&str>,
        name: &str,
        snapshot: Option<&str>,
        read_only: bool,
    ) -> Result<Self, RbdError> {
        let library = cluster.library();
        let pool = cluster.pool(pool, namespace)?;
        let (name, snapshot) = (text(name)?, snapshot.map(text).transpose()?);
        let snapshot = snapshot.as_deref().map_or(ptr::null(), CStr::as_ptr);
        let mut handle: Handle = ptr::null_mut();
        let open = if read_only { library.rbd_open_read_only } else { library.rbd_open };
        // SAFETY: the pool is open as long as `pool` lives, which goes into what is returned; both names end with a zero
        // or are null and are only read; the handle's place lives through the call.
        let opened = unsafe { open(pool.handle, name.as_ptr(), &raw mut handle, snapshot) };
        RbdError::check(RbdCall::Open, opened)?;
        arrange_end_once_opened();
        Ok(Self(Arc::new(OpenImage {
            library,
            handle,
            watch: None,
            changes: Arc::default(),
            under_way: Arc::default(),
            pool: Some(pool),
        })))
    }

    /// Bytes in it now. After a change the library reads the header first, however long the cluster takes.
    pub fn size(&self) -> Result<u64, RbdError> {
        self.number(self.0.library.rbd_get_size)
    }

    /// Bytes in one of its objects, and of one round over all objects that a stripe lies on.
    pub fn object_sizes(&self) -> Result<(u64, u64), RbdError> {
        let mut info = ImageInfo {
            size: 0,
            object_size: 0,
            objects: 0,
            order: 0,
            block_name_prefix: [0; 24],
            parent_pool: 0,
            parent_name: [0; 96],
        };
        // SAFETY: the image is open; at most the given number of bytes is written to `info`, which any bytes are valid for.
        let code = unsafe { (self.0.library.rbd_stat)(self.0.handle, &raw mut info, size_of::<ImageInfo>()) };
        RbdError::check(RbdCall::Stat, code)?;
        let count = self.number(self.0.library.rbd_get_stripe_count)?;
        Ok((info.object_size, info.object_size.saturating_mul(count.max(1))))
    }

    /// Tells if it can have one writer only.
    pub fn has_exclusive_lock(&self) -> Result<bool, RbdError> {
        let features = self.number(self.0.library.rbd_get_features)?;
        Ok(features & FEATURE_EXCLUSIVE_LOCK != 0)
    }

    /// Tells if it is known without asking each object which of them exist.
    pub fn knows_objects(&self) -> Result<bool, RbdError> {
        let features = self.number(self.0.library.rbd_get_features)?;
        let flags = self.number(self.0.library.rbd_get_flags)?;
        Ok(features & FEATURE_FAST_DIFF != 0 && flags & FLAG_FAST_DIFF_INVALID == 0)
    }

    /// Tells if [`data`](Self::data) tells of all data, if it is asked from the start of a stripe on. An older library
    /// forgets what a clone inherits, and misplaces what is striped.
    pub fn knows_all_data(&self) -> Result<bool, RbdError> {
        let (mut major, mut minor, mut more) = (0, 0, 0);
        // SAFETY: the function writes three numbers, whose places live through the call.
        unsafe {
            (self.0.library.rbd_version)(&raw mut major, &raw mut minor, &raw mut more);
        }
        if (major, minor) >= DIFF_IS_WHOLE {
            return Ok(true);
        }
        let features = self.number(self.0.library.rbd_get_features)?;
        Ok(features & (FEATURE_STRIPING | FEATURE_MIGRATING) == 0 && !self.inherits()?)
    }

    /// Tells if some of its data is a parent's.
    pub fn inherits(&self) -> Result<bool, RbdError> {
        match self.number(self.0.library.rbd_get_overlap) {
            Ok(bytes) => Ok(bytes > 0),
            Err(RbdError::Call { error, .. }) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Has the library note that the image was changed by others. Before it is cloned.
    pub fn watch(&mut self) -> Result<(), RbdError> {
        let Some(open) = Arc::get_mut(&mut self.0) else {
            return Err(RbdError::of(RbdCall::Watch, -libc::EBUSY));
        };
        let mut watch = 0;
        let noted = Arc::as_ptr(&open.changes).cast_mut().cast::<c_void>();
        // SAFETY: the image is open; the watch's place lives through the call. The flag lives as long as `open`, whose end
        // unregisters the watch and waits for calls under way before it goes, or leaves it where it is for ever.
        let code = unsafe { (open.library.rbd_update_watch)(open.handle, &raw mut watch, on_change, noted) };
        RbdError::check(RbdCall::Watch, code)?;
        open.watch = Some(watch);
        Ok(())
    }

    /// Returns the changes that the library reports on its own.
    #[must_use]
    pub fn changes(&self) -> &Arc<RbdChanges> {
        &self.0.changes
    }

    /// Where there is data in the `len` bytes from `offset` on, which is the start of a stripe, in whole objects; at most `found.capacity()` runs,
    /// and whether that is all. Asks the cluster.
    pub fn data(&self, offset: u64, len: u64, found: &mut Vec<Range<u64>>) -> Result<bool, RbdError> {
        let mut runs = ExtentRuns { found, is_all: true };
        // SAFETY: the image is open; `runs` lives through the call, during which alone the callback is called, by one thread
        // at a time (the library holds its own lock for it); null stands for "since the image was made".
        let code = unsafe {
            let runs = (&raw mut runs).cast::<c_void>();
            (self.0.library.rbd_diff_iterate2)(self.0.handle, ptr::null(), offset, len, 1, 1, on_run, runs)
        };
        let is_all = runs.is_all;
        if is_all {
            RbdError::check(RbdCall::Diff, code)?;
        }
        Ok(is_all)
    }

    /// Returns a name that no other image of its pool ever has.
    pub(super) fn id(&self) -> Result<CString, RbdError> {
        id(self.0.library, self.0.handle)
    }

    fn number(&self, ask: unsafe extern "C" fn(Handle, *mut u64) -> c_int) -> Result<u64, RbdError> {
        let mut number = 0;
        // SAFETY: the callers give functions of the library that take an open image and write one number.
        let code = unsafe { ask(self.0.handle, &raw mut number) };
        RbdError::check(RbdCall::Stat, code).map(|_| number)
    }
}

/// The id of an image that is open.
pub(super) fn id(library: &Library, image: Handle) -> Result<CString, RbdError> {
    let mut id = [0u8; ID_MAX];
    // SAFETY: the callers' image is open; at most `id.len()` bytes are written, a zero among them.
    let code = unsafe { (library.rbd_get_id)(image, id.as_mut_ptr().cast(), id.len()) };
    RbdError::check(RbdCall::Stat, code)?;
    let id = CStr::from_bytes_until_nul(&id).map_err(|_| RbdError::Name)?;
    Ok(id.to_owned())
}

impl Drop for OpenImage {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else {
            return;
        };
        if !self.under_way.wait(UNDER_WAY_MAX) {
            // Their memory stays, and so must what they belong to.
            std::mem::forget(Arc::clone(&self.changes));
            std::mem::forget(pool);
            return;
        }
        pool.cluster.be_brief(END_MAX);
        // SAFETY: the image is open and nobody else has it: requests have ended, and each queue holds a clone. A watch is
        // unregistered before, which waits for its calls under way; then it is closed, once.
        unsafe {
            if let Some(watch) = self.watch {
                (self.library.rbd_update_unwatch)(self.handle, watch);
            }
            (self.library.rbd_close)(self.handle);
        }
        pool.cluster.be_patient();
    }
}

/// Called by the library's threads.
unsafe extern "C" fn on_change(noted: *mut c_void) {
    // SAFETY: the pointer is the one that was given with the watch: an `RbdChanges` that lives as long as it.
    let noted = unsafe { &*noted.cast::<RbdChanges>() };
    noted.note();
}

struct ExtentRuns<'a> {
    found: &'a mut Vec<Range<u64>>,
    is_all: bool,
}

/// Called by the library for each run that differs from zeros.
unsafe extern "C" fn on_run(offset: u64, len: usize, exists: c_int, runs: *mut c_void) -> c_int {
    // SAFETY: the pointer is the one that was given with the call: a `ExtentRuns` that nobody else uses until it ends.
    let runs = unsafe { &mut *runs.cast::<ExtentRuns<'_>>() };
    if exists == 0 {
        return 0;
    }
    let end = offset.saturating_add(len as u64);
    if let Some(last) = runs.found.last_mut()
        && last.end == offset
    {
        last.end = end;
    } else if runs.found.len() == runs.found.capacity() {
        runs.is_all = false;
        return -libc::ECANCELED;
    } else {
        runs.found.push(offset..end);
    }
    0
}
