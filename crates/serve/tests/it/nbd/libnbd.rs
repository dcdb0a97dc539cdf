//! libnbd through its Python binding: a client that checks the protocol itself.

use std::time::Duration;

use cryptline_engine::base::DirectMode;
use cryptline_testkit::peer::{self, Peer};
use cryptline_testkit::suite::devices;

use crate::common::{BACKENDS, Served, Setup, stack};

/// Connects `h` to the URI and defines what the scripts below share. Strict mode off: the server
/// must see the bad requests.
const PRELUDE: &str = r#"
import errno, os, random, sys
import nbd
uri = sys.argv[1]
random.seed(7)
def connect(structured=True, strict=False):
    h = nbd.NBD()
    if not strict:
        h.set_strict_mode(0)
    h.set_request_structured_replies(structured)
    h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    h.connect_uri(uri)
    return h
def refused(code, call, *args, **named):
    try:
        call(*args, **named)
    except nbd.Error as error:
        assert error.errnum == code, (error, error.errnum, code)
        return
    raise AssertionError(("not refused", call, args, named))
def drain(h, cookies):
    left = set(cookies)
    while left:
        if h.aio_in_flight() > 0:
            h.poll(-1)
        left = {cookie for cookie in left if not h.aio_command_completed(cookie)}
"#;

fn python(peer: &Peer, served: &Served, script: &str) {
    let script = format!("{PRELUDE}\n{script}");
    let mut command = peer.command();
    command.args(["-c", &script, &served.uri()]);
    peer::run(&mut command, Duration::from_secs(120)).success();
}

/// Runs `script` over both backends.
fn over_crypt(size: u64, script: &str) {
    let Some(peer) = peer::require("python3-libnbd") else { return };
    for backend in BACKENDS {
        for over in [stack::crypt_over_ram(size), stack::crypt_over_file(size)] {
            let served = Setup::new(over).backend(backend).start();
            python(&peer, &served, script);
        }
    }
}

#[test]
fn two_hundred_pipelined_requests_come_back_right() {
    over_crypt(
        16 << 20,
        r"
for structured in (True, False):
    h = connect(structured)
    blocks = [os.urandom(4096 * random.choice([1, 1, 1, 2, 16, 40])) for _ in range(200)]
    offset, at = 0, []
    for block in blocks:
        at.append(offset)
        offset += len(block)
        if offset > 8 << 20:
            break
    blocks = blocks[:len(at)]
    drain(h, [h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b)), o) for b, o in zip(blocks, at)])
    buffers = [nbd.Buffer(len(b)) for b in blocks]
    drain(h, [h.aio_pread(b, o) for b, o in zip(buffers, at)])
    for have, want in zip(buffers, blocks):
        assert have.to_bytearray() == want
    h.shutdown()
",
    );
}

#[test]
fn requests_of_32_mebibytes_pass_with_and_without_structured_replies() {
    over_crypt(
        70 << 20,
        r"
for structured in (True, False):
    h = connect(structured)
    data = os.urandom(32 << 20)
    h.pwrite(data, 4096, nbd.CMD_FLAG_FUA)
    assert h.pread(32 << 20, 4096) == data
    a, b = nbd.Buffer(32 << 20), nbd.Buffer(16 << 20)
    small = [nbd.Buffer(4096) for _ in range(60)]
    drain(h, [h.aio_pread(a, 4096), h.aio_pread(b, 4096)] + [h.aio_pread(s, 8192) for s in small])
    assert a.to_bytearray() == data and b.to_bytearray() == data[:16 << 20]
    assert all(s.to_bytearray() == data[4096:8192] for s in small)
    h.shutdown()
",
    );
}

