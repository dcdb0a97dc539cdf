//! The C library's functions on descriptors, under its names: those that may wait, and those by which it is known for what.
//!
//! Each function has the signature and the contract of its namesake, and so have its callers.

// The functions below are unsafe since their namesakes are; what each asks of its caller is in its manual page.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use libc::{iovec, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::calls::ns_of;
use super::files;
use super::os::{errno, real, set_errno};
use super::scheduler::{self, Wait, Woken, is_managed};
use super::sockets::{self, Way};

fn look(polled: &mut [pollfd]) -> c_int {
    for polled in &mut *polled {
        polled.revents = if polled.fd < 0 { 0 } else { sockets::ready(polled.fd, polled.events) };
    }
    polled.iter().filter(|polled| polled.revents != 0).count() as c_int
}

/// The answer of `poll`, without waiting in it; `limit` in nanoseconds.
fn wait_for_any(polled: &mut [pollfd], limit: Option<u64>) -> c_int {
    let until = limit.map(|limit| scheduler::now().saturating_add(limit));
    if limit == Some(0) {
        scheduler::chance();
        return look(polled);
    }
    loop {
        let found = look(polled);
        if found != 0 {
            scheduler::chance();
            return found;
        }
        let fds = polled.iter().filter(|it| it.fd >= 0).map(|it| (it.fd, it.events)).collect();
        if scheduler::block(Wait { until, fds, ..Wait::default() }) == Woken::Late {
            return look(polled);
        }
    }
}

