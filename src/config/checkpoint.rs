//! `[checkpoint]`: where checkpoints are, seen from the bucket and from the container, and how a
//! resumed attempt is told.

use super::body::{Body, step};
use super::codes;
use super::diagnostic::{Diagnostic, Notes};
use super::format_words::{FORMATS, meant_by, which_there_are};
use super::mapping::{self, Mount, NoPlace};
use super::mask::mask;
use super::nearest::nearest;
use super::parts;
use super::reader::{Found, Span, Table};
use super::set::Claim;
use super::{submit, trainer};
use crate::model::checkpoint::{Location, Scheme};
use crate::model::resume_text::{self, CommandProblem, TemplateProblem};
use crate::model::spec::{CheckpointSpec, CustomLayout, FirstStart, Target};
use crate::model::step_pattern::StepPattern;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Formats whose trainers may find their newest checkpoint by a tracker.
const BY_TRACKER: [&str; 8] = [
    "auto",
    "easyckpt-megatron",
    "easyckpt-deepspeed",
    "megatron-legacy",
    "megatron-torch-dist",
    "deepspeed",
    "dlrover",
    "verl",
];
/// Those of them that read no tracker once an argument names the checkpoint. Megatron reads its own
/// all the same, and an empty one ends it.
const OVERRIDDEN: [&str; 4] = ["easyckpt-deepspeed", "deepspeed", "dlrover", "verl"];
const EXPECT_WITHIN: Duration = Duration::from_hours(2);
const EXPECT_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=super::duration::LONGEST;
const SETTLE: Duration = Duration::from_mins(1);
const SETTLE_INTERVAL: Duration = Duration::from_secs(20);
const SETTLE_LONGEST: Duration = Duration::from_hours(24);
const RANKS_MOST: u64 = 1_000_000;
/// Files that a custom layout may require.
const REQUIRED_MOST: usize = 1_000;

/// Reads the table. Each prefix, once it can be read, goes to `prefixes`.
pub(super) fn read(
    notes: &Notes<'_>,
    mut table: Table<'_, '_>,
    body: Option<&Body<'_, '_>>,
    target: Option<&Target>,
    launcher: bool,
    prefixes: &mut Vec<Claim>,
) -> Option<CheckpointSpec> {
    let header = table.span().clone();
    let found = location(notes, &mut table, body, target, &header);
    prefixes.extend(found.as_ref().map(|place| claim(notes, place, None)));
    let format = format(notes, &mut table);
    let custom = custom(notes, &mut table, "checkpoint.custom", format.as_deref(), &header);
    let parts = parts::read(notes, &mut table, body, target, prefixes);
    let names: Vec<&str> = parts.names.iter().map(String::as_str).collect();
    let resume = template(notes, &mut table, &names);
    parts::check_reach(notes, &names, resume.as_deref(), &header);
    let resume_command = resume_command(notes, &mut table);
    check_reach(
        notes,
        body,
        format.as_deref(),
        resume.as_deref(),
        resume_command.as_deref(),
        &header,
    );
    if let Some(body) = body {
        trainer::advise(body, resume.as_deref(), resume_command.as_deref());
    }
    let word = table.word("first_start", &["resume", "fresh", "refuse"]);
    let first_start = match word.as_ref().map(|found| found.value.as_str()) {
        Some("fresh") => FirstStart::Fresh,
        Some("refuse") => FirstStart::Refuse,
        _ => FirstStart::Resume,
    };
    let expect_within = table.duration("expect_within", EXPECT_RANGE);
    let settle = table.duration("settle", Duration::ZERO..=SETTLE_LONGEST);
    let interval = table.duration("settle_interval", Duration::ZERO..=SETTLE_LONGEST);
    let ranks = match table.count("ranks", 1..=RANKS_MOST) {
        Some(found) => u32::try_from(found.value).ok(),
        None => body.and_then(submit::ranks),
    };
    let fence = fence(notes, &mut table, body, launcher);
    let repair_tracker = repair_tracker(notes, &mut table, format.as_deref(), resume.as_deref());
    table.finish();
    let (location, mount, _) = found?;
    Some(CheckpointSpec {
        location,
        mount,
        format: format?,
        custom,
        resume,
        resume_command,
        first_start,
        expect_within: expect_within.map_or(EXPECT_WITHIN, |found| found.value),
        settle: settle.map_or(SETTLE, |found| found.value),
        settle_interval: interval.map_or(SETTLE_INTERVAL, |found| found.value),
        ranks,
        fence,
        repair_tracker,
        parts: parts.whole,
    })
}

