//! A job file: what a person asks for, checked and turned into a `JobSpec`.
//!
//! Everything that is wrong is found in one run. A file with an error gives no spec, but still its
//! name and its checkpoint prefix where they can be read: nobody else may take these meanwhile.

use super::body::Body;
use super::checkpoint;
use super::codes;
use super::daemon::DaemonConfig;
use super::diagnostic::{Anchor, Diagnostic, Notes, Source, accepted, sort};
use super::files;
use super::hang;
use super::placements;
use super::platform;
use super::reader::{Found, Table, parse};
use super::schema::JOB;
use super::set::Claim;
use super::size::{self, Launcher};
use super::spot::{self, SpotTable};
use super::submit;
use super::waiting;
use crate::model::ids::{JobKey, JobName, TargetName};
use crate::model::money::Money;
use crate::model::resume_text::{self, ResumePlace};
use crate::model::spec::{JobSpec, OnStopped, Retry, Target};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const ALIKE: u32 = 5;
const ALIKE_MOST: u64 = 1_000;
const GIVE_UP: Duration = Duration::from_hours(24);
const GIVE_UP_SHORTEST: Duration = Duration::from_millis(100);
const RUN_MOST: u64 = 1_000_000;
const STEPS_MOST: u64 = 1_000_000_000_000;
/// What of the daemon file a job is checked against. `None` where the daemon file could not be
/// read: then that check is left out.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// Where jobs may be sent.
    pub targets: Option<&'a BTreeMap<TargetName, Target>>,
    /// Folder of the secrets.
    pub job_secrets: Option<&'a Path>,
}

impl<'a> Rules<'a> {
    /// Those of a daemon file.
    pub fn of(config: &'a DaemonConfig) -> Self {
        Self { targets: Some(&config.targets), job_secrets: Some(&config.job_secrets) }
    }

    /// None: there is no daemon file.
    pub fn unknown() -> Self {
        Self { targets: None, job_secrets: None }
    }
}

