//! Clients that ask how small blocks may be, and clients that never do.

use cryptline_engine::base::DirectMode;
use cryptline_engine::layer::Exclusion;
use cryptline_nbd::NbdError;
use cryptline_nbd::client::{info_data, option};
use cryptline_nbd::wire::{cmd, info, opt, rep};
use cryptline_testkit::suite::devices::{self, CBC_4096};

use crate::common::raw::{Raw, Style, greeted, option_reply, say};
use crate::common::{BACKENDS, Setup, pattern, stack, wait_until};

const IGNORANT: [Style; 2] = [Style::NeverAsks, Style::ExportName];

/// CBC in sectors of 4096 bytes, in blocks of 512 for those who take them for granted.
fn setup() -> Setup {
    let lower = stack::file(4 << 20, DirectMode::Auto);
    let over = devices::in_blocks(lower, &CBC_4096, 512, Exclusion::Shared, devices::INLINE);
    Setup::new(over).minimum_block(4096)
}

#[test]
fn who_never_asks_writes_512_bytes_and_who_asks_is_told_of_4096() {
    for backend in BACKENDS {
        let served = setup().backend(backend).start();
        let mut knows = Raw::connect(&served);
        let mut expected = pattern(0, 64 << 10, 1);
        knows.write(0, &expected).expect("whole sectors");
        for (at, style) in IGNORANT.into_iter().enumerate() {
            let mut client = Raw::connect_as(&served, style);
            let at = 4096 * (at + 1) + 512;
            let piece = pattern(0, 1024, 7);
            client.write(at as u64, &piece).expect("two small blocks");
            expected[at..at + 1024].copy_from_slice(&piece);
            assert!(client.read(at as u64 - 512, 2048) == expected[at - 512..at + 1536]);
            assert_eq!((client.ask(cmd::READ, 0, (at as u64 + 1, 512))).outcome, Err(NbdError::Inval));
        }
        assert!(knows.read(0, 64 << 10) == expected);
        for (command, range) in [(cmd::READ, (512, 4096)), (cmd::WRITE_ZEROES, (0, 512))] {
            assert_eq!(knows.ask(command, 0, range).outcome, Err(NbdError::Inval), "it knows better");
        }
        let log = served.log();
        assert_eq!(log.len(), 2, "{log:?}");
        assert!(log[0].contains("nbd-client: -b 4096"), "{log:?}");
    }
}

/// Nobody's write is lost between the reading and the writing of a sector by somebody else.
#[test]
fn small_writes_and_whole_sectors_of_several_clients_do_not_lose_each_other() {
    const SECTOR: usize = 4096;
    let served = setup().start();
    std::thread::scope(|scope| {
        for mine in 0..4_usize {
            // Each has two of the first sector's eight blocks, and a sector of its own.
            let mut client = Raw::connect_as(&served, IGNORANT[mine % 2]);
            let mut whole = Raw::connect(&served);
            scope.spawn(move || {
                for round in 0..40_u64 {
                    let block = pattern(0, 1024, mine as u64 + 10 * round);
                    let at = (mine * 1024) as u64;
                    client.write(at, &block).expect("a part of a sector");
                    let sector = pattern(0, SECTOR, mine as u64 + 10 * round);
                    let own = (SECTOR * (mine + 1)) as u64;
                    whole.write(own, &sector).expect("a sector");
                    assert!(client.read(at, 1024) == block);
                    assert!(whole.read(own, 4096) == sector);
                }
            });
        }
    });
}

#[test]
fn who_never_asks_is_refused_where_there_are_no_small_blocks_and_may_ask_yet() {
    let over = devices::crypt(stack::ram(4 << 20), &CBC_4096);
    let served = Setup::new(over).start();
    let mut stream = greeted(&served);
    for kind in [opt::INFO, opt::GO] {
        say(&mut stream, &option(kind, &info_data(b"", &[info::NAME])));
        let mut answers = Vec::new();
        while !answers.contains(&rep::ERR_BLOCK_SIZE_REQD) {
            answers.push(option_reply(&mut stream).0);
            assert!(answers.len() < 5, "{answers:?}");
        }
    }
    Raw::negotiate(stream, "", Style::Simple).write(0, &[1; 4096]).expect("it has asked now");
    assert!(served.log().is_empty());

    let mut leaves = greeted(&served);
    say(&mut leaves, &option(opt::GO, &info_data(b"", &[])));
    drop(leaves);
    let mut cut_off = greeted(&served);
    say(&mut cut_off, &option(opt::EXPORT_NAME, b""));
    wait_until("both are told of", || served.log().len() == 2);
    for line in served.log() {
        assert!(line.contains("no blocks of 512 bytes"), "{line}");
    }
}

#[test]
fn volume_in_small_blocks_serves_everybody_without_a_word() {
    let served = Setup::new(stack::crypt_over_ram(4 << 20)).start();
    for style in [IGNORANT[0], IGNORANT[1], Style::Simple, Style::Structured] {
        let mut client = Raw::connect_as(&served, style);
        client.write(512, &[3; 512]).expect("written");
        assert!(client.read(512, 512) == [3; 512]);
    }
    assert!(served.log().is_empty());
}
