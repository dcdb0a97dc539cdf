//! Judgement on the cases of a boot: all of them, so that one disagreement does not hide another.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Outcomes;

/// How many cases are named with the time they took.
const SLOWEST: usize = 12;

/// A named look at the outcomes, once the guest is off. It panics where they are not as they should be.
pub struct Check<'a> {
    name: String,
    verify: Box<dyn FnOnce(&Outcomes) + 'a>,
}

impl<'a> Check<'a> {
    /// One that `verify` makes.
    pub fn new(name: impl Into<String>, verify: impl FnOnce(&Outcomes) + 'a) -> Self {
        Self { name: name.into(), verify: Box::new(verify) }
    }

    /// One of a case that says by its exit status how it went.
    pub fn passes(case: &str) -> Self {
        let name = case.to_owned();
        Self::new(case, move |outcomes| {
            outcomes.passed(&name);
        })
    }
}

impl std::fmt::Debug for Check<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Check").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Makes all checks, and names those that failed beside what had `failed` before.
///
/// # Panics
/// When there is one.
#[track_caller]
pub fn judge(checks: Vec<Check<'_>>, outcomes: &Outcomes, mut failed: Vec<String>) {
    for Check { name, verify } in checks {
        eprintln!("--- {name}");
        if catch_unwind(AssertUnwindSafe(|| verify(outcomes))).is_err() {
            failed.push(name);
        }
    }
    eprintln!("{}", slowest(outcomes));
    assert!(failed.is_empty(), "{} failed, each explained above:\n{}", failed.len(), failed.join("\n"));
}

/// Cases that took longest, by the guest's clock: a boot is bounded by their sum.
fn slowest(outcomes: &Outcomes) -> String {
    let mut cases: Vec<_> = outcomes.iter().map(|case| (case.seconds, &case.name)).collect();
    cases.sort_by(|one, other| other.0.total_cmp(&one.0));
    let sum: f64 = cases.iter().map(|case| case.0).sum();
    let lines = cases.iter().take(SLOWEST).map(|(seconds, name)| format!("\n{seconds:>8.1}  {name}"));
    format!("{} cases took {sum:.0} s in the guest; the slowest:{}", cases.len(), lines.collect::<String>())
}