/// The claim that a table makes on its prefix.
pub(super) fn claim(notes: &Notes<'_>, place: &Place, part: Option<&str>) -> Claim {
    let (location, _, span) = place;
    let part = part.map(str::to_owned);
    Claim { location: location.clone(), at: notes.source.at(span), part }
}

/// Whether the tracker may be rewritten; a warning where it never would be.
fn repair_tracker(
    notes: &Notes<'_>,
    table: &mut Table<'_, '_>,
    format: Option<&str>,
    resume: Option<&str>,
) -> bool {
    let Some(found) = table.flag("repair_tracker").filter(|found| found.value) else {
        return false;
    };
    let Some(format) = format else { return true };
    let names_one = resume.is_some_and(resume_text::names_main);
    let message = if !BY_TRACKER.contains(&format) {
        format!("`repair_tracker` does nothing: checkpoints of `{format}` have no tracker")
    } else if names_one && OVERRIDDEN.contains(&format) {
        format!(
            "`repair_tracker` does nothing: `resume` names the checkpoint, and a trainer of `{format}` \
                 then reads no tracker"
        )
    } else {
        return true;
    };
    notes.warning(&found.span, codes::TRACKER_UNUSED, message, "take it out");
    true
}

/// Whether the fence is wanted. It stands in the launcher: what runs outside it is not stopped.
fn fence(
    notes: &Notes<'_>,
    table: &mut Table<'_, '_>,
    body: Option<&Body<'_, '_>>,
    launcher: bool,
) -> bool {
    let Some(found) = table.flag("fence").filter(|found| found.value) else { return false };
    if !launcher {
        let message = "`fence = true` needs the launcher, which is turned off";
        let mend = "take `launcher = false` out, or the fence";
        notes.error(&found.span, codes::EITHER_OR, message, mend);
    }
    for (pointer, item) in body.into_iter().flat_map(|body| body.items("/JobSpecs")) {
        if let Some(body) = body.filter(|_| item.get("UserCommand").is_some_and(|c| !c.is_null())) {
            let message = "this role has a UserCommand of its own, which no fence stops";
            let mend = "use the UserCommand of the whole job, or take `fence` out";
            let span = body.at(&step(&pointer, "UserCommand"));
            body.notes.error(&span, codes::EITHER_OR, message, mend);
        }
    }
    true
}

/// A prefix, the same place in the container, and where the file names it.
pub(super) type Place = (Location, String, Span);

