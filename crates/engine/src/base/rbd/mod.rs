//! `rbd`: an image of a Ceph cluster, by Ceph's own library.
//!
//! ```text
//! request ─► table of the queue ─► librbd ─► storage daemons
//!                 ▲                   │ its own threads
//!                 └── list ◄── callback ─► waker ─► poll
//! ```
//!
//! There is one handle of the image and any number of queues into it: two handles of one process would take the
//! exclusive lock from each other. A callback only notes the result and wakes the queue's thread, which decrypts: the
//! library's threads are everybody's.
//!
//! An open image has one writer (`lock`). The lock is held until it is closed, other clients are refused, and a client that was
//! shut out by the cluster loses it: its writes fail then, and the device is latched.
//!
//! Nothing is cached here (`rbd_cache` is off, and an image that has it on by its own settings is not opened for writing), so what the library has acknowledged is on all daemons that it
//! belongs on. What is written is not copied by the library, since nobody can change a request's buffer on its way.
//!
//! The library shortens a write across the end of an image that was made smaller, and says that all of it is written. So
//! each flush asks for the size before it says yes, and a smaller one latches the device (`size`).
//!
//! An image that is only read can be removed meanwhile, which the library does not say; `presence` finds out.
//!
//! A queue can go with requests under way: their memory belongs to them until the library has ended them.

mod allocation;
mod error;
mod lock;
mod name;
mod presence;
mod queue;
mod size;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cryptline_sys::{Cluster, RbdCall, RbdError, RbdImage, RbdLimits, RbdPresence, Ring, on_confined_thread};

use crate::{Connections, Device, Extent, Fault, Geometry, OpenError, Queue, Traits};
use allocation::{Allocation, Answers};
pub use name::RbdName;
use presence::Presence;
use queue::ImageQueue;
use size::WatchedImage;

/// How long a cluster may take to answer while an image is opened.
const PATIENCE: Duration = Duration::from_secs(30);

/// An image of a Ceph cluster as a device.
pub struct RbdDevice(Arc<RbdShared>);

/// State common to all queues.
struct RbdShared {
    watched: Arc<WatchedImage>,
    geometry: Geometry,
    /// Bytes of one round over the objects that a stripe lies on.
    stripe_period: u64,
    allocation: Allocation,
    /// Of what is only read.
    presence: Option<Arc<Presence>>,
    /// The client that the lock was taken from.
    gone_owner: Option<String>,
}

impl RbdDevice {
    /// Opens an image. For writing, it becomes ours alone.
    ///
    /// Errors: Ceph's libraries are not there, the cluster does not answer in time, there is no such image, or
    /// another client writes to it.
    pub fn open(name: &RbdName, read_only: bool) -> Result<Self, OpenError> {
        Self::open_within(name, read_only, PATIENCE)
    }

    /// The same with a time limit for each step.
    pub fn open_within(name: &RbdName, read_only: bool, patience: Duration) -> Result<Self, OpenError> {
        // The library's threads take no signals, so they cannot be confined later.
        let opened = on_confined_thread(|| Self::open_here(name, read_only, None, patience));
        opened.map_err(OpenError::Thread)?
    }

    /// Opens an image with a LUKS2 header for writing, as the library's own encryption gives it: what ours is compared
    /// with.
    ///
    /// Errors: as [`open`](Self::open), or the library cannot open the header.
    pub fn open_decrypted(name: &RbdName, passphrase: &[u8]) -> Result<Self, OpenError> {
        Self::open_here(name, false, Some(passphrase), PATIENCE)
    }