/// What came of reading a job file.
#[derive(Debug, Clone)]
pub struct JobFile {
    /// The name, whether or not the rest is right, and where it stands.
    pub name: Option<(JobName, Anchor)>,
    /// The checkpoint prefixes, whether or not the rest is right, and where they stand.
    pub prefixes: Vec<Claim>,
    /// The content, if it is free of errors.
    pub spec: Option<JobSpec>,
    /// Everything that was found, sorted.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads and checks a job file.
pub fn load_job(path: &Path, rules: Rules<'_>) -> JobFile {
    match files::read_own(path) {
        Ok(source) => read_job(&source, rules),
        Err(diagnostic) => {
            JobFile { name: None, prefixes: Vec::new(), spec: None, diagnostics: vec![*diagnostic] }
        }
    }
}

/// Checks the text of a job file.
pub fn read_job(source: &Source, rules: Rules<'_>) -> JobFile {
    let notes = Notes::new(source);
    let mut file =
        JobFile { name: None, prefixes: Vec::new(), spec: None, diagnostics: Vec::new() };
    if let Some(mut top) = parse(&notes, JOB) {
        file.name = name(&notes, &mut top);
        let json = top.text("submit_file").and_then(|found| submit_file(&notes, found));
        let json_notes = json.as_ref().map(Notes::new);
        file.spec = job(&notes, json_notes.as_ref(), top, rules, &mut file);
        for diagnostic in json_notes.map(Notes::into_found).unwrap_or_default() {
            notes.add(diagnostic);
        }
    }
    file.diagnostics = notes.into_found();
    sort(&mut file.diagnostics);
    if !accepted(&file.diagnostics) {
        file.spec = None;
    }
    file
}

fn name(notes: &Notes<'_>, top: &mut Table<'_, '_>) -> Option<(JobName, Anchor)> {
    let file = &notes.source.file;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let given = top.has("name");
    let (text, span) = match top.text("name") {
        Some(found) => (found.value, found.span),
        None if given => return None,
        None => (stem, 0..0),
    };
    match JobName::new(text) {
        Ok(name) => Some((name, notes.source.at(&span))),
        Err(bad) => {
            let what = if given { "name" } else { "name of the file" };
            let message = format!("`{}` cannot be a job's name (the {what})", bad.text);
            notes.error(&span, codes::WRONG_VALUE, message, format!("wanted: {}", bad.rule));
            None
        }
    }
}

/// The text of `submit_file`, whose path starts at the folder of the job file.
fn submit_file(notes: &Notes<'_>, found: Found<String>) -> Option<Source> {
    let folder = notes.source.file.parent().unwrap_or(Path::new(""));
    match files::read_own(&folder.join(found.value)) {
        Ok(source) => Some(source),
        Err(diagnostic) => {
            let message = format!("{} {}", diagnostic.at.file.display(), diagnostic.message);
            notes.error(&found.span, diagnostic.code, message, diagnostic.mend);
            None
        }
    }
}

fn job(
    notes: &Notes<'_>,
    json: Option<&Notes<'_>>,
    mut top: Table<'_, '_>,
    rules: Rules<'_>,
    file: &mut JobFile,
) -> Option<JobSpec> {
    let run = top.count("run", 1..=RUN_MOST).map_or(1, |found| found.value);
    let target = target(notes, &mut top, rules);
    let place = rules.targets.zip(target.as_ref()).and_then(|(all, name)| all.get(name));
    let launcher = top.flag("launcher").is_none_or(|found| found.value);
    let mut body = body(notes, json, &mut top);
    let mut secret_envs = BTreeMap::new();
    if let Some(body) = &mut body {
        secret_envs = submit::take_secrets(body, rules);
        submit::check(body, place);
    }
    let spot = spot(notes, &mut top, body.as_ref());
    let others = placements::read(notes, &mut top, body.as_ref(), rules);
    let waits = waiting::read(notes, &mut top);
    let mut checkpoint = None;
    let saves = top.has("checkpoint");
    if let Some(table) = top.table("checkpoint") {
        let (body, prefixes) = (body.as_ref(), &mut file.prefixes);
        checkpoint = checkpoint::read(notes, table, body, place, launcher, prefixes);
    } else if let Some(body) = &body {
        warn_of_empty_resume(body);
    }
    let spot_given = top.was_taken("spot");
    let placements_given = top.was_taken("placements");
    let total_steps = progress(&mut top);
    let retry = retry(&mut top);
    let list_price_per_hour = budget(&mut top);
    let hang = hang::read(notes, &mut top, saves);
    top.finish();
    let alternatives =
        Alternatives { others: &others, waits: &waits, spot_given, placements_given };
    let reach =
        placements::Reach { target: place, checkpoint: checkpoint.as_ref(), spot: spot.as_ref() };
    alternatives.check(notes, &reach, list_price_per_hour);
    let body = body?;
    platform::check(&body, place, spot.as_ref(), list_price_per_hour);
    let launcher_is = if launcher { Launcher::Around } else { Launcher::None };
    size::check(&body, launcher_is, checkpoint.as_ref(), &secret_envs, rules);
    let Value::Object(body) = body.value else { return None };
    let (name, _) = file.name.clone()?;
    Some(JobSpec {
        key: JobKey { name, run: u32::try_from(run).unwrap_or(1) },
        target: target?,
        launcher,
        body,
        secret_envs,
        spot: spot.map(|table| table.bid),
        checkpoint,
        total_steps,
        retry,
        list_price_per_hour,
        hang,
        waiting: waits.waiting,
        placements: others.into_iter().map(|found| found.placement).collect(),
    })
}

/// What follows a wait that is too long, as it was read.
struct Alternatives<'a> {
    others: &'a [placements::Other<'a>],
    waits: &'a waiting::Waits,
    spot_given: bool,
    placements_given: bool,
}

impl Alternatives<'_> {
    fn check(
        &self,
        notes: &Notes<'_>,
        reach: &placements::Reach<'_>,
        list_price_per_hour: Option<Money>,
    ) {
        placements::check(notes, self.others, reach);
        let asked = waiting::Asked {
            spot: reach.spot,
            spot_given: self.spot_given,
            list_price_per_hour,
            placements: self.others,
            placements_given: self.placements_given,
        };
        waiting::check(notes, self.waits, &asked);
    }
}

fn target(notes: &Notes<'_>, top: &mut Table<'_, '_>, rules: Rules<'_>) -> Option<TargetName> {
    if !top.has("target") {
        let mend = format!("add target = \"…\"; targets: {}", targets_in_words(rules));
        notes.error(&(0..0), codes::MISSING, "`target` is missing", mend);
        return None;
    }
    known_target(notes, &top.text("target")?, rules)
}