/// The prefix that a table names.
pub(super) fn location(
    notes: &Notes<'_>,
    table: &mut Table<'_, '_>,
    body: Option<&Body<'_, '_>>,
    target: Option<&Target>,
    header: &Span,
) -> Option<Place> {
    let asked = table.has("path") || table.has("url");
    let path = table.text("path").map(|found| (mapping::normal_path(&found.value), found));
    let url = table.text("url").map(|found| (mapping::parse_url(&found.value), found));
    if !asked {
        let mend = "add path = \"/mnt/…\" (as the container sees it), or url = \"oss://…\"";
        notes.error(header, codes::MISSING, "there is neither `path` nor `url`", mend);
    }
    let bad = |found: &Found<String>, why: &str, mend: &str| {
        let message = format!("`{}` cannot be a place of checkpoints: {why}", mask(&found.value));
        notes.error(&found.span, codes::BAD_LOCATION, message, mend);
    };
    if let Some((Err(why), found)) = &path {
        bad(found, why, "wanted: an absolute path in the container such as /mnt/ckpt/run42");
    }
    if let Some((Err(why), found)) = &url {
        bad(found, why, "wanted: oss://bucket/prefix/, s3://bucket/prefix/ or file:///folder");
    }
    let mounts = body.map(mounts)?;
    let region = target.map(|target| target.place.region.as_str());
    match (path, url) {
        (Some((Ok(path), found)), None) => match mapping::place_of(&path, &mounts) {
            Ok((place, endpoint)) => {
                check_region(notes, endpoint.as_deref(), region, &found.span);
                Some((place, path, found.span))
            }
            Err(why) => {
                not_mapped(notes, &why, &path, &found.span);
                None
            }
        },
        (None, Some((Ok((place, endpoint)), found))) => {
            check_region(notes, endpoint.as_deref(), region, &found.span);
            let mount = mapping::path_of(&place, &mounts)
                .or_else(|| (place.scheme == Scheme::File).then(|| format!("/{}", place.prefix)));
            if mount.is_none() {
                let message = format!("no DataSources entry mounts {place}");
                let mend = "mount it, or add path = \"…\": the same place as the container sees it";
                notes.error(&found.span, codes::NOT_MOUNTED, message, mend);
            }
            // The prefix is known all the same: nobody else may take it.
            Some((place, mount.unwrap_or_default(), found.span))
        }
        (Some((Ok(path), _)), Some((Ok((place, endpoint)), found))) => {
            check_region(notes, endpoint.as_deref(), region, &found.span);
            if let Ok((seen, _)) = mapping::place_of(&path, &mounts)
                && (seen.bucket != place.bucket || seen.prefix != place.prefix)
            {
                let message = format!("`path` lies at {seen}, `url` names {place}");
                notes.error(&found.span, codes::PATH_AND_URL, message, "take one of the two out");
            }
            Some((place, path, found.span))
        }
        _ => None,
    }
}

fn mounts(body: &Body<'_, '_>) -> Vec<Mount> {
    body.items("/DataSources").map(|(_, entry)| mapping::mount(entry)).collect()
}

fn not_mapped(notes: &Notes<'_>, why: &NoPlace, path: &str, span: &Span) {
    let (code, message, mend) = match why {
        NoPlace::NotCovered => (
            codes::NOT_COVERED,
            format!("no DataSources entry has a MountPath that covers {path}"),
            "mount a bucket there, or correct the path; a data set needs its MountPath too",
        ),
        NoPlace::Hidden(id) => (
            codes::HIDDEN_SOURCE,
            format!("{path} lies in data set `{id}`, whose bucket the body does not name"),
            "add url = \"oss://bucket/prefix/\": the same place in the bucket",
        ),
        NoPlace::Other(uri) => (
            codes::NOT_OBJECT_STORAGE,
            format!("{path} lies in `{}`, which is no object storage", mask(uri)),
            "save checkpoints on a mounted bucket (oss://…)",
        ),
    };
    notes.error(span, code, message, mend);
}

/// The keys of a target's storage endpoint are asked for in the target's region.
fn check_region(notes: &Notes<'_>, endpoint: Option<&str>, region: Option<&str>, span: &Span) {
    let label = endpoint.and_then(|e| e.split('.').next()).and_then(|l| l.strip_prefix("oss-"));
    let bucket = label.map(|label| label.strip_suffix("-internal").unwrap_or(label));
    if let (Some(bucket), Some(region)) = (bucket, region)
        && bucket != region
    {
        let message = format!("the bucket is in {bucket}, the target in {region}");
        let mend = "set storage = { endpoint = \"…\" } in the target if that is meant";
        notes.warning(span, codes::OTHER_REGION, message, mend);
    }
}

pub(super) fn format(notes: &Notes<'_>, table: &mut Table<'_, '_>) -> Option<String> {
    if !table.has("format") {
        return Some("auto".to_owned());
    }
    let found = table.text("format")?;
    let word = found.value.as_str();
    if FORMATS.contains(&word) {
        return Some(found.value);
    }
    let at = notes.source.at(&found.span);
    let message = format!("unknown format `{word}`");
    let nearest = meant_by(word).first().map(|word| (*word).to_owned());
    let error = Diagnostic::error(at, codes::WRONG_VALUE, message, which_there_are(word));
    // The mend names all that may be meant.
    notes.add(Diagnostic { nearest, ..error });
    None
}

