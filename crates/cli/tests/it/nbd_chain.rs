//! Our own server below: what it promises as every device, through the `nbd` base.

use crate::server::Server;
use cryptline_engine::Gate;
use cryptline_engine::base::NbdDevice;
use cryptline_testkit::conformance;
use cryptline_testkit::suite::Fresh;
use cryptline_testkit::suite::devices::SIZE;

conformance! { @abilities [Discard, Zeroes, Hint] chain }
conformance! { @checks chain,
    what_is_written_is_read_back_at_every_alignment_and_size
    durable_write_is_read_back
    flush_succeeds_with_and_without_writes
    extents_cover_the_device_and_hide_no_data
    deep_queue_completes_each_request_once
    queues_of_two_threads_see_each_others_completed_writes
    dropping_a_queue_with_requests_in_flight_harms_nobody
}

fn chain() -> Option<Fresh> {
    let memory = format!("ram:{SIZE}");
    let server = Server::start([&*memory, "--allow-discards"]);
    let uri = server.uri.parse().expect("a URI");
    let gate = Gate::new(NbdDevice::open(&uri, false).expect("an export"));
    Some(Fresh { gate, keep: vec![Box::new(server)] })
}
