//! The driver's status, which the front-end passes on: 0 is a reset.

use super::*;

const SET_STATUS: u32 = 39;
const GET_STATUS: u32 = 40;
/// A driver that is there, has agreed on its features, and runs.
const RUNNING: u64 = 1 | 2 | 8 | 4;

#[test]
fn status_is_told_back_and_with_none_the_queues_stop_until_they_are_started_again() {
    let served = ram();
    let mut driver = served.driver();
    assert_eq!(driver.front.ask_number(GET_STATUS), 0);
    for status in [1, 1 | 2, 1 | 2 | 8, RUNNING] {
        driver.front.tell(SET_STATUS, &status.to_ne_bytes());
        assert_eq!(driver.front.ask_number(GET_STATUS), status);
        works(&mut driver);
    }
    driver.front.tell(SET_STATUS, &0u64.to_ne_bytes());
    assert_eq!(driver.front.ask_number(GET_STATUS), 0);
    driver.put(&read(0, 512));
    driver.kick_anyway();
    driver.kick();
    assert!(driver.take_within(Duration::from_millis(20)).is_none(), "a queue that was reset is served");
    let base = driver.front.base(0).expect("a base");
    driver.start_queue(base);
    driver.take();
    works(&mut driver);
}