/// The layout in the table `key`.
pub(super) fn custom(
    notes: &Notes<'_>,
    table: &mut Table<'_, '_>,
    key: &str,
    format: Option<&str>,
    header: &Span,
) -> Option<CustomLayout> {
    let wanted = format == Some("custom");
    let asked = table.has("custom");
    let Some(mut part) = table.table("custom") else {
        if wanted && !asked {
            let mend = format!("add [{key}] with pattern = \"…{{step}}…\"");
            notes.error(header, codes::MISSING, "format `custom` has no layout", mend);
        }
        return None;
    };
    let span = part.span().clone();
    if !wanted && format.is_some() {
        let message = format!("[{key}] is read only with format = \"custom\"");
        notes.error(&span, codes::EITHER_OR, message, "write format = \"custom\", or take it out");
    }
    if !part.has("pattern") {
        let mend = "add pattern = \"step-{step}\": the name of a checkpoint";
        notes.error(&span, codes::MISSING, format!("[{key}] has no `pattern`"), mend);
    }
    let pattern = part.text("pattern").filter(|found| match StepPattern::parse(&found.value) {
        Ok(_) => true,
        Err(problem) => {
            let mend = "write it such as \"step-{step}\"";
            notes.error(&found.span, codes::WRONG_VALUE, problem.to_string(), mend);
            false
        }
    });
    let is_inside = |found: &Found<String>| {
        let parts = found.value.split('/');
        let bad = found.value.chars().any(char::is_control)
            || parts.clone().any(|part| part.is_empty() || part == "." || part == "..");
        if bad {
            let mend = "wanted: a path below the checkpoint's folder such as \"model.pt\"";
            notes.error(&found.span, codes::WRONG_VALUE, "not a file inside the checkpoint", mend);
        }
        !bad
    };
    let (mut required, mut named) = (Vec::new(), 0);
    if let Some(found) = part.list("required") {
        named = found.value.len();
        if found.value.len() > REQUIRED_MOST {
            let mend = format!("wanted: at most {REQUIRED_MOST}");
            notes.error(&found.span, codes::WRONG_VALUE, "`required` has too many files", mend);
        }
        required = found.value.into_iter().filter(is_inside).map(|item| item.value).collect();
    }
    // What was given and is wrong has an error of its own.
    let is_given = part.has("marker") || named > 0;
    let marker = part.text("marker").filter(is_inside).map(|found| found.value);
    part.finish();
    let layout = CustomLayout { pattern: pattern?.value, required, marker };
    if wanted && layout.tells_no_torn_one() && !is_given {
        let message =
            format!("[{key}] has neither `required` nor `marker`: nothing tells a torn checkpoint");
        let mend = "add required = [\"…\"], the files that each one has, or marker = \"…\", the one that is \
                    written last";
        notes.warning(&span, codes::LAYOUT_TELLS_NOTHING, message, mend);
    }
    Some(layout)
}

fn template(notes: &Notes<'_>, table: &mut Table<'_, '_>, parts: &[&str]) -> Option<String> {
    let found = table.text("resume")?;
    for problem in resume_text::template_problems(&found.value, parts) {
        note_template(notes, &found, parts, &problem);
    }
    Some(found.value)
}

