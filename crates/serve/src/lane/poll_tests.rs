//! Properties of machines, and whether lanes look out there.

use super::*;

/// Of a machine where lanes may look out.
const QUIET: Readings =
    Readings { processors: 2.0, is_pinned: false, on_battery: false, wake_up: Some(Duration::from_micros(30)) };

#[test]
fn look_outlasts_the_wake_up_of_a_client_that_was_asleep_as_well() {
    let limit = |micros| {
        let wake_up = Some(Duration::from_micros(micros));
        match Poll::choose(&Readings { wake_up, ..QUIET }) {
            Poll::Measured { limit, .. } => limit.as_micros(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([1, 5, 30, 95, 5000].map(limit), [20, 20, 70, 200, 200]);
}

#[test]
fn nobody_looks_out_with_one_processor_or_a_quota_of_less_than_two() {
    for processors in [0.5, 1.0, 1.9] {
        let readings = Readings { processors, ..QUIET };
        assert_eq!(Poll::choose(&readings), Poll::Never(Why::OneProcessor));
    }
}

#[test]
fn server_that_was_given_one_of_several_processors_tries_what_looks_gain() {
    let pinned = Readings { processors: 1.0, is_pinned: true, wake_up: None, ..QUIET };
    match Poll::choose(&pinned) {
        Poll::Measured { lanes, .. } => assert_eq!(lanes, 1),
        other => panic!("{other:?}"),
    }
    let on_battery = true;
    let battery = Readings { on_battery, ..pinned };
    assert_eq!(Poll::choose(&battery), Poll::Never(Why::Battery));
}

#[test]
fn lanes_that_look_out_leave_a_processor_to_others() {
    let lanes = |processors| {
        let readings = Readings { processors, ..QUIET };
        match Poll::choose(&readings) {
            Poll::Measured { lanes, .. } => lanes,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([2.0, 2.9, 3.0, 16.0].map(lanes), [1, 1, 2, 15]);
}

#[test]
fn nobody_looks_out_on_battery() {
    let on_battery = true;
    assert_eq!(Poll::choose(&Readings { on_battery, ..QUIET }), Poll::Never(Why::Battery));
}

#[test]
fn machine_too_busy_to_measure_a_wake_up_is_tried_later() {
    let wake_up = None;
    match Poll::choose(&Readings { wake_up, ..QUIET }) {
        Poll::Measured { limit, .. } => assert_eq!(limit, UNMEASURED),
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_the_machines_own_battery_that_is_being_used_up_counts() {
    let supplies = |list: &[(&str, &str, &str)]| {
        let folder = tempfile::tempdir().unwrap();
        for (index, (kind, status, scope)) in list.iter().enumerate() {
            let supply = folder.path().join(index.to_string());
            fs::create_dir(&supply).unwrap();
            for (name, text) in [("type", kind), ("status", status), ("scope", scope)] {
                fs::write(supply.join(name), format!("{text}\n")).unwrap();
            }
        }
        is_on_battery(folder.path())
    };
    let mains = ("Mains", "", "");
    assert!(supplies(&[mains, ("Battery", "Discharging", "")]));
    assert!(supplies(&[("Battery", "Discharging", "System")]));
    assert!(!supplies(&[mains, ("Battery", "Charging", "")]));
    assert!(!supplies(&[("Battery", "Discharging", "Device")]));
    assert!(!supplies(&[mains]));
    assert!(!is_on_battery(Path::new("/nonexistent")));
}

#[test]
fn wake_up_is_measured_where_there_are_two_processors() {
    if usable_cores() < 2.0 {
        return cryptline_testkit::peer::skip("two processors are needed");
    }
    // A machine that gives a thread no time in 10 ms says nothing just then.
    match (0..100).find_map(|_| wake_up()) {
        Some(wake_up) => assert!(wake_up > Duration::ZERO && wake_up <= MEASURE_MAX),
        None => {
            let load = nix::sys::sysinfo::sysinfo().unwrap().load_average().0;
            assert!(load > 2.0, "none of many tries gives a number");
        }
    }
}

#[test]
fn nobody_looks_out_by_system_calls() {
    let limit = Duration::from_micros(50);
    let measured = Poll::Measured { limit, wake_up: None, lanes: 1 };
    for poll in [Poll::Always(limit), measured] {
        assert_eq!(poll.by(BackendChoice::Syscalls), Poll::Never(Why::NoRing));
        assert_eq!(poll.by(BackendChoice::IoUring), poll);
    }
    assert_eq!(Poll::default().by(BackendChoice::Syscalls), Poll::default());
    assert_eq!(Poll::Never(Why::Battery).by(BackendChoice::Auto), Poll::Never(Why::Battery));
}
