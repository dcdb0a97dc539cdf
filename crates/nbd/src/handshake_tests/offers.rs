//! Offers a server may make, and the flags it sends.

use super::*;

#[test]
fn transmission_flags_have_the_bits_of_the_protocol() {
    let only = |can: Capabilities| TransmissionFlags::from(can).bits();
    let none = Capabilities::default();
    assert_eq!(only(none), 1);
    assert_eq!(only(Capabilities { read_only: true, ..none }), 0b11);
    assert_eq!(only(Capabilities { flush: true, ..none }), 1 | 1 << 2);
    assert_eq!(only(Capabilities { fua: true, ..none }), 1 | 1 << 3);
    assert_eq!(only(Capabilities { rotational: true, ..none }), 1 | 1 << 4);
    assert_eq!(only(Capabilities { trim: true, ..none }), 1 | 1 << 5);
    assert_eq!(only(Capabilities { write_zeroes: true, ..none }), 1 | 1 << 6);
    assert_eq!(only(Capabilities { dont_fragment: true, ..none }), 1 | 1 << 7);
    assert_eq!(only(Capabilities { multi_conn: true, ..none }), 1 | 1 << 8);
    assert_eq!(only(Capabilities { cache: true, ..none }), 1 | 1 << 10);
    // Fast zeroes need zeroes, and a read-only export advertises no write command.
    assert_eq!(only(Capabilities { fast_zero: true, ..none }), 1);
    assert_eq!(only(ABILITIES), 0x0ded);
    assert_eq!(only(Capabilities { read_only: true, ..ABILITIES }), 0x058f);
}

#[test]
fn offers_that_the_protocol_forbids_are_refused() {
    let new = |export: ExportInfo| ServerOffer::new(vec![export], TlsMode::Off).unwrap_err();
    let sizes = |minimum, preferred, maximum| BlockSizes { minimum, preferred, maximum };
    for name in ["x".repeat(4097), "a\0b".to_owned()] {
        assert_eq!(new(ExportInfo { name, ..export("a") }), OfferError::BadString { index: 0, what: "name" });
    }
    let bad = new(ExportInfo { description: "x".repeat(4097), ..export("a") });
    assert_eq!(bad, OfferError::BadString { index: 0, what: "description" });
    for block_sizes in [
        sizes(0, 4096, 1 << 20),
        sizes(3, 4096, 1 << 20),
        sizes(1 << 17, 1 << 17, 1 << 20),
        sizes(1, 256, 1 << 20),
        sizes(4096, 512, 1 << 20),
        sizes(1, 4096, 2048),
        sizes(1, 4096, u32::MAX),
    ] {
        let bad = new(ExportInfo { block_sizes, ..export("a") });
        assert!(matches!(bad, OfferError::BadBlockSizes { .. }), "{block_sizes:?}");
    }
    let bad = new(ExportInfo { size: 513, ..export("a") });
    assert!(matches!(bad, OfferError::UnalignedSize { size: 513, minimum: 512, .. }));
    let twice = ServerOffer::new(vec![export("a"), export("a")], TlsMode::Off).unwrap_err();
    assert_eq!(twice, OfferError::DuplicateName("a".to_owned()));
}
