//! Tests of what people are told, and by whom.

use super::*;

#[test]
fn exit_codes_are_those_of_cryptsetup() {
    let codes = [
        CliError::parameters("").exit_code(),
        CliError::no_key("").exit_code(),
        CliError::memory("").exit_code(),
        CliError::device("").exit_code(),
        CliError::busy("").exit_code(),
    ];
    assert_eq!(codes, [1, 2, 3, 4, 5]);
    let error = cryptline::Error::from(LuksError::NoKey);
    assert_eq!(CliError::from(error).exit_code(), 2);
}

#[test]
fn a_path_with_control_characters_stays_on_one_line() {
    let error = CliError::device("a\nb\u{1b}[31m: not there");
    assert_eq!(error.to_string(), "a\\nb\\u{1b}[31m: not there");
}

#[test]
fn what_helps_is_said_with_its_option_or_verb() {
    let words = |problem: Problem| CliError::from(cryptline::Error::from(problem)).to_string();
    for (problem, option) in [
        (Problem::NotShareable, "--shared"),
        (Problem::NoConnection, "--reconnect"),
        (Problem::StartsEmpty, "--read-only"),
        (Problem::NoHash, "--hash"),
        (Problem::HeaderIsTarget, "--header"),
        (Problem::Exists { holds: None }, "--force"),
        (Problem::BttSectorSize(520), "--sector-size"),
        (Problem::Btt(BttError::Nothing), "cryptline btt create"),
        (Problem::Luks(LuksError::DetachedHeader), "--header"),
        (Problem::Luks(LuksError::NoKeySlot), "--volume-key-file"),
        (Problem::Device(OpenError::ZonedBlocks), "--logical-block"),
    ] {
        let said = words(problem);
        assert!(said.contains(option) && !said.contains('\n'), "{said}");
    }
}

#[test]
fn warnings_name_the_option_or_verb_that_they_are_about() {
    use cryptline::Warning;
    use cryptline::engine::btt::InfoBlockLost;
    let lost = InfoBlockLost { arena: 0, is_copy: true };
    let (wanted, cores) = (100, 2);
    for (said, option) in [
        (Warning::SharedPageCache, "--direct=on"),
        (Warning::ZonedQueue, "--dispatch=queue"),
        (Warning::Btt(lost), "cryptline btt check --repair"),
        (Warning::FewerHelpers { wanted, cores }, "--helpers 100"),
        (Warning::CounterNotNoted { path: "state".into(), why: "full".into() }, "cryptline header verify"),
    ] {
        let said = warning(&said);
        assert!(said.contains(option), "{said}");
    }
}
