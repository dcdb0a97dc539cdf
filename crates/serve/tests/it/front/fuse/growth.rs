//! A disk that grows while it is mounted.

use std::fs::File;

use super::*;
use crate::front::client::at;

const SIZE: u64 = 4 << 20;
const GETATTR: u32 = 3;

#[test]
fn disk_that_has_grown_is_used_to_its_new_end_once_its_size_was_asked_for() {
    let (over, path) = stack::growing_file(SIZE);
    let (mut kernel, session) = Kernel::of(&over.gate, fuse::sockets(), PIECE_SMALL);
    kernel.size = 2 * SIZE;
    let data = vec![5; 8192];
    let write = |kernel: &mut Kernel| {
        let (data, durable) = (data.clone(), false);
        let offset = SIZE;
        (kernel as &mut dyn Client).run(Ask::Write { offset, data, durable })
    };
    assert_eq!(write(&mut kernel), Err(Errno::NOSPC));
    let file = File::options().write(true).open(path).expect("the file");
    file.set_len(2 * SIZE).expect("more of it");
    assert_eq!(answer_to(&mut kernel, fuse::call(GETATTR, 2, &[0, 0], &[])), 0);
    let long = |at: usize| u64::from_ne_bytes(kernel.message[at..at + 8].try_into().unwrap());
    assert_eq!(long(40), 2 * SIZE);
    assert_eq!(long(16), 1, "seconds for which the kernel does not ask again");
    assert!(write(&mut kernel).is_ok());
    let client: &mut dyn Client = &mut kernel;
    assert!(client.read(SIZE, 8192) == data);
    assert_eq!(client.run(Ask::Read(at(2 * SIZE, 4096))), Err(Errno::INVAL), "an empty answer");
    drop(kernel);
    session.finish().expect("flushed");
}