/// So many things that a caller has at a place.
unsafe fn slice<'a, T>(start: *mut T, count: usize) -> &'a mut [T] {
    if count == 0 {
        return &mut [];
    }
    // SAFETY: the manual pages of all callers want so many.
    unsafe { std::slice::from_raw_parts_mut(start, count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(polled: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    if !is_managed() {
        return real!(poll(polled, count, timeout) as fn(*mut pollfd, nfds_t, c_int) -> c_int);
    }
    let limit = u64::try_from(timeout).ok().map(|ms| ms * 1_000_000);
    // SAFETY: as poll(2) has it.
    wait_for_any(unsafe { slice(polled, count as usize) }, limit)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    polled: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if !is_managed() {
        return real!(
            ppoll(polled, count, timeout, mask) as fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int
        );
    }
    // SAFETY: as ppoll(2) has it.
    wait_for_any(unsafe { slice(polled, count as usize) }, ns_of(timeout))
}

/// Makes a call again and again until it does not say any more that there is nothing to do, where it may wait.
fn patiently(fd: c_int, way: Way, flags: c_int, mut call: impl FnMut() -> sockets::Reply) -> ssize_t {
    let is_managed = is_managed();
    if is_managed {
        scheduler::chance();
    }
    let waits = is_managed && flags & libc::MSG_DONTWAIT == 0 && sockets::waits(fd);
    let mut until = None;
    loop {
        match call() {
            Ok(count) => {
                if is_managed {
                    scheduler::stir();
                }
                return count as ssize_t;
            }
            Err(libc::EAGAIN) if waits => {}
            Err(error) => {
                set_errno(error);
                return -1;
            }
        }
        until = until.or_else(|| Some(scheduler::now().saturating_add(sockets::limit(fd, way)?)));
        let events = events_of(way);
        loop {
            let woken = scheduler::block(Wait { until, fds: vec![(fd, events)], ..Wait::default() });
            match (woken, sockets::ready(fd, events)) {
                (Woken::Late, 0) => {
                    set_errno(libc::EAGAIN);
                    return -1;
                }
                (Woken::Ready, 0) => continue,
                (Woken::Ready, _) => scheduler::chance(),
                (Woken::Late, _) => {}
            }
            break;
        }
    }
}

/// Makes a call about a descriptor of which nothing is known here, once the system has something to do for it.
fn plainly(fd: c_int, way: Way, flags: c_int, call: impl FnOnce() -> ssize_t) -> ssize_t {
    if !is_managed() || fd <= libc::STDERR_FILENO {
        return call();
    }
    scheduler::chance();
    if flags & libc::MSG_DONTWAIT == 0 && sockets::waits(fd) {
        let events = events_of(way);
        while sockets::ready(fd, events) == 0 {
            scheduler::block(Wait { fds: vec![(fd, events)], ..Wait::default() });
        }
    }
    scheduler::stir();
    call()
}

fn events_of(way: Way) -> i16 {
    match way {
        Way::In => libc::POLLIN,
        Way::Out => libc::POLLOUT,
    }
}

unsafe fn receive(fd: c_int, parts: &[iovec], flags: c_int) -> ssize_t {
    let receive = || {
        // SAFETY: as recv(2) has it.
        let received = unsafe { sockets::receive(fd, parts, flags & libc::MSG_PEEK != 0) }?;
        close_all(received.files);
        Ok(received.count)
    };
    patiently(fd, Way::In, flags, receive)
}

unsafe fn transmit(fd: c_int, parts: &[iovec], flags: c_int, files: &[c_int]) -> ssize_t {
    // SAFETY: as send(2) has it.
    patiently(fd, Way::Out, flags, || unsafe { sockets::send(fd, parts, files) })
}

/// Descriptors that nobody has taken.
fn close_all(files: Vec<c_int>) {
    for file in files {
        // SAFETY: nobody else knows of it.
        unsafe { close(file) };
    }
}

/// Descriptors that a message has with it.
unsafe fn files_of(message: &msghdr) -> Vec<c_int> {
    let mut files = Vec::new();
    // SAFETY: as cmsg(3) has it, in the control bytes of the message, which are headers with their data.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(found) = header.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let count = (found.cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<c_int>();
                let data = libc::CMSG_DATA(header).cast::<c_int>();
                files.extend((0..count).map(|index| data.add(index).read_unaligned()));
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    files
}

/// Hands descriptors over with a message, as far as there is room.
unsafe fn hand_over(message: &mut msghdr, mut files: Vec<c_int>) {
    // SAFETY: as cmsg(3) has it, in the control bytes of the message; what is written there fits.
    unsafe {
        let room = message.msg_controllen.saturating_sub(libc::CMSG_LEN(0) as usize);
        if files.len() > room / size_of::<c_int>() {
            message.msg_flags |= libc::MSG_CTRUNC;
            close_all(files.split_off(room / size_of::<c_int>()));
        }
        if files.is_empty() {
            message.msg_controllen = 0;
            return;
        }
        let bytes = size_of_val(&*files) as c_uint;
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
        libc::CMSG_DATA(header).copy_from_nonoverlapping(files.as_ptr().cast(), bytes as usize);
        message.msg_controllen = message.msg_controllen.min(libc::CMSG_SPACE(bytes) as _);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    if !sockets::is_known(fd) {
        return plainly(fd, Way::In, flags, || {
            real!(recv(fd, buffer, len, flags) as fn(c_int, *mut c_void, size_t, c_int) -> ssize_t)
        });
    }
    // SAFETY: as recv(2) has it.
    unsafe { receive(fd, &[iovec { iov_base: buffer, iov_len: len }], flags) }
}

/// Without addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if !sockets::is_known(fd) {
        return plainly(fd, Way::In, flags, || {
            real!(recvmsg(fd, message, flags) as fn(c_int, *mut msghdr, c_int) -> ssize_t)
        });
    }
    // SAFETY: as recvmsg(2) has it.
    let receive = || unsafe {
        let message = &mut *message;
        let parts = slice(message.msg_iov, message.msg_iovlen);
        let received = sockets::receive(fd, parts, flags & libc::MSG_PEEK != 0)?;
        (message.msg_namelen, message.msg_flags) = (0, if received.is_cut { libc::MSG_TRUNC } else { 0 });
        hand_over(message, received.files);
        Ok(received.count)
    };
    patiently(fd, Way::In, flags, receive)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    if !sockets::is_known(fd) {
        return plainly(fd, Way::In, 0, || real!(read(fd, buffer, len) as fn(c_int, *mut c_void, size_t) -> ssize_t));
    }
    // SAFETY: as read(2) has it.
    unsafe { receive(fd, &[iovec { iov_base: buffer, iov_len: len }], 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if !sockets::is_known(fd) {
        return plainly(fd, Way::In, 0, || real!(readv(fd, parts, count) as fn(c_int, *const iovec, c_int) -> ssize_t));
    }
    // SAFETY: as readv(2) has it.
    unsafe { receive(fd, slice(parts.cast_mut(), count as usize), 0) }
}

/// From where a descriptor is (offset -1), which those without a place have alone; never waits where it may not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv64v2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: libc::off64_t,
    flags: c_int,
) -> ssize_t {
    if offset != -1 || !sockets::is_known(fd) {
        return real!(preadv64v2(fd, parts, count, offset, flags)
            as fn(c_int, *const iovec, c_int, libc::off64_t, c_int) -> ssize_t);
    }
    let waits_not = if flags & libc::RWF_NOWAIT == 0 { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: as preadv2(2) has it.
    unsafe { receive(fd, slice(parts.cast_mut(), count as usize), waits_not) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    if !sockets::is_known(fd) {
        return plainly(fd, Way::Out, flags, || {
            real!(send(fd, buffer, len, flags) as fn(c_int, *const c_void, size_t, c_int) -> ssize_t)
        });
    }
    // SAFETY: as send(2) has it.
    unsafe { transmit(fd, &[iovec { iov_base: buffer.cast_mut(), iov_len: len }], flags, &[]) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if !sockets::is_known(fd) {
        return plainly(fd, Way::Out, flags, || {
            real!(sendmsg(fd, message, flags) as fn(c_int, *const msghdr, c_int) -> ssize_t)
        });
    }
    // SAFETY: as sendmsg(2) has it.
    unsafe {
        let message = &*message;
        transmit(fd, slice(message.msg_iov, message.msg_iovlen), flags, &files_of(message))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    if !sockets::is_known(fd) {
        return plainly(fd, Way::Out, 0, || {
            real!(write(fd, buffer, len) as fn(c_int, *const c_void, size_t) -> ssize_t)
        });
    }
    // SAFETY: as write(2) has it.
    unsafe { transmit(fd, &[iovec { iov_base: buffer.cast_mut(), iov_len: len }], 0, &[]) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if !sockets::is_known(fd) {
        return plainly(fd, Way::Out, 0, || {
            real!(writev(fd, parts, count) as fn(c_int, *const iovec, c_int) -> ssize_t)
        });
    }
    // SAFETY: as writev(2) has it.
    unsafe { transmit(fd, slice(parts.cast_mut(), count as usize), 0, &[]) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let fd = real!(socket(domain, kind, protocol) as fn(c_int, c_int, c_int) -> c_int);
    if fd >= 0 && domain == libc::AF_UNIX && is_managed() {
        sockets::opened(fd, kind);
    }
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int {
    let result = real!(socketpair(domain, kind, protocol, pair) as fn(c_int, c_int, c_int, *mut c_int) -> c_int);
    if result == 0 && domain == libc::AF_UNIX && is_managed() {
        // SAFETY: socketpair(2) has written both.
        let pair = unsafe { [*pair, *pair.add(1)] };
        pair.into_iter().for_each(|fd| sockets::opened(fd, kind));
        sockets::paired(pair);
    }
    result
}

/// The name in the address of a Unix socket.
unsafe fn path_in(address: *const sockaddr, len: socklen_t) -> Vec<u8> {
    // SAFETY: bind(2) and connect(2) want an address of so many bytes, whose family comes first.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len as usize) };
    let path = bytes.get(size_of::<libc::sa_family_t>()..).unwrap_or_default();
    path.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let result = real!(bind(fd, address, len) as fn(c_int, *const sockaddr, socklen_t) -> c_int);
    if result == 0 && sockets::is_known(fd) {
        // SAFETY: as bind(2) has it.
        sockets::bound(fd, &unsafe { path_in(address, len) });
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let result = real!(connect(fd, address, len) as fn(c_int, *const sockaddr, socklen_t) -> c_int);
    if sockets::is_known(fd) {
        // SAFETY: as connect(2) has it.
        if result == 0 && !sockets::connected(fd, &unsafe { path_in(address, len) }) {
            super::super::die("a server outside of the simulation is connected to");
        }
        if is_managed() {
            scheduler::stir();
        }
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    let call = || real!(accept4(fd, address, len, flags) as fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int);
    if !sockets::is_known(fd) {
        return plainly(fd, Way::In, 0, || call() as ssize_t) as c_int;
    }
    let accept = || {
        if sockets::ready(fd, libc::POLLIN) == 0 {
            return Err(libc::EAGAIN);
        }
        let new = call();
        let accepted = usize::try_from(new).map_err(|_| errno())?;
        sockets::accepted(fd, new, flags & libc::SOCK_NONBLOCK == 0);
        Ok(accepted)
    };
    patiently(fd, Way::In, 0, accept) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    files::closed(fd);
    close_all(sockets::closed(fd));
    if is_managed() {
        scheduler::stir();
    }
    real!(close(fd) as fn(c_int) -> c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if is_managed() {
        scheduler::stir();
    }
    if !sockets::shut(fd, how) {
        return real!(shutdown(fd, how) as fn(c_int, c_int) -> c_int);
    }
    0
}

/// Limits of waiting are ours: the system never waits. So is the room for what is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let way = match (level, option) {
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => Some(Way::In),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => Some(Way::Out),
        _ => None,
    };
    if (level, option) == (libc::SOL_SOCKET, libc::SO_SNDBUF)
        || (level, option) == (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE)
    {
        // SAFETY: these options have an int.
        sockets::set_room(fd, usize::try_from(unsafe { *value.cast::<c_int>() }).unwrap_or(0));
    }
    let Some(way) = way.filter(|_| sockets::is_known(fd)) else {
        return real!(
            setsockopt(fd, level, option, value, len) as fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int
        );
    };
    // SAFETY: these options have a timeval.
    let time = unsafe { &*value.cast::<libc::timeval>() };
    let ns = u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_usec).unwrap_or(0) * 1000;
    sockets::set_limit(fd, way, (ns > 0).then_some(ns));
    0
}

/// The third argument is a number or an address, or is not there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    if command == libc::F_GETFD && (sockets::is_known(fd) || files::is_known(fd)) {
        // Whoever closes it asks if it is open.
        return libc::FD_CLOEXEC;
    }
    if command == libc::F_GETFL && sockets::is_known(fd) {
        return libc::O_RDWR | if sockets::waits(fd) { 0 } else { libc::O_NONBLOCK };
    }
    let result = real!(fcntl(fd, command, argument) as fn(c_int, c_int, c_long) -> c_int);
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC if result >= 0 => sockets::duplicated(fd, result),
        libc::F_SETFL => sockets::set_waits(fd, argument as c_int & libc::O_NONBLOCK == 0),
        _ => {}
    }
    result
}

/// As `fcntl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request == libc::FIONBIO && sockets::is_known(fd) {
        // SAFETY: this request has an int.
        sockets::set_waits(fd, unsafe { *argument.cast::<c_int>() } == 0);
    }
    real!(ioctl(fd, request, argument) as fn(c_int, c_ulong, *mut c_void) -> c_int)
}
