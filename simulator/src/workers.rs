//! Histories on all processors: a process for each, which is started anew when it has come to an end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};

use crate::history::History;
use crate::points::{self, Reached};
use crate::run::Stage;
use crate::sim;

/// Seconds on a real clock after which a history hangs.
const HANGS: u32 = 30;
/// One history in so many happens twice.
const TWICE: u64 = 50;
/// Findings after which a run ends.
const ENOUGH: u64 = 5;

static CURRENT: AtomicU64 = AtomicU64::new(0);

/// The history under way.
pub fn current() -> String {
    format!("{:#x}", CURRENT.load(Ordering::Relaxed))
}

/// Tells if a person reads what is said when the process ends.
pub fn tells_all() -> bool {
    static TELLS: LazyLock<bool> = LazyLock::new(|| std::env::args().nth(1).is_some_and(|verb| verb == "replay"));
    *TELLS
}

pub fn note_current(seed: u64) {
    CURRENT.store(seed, Ordering::Relaxed);
}

/// A number in decimal or, behind `0x`, hexadecimal digits.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Lets all threads of this process run on one processor: a turn is handed over faster there.
fn settle_on_one_processor() {
    let mut set = rustix::thread::CpuSet::new();
    if let Ok(cpu) = u32::try_from(rustix::thread::sched_getcpu()) {
        set.set(cpu as usize);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// Where histories happen in this process. What is made once in a process is made by then.
pub fn stage() -> Stage {
    settle_on_one_processor();
    sim::keep_memory();
    crate::run::watch_panics();
    let stage = Stage::new().expect("a place for files");
    for seed in 0..3 {
        drop(stage.run(&History::of(seed)));
    }
    stage
}

/// A worker: histories from `first` on.
pub fn work(first: &str, step: &str, seconds: &str, most: &str) -> ExitCode {
    let [Some(first), Some(step), Some(seconds), Some(most)] = [first, step, seconds, most].map(number) else {
        return ExitCode::from(2);
    };
    let stage = stage();
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut switches, mut promised, mut count) = (0, 0, 0);
    let mut index = 0;
    while index < most && Instant::now() < until {
        let seed = sim::mix(&[first, index * step]);
        index += 1;
        note_current(seed);
        println!("at {index} {seed:#x}");
        sim::ring_after(HANGS);
        let history = History::of(seed);
        let outcome = stage.run(&history);
        count += 1;
        switches += outcome.switches;
        promised += outcome.promised;
        for finding in &outcome.findings {
            println!("failed {seed:#x} {}", finding.replace('\n', "\\n"));
        }
        if outcome.is_spoilt {
            return ExitCode::from(crate::FAILED);
        }
        if index.is_multiple_of(TWICE) {
            let again = stage.run(&history);
            if again.hash != outcome.hash {
                println!("failed {seed:#x} happened twice, and not in the same way");
            }
        }
    }
    println!("points {}", points::tell());
    println!("counts {count} {switches} {promised}");
    ExitCode::SUCCESS
}

/// Findings and counts of a run so far.
#[derive(Default)]
struct Found {
    findings: Vec<(String, String)>,
    histories: u64,
    promised: u64,
    switches: u64,
    reached: Reached,
}

/// Histories for as long as the options say.
pub fn run(options: &[&str]) -> ExitCode {
    let value = |name: &str| {
        let place = options.iter().position(|option| *option == name)?;
        number(options.get(place + 1)?)
    };
    let seconds = value("--seconds").unwrap_or(20);
    let first = value("--seed").unwrap_or(1);
    let most = value("--histories").unwrap_or(u64::MAX);
    let enough = value("--enough").unwrap_or(ENOUGH);
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let began = Instant::now();
    let (tell, told) = mpsc::channel();
    for worker in 0..workers {
        let tell = tell.clone();
        std::thread::spawn(move || attend(sim::mix(&[first, worker]), seconds, most.div_ceil(workers), &tell));
    }
    drop(tell);
    let mut found = Found::default();
    for line in told {
        found.take(&line);
        if found.findings.len() as u64 >= enough {
            break;
        }
    }
    let has_reached_all = !options.contains(&"--points") || found.reached.print();
    let ended = found.tell(began.elapsed(), workers);
    if has_reached_all { ended } else { ExitCode::from(crate::FAILED) }
}

/// Keeps a worker at work.
fn attend(first: u64, seconds: u64, most: u64, tell: &mpsc::Sender<String>) {
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut base, mut done) = (first, 0);
    while done < most && Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now()).as_secs().max(1);
        let Ok(mut child) = start(base, left, most - done) else {
            let _ = tell.send("failed 0 no worker can be started".to_owned());
            return;
        };
        let mut at = (0, String::new());
        let output = child.stdout.take().expect("it is piped");
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            if words.next() == Some("at") {
                at = (words.next().and_then(number).unwrap_or(0), words.next().unwrap_or_default().to_owned());
                let _ = tell.send("at".to_owned());
            } else if tell.send(line).is_err() {
                let _ = child.kill();
            }
        }
        let status = child.wait();
        done += at.0.max(1);
        match status.map(|status| status.code()) {
            Ok(Some(0)) => {}
            Ok(Some(code)) if [i32::from(crate::FAILED), crate::DIED].contains(&code) => {}
            // Where there is no place for histories it ends before the first.
            _ if at.0 == 0 => {
                let _ = tell.send("failed 0 a worker ended before its first history".to_owned());
                return;
            }
            _ => _ = tell.send(format!("failed {} hangs, or was ended by a signal", at.1)),
        }
        base = sim::mix(&[base, at.0]);
    }
}

fn start(first: u64, seconds: u64, most: u64) -> std::io::Result<Child> {
    let program = std::env::current_exe()?;
    let numbers = [first, 1, seconds, most].map(|number| number.to_string());
    Command::new(program).arg("worker").args(numbers).stdout(Stdio::piped()).spawn()
}

impl Found {
    fn take(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        match words.next() {
            Some("at") => self.histories += 1,
            Some("failed") => {
                let seed = words.next().unwrap_or_default().to_owned();
                let what = words.next().unwrap_or_default().to_owned();
                println!("{seed}: {}", what.replace("\\n", "\n"));
                let _ = std::io::stdout().flush();
                if self.findings.last().is_none_or(|(known, _)| *known != seed) {
                    self.findings.push((seed, what));
                }
            }
            Some("counts") => {
                let rest = line.split(' ').filter_map(number).collect::<Vec<_>>();
                if let [_, switches, promised] = rest[..] {
                    self.switches += switches;
                    self.promised += promised;
                }
            }
            Some("points") => self.reached.take(line),
            _ => {}
        }
    }

    fn tell(self, took: Duration, workers: u64) -> ExitCode {
        let rate = self.histories as f64 / took.as_secs_f64() / workers as f64;
        println!(
            "{} histories, {rate:.0} a second and processor; {} writes promised, {} changes of turns",
            self.histories, self.promised, self.switches
        );
        for (seed, _) in &self.findings {
            println!("simulator replay {seed}");
        }
        if self.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(crate::FAILED) }
    }
}
