//! Requests that are not served.

use cryptline_engine::base::DirectMode;
use cryptline_testkit::suite::devices;
use rustix::io::Errno;

use super::on_each_backend;
use crate::common::{pattern, stack};
use crate::front::client::{Ask, Front, Zeroing, at};

pub fn request_that_leaves_the_disk_or_its_blocks_is_refused(front: Front) {
    let over = || devices::crypt(stack::file(4 << 20, DirectMode::Off), &stack::AES_512);
    on_each_backend(front, over, |server| {
        let mut client = server.connect();
        let size = (4 << 20) - stack::AES_512.start;
        let data = pattern(0, 4096, 1);
        client.write(size - 4096, &data).expect("the last block");
        for (offset, len) in [
            (0, 0),
            (1, 512),
            (0, 511),
            (100, 512),
            (size, 512),
            (size - 512, 1024),
            (u64::MAX - 511, 1024),
            (u64::MAX - 511, 512),
        ] {
            let (range, durable) = (at(offset, len), false);
            for ask in [
                Ask::Read(range),
                Ask::Cache(range),
                Ask::Write { offset, data: vec![9; len as usize], durable },
                Ask::Zero(range, Zeroing::default()),
                Ask::Discard { range, durable },
            ] {
                if matches!(ask, Ask::Cache(_)) && !server.has(&ask) {
                    continue;
                }
                let name = format!("{ask:?}");
                let refused = client.run(ask).expect_err(&name);
                // NBD has its own number for a change past the end.
                assert!([client.number(Errno::INVAL), Errno::NOSPC].contains(&refused), "{name}");
            }
        }
        client.flush().expect("nothing was lost");
        assert!(client.read(size - 4096, 4096) == data, "nothing has changed");
    });
}

pub fn read_only_disk_refuses_every_change(front: Front) {
    let over = || devices::crypt(stack::file_read_only(1 << 20), &stack::AES_4096);
    on_each_backend(front, over, |server| {
        let mut client = server.connect();
        let (range, durable) = (at(0, 4096), false);
        let refusal = client.number(Errno::PERM);
        assert_eq!(client.write(0, &[1; 4096]), Err(refusal));
        assert_eq!(client.run(Ask::Zero(range, Zeroing::default())), Err(refusal));
        assert_eq!(client.run(Ask::Discard { range, durable }), Err(refusal));
        assert_eq!(client.read(0, 4096).len(), 4096);
        client.flush().expect("nothing to flush");
    });
}
