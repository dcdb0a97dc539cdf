//! A connection to a cluster.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::library::{Handle, Library};
use super::{RbdCall, RbdError, threads};

/// How long a cluster may take.
#[derive(Clone, Copy, Debug)]
pub struct RbdLimits {
    /// To answer while an image is opened.
    pub open: Duration,
}

/// A cluster that can be reached. Cheap to clone; the last one disconnects.
#[derive(Clone)]
pub struct Cluster(Arc<ClusterInner>);

struct ClusterInner {
    library: &'static Library,
    handle: Handle,
    /// `rados_osd_op_timeout` as the configuration has it.
    patience: CString,
}

// SAFETY: librados documents its cluster handle as usable from any thread at once; it is destroyed once, by the owner of
// the last reference.
unsafe impl Send for ClusterInner {}
// SAFETY: as above.
unsafe impl Sync for ClusterInner {}

/// Settings of every connection, whatever the configuration says.
const SETTINGS: [(&CStr, &CStr); 7] = [
    // A flush then says that the cluster has the data, and nothing is cached twice.
    (c"rbd_cache", c"false"),
    (c"rbd_persistent_cache_mode", c"disabled"),
    // Data to be written belongs to us until it is written: nobody changes it on the way.
    (c"rbd_disable_zero_copy_writes", c"false"),
    // What goes wrong we say ourselves, in one line.
    (c"log_to_stderr", c"false"),
    (c"err_to_stderr", c"false"),
    // Files and sockets that its threads may not make (`on_confined_thread`).
    (c"log_file", c""),
    (c"admin_socket", c""),
];
/// Threads of a connection with an open image (19 of Ceph 16), and a few more; and those among them that the configuration
/// can make more, each with what it has otherwise.
const USUAL_THREADS: usize = 24;
const SET_THREADS: [(&CStr, usize); 3] =
    [(c"ms_async_op_threads", 3), (c"librados_thread_count", 2), (c"rbd_op_threads", 1)];
const OPERATION_TIMEOUT: &CStr = c"rados_osd_op_timeout";

impl Cluster {
    /// Connects as `client.ID` by the configuration at `conf`, or by that of the system (`CEPH_CONF`, `CEPH_ARGS`).
    ///
    /// Until [`be_patient`](Self::be_patient), what is asked of it fails when the time is over.
    pub fn connect(conf: Option<&Path>, id: Option<&str>, limits: RbdLimits) -> Result<Self, RbdError> {
        use std::os::unix::ffi::OsStrExt;
        let library = Library::get()?;
        room_for(USUAL_THREADS)?;
        let name = text(&format!("client.{}", id.unwrap_or("admin")))?;
        let conf = conf.map(|path| CString::new(path.as_os_str().as_bytes()));
        let conf = conf.transpose().map_err(|_| RbdError::Name)?;
        let mut handle: Handle = ptr::null_mut();
        // SAFETY: the handle's place lives through the call, both texts end with a zero and are copied, and no flags
        // are defined.
        let made = unsafe { (library.rados_create2)(&raw mut handle, c"ceph".as_ptr(), name.as_ptr(), 0) };
        RbdError::check(RbdCall::Create, made)?;
        let mut inner = ClusterInner { library, handle, patience: CString::default() };
        inner.configure(conf.as_deref())?;
        inner.have_threads()?;
        inner.patience = inner.setting(OPERATION_TIMEOUT).unwrap_or_else(|| c"0".to_owned());
        for option in [c"client_mount_timeout", c"rados_mon_op_timeout", OPERATION_TIMEOUT] {
            inner.limit(option, limits.open)?;
        }
        // SAFETY: the handle is a cluster that was configured and is not connected yet.
        let connected = unsafe { (library.rados_connect)(inner.handle) };
        RbdError::check(RbdCall::Connect, connected)?;
        Ok(Self(Arc::new(inner)))
    }

    /// From now on an operation may take as long as the configuration allows, which is for ever unless it says
    /// otherwise: a storage daemon that comes back finishes what was asked of it.
    pub fn be_patient(&self) {
        // An older library keeps the limit, and then fails what takes longer.
        let _ = self.0.set(OPERATION_TIMEOUT, &self.0.patience);
    }

    /// For what is asked before the end: it must not take for ever, nor longer than the configuration says.
    pub(super) fn be_brief(&self, limit: Duration) {
        let _ = self.0.limit(OPERATION_TIMEOUT, limit);
    }

