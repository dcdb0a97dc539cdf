//! The stacks that histories run over.

use cryptline_engine::Gate;
use cryptline_engine::base::{DirectMode, Image};

use crate::world::{Bed, Stack};

/// Bytes of the device, where nothing else is said.
const SIZE: usize = 16 * 512;

/// A file alone.
pub fn file(direct: bool) -> Stack {
    let bed = Bed::new(SIZE, 512);
    Stack::new(bed, move |bed| base(bed, 512, direct))
}

fn base(bed: &Bed, granularity: u32, direct: bool) -> Gate {
    let mode = match direct {
        true => DirectMode::On,
        false => DirectMode::Off,
    };
    let image = Image::open(&bed.path, false).unwrap();
    Gate::new(image.into_device(granularity, mode).unwrap())
}
