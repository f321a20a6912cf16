//! All job files together.
//!
//! Each file is taken by itself: a bad one never blocks another. What two files claim at one time,
//! a name or a checkpoint prefix, neither of them gets.

use super::codes;
use super::daemon::DaemonConfig;
use super::diagnostic::{Anchor, Diagnostic, sort};
use super::files;
use super::job::{JobFile, Rules, load_job};
use crate::model::checkpoint::{Location, Scheme};
use crate::model::ids::JobName;
use crate::model::spec::JobSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A checkpoint prefix that a job file names.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The prefix.
    pub location: Location,
    /// Where the file names it.
    pub at: Anchor,
    /// The part of the checkpoint that it is of; `None` is the main one.
    pub part: Option<String>,
}

/// Other jobs that one message names.
const NAMED_MOST: usize = 3;

/// What a set of job files says.
#[derive(Debug, Clone, Default)]
pub struct JobSet {
    /// The files without errors, and what they ask for; in order of their paths.
    pub accepted: Vec<(PathBuf, JobSpec)>,
    /// The files with errors, and their job's name where it can be read: such a job is not gone.
    pub rejected: Vec<(PathBuf, Option<JobName>)>,
    /// Whether the folder was read to its end. If not, a job that is missing here may have a file.
    pub whole: bool,
    /// The checkpoint prefixes of all files, right or wrong.
    pub claims: Vec<Claim>,
    /// Everything that was found, sorted by file and line.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads every job file of a folder.
pub fn load_jobs(folder: &Path, config: &DaemonConfig) -> JobSet {
    load_folder(folder, Rules::of(config))
}

/// Reads every job file of a folder, checked against what is known.
pub fn load_folder(folder: &Path, rules: Rules<'_>) -> JobSet {
    let (paths, found) = files::job_files(folder);
    set(paths, found, rules)
}

/// Reads the job files that are named, and those of the folders that are named.
pub fn load_files(named: &[PathBuf], rules: Rules<'_>) -> JobSet {
    let (mut paths, mut found) = (Vec::new(), Vec::new());
    for path in named {
        if path.is_dir() {
            let (inside, unread) = files::job_files(path);
            paths.extend(inside);
            found.extend(unread);
        } else {
            paths.push(path.clone());
        }
    }
    // A file that is named in two ways is one file.
    let mut seen = BTreeSet::new();
    paths.retain(|path| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    set(paths, found, rules)
}

fn set(mut paths: Vec<PathBuf>, found: Vec<Diagnostic>, rules: Rules<'_>) -> JobSet {
    paths.sort();
    let jobs: Vec<(PathBuf, JobFile)> =
        paths.into_iter().map(|path| (path.clone(), load_job(&path, rules))).collect();
    let mut refused: BTreeMap<usize, Vec<Diagnostic>> = BTreeMap::new();
    for (index, diagnostic) in names_twice(&jobs).into_iter().chain(prefixes_shared(&jobs)) {
        refused.entry(index).or_default().push(diagnostic);
    }
    let mut set = JobSet { whole: found.is_empty(), diagnostics: found, ..JobSet::default() };
    set.diagnostics.extend(names_inside(&jobs));
    for (index, (path, file)) in jobs.into_iter().enumerate() {
        set.diagnostics.extend(file.diagnostics);
        set.claims.extend(file.prefixes);
        match (file.spec, refused.remove(&index)) {
            (Some(spec), None) => set.accepted.push((path, spec)),
            (_, claims) => {
                set.diagnostics.extend(claims.into_iter().flatten());
                set.rejected.push((path, file.name.map(|(name, _)| name)));
            }
        }
    }
    sort(&mut set.diagnostics);
    set
}

fn names(jobs: &[(PathBuf, JobFile)]) -> BTreeMap<&JobName, Vec<(usize, &Anchor)>> {
    let mut names: BTreeMap<&JobName, Vec<(usize, &Anchor)>> = BTreeMap::new();
    for (index, (_, file)) in jobs.iter().enumerate() {
        if let Some((name, at)) = &file.name {
            names.entry(name).or_default().push((index, at));
        }
    }
    names
}

fn names_twice(jobs: &[(PathBuf, JobFile)]) -> Vec<(usize, Diagnostic)> {
    let mut found = Vec::new();
    for (name, places) in names(jobs) {
        for (index, at) in places.iter().filter(|_| places.len() > 1) {
            let others = places.iter().filter(|(other, _)| other != index);
            let others = listed(others.map(|(other, _)| jobs[*other].0.display().to_string()));
            let message = format!("job name `{name}` is also in {others}");
            let mend = "a job stands in one file: rename one, or move its file away";
            let error = Diagnostic::error((*at).clone(), codes::NAME_TWICE, message, mend);
            found.push((*index, error));
        }
    }
    found
}

/// DLC's search takes part of a name for the whole.
fn names_inside(jobs: &[(PathBuf, JobFile)]) -> Vec<Diagnostic> {
    let names: Vec<_> = names(jobs).into_iter().collect();
    let mut found = Vec::new();
    for pair in names.windows(2) {
        let ((name, places), (longer, _)) = (&pair[0], &pair[1]);
        if longer.as_str().starts_with(name.as_str()) {
            let message = format!("job name `{name}` is the beginning of `{longer}`");
            let mend = "spotkeeper tells them apart; a search for the shorter one in the console \
                        shows both";
            for (_, at) in places {
                let at = (*at).clone();
                found.push(Diagnostic::warning(at, codes::NAME_INSIDE, message.clone(), mend));
            }
        }
    }
    found
}

fn prefixes_shared(jobs: &[(PathBuf, JobFile)]) -> Vec<(usize, Diagnostic)> {
    let mut claims: Vec<(Vec<&str>, usize, &Claim)> = Vec::new();
    for (index, (_, file)) in jobs.iter().enumerate() {
        for claim in &file.prefixes {
            let place = &claim.location;
            // `oss://` and `s3://` name the same buckets.
            let kind = if place.scheme == Scheme::File { "file" } else { "bucket" };
            let mut parts = vec![kind, place.bucket.as_str()];
            parts.extend(place.prefix.split('/').filter(|part| !part.is_empty()));
            claims.push((parts, index, claim));
        }
    }
    // Sorted by their parts, whatever lies inside a prefix follows it at once.
    claims.sort_by(|a, b| {
        let key = |c: &(Vec<&str>, usize, &Claim)| (c.1, c.2.location.clone(), c.2.at.clone());
        a.0.cmp(&b.0).then_with(|| key(a).cmp(&key(b)))
    });
    let mut shared: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut around: Vec<usize> = Vec::new();
    for (place, claim) in claims.iter().enumerate() {
        while around.last().is_some_and(|outer| !claim.0.starts_with(&claims[*outer].0)) {
            around.pop();
        }
        if let Some(outer) = around.last() {
            shared.entry(*outer).or_default().push(place);
            shared.entry(place).or_default().push(*outer);
        }
        around.push(place);
    }
    let mut found = Vec::new();
    for (place, others) in shared {
        let (_, index, claim) = &claims[place];
        let is_own = |other: &&usize| claims[**other].1 == *index;
        let within = others.iter().any(|other| is_own(&other));
        let others = listed(others.iter().map(|other| {
            let (_, of, other) = &claims[*other];
            let who = match &other.part {
                _ if of != index => jobs[*of].0.display().to_string(),
                Some(part) => format!("the part `{part}` of the same job"),
                None => "the main prefix of the same job".to_owned(),
            };
            format!("{who} ({})", other.location)
        }));
        let message = format!("checkpoint prefix {} overlaps with {others}", claim.location);
        let mend = if within {
            "give each part a prefix of its own, beside the main one: a look into the outer one finds the \
             checkpoints of both"
        } else {
            "give each job, and each part, a prefix of its own: two writers destroy each other's \
             checkpoints"
        };
        let error = Diagnostic::error(claim.at.clone(), codes::PREFIX_SHARED, message, mend);
        found.push((*index, error));
    }
    found
}

fn listed(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    let shown = items[..items.len().min(NAMED_MOST)].join(", ");
    match items.len().saturating_sub(NAMED_MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