#[test]
fn requests_over_the_limits_are_refused_and_the_connection_lives() {
    over_crypt(
        40 << 20,
        r"
for structured in (True, False):
    h = connect(structured)
    size = h.get_size()
    small = h.get_block_size(nbd.SIZE_MINIMUM)
    assert small in (512, 4096), small
    assert h.get_block_size(nbd.SIZE_MAXIMUM) == 32 << 20
    block = bytes(4096)
    too_long = errno.EOVERFLOW if structured else errno.EINVAL
    refused(errno.EINVAL, h.pread, 100, 0)
    refused(errno.EINVAL, h.pread, 4096, 100)
    refused(errno.EINVAL, h.pread, 4096, size)
    refused(errno.EINVAL, h.pread, 8192, size - 4096)
    refused(errno.EINVAL, h.pread, 0, 0)
    refused(too_long, h.pread, (32 << 20) + 4096, 0)
    refused(errno.EINVAL, h.pwrite, bytes(100), 0)
    refused(errno.EINVAL, h.pwrite, block, 1)
    refused(errno.EINVAL, h.pwrite, bytes((32 << 20) + 4096), 0)
    refused(errno.ENOSPC, h.pwrite, block, size)
    refused(errno.EINVAL, h.pwrite, b'', 0)
    refused(errno.ENOSPC, h.zero, 8192, size - 4096)
    refused(errno.EINVAL, h.zero, 0, 0)
    refused(errno.EINVAL, h.trim, 8192, size - 4096)
    refused(errno.EINVAL, h.cache, 8192, size - 4096)
    # Flags that do not belong there.
    refused(errno.EINVAL, h.pwrite, block, 0, nbd.CMD_FLAG_DF)
    refused(errno.EINVAL, h.trim, 4096, 0, nbd.CMD_FLAG_FAST_ZERO)
    h.pwrite(block, size - 4096, nbd.CMD_FLAG_FUA)
    assert h.pread(4096, size - 4096) == block
    h.shutdown()
",
    );
}

#[test]
fn every_command_does_what_it_says() {
    over_crypt(
        8 << 20,
        r"
h = connect(strict=True)
assert h.can_multi_conn() and h.can_flush() and h.can_fua() and h.can_trim()
assert h.can_zero() and h.can_fast_zero() and h.can_cache() and h.can_df()
assert not h.is_read_only() and not h.is_rotational()
data = os.urandom(1 << 20)
h.pwrite(data, 0)
h.flush()
h.cache(1 << 20, 0)
whole = []
h.pread_structured(256 << 10, 4096, lambda b, o, s, e: whole.append((o, bytes(b))), nbd.CMD_FLAG_DF)
assert whole == [(4096, data[4096:4096 + (256 << 10)])]
refused(errno.EOVERFLOW, h.pread_structured, 512 << 10, 0, lambda *a: 0, nbd.CMD_FLAG_DF)
refused(errno.ENOTSUP, h.zero, 4096, 0, nbd.CMD_FLAG_FAST_ZERO)
assert h.pread(4096, 0) == data[:4096]
h.zero(300 << 10, 4096, nbd.CMD_FLAG_FUA)
assert h.pread(300 << 10, 4096) == bytes(300 << 10)
h.zero(8192, 512 << 10, nbd.CMD_FLAG_NO_HOLE)
assert h.pread(8192, 512 << 10) == bytes(8192)
assert h.pread(4096, 0) == data[:4096]
assert h.pread(4096, (512 << 10) + 8192) == data[(512 << 10) + 8192:][:4096]
h.trim(64 << 10, 640 << 10, nbd.CMD_FLAG_FUA)
assert h.pread(4096, 768 << 10) == data[768 << 10:][:4096]
extents = []
h.block_status(1 << 20, 0, lambda c, o, e, err: extents.extend(e))
assert sum(extents[::2]) == 1 << 20, extents
assert all(flags & nbd.STATE_ZERO == 0 for flags in extents[1::2]), extents
one = []
h.block_status(1 << 20, 0, lambda c, o, e, err: one.extend(e), nbd.CMD_FLAG_REQ_ONE)
assert len(one) == 2 and one[0] <= 1 << 20, one
h.shutdown()
",
    );
}

#[test]
fn block_status_is_refused_where_it_was_not_negotiated() {
    over_crypt(
        1 << 20,
        r"
h = nbd.NBD()
h.set_strict_mode(0)
h.connect_uri(uri)
refused(errno.EINVAL, h.block_status, 4096, 0, lambda *a: 0)
h.flush()
h.shutdown()
",
    );
}

#[test]
fn zeroing_gibibytes_does_not_hold_up_other_requests() {
    let Some(peer) = peer::require("python3-libnbd") else { return };
    for backend in BACKENDS {
        let over = devices::crypt(stack::file(9 << 30, DirectMode::Off), &stack::NULL);
        let served = Setup::new(over).backend(backend).start();
        let script = r"
h = connect()
zeroes = [h.aio_zero((4 << 30) - 4096, i << 32, flags=nbd.CMD_FLAG_FAST_ZERO) for i in range(2)]
top = 8 << 30
blocks = [os.urandom(65536) for _ in range(60)]
writes = [h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b)), top + i * 65536) for i, b in enumerate(blocks)]
drain(h, zeroes + writes)
for i, block in enumerate(blocks):
    assert h.pread(65536, top + i * 65536) == block
h.shutdown()
";
        python(&peer, &served, script);
    }
}
