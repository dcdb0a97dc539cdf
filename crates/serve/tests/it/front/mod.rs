//! The fronts' conformance suite: what every front promises its clients, checked on each.
//!
//! ```text
//! client   what a client can ask, whatever the front     nbd     NBD, in both styles of replies
//! checks   the promises; the name says the promise       fuse    FUSE, with a kernel of our own
//!                                                        tiny    a wire over a vector
//!                                                        vhost   vhost-user-blk, with a driver of our own
//! guest    an emulated machine, for those whose          ublk        a kernel's ublk device
//! device   client is a real kernel                       kernel_nbd  a kernel's nbd device
//! ```
//!
//! A new front gets a `client::Server` here and a line in [`conformance!`] at the end of this file, with the checks that
//! are not for all.

mod checks;
mod client;
mod device;
mod fuse;
mod guest;
mod kernel_nbd;
mod nbd;
mod tiny;
mod ublk;
mod vhost;

macro_rules! conformance {
    ($($front:ident => $start:expr $(, $more:ident)*;)+) => { $(
        mod $front {
            conformance! { @checks $start,
                $($more)*
                what_is_written_is_read_back_at_every_alignment_and_size
                requests_that_are_sent_together_agree_with_the_model
                requests_over_a_slow_medium_agree_with_the_model
                largest_requests_pass_with_small_ones_between_them
                more_requests_than_are_served_at_a_time_are_all_answered
                zeroed_range_reads_as_zeros_with_and_without_a_hole
                durable_requests_are_durable_when_they_are_answered
                flush_covers_what_was_answered_to_all_clients
                zeroing_that_the_device_gives_up_half_way_is_durable_as_a_whole
                request_that_leaves_the_disk_or_its_blocks_is_refused
                read_only_disk_refuses_every_change
                failed_read_is_the_only_one_that_fails
                large_read_fails_whole
                large_write_fails_whole_and_the_next_one_does_not
                failed_write_fails_every_flush_until_the_volume_is_reopened
                full_disk_is_told_and_does_not_fail_later_flushes
                parts_that_fail_differently_are_told_as_the_worse
                failed_flush_is_told_and_no_later_one_lies
                failed_discard_zeroing_and_durable_write_are_told
                zeroing_that_the_medium_cannot_do_is_written_unless_it_must_be_fast
                fast_zeroing_that_is_refused_has_changed_nothing
                refused_flush_behind_a_durable_request_is_a_failure_like_any_other
                refused_flush_is_told_as_a_failure_and_not_as_a_refusal
                discard_that_the_medium_cannot_do_is_no_error
                request_behind_a_failed_large_one_is_not_taken_for_it
                server_stops_at_the_next_chunk_of_whatever_was_asked
                server_stops_in_time_over_a_slow_medium
                server_stops_in_time_over_a_medium_that_never_answers
                work_for_a_client_that_is_gone_ends_soon
                short_request_waits_for_no_more_than_a_turn_of_a_long_one
            }
        }
    )+
        mod nightly { $(
            #[test]
            fn $front() {
                crate::front::checks::many_requests_agree_with_the_model($start);
            }
        )+ }
    };
    (@checks $start:expr, $($check:ident)+) => { $(
        #[test]
        fn $check() {
            crate::front::checks::$check($start);
        }
    )+ };
}

conformance! {
    nbd_structured => crate::front::nbd::structured, zeroing_is_fast_only_where_zeros_need_not_be_written;
    nbd_simple => crate::front::nbd::simple, zeroing_is_fast_only_where_zeros_need_not_be_written;
    nbd_polled => crate::front::nbd::polled, zeroing_is_fast_only_where_zeros_need_not_be_written;
    fuse_sockets => crate::front::fuse::sockets, zeroing_is_fast_only_where_zeros_need_not_be_written;
    copied => crate::front::tiny::copied, zeroing_is_fast_only_where_zeros_need_not_be_written;
    moved => crate::front::tiny::moved, zeroing_is_fast_only_where_zeros_need_not_be_written;
    later => crate::front::tiny::later, zeroing_is_fast_only_where_zeros_need_not_be_written;
    vhost_user => crate::front::vhost::driver;
    vhost_user_packed => crate::front::vhost::packed_driver;
    vhost_user_polled => crate::front::vhost::polled_driver;
    vhost_user_packed_polled => crate::front::vhost::polled_packed_driver;
}
