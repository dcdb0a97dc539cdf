//! The whole truth table: every mode in each direction with every set of flags from every source.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    dispatch: DispatchOptions,
}

fn options(arguments: &str) -> DispatchOptions {
    let words = std::iter::once("test").chain(arguments.split_whitespace());
    Line::try_parse_from(words).unwrap().dispatch
}

const MODES: [Option<Who>; 4] = [None, Some(Who::Inline), Some(Who::Queue), Some(Who::Auto)];

fn all_flags() -> impl Iterator<Item = PerfFlags> {
    (0..32u8).map(|bits| PerfFlags {
        same_cpu_crypt: bits & 1 != 0,
        high_priority: bits & 2 != 0,
        submit_from_crypt_cpus: bits & 4 != 0,
        no_read_workqueue: bits & 8 != 0,
        no_write_workqueue: bits & 16 != 0,
    })
}

fn all_modes() -> impl Iterator<Item = (Option<Who>, Option<Who>)> {
    let writes = |read| MODES.into_iter().map(move |write| (read, write));
    MODES.into_iter().flat_map(writes)
}

fn with_modes((read_dispatch, write_dispatch): (Option<Who>, Option<Who>)) -> DispatchOptions {
    DispatchOptions {
        read_dispatch,
        write_dispatch,
        ..DispatchOptions::default()
    }
}

fn with_flags(options: DispatchOptions, flags: PerfFlags) -> DispatchOptions {
    DispatchOptions {
        same_cpu_crypt: flags.same_cpu_crypt,
        high_priority: flags.high_priority,
        submit_from_crypt_cpus: flags.submit_from_crypt_cpus,
        no_read_workqueue: flags.no_read_workqueue,
        no_write_workqueue: flags.no_write_workqueue,
        ..options
    }
}

/// What one direction must be.
fn expected(given: Option<Who>, no_workqueue: bool, flags: PerfFlags) -> Mode {
    match (given, no_workqueue) {
        (Some(who), _) => who.into(),
        (None, true) => Mode::Inline,
        (None, false) => {
            let queue = flags.same_cpu_crypt | flags.high_priority | flags.submit_from_crypt_cpus;
            if queue { Mode::Queue } else { Mode::Auto }
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
        assert_eq!(
            read,
            expected(modes.0, flags.no_read_workqueue, flags),
            "{modes:?} {flags:?}"
        );
        assert_eq!(
            write,
            expected(modes.1, flags.no_write_workqueue, flags),
            "{modes:?} {flags:?}"
        );
    }
}

#[test]
fn decision_is_consistent_in_itself() {
    for (modes, flags) in all_modes().flat_map(|modes| all_flags().map(move |it| (modes, it))) {
        for stored in [Stored::Header(flags), Stored::Table(flags)] {
            let Ok(Decision { dispatch, flags }) = with_modes(modes).decide(stored) else {
                continue;
            };
            // The words of a table say inline exactly where it is inline.
            assert_eq!(flags.no_read_workqueue, dispatch.read == Mode::Inline);
            assert_eq!(flags.no_write_workqueue, dispatch.write == Mode::Inline);
            let queues = dispatch.uses_workers();
            assert!(queues || !(dispatch.same_cpu_crypt || dispatch.high_priority));
            assert!(dispatch.write == Mode::Queue || !dispatch.submit_from_crypt_cpus);
        }
    }
}

#[test]
fn perf_options_that_a_mode_denies_are_refused_and_no_others() {
    for (modes, flags) in all_modes().flat_map(|modes| all_flags().map(move |it| (modes, it))) {
        let (read, write) = modes;
        let not_inline = |mode| matches!(mode, Some(Who::Queue | Who::Auto));
        let not_queue = |mode| matches!(mode, Some(Who::Inline | Who::Auto));
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
        let not_queue = |mode| matches!(mode, Some(Who::Inline | Who::Auto));
        let both_ways = flags.same_cpu_crypt || flags.high_priority;
        let inline = Some(Who::Inline);
        let refused = (flags.submit_from_crypt_cpus && write == inline)
            || (both_ways && not_queue(read) && write == inline);
        let decided = with_modes(modes).decide(Stored::Table(flags));
        assert_eq!(decided.is_err(), refused, "{modes:?} {flags:?}");
    }
}

#[test]
fn refusals_name_both_options_on_one_line() {
    for (arguments, first, second) in [
        (
            "--dispatch inline --perf-submit_from_crypt_cpus",
            "--perf-submit_from_crypt_cpus",
            "--dispatch says inline",
        ),
        (
            "--dispatch inline --perf-same_cpu_crypt",
            "--perf-same_cpu_crypt",
            "--dispatch says inline",
        ),
        (
            "--dispatch auto --perf-high_priority",
            "--perf-high_priority",
            "--dispatch says auto",
        ),
        (
            "--dispatch queue --perf-no_read_workqueue",
            "--perf-no_read_workqueue",
            "--dispatch says queue",
        ),
        (
            "--write-dispatch auto --perf-no_write_workqueue",
            "--perf-no_write_workqueue",
            "--write-dispatch says auto",
        ),
    ] {
        let error = options(arguments).decide(Stored::Nothing).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), crate::error::Kind::Parameters);
        assert!(
            text.contains(first) && text.contains(second),
            "{arguments}: {text}"
        );
    }
    let words = PerfFlags {
        same_cpu_crypt: true,
        ..PerfFlags::default()
    };
    let error = options("--dispatch inline")
        .decide(Stored::Table(words))
        .unwrap_err();
    assert!(error.to_string().contains("same_cpu_crypt in the table"));
}

