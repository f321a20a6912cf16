//! The command line: one file a verb. Each verb writes to the [`Console`] it is given and returns
//! an [`Exit`]; nothing here ends the process.
//!
//! Always holds: what a command found goes to standard output, remarks about it to standard error
//! (`-q` leaves them out); text from outside cannot command the terminal; no question is asked
//! where nobody can answer.

pub mod act;
pub mod adopt;
pub mod alert;
mod apply;
mod asked;
pub mod cancel;
pub mod check;
pub mod checkpoints;
pub mod client;
pub mod completion;
#[cfg(feature = "emulator")]
pub mod demo;
pub mod describe;
pub mod doctor;
#[cfg(feature = "emulator")]
mod emulator;
pub mod events;
pub mod evidence;
pub mod exit;
pub mod explain;
pub mod failure;
pub mod import;
pub mod init;
pub mod logs;
pub mod output;
pub mod plan;
pub mod ps;
mod run;
pub mod state;
pub mod text;
pub mod version;
pub mod wait;
pub mod why;

use crate::config::{DAEMON_FILE, Surroundings, load_daemon};
use crate::service::clock::Clock;
use clap::{Args, Parser, Subcommand};
use client::Client;
use exit::Exit;
use failure::Failure;
use output::{Format, Moment, Style};
use std::io::{self, BufRead as _, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `--version` shows behind the name.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("SPOTKEEPER_COMMIT_SHOWN"));

/// Supervisor for preemptible training jobs on Alibaba Cloud PAI-DLC.
#[derive(Debug, Parser)]
#[command(name = "spotkeeper", version = VERSION, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    /// What every verb takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Where the help shows the flags of every verb: behind those that a verb has of its own.
const COMMON: &str = "Options of every command";

/// Flags of every verb.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Daemon file [default: /etc/spotkeeper/spotkeeper.toml]
    #[arg(long, global = true, value_name = "FILE", help_heading = COMMON)]
    pub config: Option<PathBuf>,
    /// Socket of the daemon [default: the daemon file's]
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "SPOTKEEPER_SOCKET",
        hide_env_values = true,
        help_heading = COMMON
    )]
    pub socket: Option<PathBuf>,
    /// How to write what was found
    #[arg(
        short = 'o',
        long = "output",
        global = true,
        value_enum,
        value_name = "FORMAT",
        default_value = "table",
        help_heading = COMMON
    )]
    pub output: Format,
    /// Leave out remarks
    #[arg(short, long, global = true, help_heading = COMMON)]
    pub quiet: bool,
    /// Say more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = COMMON)]
    pub verbose: u8,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run the daemon
    Run,
    /// Show the jobs
    #[command(visible_alias = "ls")]
    Ps,
    /// Show everything about one job
    Describe(describe::DescribeArgs),
    /// Explain how the last attempt ended and what follows from it
    Why(why::WhyArgs),
    /// Write what DLC answered about the end of an attempt, secrets masked, as files
    Evidence(evidence::EvidenceArgs),
    /// Show what happened
    Events(events::EventsArgs),
    /// Show what an attempt prints
    Logs(logs::LogsArgs),
    /// Show the checkpoints of a job or below a URL, and which one would be resumed from
    Checkpoints(checkpoints::CheckpointsArgs),
    /// Stop jobs for good
    Cancel(cancel::CancelArgs),
    /// Submit nothing more for jobs; what runs goes on
    Pause(act::ActArgs),
    /// Go on with paused jobs
    Resume(act::ActArgs),
    /// Start jobs again that are blocked or ended
    Retry(act::RetryArgs),
    /// Take a DLC job that runs already as the running attempt of a job
    Adopt(adopt::AdoptArgs),
    /// Take jobs off the record, history and all; only what is over, or has no file any more
    Forget(act::ActArgs),
    /// Wait for jobs to end, or to reach a phase
    Wait(wait::WaitArgs),
    /// Check daemon file and job files
    Check(CheckArgs),
    /// Show what job files change of the jobs on record; changes nothing
    Plan(plan::PlanArgs),
    /// Wait until the daemon has taken the job files; `--prune` cancels jobs whose file is gone
    Apply(apply::ApplyArgs),
    /// Look whether every target can be reached: keys, clock, permissions, buckets
    Doctor,
    /// Make a job file from the CreateJob body of a script, or from a job on DLC
    Import(import::ImportArgs),
    /// Keep, examine, bring back or take over the state of a stopped daemon
    #[command(subcommand)]
    State(state::StateVerb),
    /// Try the channels of alerts
    #[command(subcommand)]
    Alert(alert::AlertVerb),
    /// Give this installation its owner id and its daemon file
    Init,
    /// Explain the code of an error
    Explain(explain::ExplainArgs),
    /// Write a script that completes commands, flags and names of jobs in a shell
    Completion(completion::CompletionArgs),
    /// What fits at the cursor, for those scripts
    #[command(hide = true)]
    Complete(completion::CompleteArgs),
    /// Show the version
    Version,
    /// Watch the main job happen on this machine, in about a minute
    #[cfg(feature = "emulator")]
    Demo(demo::DemoArgs),
    /// What the demo's job runs
    #[cfg(feature = "emulator")]
    #[command(hide = true)]
    DemoTrainer(crate::demo::trainer::TrainerOptions),
    /// Run a PAI-DLC stand-in on loopback
    #[cfg(feature = "emulator")]
    Emulator(crate::emulator::args::EmulatorArgs),
}

