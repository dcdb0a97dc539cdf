//! `fault`: a device whose requests fail, on purpose and by plan. For tests of everything above it.
//!
//! ```text
//! read:nth=3            the third read fails with EIO
//! write:every=10        each tenth write fails
//! flush:after=2         every flush after the second fails
//! read:offset=4096      every read that touches byte 4096
//! read:nth=1:delay=250  the first read takes 250 ms longer and succeeds
//! write:nth=2:error=ENOSPC
//! zone:nth=2            the second action on a zone fails; appends are writes
//! read:nth=2:late       the second read fails when it comes back, as on a real medium
//! ```
//!
//! The rules of a plan count over all queues of the device, in the order of submission.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cryptline_sys::Ring;
use rustix::io::Errno;

use crate::gate::Gate;
use crate::layered::{Descent, Layer, LayerOut, Layered};
use crate::{Completion, Device, Fault, Op, OpenError, Queue, Request, Traits};

/// When a rule strikes, counting the operations it is for from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Nth(u64),
    Every(u64),
    After(u64),
    Offset(u64),
    Always,
}

/// One rule; see the module's documentation for the text form.
#[derive(Debug)]
pub struct FaultRule {
    /// One of those that [`kind_of`] gives.
    on: Op,
    when: When,
    delay: Duration,
    /// `None` for a rule that only delays.
    fault: Option<Fault>,
    /// Fail when the request comes back from below, not when it is submitted.
    late: bool,
    seen: AtomicU64,
}

/// Effect of a rule on one request.
#[derive(Clone, Copy)]
struct Strike {
    delay: Duration,
    fault: Option<Fault>,
    late: bool,
}

impl FaultRule {
    /// Returns the effect of the rule on this request, if any.
    fn strike(&self, request: &Request) -> Option<Strike> {
        if kind_of(request.op) != self.on {
            return None;
        }
        let count = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        let hit = match self.when {
            When::Nth(nth) => count == nth,
            When::Every(every) => count.is_multiple_of(every),
            When::After(after) => count > after,
            When::Offset(byte) => (request.offset..request.offset + request.len).contains(&byte),
            When::Always => true,
        };
        hit.then_some(Strike { delay: self.delay, fault: self.fault, late: self.late })
    }
}

impl FromStr for FaultRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(':');
        let on = match words.next().unwrap_or_default() {
            "read" => Op::Read,
            "write" => Op::Write,
            "flush" => Op::Flush,
            "discard" => Op::Discard,
            "zone" => Op::ZoneReset,
            other => {
                return Err(format!("unknown operation '{other}': read, write, flush, discard, zone"));
            }
        };
        let mut rule =
            Self { on, when: When::Always, delay: Duration::ZERO, fault: None, late: false, seen: AtomicU64::new(0) };
        let mut error = None;
        for word in words {
            if word == "late" {
                rule.late = true;
                continue;
            }
            let (key, value) = word.split_once('=').ok_or_else(|| format!("'{word}' is not KEY=VALUE"))?;
            let number = || {
                let parsed = value.parse::<u64>().ok();
                parsed.ok_or_else(|| format!("'{value}' is not a number"))
            };
            match key {
                "nth" => rule.when = When::Nth(number()?),
                "every" => rule.when = When::Every(number()?.max(1)),
                "after" => rule.when = When::After(number()?),
                "offset" => rule.when = When::Offset(number()?),
                "delay" => rule.delay = Duration::from_millis(number()?.min(60_000)),
                "error" => error = Some(parse_error(value)?),
                _ => {
                    return Err(format!("unknown '{key}': nth, every, after, offset, delay, error, late"));
                }
            }
        }
        rule.fault = match (error, rule.delay.is_zero()) {
            (None, true) => Some(Fault::Io(Errno::IO)),
            // As files and servers below say it: not a refusal, since it may be the report of earlier writes.
            (Some(Fault::NotSupported), _) if on == Op::Flush => Some(Fault::Io(Errno::OPNOTSUPP)),
            (error, _) => error,
        };
        Ok(rule)
    }
}

