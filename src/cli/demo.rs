//! `spotkeeper demo`: the main job, for real, on this machine, in about a minute.
//!
//! It starts the emulator and the daemon as they are started everywhere else, shows what the
//! daemon's socket says, and does the sum when the job is over. It knows the daemon only through
//! that socket, so that somebody may kill it and start another one meanwhile.

use super::events::event_line;
use super::output::Format;
use super::ps::{self, Detail};
use super::text::{self, cut};
use super::{Console, Exit, Failure};
use crate::cli::client::Client;
use crate::demo::children::{Emulator, Running, Starter};
use crate::demo::figures::{Figures, figures};
use crate::demo::json_lines;
use crate::demo::stage::{JOB, STEPS, Stage};
use crate::demo::trainer::{LogLine, TrainerOptions};
use crate::model::resume_text::quoted;
use crate::model::view::{EventView, JobRow};
use crate::service::clock::Clock;
use futures_util::StreamExt as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Time between two looks at the daemon.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How long the job may take.
const DEADLINE_S: u64 = 180;
/// How long a daemon that is gone stays gone: whoever killed it may want to start it.
const RESTART_AFTER: Duration = Duration::from_secs(3);
/// Pages of events that are read at one look.
const PAGES_LIMIT: usize = 100;
/// Columns of the progress bar.
const BAR_COLUMNS: u64 = 40;

/// Arguments of `demo`.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {
    /// Keep the folder with ledger, logs, state and checkpoints
    #[arg(long)]
    pub keep: bool,
    /// Play in this folder, new or empty, and keep it [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Leave it to somebody else to start the daemon again when it is killed
    #[arg(long)]
    pub no_restart: bool,
    /// Give up after this time, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = DEADLINE_S)]
    pub give_up: u64,
}

/// `demo-trainer`: what the demo's job runs.
pub fn trainer(options: &TrainerOptions, console: &mut Console<'_>) -> ExitCode {
    match crate::demo::trainer::run(options, console.out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The exit code tells it, should this not be written.
            drop(writeln!(console.err, "{}", chain(&error)));
            error.exit_code().into()
        }
    }
}

/// Plays the demo.
pub async fn demo(args: &DemoArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    match Box::pin(from_stage_to_sum(args, console)).await {
        // Elsewhere a reader who has seen enough is no error; 0 here says that the job succeeded.
        Err(Failure::Output(cause)) => {
            Err(Failure::Demo(format!("the output cannot be written: {cause}")))
        }
        end @ (Ok(_) | Err(_)) => end,
    }
}

async fn from_stage_to_sum(args: &DemoArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let signals = signal_hook_tokio::Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals
        .map_err(|cause| Failure::Process { doing: "signals cannot be waited for", cause })?;
    let stage = Stage::make(args.dir.as_deref()).map_err(|error| failed(&error))?;
    let mut show = Show::new(args, &stage)?;
    let deadline = Duration::from_secs(args.give_up);
    let end = tokio::select! {
        end = tokio::time::timeout(deadline, Box::pin(show.play(console))) => match end {
            Ok(Ok(end)) => Ok(end),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Ok(End::TooLate),
        },
        _ = signals.next() => Ok(End::Interrupted),
    };
    let left_behind = show.close(console).await;
    let result = match end {
        Ok(end) => show.tell(end, console),
        Err(failure) => Err(failure),
    };
    let keep = args.keep || args.dir.is_some() || left_behind;
    if keep {
        console.remark(&format!("everything is in {}", stage.folder.display()))?;
    } else {
        let cause = std::fs::remove_dir_all(&stage.folder);
        cause.map_err(|cause| Failure::Process { doing: "the folder cannot be removed", cause })?;
    }
    result
}

/// How the play ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// The job is over, or waits for a person: its phase, and why.
    Over { phase: String, why: String },
    /// It took too long.
    TooLate,
    /// Somebody asked the demo to end.
    Interrupted,
}

struct Show<'a> {
    args: &'a DemoArgs,
    stage: &'a Stage,
    clock: Clock,
    client: Client,
    starter: Option<Starter>,
    emulator: Option<Emulator>,
    daemon: Option<Running>,
    /// When to start a daemon, in ms of boot time, if none answers until then.
    start_at: Option<u64>,
    events: Events,
    /// Lines of the live part on the terminal.
    drawn: usize,
}

impl<'a> Show<'a> {
    fn new(args: &'a DemoArgs, stage: &'a Stage) -> Result<Self, Failure> {
        Ok(Self {
            args,
            stage,
            clock: Clock::new(),
            client: Client::new(&stage.socket())?,
            starter: None,
            emulator: None,
            daemon: None,
            start_at: None,
            events: Events::default(),
            drawn: 0,
        })
    }