/// Arguments of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Job files or folders of them [default: the jobs folder of the daemon file]
    pub files: Vec<PathBuf>,
}

/// Where a verb writes, and how.
pub struct Console<'a> {
    /// What was found.
    pub out: &'a mut dyn Write,
    /// Remarks and questions.
    pub err: &'a mut dyn Write,
    /// Where answers to questions come from.
    pub answers: Answers,
    /// `-o`.
    pub format: Format,
    /// Columns of the terminal; `None` is a pipe or a file.
    pub width: Option<u16>,
    /// Colours.
    pub style: Style,
    /// The reader's time.
    pub moment: Moment,
    /// What every verb takes.
    pub global: &'a Global,
}

impl std::fmt::Debug for Console<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("format", &self.format).finish_non_exhaustive()
    }
}

/// Where answers come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answers {
    /// A person at a terminal.
    Terminal,
    /// Nobody: a script, cron, a pipe.
    Nobody,
}

impl Console<'_> {
    /// Writes a remark, unless `-q`.
    pub fn remark(&mut self, text: &str) -> Result<(), Failure> {
        if !self.global.quiet {
            self.out.flush()?;
            writeln!(self.err, "{text}")?;
        }
        Ok(())
    }

    /// Asks, and reads one line. `flag` is what answers beforehand: without a terminal nobody is
    /// asked, and the failure names it.
    pub fn ask(&mut self, verb: &str, flag: &str, question: &str) -> Result<String, Failure> {
        self.must_be_askable(verb, flag)?;
        self.out.flush()?;
        write!(self.err, "{question} ")?;
        self.err.flush()?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Whether somebody could answer; else the failure that names `flag`.
    pub fn must_be_askable(&self, verb: &str, flag: &str) -> Result<(), Failure> {
        match self.answers {
            Answers::Terminal => Ok(()),
            Answers::Nobody => Err(Failure::Usage(format!(
                "`{verb}` asks first, and there is no terminal to ask on: add `{flag}`"
            ))),
        }
    }

    /// A client of the daemon.
    pub fn client(&self) -> Result<Client, Failure> {
        Client::new(&socket(self.global)?)
    }
}

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    let Cli { global, verb } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(asked) => {
            let exit = if asked.use_stderr() { Exit::Usage } else { Exit::Done };
            // Nothing is left to be done about a terminal that is gone.
            drop(asked.print());
            return exit.into();
        }
    };
    // Neither is locked: the daemon's other threads write their log to standard error.
    let (stdout, mut stderr) = (io::stdout(), io::stderr());
    let terminal = stdout.is_terminal();
    let answers = if io::stdin().is_terminal() && stderr.is_terminal() {
        Answers::Terminal
    } else {
        Answers::Nobody
    };
    let width =
        rustix::termios::tcgetwinsize(&stdout).ok().map(|size| size.ws_col).filter(|c| *c > 0);
    let mut out = io::BufWriter::new(stdout);
    let mut console = Console {
        out: &mut out,
        err: &mut stderr,
        answers,
        format: global.output,
        width,
        style: if terminal && colours_wanted() { Style::Colour } else { Style::Plain },
        moment: Moment { now: Clock::new().now().wall, zone: jiff::tz::TimeZone::system() },
        global: &global,
    };
    let done = dispatch(verb, &mut console)
        .and_then(|exit| console.out.flush().map(|()| exit).map_err(Failure::from));
    match done {
        Ok(exit) => exit,
        Err(failure) => {
            let exit = failure.exit();
            if exit != Exit::Done {
                // The failure itself stands in the exit code, should this not be written.
                drop(console.out.flush());
                drop(writeln!(console.err, "{}", failure.report()));
            }
            exit.into()
        }
    }
}

/// `NO_COLOR` (any value) and `TERM=dumb` turn colours off.
fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb")
}