#[test]
fn a_direction_of_its_own_is_stronger_than_both() {
    let decision = options("--dispatch queue --read-dispatch inline").decide(Stored::Nothing);
    let Dispatch { read, write, .. } = decision.unwrap().dispatch;
    assert_eq!((read, write), (Mode::Inline, Mode::Queue));
}

#[test]
fn flags_of_the_command_line_add_to_those_of_the_header() {
    let header = PerfFlags {
        no_read_workqueue: true,
        ..PerfFlags::default()
    };
    let line = options("--perf-submit_from_crypt_cpus");
    let Decision { dispatch, flags } = line.decide(Stored::Header(header)).unwrap();
    assert_eq!((dispatch.read, dispatch.write), (Mode::Inline, Mode::Queue));
    assert!(dispatch.submit_from_crypt_cpus && flags.no_read_workqueue);
}

#[test]
fn helpers_are_one_crew_for_all_volumes_and_only_where_auto_needs_them() {
    let options = options("--helpers 1");
    let auto = Dispatch::both(Mode::Auto);
    for other in [Mode::Inline, Mode::Queue] {
        assert!(options.helpers(&Dispatch::both(other)).unwrap().is_none());
    }
    assert!(options.crew.0.get().is_none());
    assert_eq!(options.helpers(&auto).unwrap().unwrap().count(), 1);
    assert!(
        options.clone().crew.0.get().is_some(),
        "a copy has the same crew"
    );
    let none = self::options("--helpers 0");
    assert!(none.helpers(&auto).unwrap().is_none());
}

#[test]
fn more_helpers_than_cores_are_as_many_as_cores_with_a_warning() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let (count, warning) = options("--helpers 100000").helper_count();
    assert_eq!(count, cores);
    let warning = warning.unwrap();
    assert!(warning.contains("--helpers 100000") && warning.contains(&format!("starts {cores}")));
    assert_eq!(
        options(&format!("--helpers {cores}")).helper_count(),
        (cores, None)
    );
    assert_eq!(options("").helper_count(), (cores - 1, None));
    let decision = options("--helpers 100000").decide(Stored::Nothing).unwrap();
    assert_eq!(decision.dispatch, Dispatch::both(Mode::Auto));
}

#[test]
fn description_says_what_is_in_use() {
    let say = |arguments: &str, helpers| {
        let decision = options(arguments).decide(Stored::Nothing).unwrap();
        describe(&decision.dispatch, helpers)
    };
    assert_eq!(say("", 3), "auto (3 helpers)");
    assert_eq!(say("", 1), "auto (1 helper)");
    assert_eq!(say("", 0), "auto (no helpers)");
    assert_eq!(say("--dispatch inline", 3), "inline");
    assert_eq!(
        say("--perf-no_read_workqueue --perf-high_priority", 0),
        "read inline, write queue (high_priority)"
    );
    assert_eq!(
        say("--dispatch queue --read-dispatch auto", 2),
        "read auto (2 helpers), write queue"
    );
}
