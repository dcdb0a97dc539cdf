//! The fronts whose client is a kernel, in an emulated machine that has its drivers.
//!
//! ```text
//! host   kernel_oracle_fronts_of_the_kernel_keep_their_promises ─ boots ─┐
//! guest  this very program: its ignored tests, each over a device ◄──────┘
//! ```
//!
//! The omissions, and the reasons for them, are listed in [`device`](crate::front::device).

use std::time::Duration;

use cryptline_testkit::oracle::{Linux, Oracle};

use crate::front::checks::SPARING;

/// Each front's checks in the guest.
const TIMEOUT: Duration = Duration::from_secs(400);

macro_rules! in_the_guest {
    ($($front:ident)+) => {
        const FRONTS: &[&str] = &[$(stringify!($front)),+];
        $(
            mod $front {
                #[test]
                #[ignore = "runs in the guest only"]
                fn server_of_a_device_that_is_taken_away_ends_and_keeps_what_was_answered() {
                    crate::front::device::server_of_a_device_that_is_taken_away_ends_and_keeps_what_was_answered(
                        crate::front::$front::start,
                    );
                }
                in_the_guest! { @checks $front,
                    what_is_written_is_read_back_at_every_alignment_and_size
                    requests_that_are_sent_together_agree_with_the_model
                    requests_over_a_slow_medium_agree_with_the_model
                    more_requests_than_are_served_at_a_time_are_all_answered
                    zeroed_range_reads_as_zeros_with_and_without_a_hole
                    durable_requests_are_durable_when_they_are_answered
                    flush_covers_what_was_answered_to_all_clients
                    zeroing_that_the_device_gives_up_half_way_is_durable_as_a_whole
                    read_only_disk_refuses_every_change
                    failed_read_is_the_only_one_that_fails
                    large_read_fails_whole
                    large_write_fails_whole_and_the_next_one_does_not
                    failed_write_fails_every_flush_until_the_volume_is_reopened
                    full_disk_is_told_and_does_not_fail_later_flushes
                    failed_flush_is_told_and_no_later_one_lies
                    failed_discard_zeroing_and_durable_write_are_told
                    zeroing_that_the_medium_cannot_do_is_written_unless_it_must_be_fast
                    refused_flush_behind_a_durable_request_is_a_failure_like_any_other
                    refused_flush_is_told_as_a_failure_and_not_as_a_refusal
                    discard_that_the_medium_cannot_do_is_no_error
                    server_stops_in_time_over_a_slow_medium
                    server_stops_in_time_over_a_medium_that_never_answers
                }
            }
        )+
    };
    (@checks $front:ident, $($check:ident)+) => {
        /// How many tests there are.
        pub const COUNT: usize = 1 + [$(stringify!($check)),+].len();
        $(
            #[test]
            #[ignore = "runs in the guest only"]
            fn $check() {
                crate::front::checks::$check(crate::front::$front::front);
            }
        )+
    };
}

in_the_guest! { ublk kernel_nbd }

#[test]
fn kernel_oracle_fronts_of_the_kernel_keep_their_promises() {
    let Some(mut oracle) = Oracle::with(Linux::Newest) else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    oracle.this_program(folder.path());
    oracle.memory_mib(1280).processors(2);
    oracle.case("load").script("modprobe ublk_drv; modprobe nbd nbds_max=2");
    for front in FRONTS {
        let script = format!(
            "export {SPARING}=yes
            in_the_guest --ignored --test-threads=1 guest::{front}:: 2>&1"
        );
        oracle.case(*front).script(&script).timeout(TIMEOUT);
    }
    let outcomes = oracle.run();
    outcomes.passed("load");
    assert_eq!(ublk::COUNT, kernel_nbd::COUNT);
    for front in FRONTS {
        let said = outcomes.passed(front);
        println!("{said}");
        let passed = format!("test result: ok. {} passed", ublk::COUNT);
        assert!(said.contains(&passed), "{front}: {said}");
    }
}
