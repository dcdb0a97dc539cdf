//! Presence of an image, or a snapshot of one: whether it is still there.

use std::ffi::{CString, c_int};
use std::ptr;

use super::cluster::{CephPool, Cluster, text};
use super::image::{self, RbdImage};
use super::library::{Handle, Library};
use super::{RbdCall, RbdError};

/// From librbd.h: of a snapshot that is about to be removed.
const SNAP_NAMESPACE_TYPE_TRASH: c_int = 2;

/// Image or snapshot that was opened for reading, to be looked for again.
pub struct RbdPresence {
    pool: CephPool,
    name: CString,
    id: CString,
    /// Its number.
    snapshot: Option<u64>,
}

impl RbdPresence {
    /// Of an image that was opened by these names.
    pub fn new(
        image: &RbdImage,
        cluster: &Cluster,
        (pool, namespace): (&str, Option<&str>),
        name: &str,
        snapshot: Option<&str>,
    ) -> Result<Self, RbdError> {
        let id = id(image.0.library, image.0.handle)?;
        let numbered = |name: &str| {
            let (name, mut number) = (text(name)?, 0);
            let library = cluster.library();
            // SAFETY: the image is open; the name ends with a zero and is only read; the number's place lives through the
            // call.
            let code = unsafe { (library.rbd_snap_get_id)(image.0.handle, name.as_ptr(), &raw mut number) };
            RbdError::check(RbdCall::Presence, code)?;
            Ok::<_, RbdError>(number)
        };
        Ok(Self {
            pool: cluster.pool(pool, namespace)?,
            name: text(name)?,
            id,
            snapshot: snapshot.map(numbered).transpose()?,
        })
    }

    /// Tells if it is there, and nobody has begun to remove it. Asks the cluster, however long that takes.
    ///
    /// Ceph first takes the name away: of an image that goes by way of the trash, and of a snapshot by marking it as trash.
    /// Its data goes after that.
    pub fn is_there(&self) -> Result<bool, RbdError> {
        let library = self.pool.cluster.library();
        let mut handle: Handle = ptr::null_mut();
        // SAFETY: the pool is open as long as `self` lives; the name ends with a zero and is only read; null stands for no
        // snapshot; the handle's place lives through the call.
        let opened =
            unsafe { (library.rbd_open_read_only)(self.pool.handle, self.name.as_ptr(), &raw mut handle, ptr::null()) };
        if opened == -libc::ENOENT {
            return Ok(false);
        }
        RbdError::check(RbdCall::Presence, opened)?;
        let found = self.is_in(handle);
        // SAFETY: it was opened above, nobody else has it, and nothing is asked of it any more.
        unsafe { (library.rbd_close)(handle) };
        found
    }

    /// Tells if the image that is open now is the one, and has the snapshot.
    fn is_in(&self, handle: Handle) -> Result<bool, RbdError> {
        let library = self.pool.cluster.library();
        if id(library, handle)? != self.id {
            return Ok(false);
        }
        let Some(snapshot) = self.snapshot else {
            return Ok(true);
        };
        let mut kind: c_int = 0;
        // SAFETY: the image is open, and the place of the answer lives through the call.
        let code = unsafe { (library.rbd_snap_get_namespace_type)(handle, snapshot, &raw mut kind) };
        if code == -libc::ENOENT {
            return Ok(false);
        }
        RbdError::check(RbdCall::Presence, code)?;
        Ok(kind != SNAP_NAMESPACE_TYPE_TRASH)
    }
}

/// The id of an image that is open; empty in the old format, which has none.
fn id(library: &Library, image: Handle) -> Result<CString, RbdError> {
    match image::id(library, image) {
        Err(RbdError::Call { error, .. }) if error.raw_os_error() == Some(libc::EINVAL) => Ok(CString::default()),
        found => found,
    }
}
