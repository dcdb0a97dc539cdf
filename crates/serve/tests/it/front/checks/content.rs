//! Bytes: what is read is what was written.

use cryptline_testkit::model::ModelDisk;
use cryptline_testkit::suite::devices;
use rustix::io::Errno;

use super::{JOBS_MAX, on_each_backend};
use crate::common::{pattern, stack};
use crate::front::client::{Ask, Client, Front, Zeroing, at};

/// Around the sizes of a block, of a small buffer, of a chunk and of several.
const SIZES: [u32; 12] = [512, 1024, 4096, 4608, 15_872, 16_384, 16_896, 261_632, 262_144, 262_656, 524_288, 1_311_232];
const OFFSETS: [u64; 6] = [0, 512, 3584, 4096, 261_632, 262_144];

pub fn what_is_written_is_read_back_at_every_alignment_and_size(front: Front) {
    let size = 2 << 20;
    let over = || stack::crypt_over_ram(3 << 20);
    on_each_backend(front, over, |server| {
        let mut client = server.connect();
        let mut model = ModelDisk::new(size);
        let whole = u32::try_from(size).expect("small");
        let mut seed = 0;
        for (offset, len) in OFFSETS.iter().flat_map(|&at| SIZES.map(|len| (at, len))) {
            seed += 1;
            let data = pattern(offset, len as usize, seed);
            let durable = seed % 5 == 0;
            client.write_as(offset, &data, durable).expect("written");
            model.write(offset, &data);
            model.check(offset, &client.read(offset, len)).expect("it");
        }
        model.check(0, &client.read(0, whole)).expect("neighbours");
    });
}

pub fn largest_requests_pass_with_small_ones_between_them(front: Front) {
    let over = || stack::crypt_over_ram(40 << 20);
    on_each_backend(front, over, |server| {
        let mut client = server.connect();
        let data = pattern(0, 32 << 20, 7);
        client.write(4096, &data).expect("written");
        let mut asks = Vec::new();
        for index in 0..6 {
            asks.push(Ask::Read(at(4096, 32 << 20)));
            asks.push(Ask::Read(at(4096 + index * 512, 4096)));
        }
        let marks = client.send(&asks);
        let mut answers = client.answers(12);
        for (index, mark) in marks.into_iter().enumerate() {
            let read = answers.remove(&mark).expect("one each").expect("read");
            if index % 2 == 0 {
                assert!(read == data);
            } else {
                assert!(read == data[index / 2 * 512..][..4096]);
            }
        }
    });
}

pub fn more_requests_than_are_served_at_a_time_are_all_answered(front: Front) {
    let slow = || devices::delayed(stack::ram(4 << 20), devices::QUICK);
    let over = || devices::crypt(slow(), &stack::AES_512);
    on_each_backend(front, over, |server| {
        let mut client = server.connect();
        let count = 3 * JOBS_MAX as u64 / 2;
        let data = |index: u64| pattern(index * 8192, 8192, 3);
        let writes: Vec<_> =
            (0..count).map(|index| Ask::Write { offset: index * 8192, data: data(index), durable: false }).collect();
        client.send(&writes);
        let answers = client.answers(writes.len());
        assert!(answers.values().all(Result::is_ok));
        let reads: Vec<_> = (0..count).map(|index| Ask::Read(at(index * 8192, 8192))).collect();
        let marks = client.send(&reads);
        let mut answers = client.answers(reads.len());
        for (index, mark) in (0..).zip(marks) {
            assert!(answers.remove(&mark).expect("one each") == Ok(data(index)));
        }
    });
}

pub fn zeroed_range_reads_as_zeros_with_and_without_a_hole(front: Front) {
    for over in [stack::crypt_over_ram, |size| devices::crypt(stack::ram(size), &stack::NULL)] {
        let over = || over(4 << 20);
        on_each_backend(front, over, |server| {
            let mut client = server.connect();
            for (may_unmap, durable) in [(false, false), (true, false), (false, true)] {
                let before = pattern(0, 1 << 20, 2);
                client.write(0, &before).expect("written");
                let how = Zeroing { may_unmap, durable, fast: false };
                assert_eq!(client.run(Ask::Zero(at(512, 700 << 10), how)), Ok(vec![]));
                let read = client.read(0, 1 << 20);
                let end = 512 + (700 << 10);
                assert!(read[512..end].iter().all(|byte| *byte == 0));
                assert!(read[..512] == before[..512] && read[end..] == before[end..]);
            }
            // Beside others, a discarded range is nobody's.
            let before = client.read(0, 1 << 20);
            let range = at(8192, 300 << 10);
            let durable = false;
            client.run(Ask::Discard { range, durable }).expect("advice");
            let read = client.read(0, 1 << 20);
            let end = 8192 + (300 << 10);
            assert!(read[..8192] == before[..8192] && read[end..] == before[end..]);
        });
    }
}

pub fn zeroing_is_fast_only_where_zeros_need_not_be_written(front: Front) {
    let fast = Zeroing { fast: true, ..Zeroing::default() };
    let zero = |client: &mut dyn Client| client.run(Ask::Zero(at(4096, 8192), fast));
    let over = || devices::crypt(stack::ram(4 << 20), &stack::NULL);
    on_each_backend(front, over, |server| {
        let mut client = server.connect();
        assert!(client.knows_fast_zeroing(), "not a check of this front");
        client.write(0, &pattern(0, 1 << 20, 1)).expect("written");
        assert_eq!(zero(&mut *client), Ok(vec![]));
        assert!(client.read(4096, 8192) == [0; 8192]);
    });
    let over = || stack::crypt_over_ram(4 << 20);
    on_each_backend(front, over, |server| {
        let mut client = server.connect();
        assert!(client.knows_fast_zeroing(), "not a check of this front");
        let data = pattern(0, 1 << 20, 1);
        client.write(0, &data).expect("written");
        assert_eq!(zero(&mut *client), Err(Errno::OPNOTSUPP));
        assert!(client.read(0, 1 << 20) == data);
    });
}