    fn open_here(
        name: &RbdName,
        read_only: bool,
        passphrase: Option<&[u8]>,
        patience: Duration,
    ) -> Result<Self, OpenError> {
        let failed = |error: RbdError| error::open_error(name, error);
        let limits = RbdLimits { open: patience };
        let cluster = Cluster::connect(name.conf.as_deref(), name.id.as_deref(), limits);
        let cluster = cluster.map_err(failed)?;
        let read_only = read_only || name.snapshot.is_some();
        let mut image = open_image(&cluster, name, read_only).map_err(failed)?;
        let mut gone_owner = None;
        if !read_only {
            if !image.has_exclusive_lock().map_err(failed)? {
                return Err(error::no_lock(name));
            }
            if let Some(setting) = image.cache_setting().map_err(failed)? {
                return Err(error::is_cached(name, setting));
            }
            gone_owner = lock::take(&image, name)?;
            image.watch().map_err(failed)?;
        }
        if let Some(passphrase) = passphrase {
            image.decrypt_luks2(passphrase).map_err(failed)?;
        }
        let presence = if read_only { Some(presence(&image, &cluster, name).map_err(failed)?) } else { None };
        let size = image.size().map_err(failed)?;
        let (object, stripe_period) = image.object_sizes().map_err(failed)?;
        let answers = answers(&image).map_err(failed)?;
        let allocation = Allocation::new(object, stripe_period, answers);
        cluster.be_patient();
        let geometry = geometry(size, read_only);
        if geometry.size == 0 || i64::try_from(size).is_err() {
            let why = format!("the image has {size} bytes, which cannot hold a disk");
            return Err(OpenError::remote(name, why));
        }
        let shared = Arc::new(RbdShared {
            watched: Arc::new(WatchedImage::new(image, geometry.size)),
            geometry,
            stripe_period,
            allocation,
            presence,
            gone_owner,
        });
        match &shared.presence {
            Some(presence) => presence::watch(presence),
            None => size::watch(&shared.watched),
        }
        .map_err(OpenError::Thread)?;
        Ok(Self(shared))
    }

    /// The address of a client that has left its lock behind, and had to be waited for.
    #[must_use]
    pub fn gone_owner(&self) -> Option<&str> {
        self.0.gone_owner.as_deref()
    }

    /// Bytes of one round over the objects that a stripe lies on. Where encryption begins at a multiple of it, the
    /// library's own can open the image.
    #[must_use]
    pub fn stripe_period(&self) -> u64 {
        self.0.stripe_period
    }
}

fn presence(image: &RbdImage, cluster: &Cluster, name: &RbdName) -> Result<Arc<Presence>, RbdError> {
    let (pool, snapshot) = ((&*name.pool, name.namespace.as_deref()), name.snapshot.as_deref());
    let of = RbdPresence::new(image, cluster, pool, &name.image, snapshot)?;
    Ok(Arc::new(Presence::new(of, image.inherits()?)))
}

fn answers(image: &RbdImage) -> Result<Answers, RbdError> {
    Ok(if !image.knows_all_data()? {
        Answers::Incomplete
    } else if image.knows_objects()? {
        Answers::Mapped
    } else {
        Answers::Asked
    })
}

/// With a name that tells which of the two is not there.
fn open_image(cluster: &Cluster, name: &RbdName, read_only: bool) -> Result<RbdImage, RbdError> {
    let open = |snapshot| {
        let namespace = name.namespace.as_deref();
        RbdImage::open(cluster, &name.pool, namespace, &name.image, snapshot, read_only)
    };
    let snapshot = name.snapshot.as_deref();
    match open(snapshot) {
        Err(RbdError::Call { what: RbdCall::Open, error }) if snapshot.is_some() && open(None).is_ok() => {
            Err(RbdError::Call { what: RbdCall::OpenSnapshot, error })
        }
        other => other,
    }
}

impl Device for RbdDevice {
    /// Each message takes the library and a daemon about as long as the cipher takes for hundreds of KiB. The library's
    /// connections are lost and made again while it runs.
    fn traits(&self) -> Traits {
        let connects = Connections { tcp: true, unix: false, by_library: true };
        Traits { sends_messages: true, connects, ..Traits::base(self.0.geometry) }
    }

    /// A thread of its own asks the library, which can take as long as the cluster likes.
    fn grow(&self) -> u64 {
        self.0.watched.size.load(Ordering::Acquire)
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        let waker = ring.waker().map_err(OpenError::Ring)?;
        Ok(Box::new(ImageQueue::new(&self.0, ring.depth(), waker)))
    }

    /// Asks the cluster and waits for it. What it does not tell is data.
    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        Ok(self.0.extent(offset, len))
    }
}

impl RbdShared {
    /// Tells if an image that is only read was removed.
    fn is_gone(&self) -> bool {
        (self.presence.as_ref()).is_some_and(|presence| presence.is_gone())
    }
}

fn geometry(size: u64, read_only: bool) -> Geometry {
    Geometry {
        preferred_block: 4096,
        read_only,
        discard: !read_only,
        write_zeroes: !read_only,
        ..Geometry::plain(whole_blocks(size), 512)
    }
}

fn whole_blocks(size: u64) -> u64 {
    size - size % 512
}