    /// Until the job is over.
    async fn play(&mut self, console: &mut Console<'_>) -> Result<End, Failure> {
        let mut starter = Starter::new().map_err(|error| failed(&error))?;
        self.stage.write_market().map_err(|error| failed(&error))?;
        let emulator = starter.emulator(self.stage).await.map_err(|error| failed(&error))?;
        let written = self.stage.write_files(&emulator.endpoint, starter.program());
        self.emulator = Some(emulator);
        written.map_err(|error| failed(&error))?;
        self.daemon = Some(starter.daemon(self.stage).map_err(|error| failed(&error))?);
        self.starter = Some(starter);
        self.introduce(console)?;
        loop {
            let row = self.look(console).await?;
            if let Some(emulator) = &mut self.emulator
                && let Some(status) = emulator.running.ended()
            {
                let log = self.stage.emulator_log();
                return Err(Failure::Demo(format!(
                    "the emulator ended ({status}): see {}",
                    log.display()
                )));
            }
            self.mind_the_daemon(row.is_some(), console)?;
            if let Some(row) = row {
                self.draw(&row, console)?;
                let over = ["SUCCEEDED", "FAILED", "CANCELLED", "BLOCKED"];
                if over.contains(&row.phase.as_str()) {
                    // What was said between the two questions.
                    self.read_events(console).await?;
                    return Ok(End::Over { phase: row.phase, why: row.why });
                }
            }
            console.out.flush()?;
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    fn introduce(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let stage = self.stage;
        let out = &mut *console.out;
        writeln!(
            out,
            "A training job of {STEPS} steps on a spot machine that is taken away again and again,\n\
             on this machine and with nothing but this program.\n"
        )?;
        writeln!(out, "folder    {}", stage.folder.display())?;
        if let Some(emulator) = &self.emulator {
            let (pid, endpoint) = (emulator.running.pid(), &emulator.endpoint);
            writeln!(out, "emulator  pid {pid}  the cloud, on {endpoint}")?;
        }
        if let Some(daemon) = &self.daemon {
            writeln!(out, "daemon    pid {}  log {}", daemon.pid(), stage.daemon_log().display())?;
        }
        writeln!(out, "ledger    {}", stage.ledger().display())?;
        writeln!(out, "trainer   {}", stage.trainer_log().display())?;
        writeln!(out, "state     {}", stage.state().display())?;
        writeln!(out, "restart   {}", self.start_command())?;
        writeln!(out)?;
        Ok(out.flush()?)
    }

    /// What starts the daemon, for a shell.
    fn start_command(&self) -> String {
        let program = self.starter.as_ref().map(|s| s.program().display().to_string());
        let config = self.stage.config().display().to_string();
        format!("{} run --config {}", quoted(&program.unwrap_or_default()), quoted(&config))
    }

    /// Asks the daemon; `None` if it does not answer, or does not know the job yet.
    async fn look(&mut self, console: &mut Console<'_>) -> Result<Option<JobRow>, Failure> {
        let Ok(jobs) = self.client.jobs().await else {
            // The next one may have a log of its own.
            self.events.after = 0;
            return Ok(None);
        };
        self.read_events(console).await?;
        Ok(jobs.view.jobs.into_iter().find(|row| row.name == JOB))
    }

    async fn read_events(&mut self, console: &mut Console<'_>) -> Result<(), Failure> {
        for _ in 0..PAGES_LIMIT {
            // A daemon that is gone is noticed elsewhere.
            let Ok(page) = self.client.events(None, self.events.after).await else { break };
            let fresh = self.events.take(page.view.events, page.view.next_after);
            if !fresh.is_empty() {
                self.wipe(console)?;
            }
            for event in &fresh {
                write!(console.out, "{}", event_line(event, &console.moment))?;
            }
            if fresh.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Says when the daemon is gone, and starts it again if nobody else does.
    fn mind_the_daemon(
        &mut self,
        answered: bool,
        console: &mut Console<'_>,
    ) -> Result<(), Failure> {
        let now = self.clock.now().boot.0;
        let wait = u64::try_from(RESTART_AFTER.as_millis()).unwrap_or(u64::MAX);
        if let Some(daemon) = &mut self.daemon {
            let Some(status) = daemon.ended() else { return Ok(()) };
            let pid = daemon.pid();
            self.daemon = None;
            self.wipe(console)?;
            if status.code() == Some(Exit::Refused.number().into()) {
                writeln!(console.out, "daemon    pid {pid}  another one holds the state")?;
                return Ok(());
            }
            let how = match status.signal() {
                Some(signal) => format!("was killed by signal {signal}"),
                None => format!("ended ({status})"),
            };
            let next = if self.args.no_restart {
                "start it again with"
            } else {
                "starts again in 3 s, or now with"
            };
            let command = self.start_command();
            writeln!(console.out, "daemon    pid {pid}  {how}; {next}: {command}")?;
            self.start_at = Some(now.saturating_add(wait));
            return Ok(());
        }
        if answered {
            // Somebody else's.
            self.start_at = None;
            return Ok(());
        }
        let start_at = *self.start_at.get_or_insert(now.saturating_add(wait));
        if now < start_at || self.args.no_restart {
            return Ok(());
        }
        self.start_at = None;
        if let Some(starter) = &mut self.starter {
            let daemon = starter.daemon(self.stage).map_err(|error| failed(&error))?;
            self.wipe(console)?;
            writeln!(console.out, "daemon    pid {}  started again", daemon.pid())?;
            self.daemon = Some(daemon);
        }
        Ok(())
    }

    /// Takes the live part off the terminal.
    fn wipe(&mut self, console: &mut Console<'_>) -> Result<(), Failure> {
        if self.drawn > 0 {
            write!(console.out, "\x1b[{}A\x1b[J", self.drawn)?;
            self.drawn = 0;
        }
        Ok(())
    }

    /// Puts the live part on the terminal; a pipe gets none.
    fn draw(&mut self, row: &JobRow, console: &mut Console<'_>) -> Result<(), Failure> {
        let (Some(width), Format::Table | Format::Wide) = (console.width, console.format) else {
            return Ok(());
        };
        let table =
            ps::render(std::slice::from_ref(row), Detail::Usual, Some(width), console.style);
        let log: Vec<LogLine> = read_lines(&self.stage.trainer_log());
        let bar = cut(&bar(&log), width.into()).into_owned();
        self.wipe(console)?;
        write!(console.out, "\n{table}\n{bar}\n")?;
        self.drawn = table.lines().count() + 3;
        Ok(())
    }

    /// Ends every process that the demo started. Answers whether somebody else's daemon is left.
    async fn close(&mut self, console: &mut Console<'_>) -> bool {
        drop(self.wipe(console));
        if let Some(daemon) = self.daemon.take() {
            daemon.end().await;
        }
        let theirs = self.client.daemon().await.ok();
        if let Some(theirs) = &theirs {
            let pid = theirs.view.pid;
            drop(
                console.remark(&format!("the daemon with pid {pid} is not the demo's: it goes on")),
            );
        }
        if let Some(emulator) = self.emulator.take() {
            emulator.running.end().await;
        }
        if let Some(starter) = self.starter.take() {
            starter.finish().await;
        }
        theirs.is_some()
    }

    /// The sum.
    fn tell(&mut self, end: End, console: &mut Console<'_>) -> Result<Exit, Failure> {
        let events: Vec<EventView> = self.events.all.values().cloned().collect();
        std::fs::write(self.stage.events(), json_lines::write(&events))
            .map_err(|cause| Failure::Process { doing: "the events cannot be kept", cause })?;
        let ledger = read_lines(&self.stage.ledger());
        let log: Vec<LogLine> = read_lines(&self.stage.trainer_log());
        let figures = figures(&ledger, &log, &events, self.stage.asked());
        write!(console.out, "\n{}", summary(&figures))?;
        let result = match end {
            End::Interrupted => {
                console.remark("interrupted: every process of the demo was ended")?;
                Ok(Exit::Interrupted)
            }
            End::TooLate => {
                let limit = self.args.give_up;
                Err(Failure::TimedOut(format!("the job was not over after {limit} s")))
            }
            End::Over { phase, .. }
                if phase == "SUCCEEDED" && figures.final_step == figures.asked_step =>
            {
                write!(console.out, "\n{}", what_next(self.args))?;
                Ok(Exit::Done)
            }
            End::Over { phase, why } => {
                console.remark(&format!("the job is {phase}: {why}"))?;
                Ok(Exit::JobFailed)
            }
        };
        if matches!(console.format, Format::Json | Format::Jsonl) {
            let json = serde_json::to_value(figures).unwrap_or_default();
            writeln!(console.out, "{}", text::json(&json, text::Lines::One))?;
        }
        console.out.flush()?;
        result
    }
}

/// The events that were read, in their order. A daemon whose state was wiped begins its log anew:
/// time tells what came first.
#[derive(Debug, Default)]
struct Events {
    all: BTreeMap<(String, u64), EventView>,
    after: u64,
}

impl Events {
    /// Takes a page, and gives back what is new in it.
    fn take(&mut self, page: Vec<EventView>, next_after: u64) -> Vec<EventView> {
        self.after = next_after;
        let mut fresh = Vec::new();
        for event in page {
            let key = (event.at.clone(), event.sequence);
            if self.all.insert(key, event.clone()).is_none() {
                fresh.push(event);
            }
        }
        fresh
    }
}

fn read_lines<T: serde::de::DeserializeOwned>(path: &std::path::Path) -> Vec<T> {
    // A file that is not there yet has no lines.
    json_lines::read(&std::fs::read_to_string(path).unwrap_or_default())
}

/// `trainer  ████████········  step 123 of 400`.
fn bar(log: &[LogLine]) -> String {
    let step = log.iter().rev().find_map(|line| match line {
        LogLine::Start { from: step } | LogLine::Step { step } => Some(*step),
        LogLine::Saving { .. } | LogLine::Saved { .. } | LogLine::Done => None,
    });
    let step = step.unwrap_or(0);
    let full = usize::try_from(step.min(STEPS) * BAR_COLUMNS / STEPS).unwrap_or(0);
    let rest = usize::try_from(BAR_COLUMNS).unwrap_or(0).saturating_sub(full);
    format!("trainer  [{}{}]  step {step} of {STEPS}", "#".repeat(full), ".".repeat(rest))
}

/// What a person reads at the end. Only what the figures say.
fn summary(figures: &Figures) -> String {
    let Figures { steps_repeated: repeated, steps_repeated_from_zero: from_zero, .. } = figures;
    let share = |part: i64, whole: i64| if whole > 0 { part * 100 / whole } else { 0 };
    format!(
        "attempts     {} ({} ended by a release)\n\
         steps        {} of {}\n\
         refused      {} newer checkpoint{} that would not have loaded\n\
         repeated     {repeated} steps; starting at zero each time would have repeated {from_zero}\n\
         lost         {} saved steps\n\
         money        CNY {} of {} at list price ({} %)\n\
         time         {:.0} s\n",
        figures.attempts,
        figures.releases,
        figures.final_step,
        figures.asked_step,
        figures.refused_checkpoints,
        if figures.refused_checkpoints == 1 { "" } else { "s" },
        figures.saved_steps_lost,
        figures.paid,
        figures.at_list_price,
        share(figures.paid.0, figures.at_list_price.0),
        figures.seconds,
    )
}

fn what_next(args: &DemoArgs) -> String {
    let keep = if args.keep || args.dir.is_some() {
        ""
    } else {
        "  spotkeeper demo --keep       the same, and the folder stays: read the ledger\n"
    };
    format!(
        "What to try next\n{keep}  kill -9 DAEMON-PID           while the demo runs\n  \
         spotkeeper init              a daemon file for your own account\n  \
         spotkeeper check FILE        is a job file right?\n"
    )
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::Demo(chain(error))
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::money::Money;

    fn event(at: &str, sequence: u64) -> EventView {
        EventView {
            sequence,
            at: at.into(),
            job: JOB.into(),
            run: 1,
            attempt: None,
            word: "PHASE".into(),
            text: String::new(),
            data: serde_json::Value::Null,
        }
    }

    #[test]
    fn a_log_that_begins_anew_is_read_from_its_beginning_and_nothing_counts_twice() {
        let mut events = Events::default();
        assert_eq!(events.take(vec![event("1", 1), event("2", 2)], 2).len(), 2);
        assert_eq!(events.take(vec![event("2", 2)], 2).len(), 0);
        assert_eq!(events.take(vec![event("3", 1)], 1).len(), 1);
        assert_eq!(events.after, 1);
        let order: Vec<&str> = events.all.values().map(|e| e.at.as_str()).collect();
        assert_eq!(order, ["1", "2", "3"]);
    }

    #[test]
    fn the_bar_is_as_long_as_the_job_is_far() {
        assert!(bar(&[]).contains("[........................................]  step 0 of 400"));
        let log = [LogLine::Start { from: 0 }, LogLine::Step { step: 200 }];
        assert!(bar(&log).contains("[####################....................]  step 200"));
    }

    #[test]
    fn the_summary_says_what_the_figures_say() {
        let figures = Figures {
            attempts: 5,
            releases: 4,
            refused_checkpoints: 2,
            asked_step: 400,
            final_step: 400,
            steps_repeated: 120,
            steps_repeated_from_zero: 900,
            saved_steps_lost: 0,
            seconds: 51.4,
            paid: Money(31_000),
            at_list_price: Money(100_000),
        };
        let text = summary(&figures);
        for part in ["5 (4 ended", "120 steps", "repeated 900", "0.031 of 0.1 at list price (31 %)"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