/// The operation whose rules an operation goes by.
fn kind_of(op: Op) -> Op {
    match op {
        Op::Read | Op::Cache => Op::Read,
        Op::Flush | Op::Discard => op,
        op if op.zone_action().is_some() => Op::ZoneReset,
        _ => Op::Write,
    }
}

fn parse_error(name: &str) -> Result<Fault, String> {
    match name {
        "EIO" => Ok(Fault::Io(Errno::IO)),
        "ENOSPC" => Ok(Fault::NoSpace),
        "EOPNOTSUPP" => Ok(Fault::NotSupported),
        _ => Err(format!("unknown error '{name}': EIO, ENOSPC, EOPNOTSUPP")),
    }
}

/// The rules of one device, or of several.
#[derive(Debug, Default)]
pub struct FaultPlan(pub Vec<FaultRule>);

/// A device that fails by plan.
pub struct FaultDevice {
    lower: Gate,
    plan: Arc<FaultPlan>,
}

impl FaultDevice {
    /// Lays `plan` over `lower`. Where several devices are given the same, its rules count over all of them.
    #[must_use]
    pub fn new(lower: Gate, plan: impl Into<Arc<FaultPlan>>) -> Self {
        Self { lower, plan: plan.into() }
    }
}

impl Device for FaultDevice {
    fn traits(&self) -> Traits {
        Traits::over(self.below())
    }

    fn grow(&self) -> u64 {
        self.lower.grow()
    }

    fn below(&self) -> &[Gate] {
        std::slice::from_ref(&self.lower)
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        let layer = FaultLayer { plan: Arc::clone(&self.plan) };
        let lower = vec![self.lower.open_queue(ring)?];
        Ok(Box::new(Layered::new(layer, lower, ring.depth())))
    }
}

struct FaultLayer {
    plan: Arc<FaultPlan>,
}

impl Layer for FaultLayer {
    /// Fault with which it will come back.
    type Note = Option<Fault>;

    fn down(&mut self, request: &mut Request) -> Descent<Self::Note> {
        let strikes = self.plan.0.iter().filter_map(|rule| rule.strike(request));
        let none = Strike { delay: Duration::ZERO, fault: None, late: false };
        let strike = strikes.fold(none, |sum, strike| Strike {
            delay: sum.delay + strike.delay,
            fault: sum.fault.or(strike.fault),
            late: sum.late || strike.late,
        });
        if !strike.delay.is_zero() {
            // A stalled medium: this connection waits, and nobody else may.
            std::thread::sleep(strike.delay);
        }
        let note = match strike.fault {
            Some(fault) if !strike.late => return Descent::End(Err(fault)),
            // As a file says it: what was written and then not made durable was not refused.
            Some(Fault::NoSpace) if request.op.is_sync() => Some(Fault::Io(Errno::NOSPC)),
            late => late,
        };
        Descent::Through { device: 0, note }
    }

    fn up(
        &mut self,
        completion: &mut Completion,
        late: Self::Note,
        _out: &mut LayerOut<Self::Note>,
    ) -> Option<Self::Note> {
        if let Some(fault) = late {
            completion.result = Err(fault);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_parse_or_say_what_is_wrong() {
        let rule: FaultRule = "write:nth=2:error=ENOSPC".parse().unwrap();
        assert_eq!((rule.when, rule.fault), (When::Nth(2), Some(Fault::NoSpace)));
        let rule: FaultRule = "read:delay=5".parse().unwrap();
        assert_eq!(rule.fault, None);
        assert_eq!("flush".parse::<FaultRule>().unwrap().fault, Some(Fault::Io(Errno::IO)));
        for wrong in ["", "sync", "read:nth", "read:nth=x", "read:color=red", "read:error=E"] {
            assert!(wrong.parse::<FaultRule>().is_err(), "{wrong}");
        }
    }
}
