//! The whole truth table: every mode in each direction with every set of flags from every source.

use super::*;

const MODES: [Option<DispatchMode>; 4] =
    [None, Some(DispatchMode::Inline), Some(DispatchMode::Queue), Some(DispatchMode::Auto)];

fn all_flags() -> impl Iterator<Item = PerfFlags> {
    (0..32u8).map(|bits| PerfFlags {
        same_cpu_crypt: bits & 1 != 0,
        high_priority: bits & 2 != 0,
        submit_from_crypt_cpus: bits & 4 != 0,
        no_read_workqueue: bits & 8 != 0,
        no_write_workqueue: bits & 16 != 0,
    })
}

fn all_modes() -> impl Iterator<Item = (Option<DispatchMode>, Option<DispatchMode>)> {
    let writes = |read| MODES.into_iter().map(move |write| (read, write));
    MODES.into_iter().flat_map(writes)
}

fn with_modes((read, write): (Option<DispatchMode>, Option<DispatchMode>)) -> DispatchOptions {
    DispatchOptions { read, write, ..DispatchOptions::default() }
}

fn with_flags(options: DispatchOptions, perf: PerfFlags) -> DispatchOptions {
    DispatchOptions { perf, ..options }
}

/// Returns what one direction must be.
fn expected(given: Option<DispatchMode>, no_workqueue: bool, flags: PerfFlags) -> DispatchMode {
    match (given, no_workqueue) {
        (Some(mode), _) => mode,
        (None, true) => DispatchMode::Inline,
        (None, false) => {
            let queue = flags.same_cpu_crypt | flags.high_priority | flags.submit_from_crypt_cpus;
            if queue { DispatchMode::Queue } else { DispatchMode::Auto }
        }
    }
}

#[test]
fn without_modes_the_flags_decide_alike_wherever_they_come_from() {
    for flags in all_flags() {
        let plain = DispatchOptions::default();
        let from_table = plain.decide(Stored::Table(flags)).unwrap();
        let from_header = plain.decide(Stored::Header(flags)).unwrap();
        let from_line = with_flags(plain, flags).decide(Stored::Nothing).unwrap();
        assert_eq!(from_table, from_header);
        assert_eq!(from_table, from_line);
        assert_eq!(from_table.flags, flags, "a table is printed back as it was");
        let Dispatch { read, write, .. } = from_table.dispatch;
        assert_eq!(read, expected(None, flags.no_read_workqueue, flags));
        assert_eq!(write, expected(None, flags.no_write_workqueue, flags));
    }
}

#[test]
fn given_modes_override_a_header() {
    for (modes, flags) in all_modes().flat_map(|modes| all_flags().map(move |it| (modes, it))) {
        let decision = with_modes(modes).decide(Stored::Header(flags)).unwrap();
        let Dispatch { read, write, .. } = decision.dispatch;
        assert_eq!(read, expected(modes.0, flags.no_read_workqueue, flags), "{modes:?} {flags:?}");
        assert_eq!(write, expected(modes.1, flags.no_write_workqueue, flags), "{modes:?} {flags:?}");
    }
}

#[test]
fn decision_is_consistent_in_itself() {
    for (modes, flags) in all_modes().flat_map(|modes| all_flags().map(move |it| (modes, it))) {
        for stored in [Stored::Header(flags), Stored::Table(flags)] {
            let Ok(Decision { dispatch, flags }) = with_modes(modes).decide(stored) else { continue };
            // The words of a table say inline exactly where it is inline.
            assert_eq!(flags.no_read_workqueue, dispatch.read == DispatchMode::Inline);
            assert_eq!(flags.no_write_workqueue, dispatch.write == DispatchMode::Inline);
            let queues = dispatch.uses_workers();
            assert!(queues || !(dispatch.same_cpu_crypt || dispatch.high_priority));
            assert!(dispatch.write == DispatchMode::Queue || !dispatch.submit_from_crypt_cpus);
        }
    }
}

#[test]
fn perf_options_that_a_mode_denies_are_refused_and_no_others() {
    for (modes, flags) in all_modes().flat_map(|modes| all_flags().map(move |it| (modes, it))) {
        let (read, write) = modes;
        let not_inline = |mode| matches!(mode, Some(DispatchMode::Queue | DispatchMode::Auto));
        let not_queue = |mode| matches!(mode, Some(DispatchMode::Inline | DispatchMode::Auto));
        let both_ways = flags.same_cpu_crypt || flags.high_priority;
        let refused = (flags.no_read_workqueue && not_inline(read))
            || (flags.no_write_workqueue && not_inline(write))
            || (both_ways && not_queue(read) && not_queue(write))
            || (flags.submit_from_crypt_cpus && not_queue(write));
        let decided = with_flags(with_modes(modes), flags).decide(Stored::Nothing);
        assert_eq!(decided.is_err(), refused, "{modes:?} {flags:?}");
    }
}

