//! A volume that grows while it is served: NBD tells its size once, so later clients see it.

use std::fs::File;

use cryptline_nbd::NbdError;

use crate::common::raw::Raw;
use crate::common::{BACKENDS, Setup, pattern, stack};

const SIZE: u64 = 4 << 20;

#[test]
fn later_client_sees_what_has_grown_and_others_keep_to_what_they_were_told() {
    for backend in BACKENDS {
        let (over, path) = stack::growing_file(SIZE);
        let fixed = stack::ram(SIZE);
        let served = Setup::new(over).export("fixed", "", fixed);
        let served = served.backend(backend).start();
        let mut first = Raw::connect(&served);
        let file = File::options().write(true).open(path).expect("the file");
        file.set_len(2 * SIZE).expect("more of it");
        let mut second = Raw::connect(&served);
        assert_eq!((first.size, second.size), (SIZE, 2 * SIZE));
        let (across, data) = (SIZE - 4096, pattern(0, 8192, 3));
        assert_eq!(first.write(across, &data), Err(NbdError::NoSpc));
        second.write(across, &data).expect("inside");
        assert!(second.read(across, 8192) == data);
        assert!(first.read(across, 4096) == data[..4096]);
        second.flush().expect("flushed");
        assert_eq!(second.write(2 * SIZE - 4096, &data), Err(NbdError::NoSpc));
    }
}