fn targets_in_words(rules: Rules<'_>) -> String {
    let names: Vec<&str> =
        rules.targets.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    if names.is_empty() { "the daemon file has none".to_owned() } else { names.join(", ") }
}

/// A target of the daemon file by its name.
pub(super) fn known_target(
    notes: &Notes<'_>,
    found: &Found<String>,
    rules: Rules<'_>,
) -> Option<TargetName> {
    let name = TargetName::new(found.value.clone()).ok();
    let Some(targets) = rules.targets else { return name };
    if let Some(name) = name.filter(|name| targets.contains_key(name)) {
        return Some(name);
    }
    let near = super::nearest::nearest(&found.value, targets.keys().map(TargetName::as_str));
    let at = notes.source.at(&found.span);
    let message = format!("no target `{}` in the daemon file", found.value);
    let mend = format!("targets: {}", targets_in_words(rules));
    let error = Diagnostic::error(at, codes::UNKNOWN_TARGET, message, mend);
    notes.add(error.near(near.map(str::to_owned)));
    None
}

fn body<'n, 's>(
    notes: &'n Notes<'s>,
    json: Option<&'n Notes<'s>>,
    top: &mut Table<'_, '_>,
) -> Option<Body<'n, 's>> {
    let both = "the body comes from [submit] or from submit_file: keep one of the two";
    let given = top.has("submit");
    match (top.open_table("submit"), json) {
        (Some(found), None) => Some(Body::from_toml(notes, found.key, found.span, found.value)),
        (None, Some(json)) if !given => Body::from_json(json),
        (Some(found), Some(_)) => {
            notes.error(&found.key, codes::EITHER_OR, "both `submit` and `submit_file`", both);
            Some(Body::from_toml(notes, found.key, found.span, found.value))
        }
        (None, Some(_)) => None,
        (None, None) => {
            // A file that was named and cannot be read, or a [submit] of another type, has its own
            // error already.
            if !given && !top.was_taken("submit_file") {
                let mend = "add a [submit] table with the body of CreateJob, or submit_file";
                notes.error(&(0..0), codes::MISSING, "no body for CreateJob", mend);
            }
            None
        }
    }
}

/// The bid of `[spot]`, which no `SpotSpec` of the body may stand beside.
fn spot(
    notes: &Notes<'_>,
    top: &mut Table<'_, '_>,
    body: Option<&Body<'_, '_>>,
) -> Option<SpotTable> {
    let table = top.table("spot")?;
    if let Some(body) = body {
        submit::check_single_bid(body);
    }
    spot::read(notes, table)
}

fn warn_of_empty_resume(body: &Body<'_, '_>) {
    let command = body.text("/UserCommand").unwrap_or_default();
    if resume_text::check_command(command) == Ok(ResumePlace::Placeholder) {
        let message = "`{resume}` is always empty: the job has no [checkpoint]";
        let mend = "add [checkpoint], or take {resume} out";
        body.notes.warning(&body.at("/UserCommand"), codes::RESUME_LOST, message, mend);
    }
}

fn progress(top: &mut Table<'_, '_>) -> Option<u64> {
    let mut table = top.table("progress")?;
    let steps = table.count("total_steps", 1..=STEPS_MOST).map(|found| found.value);
    table.finish();
    steps
}

fn retry(top: &mut Table<'_, '_>) -> Retry {
    let mut retry = Retry { alike: ALIKE, give_up: GIVE_UP, on_stopped: OnStopped::Hold };
    let Some(mut table) = top.table("retry") else { return retry };
    if let Some(found) = table.count("alike", 1..=ALIKE_MOST) {
        retry.alike = u32::try_from(found.value).unwrap_or(ALIKE);
    }
    if let Some(found) = table.duration("give_up", GIVE_UP_SHORTEST..=super::duration::LONGEST) {
        retry.give_up = found.value;
    }
    let word = table.word("on_stopped", &["hold", "resume"]);
    if word.is_some_and(|found| found.value == "resume") {
        retry.on_stopped = OnStopped::Resume;
    }
    table.finish();
    retry
}

fn budget(top: &mut Table<'_, '_>) -> Option<Money> {
    let mut table = top.table("budget")?;
    let price = table.money("list_price_per_hour").map(|found| found.value);
    table.finish();
    price
}
