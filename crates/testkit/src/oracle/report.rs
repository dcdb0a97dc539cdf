//! Reads what guest.sh wrote to the second serial line: text lines, each `end` followed by raw bytes.

use super::machine::Ended;
use super::{Case, Outcome, Outcomes};

/// How much of a log goes into a failure message.
const LOG_MAX_BYTES: usize = 16 * 1024;

/// One outcome for each case.
///
/// # Panics
/// With the console's log when the guest did not come to its end.
#[track_caller]
pub(super) fn read(cases: &[Case], ended: &Ended) -> Outcomes {
    match parse(cases, &ended.results) {
        Ok(outcomes) => Outcomes { outcomes },
        Err(why) => {
            let late = match ended.late {
                Some(limit) => format!("; QEMU was killed after {} s", limit.as_secs()),
                None => String::new(),
            };
            let console = tail(&ended.console);
            panic!("the kernel oracle {why}{late}\n{}\n-- console:\n{console}", ended.qemu);
        }
    }
}

fn parse(cases: &[Case], results: &[u8]) -> Result<Vec<Outcome>, String> {
    let mut rest = results;
    if line(&mut rest) != Some("ready") {
        return Err("did not boot".to_owned());
    }
    let mut outcomes = Vec::with_capacity(cases.len());
    for (index, case) in cases.iter().enumerate() {
        let lost = || format!("was lost in case {:?}", case.name);
        if line(&mut rest) != Some(&format!("begin {index:04}")) {
            return Err(lost());
        }
        outcomes.push(outcome(&mut rest, index, case).ok_or_else(lost)?);
    }
    match line(&mut rest) {
        Some("bye") if rest.is_empty() => Ok(outcomes),
        _ => Err("did not finish".to_owned()),
    }
}

/// `end INDEX STATUS BEGAN ENDED STDOUT STDERR KERNEL` and the three parts.
fn outcome(rest: &mut &[u8], index: usize, case: &Case) -> Option<Outcome> {
    let numbers: Vec<_> = line(rest)?.strip_prefix("end ")?.split(' ').collect();
    let [number, status, began, ended, stdout, stderr, kernel] = numbers[..] else { return None };
    let [stdout, stderr, kernel] = [stdout, stderr, kernel].map(|bytes| bytes.parse::<usize>().ok());
    let (began, ended): (f64, f64) = (began.parse().ok()?, ended.parse().ok()?);
    let mut part = |length| {
        let (bytes, after) = rest.split_at_checked(length)?;
        *rest = after;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    (number.parse() == Ok(index)).then_some(Outcome {
        name: case.name.clone(),
        status: status.parse().ok()?,
        seconds: ended - began,
        stdout: part(stdout?)?,
        stderr: part(stderr?)?,
        kernel_log: part(kernel?)?,
        script: case.script.clone(),
    })
}

/// Takes a line off the front of `rest`.
fn line<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let text = std::str::from_utf8(&rest[..end]).ok()?;
    *rest = &rest[end + 1..];
    Some(text)
}

/// The last part of a log, cut at a line.
fn tail(log: &str) -> &str {
    let start = log.len().saturating_sub(LOG_MAX_BYTES);
    let start = (start..log.len()).find(|&start| log.is_char_boundary(start)).unwrap_or(0);
    log[start..].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases() -> Vec<Case> {
        vec![Case::new("first".to_owned()), Case::new("second".to_owned())]
    }

    #[test]
    fn output_may_hold_lines_that_look_like_the_protocol() {
        let results = b"ready\nbegin 0000\nend 0000 0 1.50 3.75 4 0 2\nbye\nk\nbegin 0001\nend 0001 137 1.50 3.75 0 3 0\nerrbye\n";
        let outcomes = parse(&cases(), results).expect("well formed");
        assert_eq!((outcomes[0].status, outcomes[0].stdout.as_str()), (0, "bye\n"));
        assert_eq!((outcomes[1].status, outcomes[1].stderr.as_str()), (137, "err"));
    }

    #[test]
    fn a_guest_that_dies_is_reported_by_the_case_it_was_in() {
        assert_eq!(parse(&cases(), b"").expect_err("empty"), "did not boot");
        let cut = b"ready\nbegin 0000\nend 0000 0 1.50 3.75 0 0 0\nbegin 0001\nend 0001 0 1.50 3.75 9 0 0\nshort";
        assert_eq!(parse(&cases(), cut).expect_err("cut"), "was lost in case \"second\"");
        let unfinished = b"ready\nbegin 0000\nend 0000 0 1.50 3.75 0 0 0\nbegin 0001\nend 0001 0 1.50 3.75 0 0 0\n";
        assert_eq!(parse(&cases(), unfinished).expect_err("no bye"), "did not finish");
    }
}