    pub(super) fn library(&self) -> &'static Library {
        self.0.library
    }

    /// A pool of it, in one of its namespaces.
    pub(super) fn pool(&self, pool: &str, namespace: Option<&str>) -> Result<CephPool, RbdError> {
        let pool = text(pool)?;
        let namespace = namespace.map(text).transpose()?;
        let mut handle: Handle = ptr::null_mut();
        let library = self.0.library;
        // SAFETY: the cluster is connected as long as `self` lives; the name ends with a zero and is only read; the
        // place of the handle lives through the call.
        let made = unsafe { (library.rados_ioctx_create)(self.0.handle, pool.as_ptr(), &raw mut handle) };
        RbdError::check(RbdCall::Pool, made)?;
        if let Some(namespace) = namespace {
            // SAFETY: the handle was just made, nobody else has it; the name is copied.
            unsafe { (library.rados_ioctx_set_namespace)(handle, namespace.as_ptr()) };
        }
        Ok(CephPool { handle, cluster: self.clone() })
    }
}

impl ClusterInner {
    fn configure(&self, conf: Option<&CStr>) -> Result<(), RbdError> {
        let path = conf.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the handle is not connected yet; the path is null, for the places where the system has it, or a text
        // that ends with a zero.
        let read = unsafe { (self.library.rados_conf_read_file)(self.handle, path) };
        // What no file says can be in the environment.
        if conf.is_some() || read != -libc::ENOENT {
            RbdError::check(RbdCall::Configure, read)?;
        }
        // SAFETY: as above; null stands for `CEPH_ARGS`.
        let read = unsafe { (self.library.rados_conf_parse_env)(self.handle, ptr::null()) };
        RbdError::check(RbdCall::Configure, read)?;
        for (option, value) in SETTINGS {
            // One that this version does not know does nothing in it.
            let _ = self.set(option, value);
        }
        Ok(())
    }

    /// Looks for room for what the configuration asks for beyond the usual.
    fn have_threads(&self) -> Result<(), RbdError> {
        let more = |(option, usual): (&CStr, usize)| {
            let set = self.setting(option).and_then(|value| value.to_str().ok()?.parse().ok());
            set.map_or(0, |set: usize| set.saturating_sub(usual))
        };
        let more: usize = SET_THREADS.into_iter().map(more).sum();
        if more > 0 { room_for(USUAL_THREADS + more) } else { Ok(()) }
    }

    fn set(&self, option: &CStr, value: &CStr) -> Result<(), RbdError> {
        // SAFETY: the handle lives as long as `self`, and both texts end with a zero and are copied.
        let set = unsafe { (self.library.rados_conf_set)(self.handle, option.as_ptr(), value.as_ptr()) };
        RbdError::check(RbdCall::Set, set).map(|_| ())
    }

    /// Bounds a time that is 0 where it is not bounded.
    fn limit(&self, option: &CStr, limit: Duration) -> Result<(), RbdError> {
        let limit = limit.as_secs().max(1);
        let configured = self.setting(option);
        let configured = configured.and_then(|value| value.to_str().ok()?.parse::<f64>().ok());
        let is_shorter =
            |seconds: f64| seconds > 0.0 && Duration::try_from_secs_f64(seconds).is_ok_and(|it| it.as_secs() < limit);
        if configured.is_some_and(is_shorter) {
            return Ok(());
        }
        self.set(option, &text(&limit.to_string())?)
    }

    fn setting(&self, option: &CStr) -> Option<CString> {
        let mut value = [0u8; 64];
        // SAFETY: the handle lives as long as `self`; at most `value.len()` bytes are written, a zero among them.
        let got = unsafe {
            let place = value.as_mut_ptr().cast::<c_char>();
            (self.library.rados_conf_get)(self.handle, option.as_ptr(), place, value.len())
        };
        let value = CStr::from_bytes_until_nul(&value).ok()?;
        (got >= 0).then(|| value.to_owned())
    }
}

impl Drop for ClusterInner {
    fn drop(&mut self) {
        // SAFETY: made by `rados_create2`, shut down once; pools and images hold a clone of the cluster, so none is
        // left.
        unsafe { (self.library.rados_shutdown)(self.handle) };
    }
}

/// A pool, for as long as an image of it is open.
pub(super) struct CephPool {
    pub handle: Handle,
    pub cluster: Cluster,
}

// SAFETY: librados documents an I/O context as usable from any thread; it is changed only while its maker alone has it.
unsafe impl Send for CephPool {}
// SAFETY: as above.
unsafe impl Sync for CephPool {}

impl Drop for CephPool {
    fn drop(&mut self) {
        // SAFETY: made by `rados_ioctx_create`, destroyed once, while the cluster is connected.
        unsafe { (self.cluster.library().rados_ioctx_destroy)(self.handle) };
    }
}

/// Refuses what the libraries would end the program for.
fn room_for(needed: usize) -> Result<(), RbdError> {
    threads::have_room(needed).map_err(|(started, error)| RbdError::Threads { needed, started, error })
}

pub(super) fn text(text: &str) -> Result<CString, RbdError> {
    CString::new(text).map_err(|_| RbdError::Name)
}
