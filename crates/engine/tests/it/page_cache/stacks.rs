//! The stacks that histories run over.

use std::path::Path;

use cryptline_engine::Gate;
use cryptline_engine::base::{DirectMode, Image, PersistentMemory, PmemDevice};
use cryptline_engine::btt::{Btt, BttDevice, NewTable};
use cryptline_engine::dispatch::Dispatch;
use cryptline_engine::layer::Exclusion;
use cryptline_sys::{SharedMemory, Simulation};
use cryptline_testkit::peer;
use cryptline_testkit::suite::Fresh;
use cryptline_testkit::suite::devices::{self, AES_512, INLINE, Layout};

use super::history::Habits;
use super::stack::{Bed, Purpose, Stack};

/// Bytes of the device.
const SIZE: u64 = 16 * 512;
/// The same where a cipher sector has 4096 bytes.
const SIZE_4096: u64 = 5 * 4096;
/// Bytes of the smallest file that can hold a block translation table.
const TABLE: usize = (16 << 20) + 4096;

/// A file through the page cache.
pub fn file(habits: Habits) -> Stack {
    let stack = Stack::new(Bed::new(SIZE, 512), |bed, _| buffered(bed));
    Stack { habits, ..stack }
}

/// A file by O_DIRECT; `None` where there is none in 512-byte units.
pub fn direct_file(habits: Habits) -> Option<Stack> {
    let bed = Bed::new(SIZE, 512);
    let image = Image::open(&bed.path, false).unwrap();
    if let Err(why) = image.into_device(512, DirectMode::On) {
        peer::skip_everywhere(&why.to_string());
        return None;
    }
    let open = |bed: &Bed, _| {
        let image = Image::open(&bed.path, false).unwrap();
        Gate::new(image.into_device(512, DirectMode::On).unwrap())
    };
    let stack = Stack::new(bed, open);
    Some(Stack { habits, ..stack })
}

/// A file in a file system that is memory, whose transfers are made at once.
pub fn file_in_memory(habits: Habits) -> Option<Stack> {
    let folder = Path::new("/dev/shm");
    if !folder.is_dir() {
        peer::skip("there is no /dev/shm");
        return None;
    }
    let bed = Bed::new_in(folder, SIZE, 512);
    let stack = Stack::new(bed, |bed, _| buffered(bed));
    Some(Stack { habits, ..stack })
}

/// The clear disk over an encrypted file, in blocks of `block` bytes.
///
/// A medium that tears a cipher sector which is noise without all of its bytes is no medium for it
/// (`layer/subblock`); XTS does not mind.
pub fn encrypted(layout: &'static Layout, block: u32, exclusion: Exclusion, dispatch: Dispatch) -> Stack {
    let (size, unit) = match layout.cipher.contains("xts") {
        _ if layout.sector_size == 512 => (SIZE, 512),
        true => (SIZE_4096, 512),
        false => (SIZE_4096, 4096),
    };
    let bed = Bed::new(layout.start + size, unit);
    let threaded = dispatch != INLINE;
    let mut stack = Stack::new(bed, move |bed, purpose| {
        let dispatch = match purpose {
            Purpose::History => dispatch,
            Purpose::Check => INLINE,
        };
        let lower = Fresh::new(buffered(bed));
        devices::in_blocks(lower, layout, block, exclusion, dispatch).gate
    });
    stack.threaded = threaded;
    stack
}

/// The clear disk in which holes read as zeros.
pub fn sparse(layout: &'static Layout) -> Stack {
    let size = match layout.sector_size {
        512 => SIZE,
        _ => SIZE_4096,
    };
    let unit = usize::try_from(layout.sector_size).unwrap();
    let bed = Bed::new(layout.start + size, unit);
    Stack::new(bed, move |bed, _| devices::sparse(Fresh::new(buffered(bed)), layout).gate)
}

/// Ranges of two files in turns, in the clear, or each file under a key of its own.
pub fn linear(layouts: Option<[&'static Layout; 2]>, habits: Habits) -> Stack {
    let start = layouts.map_or(0, |layouts| layouts.map(|layout| layout.start).into_iter().sum());
    let bed = Bed::new(start + SIZE, 512);
    let second = Bed::on(bed.machine, start + SIZE, 512);
    let path = second.path.clone();
    let stack = Stack::over_two(bed, second, move |bed, _| {
        let lower = |path, which: usize| {
            let file = Fresh::new(buffered_at(path));
            match layouts {
                None => file,
                Some(layouts) => devices::crypt(file, layouts[which]),
            }
        };
        devices::in_turns(vec![lower(&bed.path, 0), lower(&path, 1)], 3 * 512).gate
    });
    Stack { habits, ..stack }
}

/// A file in two ranges under two keys.
pub fn two_keys(dispatch: Dispatch) -> Stack {
    let bed = Bed::new(AES_512.start + SIZE, 512);
    let mut stack = Stack::new(bed, move |bed, purpose| {
        let dispatch = match purpose {
            Purpose::History => dispatch,
            Purpose::Check => INLINE,
        };
        devices::two_keys(Fresh::new(buffered(bed)), 5 * 512, dispatch).gate
    });
    stack.threaded = dispatch != INLINE;
    stack
}

/// A mapped file.
pub fn pmem() -> Stack {
    Stack::new(Bed::mapped(SIZE_4096), |bed, _| Gate::new(PmemDevice::new(memory(bed), false)))
}

/// A block translation table in a mapped file, with sectors of `sector_size` bytes.
pub fn btt(sector_size: u32) -> Stack {
    let medium = SharedMemory::new(TABLE).unwrap();
    let new = NewTable { sector_size, uuid: [1; 16], is_zero: true };
    let sectors = new.write(&medium, |_| ()).unwrap();
    assert!(sectors > 0, "no table fits");
    let mut content = vec![0; TABLE];
    medium.read(0, &mut content);
    let size = usize::try_from(SIZE_4096).unwrap();
    Stack::over(Bed::mapped(TABLE as u64), content, size, |bed, _| {
        Gate::new(BttDevice::new(Btt::open(memory(bed), false).unwrap(), false))
    })
}

fn memory(bed: &Bed) -> PersistentMemory {
    let memory = PersistentMemory::open(&bed.path, false).unwrap();
    memory.simulate(Simulation::new(bed.machine))
}

fn buffered(bed: &Bed) -> Gate {
    buffered_at(&bed.path)
}

fn buffered_at(path: &Path) -> Gate {
    let image = Image::open(path, false).unwrap();
    Gate::new(image.into_device(512, DirectMode::Off).unwrap())
}