fn dispatch(verb: Verb, console: &mut Console<'_>) -> Result<ExitCode, Failure> {
    use crate::model::handle::ActVerb;
    let done = match verb {
        Verb::Run => Ok(run::run(console.global.config.as_deref())),
        Verb::Ps => block_on(ps::ps(console)),
        Verb::Describe(args) => block_on(describe::describe(&args, console)),
        Verb::Why(args) => block_on(why::why(&args, console)),
        Verb::Evidence(args) => block_on(evidence::evidence(&args, console)),
        Verb::Events(args) => block_on(events::events(&args, console)),
        Verb::Logs(args) => block_on(logs::logs(&args, console)),
        Verb::Checkpoints(args) => block_on(checkpoints::checkpoints(&args, console)),
        Verb::Cancel(args) => block_on(cancel::cancel(&args, console)),
        Verb::Pause(args) => block_on(act::act(&args, ActVerb::Pause, console)),
        Verb::Resume(args) => block_on(act::act(&args, ActVerb::Resume, console)),
        Verb::Retry(args) => block_on(act::retry(&args, console)),
        Verb::Adopt(args) => block_on(adopt::adopt(&args, console)),
        Verb::Forget(args) => block_on(act::act(&args, ActVerb::Forget, console)),
        Verb::Wait(args) => block_on(wait::wait(&args, console)),
        Verb::Check(args) => {
            let form = match console.format {
                Format::Json | Format::Jsonl => check::Form::Json,
                Format::Table | Format::Wide | Format::Name => check::Form::Text,
            };
            let (config, files) = (console.global.config.clone(), args.files);
            let request = check::Request { config, files, form };
            let around = Surroundings::of_this_process();
            Ok(exit_of(check::check(&request, &around, console.out)?))
        }
        Verb::Plan(args) => block_on(plan::plan(&args, console)),
        Verb::Apply(args) => block_on(apply::apply(&args, console)),
        Verb::Alert(verb) => block_on(alert::alert(&verb, console)),
        Verb::Doctor => block_on(doctor::doctor(console)),
        Verb::Import(args) => block_on(import::import(&args, console)),
        Verb::Init => {
            let (config, around) = (&console.global.config, Surroundings::of_this_process());
            Ok(exit_of(init::init(config.as_deref(), &around, console.out, console.err)?))
        }
        Verb::Explain(args) => explain::explain(&args, console),
        Verb::State(verb) => state::state(&verb, console),
        Verb::Completion(args) => completion::completion(&args, console),
        Verb::Complete(args) => block_on(completion::complete(&args, console)),
        Verb::Version => version::version(console),
        #[cfg(feature = "emulator")]
        Verb::Demo(args) => block_on(demo::demo(&args, console)),
        // A trainer has exit codes of its own.
        #[cfg(feature = "emulator")]
        Verb::DemoTrainer(options) => return Ok(demo::trainer(&options, console)),
        #[cfg(feature = "emulator")]
        Verb::Emulator(args) => match emulator::run(args) {
            Ok(()) => Ok(Exit::Done),
            Err(error) => Err(Failure::Look(format!("{error:#}"))),
        },
    };
    done.map(ExitCode::from)
}

fn exit_of(number: u8) -> Exit {
    Exit::ALL.iter().copied().find(|exit| exit.number() == number).unwrap_or(Exit::Error)
}

/// Runs a verb that waits for answers.
fn block_on<T>(verb: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| Failure::Process { doing: "the runtime cannot be started", cause })?;
    runtime.block_on(verb)
}

/// The daemon's socket: the flag or variable, else the daemon file's, even if something else in
/// that file is wrong.
fn socket(global: &Global) -> Result<PathBuf, Failure> {
    if let Some(socket) = global.socket.as_ref().filter(|path| !path.as_os_str().is_empty()) {
        return Ok(socket.clone());
    }
    let around = Surroundings::of_this_process();
    let path = global.config.as_deref().unwrap_or(Path::new(DAEMON_FILE));
    let file = load_daemon(path, &around);
    match (file.draft, &global.config) {
        (Some(draft), _) => Ok(draft.socket),
        (None, Some(named)) => {
            let first = file.diagnostics.first();
            let why = first.map_or(String::new(), |d| format!("{}; {}", d.message, d.mend));
            Err(Failure::DaemonFile { path: named.clone(), why })
        }
        (None, None) => {
            let folder = around.runtime_directory.unwrap_or("/run/spotkeeper".into());
            Ok(folder.join("api.sock"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_socket_is_the_flags_or_the_daemon_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("spotkeeper.toml");
        std::fs::write(&config, "sweep = 7\n[api]\nsocket = \"/x/y.sock\"\n").expect("a file");
        let global = |flags: &[&str]| {
            let line = ["spotkeeper", "ps"].iter().chain(flags);
            Cli::try_parse_from(line).expect("a command line").global
        };
        let file = config.to_str().expect("a text");
        assert_eq!(socket(&global(&["--config", file])).expect("a socket"), Path::new("/x/y.sock"));
        assert_eq!(
            socket(&global(&["--config", file, "--socket", "/z"])).expect("a socket"),
            Path::new("/z")
        );
        let gone = folder.path().join("gone.toml");
        let failure = socket(&global(&["--config", gone.to_str().expect("a text")]));
        assert_eq!(failure.expect_err("no such file").exit(), Exit::ConfigNotValid);
    }
}
