//! Meaning of the protocol's bytes, and effects of bytes without one.

use super::*;

/// A message with `arguments`, cut into its head and the rest.
fn message(opcode: u32, arguments: &[u8]) -> (Vec<u8>, Vec<u8>, usize) {
    let len = IN_HEADER + arguments.len();
    let mut bytes = Vec::new();
    bytes.extend(u32::try_from(len).unwrap().to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(77_u64.to_ne_bytes());
    bytes.extend(3_u64.to_ne_bytes());
    bytes.extend([0; 16]);
    bytes.extend(arguments);
    let rest = bytes.split_off(HEAD.min(bytes.len()));
    bytes.resize(HEAD, 0xee);
    (bytes, rest, len)
}

fn parsed(opcode: u32, arguments: &[u8]) -> Result<FuseCall, Errno> {
    let (head, rest, len) = message(opcode, arguments);
    let (header, call) = parse(&head, &rest, len).expect("a header");
    let (unique, node) = (77, 3);
    assert_eq!(header, CallHeader { unique, node });
    call
}

fn longs(values: &[u64]) -> Vec<u8> {
    let bytes = values.iter().flat_map(|value| value.to_ne_bytes());
    bytes.collect()
}

#[test]
fn arguments_are_where_the_kernel_puts_them() {
    let read = longs(&[0, 4096, 512, 0, 0]);
    assert_eq!(parsed(code::READ, &read), Ok(FuseCall::Read { offset: 4096, size: 512 }));
    let write = [longs(&[0, 7, 3, 0, 0]), vec![1, 2, 3]].concat();
    assert_eq!(parsed(code::WRITE, &write), Ok(FuseCall::Write { offset: 7, size: 3, durable: false }));
    for (flags, wanted) in [(0o10_000, true), (0o4_010_000, true), (0o40_002, false)] {
        let write = [longs(&[0, 7, 3, 0, flags]), vec![1, 2, 3]].concat();
        assert!(matches!(parsed(code::WRITE, &write), Ok(FuseCall::Write { durable, .. }) if durable == wanted));
    }
    let allocate = longs(&[0, 5, 6, 3]);
    assert_eq!(parsed(code::FALLOCATE, &allocate), Ok(FuseCall::Allocate { offset: 5, length: 6, mode: 3 }));
    let seek = longs(&[0, 9, 4]);
    assert_eq!(parsed(code::LSEEK, &seek), Ok(FuseCall::Seek { offset: 9, whence: 4 }));
    let size = |valid| longs(&[valid, 0, 99, 0, 0]);
    let change = AttributeChange { size: Some(99), ..AttributeChange::default() };
    assert_eq!(parsed(code::SETATTR, &size(8)), Ok(FuseCall::SetAttributes(change)));
    assert_eq!(parsed(code::SETATTR, &size(1 << 4)), Ok(FuseCall::SetAttributes(AttributeChange::default())));
    for bit in [1, 2, 4] {
        assert_eq!(parsed(code::SETATTR, &size(bit)), Err(Errno::INVAL), "it is behind the end");
    }
    let (mode, uid, gid) = (0o100_640, 1000, 100);
    let owner = longs(&[7, 0, 99, 0, 0, 0, 0, 0, mode << 32, uid << 32, gid]);
    let Ok(FuseCall::SetAttributes(change)) = parsed(code::SETATTR, &owner) else {
        panic!("no change");
    };
    assert_eq!((change.mode, change.uid), (Some(0o100_640), Some(1000)));
    assert_eq!((change.size, change.gid), (None, Some(100)));
    assert_eq!(parsed(4711, &[]), Ok(FuseCall::Other));
}

#[test]
fn name_is_found_in_the_head_and_behind_it() {
    for len in [1, 38, 39, 40, 41, 255] {
        let name = vec![b'n'; len];
        let Ok(FuseCall::Lookup(found)) = parsed(code::LOOKUP, &[&name[..], &[0]].concat()) else {
            panic!("{len}");
        };
        assert_eq!(found.as_bytes(), name);
    }
}

#[test]
fn message_that_is_not_whole_is_refused_and_one_without_a_header_is_nothing() {
    for len in 0..IN_HEADER {
        assert_eq!(parse(&[0; HEAD], &[], len), None);
        assert_eq!(parse(&[0; HEAD][..len], &[], IN_HEADER), None);
    }
    for opcode in [
        code::READ,
        code::WRITE,
        code::LSEEK,
        code::FALLOCATE,
        code::SETATTR,
        code::OPEN,
        code::LOOKUP,
        code::INIT,
        code::READDIR,
    ] {
        assert_eq!(parsed(opcode, &[]), Err(Errno::INVAL), "{opcode}");
        assert_eq!(parsed(opcode, &[7, 7, 7]), Err(Errno::INVAL), "{opcode}");
    }
    // More or less data than the arguments say.
    for size in [0, 2, 4, u64::from(u32::MAX)] {
        let write = [longs(&[0, 7, size, 0, 0]), vec![1, 2, 3]].concat();
        assert_eq!(parsed(code::WRITE, &write), Err(Errno::INVAL));
    }
    // A header that speaks of another length.
    let (mut head, rest, len) = message(code::GETATTR, &[0; 16]);
    for said in [0, 39, 55, 57, u32::MAX] {
        head[..4].copy_from_slice(&said.to_ne_bytes());
        let (_, call) = parse(&head, &rest, len).unwrap();
        assert_eq!(call, Err(Errno::INVAL));
    }
    // A name without its end, or longer than any.
    assert_eq!(parsed(code::LOOKUP, b"name"), Err(Errno::INVAL));
    let long = [&[b'n'; 256][..], &[0]].concat();
    assert_eq!(parsed(code::LOOKUP, &long), Err(Errno::INVAL));
}

#[test]
fn no_bytes_at_all_can_make_it_fail_otherwise() {
    // Each opcode with arguments of every length, all ones.
    for opcode in 0..60 {
        for len in 0..300 {
            let _ = parsed(opcode, &vec![0xff; len]);
        }
    }
}

#[test]
fn agreement_is_on_what_both_know() {
    let (major, minor, readahead) = (7, 45, 131_072);
    let mut arguments = Vec::new();
    for word in [major, minor, readahead, u32::MAX, u32::MAX] {
        arguments.extend(word.to_ne_bytes());
    }
    arguments.extend([0; 44]);
    let Ok(FuseCall::Init(offered)) = parsed(code::INIT, &arguments) else {
        panic!("no INIT");
    };
    assert_eq!(offered.flags, u64::MAX);
    let mut body = Body::new();
    body.init(&offered, flag::ALL, 1 << 20, 256);
    let said = ByteFields(body.as_bytes());
    assert_eq!(body.as_bytes().len(), 64);
    let flags = u64::from(said.word(12).unwrap()) | u64::from(said.word(32).unwrap()) << 32;
    assert_eq!(flags, flag::ALL);
    assert_eq!((said.word(0), said.word(4), said.word(20)), (Some(7), Some(MINOR), Some(1 << 20)));
    // An older kernel sends less and gets no flags of the second word.
    let old = Init { minor: 31, flags: flag::ASYNC_READ, ..offered };
    let mut body = Body::new();
    body.init(&old, flag::ALL | flag::OVER_IO_URING, 1 << 20, 256);
    let said = ByteFields(body.as_bytes());
    assert_eq!(said.word(12), Some(1));
    assert_eq!((said.word(4), said.word(32)), (Some(31), Some(0)));
}

#[test]
fn answers_have_the_lengths_that_the_kernel_checks() {
    let attributes = FileAttributes {
        node: 2,
        size: 1000,
        mode: 0o100_600,
        links: 1,
        uid: 1,
        gid: 2,
        time: 3,
        block: 4096,
        kept: 1,
    };
    let len = |fill: fn(&mut Body, &FileAttributes)| {
        let mut body = Body::new();
        fill(&mut body, &attributes);
        body.as_bytes().len()
    };
    assert_eq!(len(|body, it| body.entry(it)), 128);
    assert_eq!(len(|body, it| body.attributes(it)), 104);
    assert_eq!(len(|body, _| body.open(OpenedFile::Direct)), 16);
    assert_eq!(len(|body, _| body.statistics(1, 1)), 80);
    assert_eq!(len(|body, _| body.written(1)), 8);
    let entry = |body: &mut Body, it: &FileAttributes| {
        assert!(body.folder_entry(64, 1, it, b"disk.info"));
        assert!(!body.folder_entry(64, 1, it, b"x"));
    };
    assert_eq!(len(entry), 40);
    let header = out_header(5, Err(Errno::NOENT), 0);
    assert_eq!(ByteFields(&header).word(0), Some(16));
    assert_eq!(ByteFields(&header).word(4), Some(u32::MAX - 1));
    assert_eq!(ByteFields(&header).long(8), Some(5));
}