#[test]
fn inline_is_refused_over_a_table_whose_words_are_about_the_queue_and_nothing_else_is() {
    for (modes, flags) in all_modes().flat_map(|modes| all_flags().map(move |it| (modes, it))) {
        let (read, write) = modes;
        let not_queue = |mode| matches!(mode, Some(DispatchMode::Inline | DispatchMode::Auto));
        let both_ways = flags.same_cpu_crypt || flags.high_priority;
        let inline = Some(DispatchMode::Inline);
        let refused =
            (flags.submit_from_crypt_cpus && write == inline) || (both_ways && not_queue(read) && write == inline);
        assert_eq!(with_modes(modes).decide(Stored::Table(flags)).is_err(), refused, "{modes:?} {flags:?}");
    }
}

#[test]
fn refusals_name_the_flag_and_what_it_contradicts() {
    let flag = |name: &str| {
        let mut perf = PerfFlags::default();
        *perf.by_name(name).unwrap() = true;
        perf
    };
    let refusal = |options: DispatchOptions, stored| match options.decide(stored) {
        Ok(decision) => panic!("{decision:?}"),
        Err(error) => match *error.problem() {
            Problem::Dispatch { flag, stored, asked, mode } => (flag, stored, asked, mode),
            _ => panic!("{error}"),
        },
    };
    for (both, write, name, asked) in [
        (Some(DispatchMode::Inline), None, "submit_from_crypt_cpus", Direction::Both),
        (Some(DispatchMode::Inline), None, "same_cpu_crypt", Direction::Both),
        (Some(DispatchMode::Auto), None, "high_priority", Direction::Both),
        (Some(DispatchMode::Queue), None, "no_read_workqueue", Direction::Both),
        (None, Some(DispatchMode::Auto), "no_write_workqueue", Direction::Write),
    ] {
        let options = DispatchOptions { both, write, perf: flag(name), ..DispatchOptions::default() };
        let mode = write.or(both).unwrap();
        assert_eq!(refusal(options, Stored::Nothing), (name, false, asked, mode));
    }
    let inline = DispatchOptions { both: Some(DispatchMode::Inline), ..DispatchOptions::default() };
    assert_eq!(
        refusal(inline, Stored::Table(flag("same_cpu_crypt"))),
        ("same_cpu_crypt", true, Direction::Both, DispatchMode::Inline)
    );
}

#[test]
fn a_direction_of_its_own_is_stronger_than_both() {
    let options = DispatchOptions {
        both: Some(DispatchMode::Queue),
        read: Some(DispatchMode::Inline),
        ..DispatchOptions::default()
    };
    let Dispatch { read, write, .. } = options.decide(Stored::Nothing).unwrap().dispatch;
    assert_eq!((read, write), (DispatchMode::Inline, DispatchMode::Queue));
}

#[test]
fn flags_of_the_caller_add_to_those_of_the_header() {
    let header = PerfFlags { no_read_workqueue: true, ..PerfFlags::default() };
    let perf = PerfFlags { submit_from_crypt_cpus: true, ..PerfFlags::default() };
    let options = with_flags(DispatchOptions::default(), perf);
    let Decision { dispatch, flags } = options.decide(Stored::Header(header)).unwrap();
    assert_eq!((dispatch.read, dispatch.write), (DispatchMode::Inline, DispatchMode::Queue));
    assert!(dispatch.submit_from_crypt_cpus && flags.no_read_workqueue);
}

#[test]
fn helpers_are_one_pool_for_all_volumes_and_start_only_where_auto_needs_them() {
    let pool = HelperPool::new(1);
    let auto = Dispatch::both(DispatchMode::Auto);
    for other in [DispatchMode::Inline, DispatchMode::Queue] {
        let (helpers, warning) = pool.helpers(&Dispatch::both(other)).unwrap();
        assert!(helpers.is_none() && warning.is_none());
    }
    assert!(pool.started.get().is_none());
    assert_eq!(pool.helpers(&auto).unwrap().0.unwrap().count(), 1);
    assert!(pool.clone().started.get().is_some(), "a clone has the same");
    assert!(HelperPool::new(0).helpers(&auto).unwrap().0.is_none());
}

#[test]
fn more_helpers_than_cores_are_as_many_as_cores_with_a_warning() {
    let cores = available_parallelism().unwrap().get();
    let wanted = 100_000;
    let warning = Warning::FewerHelpers { wanted, cores };
    assert_eq!(HelperPool::new(wanted).count(), (cores, Some(warning)));
    assert_eq!(HelperPool::new(cores).count(), (cores, None));
    assert_eq!(HelperPool::default().count(), (cores - 1, None));
}