fn note_template(
    notes: &Notes<'_>,
    found: &Found<String>,
    parts: &[&str],
    problem: &TemplateProblem,
) {
    match problem {
        TemplateProblem::Unknown { name, at } => {
            let of_parts = parts.iter().filter(|part| parts::is_name(part)).flat_map(|part| {
                resume_text::PART_PLACEHOLDERS.iter().map(move |what| format!("{part}.{what}"))
            });
            let known = resume_text::PLACEHOLDERS.iter().map(|name| (*name).to_owned());
            let known: Vec<String> = known.chain(of_parts).collect();
            let near = nearest(name, known.iter().map(String::as_str));
            let span = inside(notes, &found.span, &found.value, *at, name.len() + 2);
            let message = format!("unknown placeholder `{{{name}}}`");
            let mend = "there are {path}, {root}, {step} and {name}; and of a part {NAME.path}, \
                        {NAME.root} and {NAME.name}";
            let error =
                Diagnostic::error(notes.source.at(&span), codes::PLACEHOLDER, message, mend);
            notes.add(error.near(near.map(|near| format!("{{{near}}}"))));
        }
        TemplateProblem::InQuotes { at, .. } => {
            let span = inside(notes, &found.span, &found.value, *at, 1);
            let mend = "take the quotes out: each value is quoted by itself";
            notes.error(&span, codes::PLACEHOLDER, problem.to_string(), mend);
        }
        TemplateProblem::NoStep { .. } => {
            notes.error(&found.span, codes::PLACEHOLDER, problem.to_string(), "leave it out");
        }
    }
}

fn resume_command(notes: &Notes<'_>, table: &mut Table<'_, '_>) -> Option<String> {
    let found = table.text("resume_command")?;
    if found.value.trim().is_empty() {
        let mend = "write the command, or take it out";
        notes.error(&found.span, codes::WRONG_VALUE, "`resume_command` is empty", mend);
    }
    match resume_text::check_command(&found.value) {
        // A command of its own need not take the argument.
        Ok(_) | Err(CommandProblem::NotSimple { .. }) => {}
        Err(problem @ (CommandProblem::InQuotes { at } | CommandProblem::InComment { at })) => {
            let span = inside(notes, &found.span, &found.value, at, "{resume}".len());
            notes.error(&span, codes::RESUME_LOST, problem.to_string(), "put {resume} outside");
        }
    }
    Some(found.value)
}

/// Whether the argument gets from the template to the trainer.
fn check_reach(
    notes: &Notes<'_>,
    body: Option<&Body<'_, '_>>,
    format: Option<&str>,
    resume: Option<&str>,
    resume_command: Option<&str>,
    header: &Span,
) {
    if resume_command.is_some() || resume == Some("") {
        return;
    }
    if resume.is_none() && format == Some("custom") {
        let message = "format `custom` has no resume argument of its own";
        let mend = "add resume = \"…{path}…\"; or resume = \"\" if the trainer reads \
                    SPOTKEEPER_RESUME_PATH";
        notes.warning(header, codes::RESUME_LOST, message, mend);
        return;
    }
    for (pointer, item) in body.into_iter().flat_map(|body| body.items("/JobSpecs")) {
        if let Some(body) = body.filter(|_| item.get("UserCommand").is_some_and(|c| !c.is_null())) {
            let message = "this role has a UserCommand of its own, which gets no resume argument";
            let mend = "use the UserCommand of the whole job, or read SPOTKEEPER_RESUME_PATH";
            let span = body.at(&step(&pointer, "UserCommand"));
            body.notes.warning(&span, codes::RESUME_LOST, message, mend);
        }
    }
    let Some((body, command)) = body.and_then(|body| Some((body, body.text("/UserCommand")?)))
    else {
        return;
    };
    let (problem, at, length) = match resume_text::check_command(command) {
        Ok(_) => return,
        Err(problem @ CommandProblem::NotSimple { at, .. }) => (problem, at, 1),
        Err(problem @ (CommandProblem::InQuotes { at } | CommandProblem::InComment { at })) => {
            (problem, at, "{resume}".len())
        }
    };
    let span = inside(body.notes, &body.at("/UserCommand"), command, at, length);
    let mend = "or give resume_command, a whole command for resumed attempts";
    body.notes.error(&span, codes::RESUME_LOST, problem.to_string(), mend);
}

/// The span of a part of a text value, where the file has that text as it is; else the whole value.
fn inside(notes: &Notes<'_>, value: &Span, text: &str, at: usize, length: usize) -> Span {
    let written = notes.source.text.get(value.clone()).unwrap_or_default();
    match written.find(text).filter(|_| !text.is_empty()) {
        Some(start) => value.start + start + at..value.start + start + at + length,
        None => value.clone(),
    }
}
