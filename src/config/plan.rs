//! What job files would change of the jobs on record: `spotkeeper plan`. Pure; the daemon decides
//! anew when it reads the files.

use crate::model::ids::{JobKey, JobName};
use crate::model::spec::JobSpec;
use serde_json::Value;

/// A job on record, its newest run.
#[derive(Debug, Clone)]
pub struct Known {
    /// Name and run.
    pub key: JobKey,
    /// Its accepted spec as a person may see it, where that can be known.
    pub spec: Option<Value>,
    /// Digest of the accepted spec.
    pub digest: String,
    /// Whether nothing more happens to it.
    pub is_over: bool,
    /// The attempt that is open.
    pub open: Option<u32>,
    /// Whether it goes on without a job file.
    pub is_unmanaged: bool,
}

/// A job as its file asks for it.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The accepted content of the file.
    pub spec: JobSpec,
    /// The same as a person may see it.
    pub shown: Value,
    /// Its digest.
    pub digest: String,
}

/// What a file, or a missing one, means for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A job that is not on record. Another one may hold its checkpoints until it is over.
    New {
        /// The other one.
        waits_for: Option<JobName>,
    },
    /// A run after one that is over.
    NewRun,
    /// Another spec for a job on record.
    Edited {
        /// Where it differs, as paths into the spec; empty if only in what is kept hidden.
        fields: Vec<String>,
        /// The attempt that goes on as it is.
        open: Option<u32>,
        /// Whether the job is over, so that nothing follows from it.
        is_over: bool,
    },
    /// A file for a job that went on without one.
    Managed,
    /// No file stands behind the job any more.
    Gone {
        /// The attempt that goes on.
        open: Option<u32>,
    },
    /// The daemon will not take it.
    Refused(String),
}

impl Change {
    /// The word of `-o json`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::New { .. } => "new",
            Self::NewRun => "new_run",
            Self::Edited { .. } => "edited",
            Self::Managed => "managed",
            Self::Gone { .. } => "gone",
            Self::Refused(_) => "refused",
        }
    }
}

/// All changes, by job, and how many jobs stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What changes.
    pub changes: Vec<(JobKey, Change)>,
    /// Jobs with a file that asks for nothing new.
    pub unchanged: usize,
}

/// Compares files with jobs. `all_files` says that `wanted` and `rejected`, the names in files with
/// errors, are every file there is: else no job counts as without one.
pub fn plan(wanted: &[Wanted], rejected: &[JobName], known: &[Known], all_files: bool) -> Plan {
    let mut plan = Plan::default();
    for one in wanted {
        let on_record = known.iter().find(|known| known.key.name == one.spec.key.name);
        match on_record.map_or_else(|| Some(new(one, known)), |known| compared(one, known)) {
            Some(change) => plan.changes.push((one.spec.key.clone(), change)),
            None => plan.unchanged += 1,
        }
    }
    let has_file = |known: &Known| {
        let names = wanted.iter().map(|one| &one.spec.key.name).chain(rejected);
        names.into_iter().any(|name| *name == known.key.name)
    };
    for known in known.iter().filter(|known| all_files && !known.is_over && !has_file(known)) {
        plan.changes.push((known.key.clone(), Change::Gone { open: known.open }));
    }
    plan.changes.sort_by(|a, b| a.0.cmp(&b.0));
    plan
}

fn new(one: &Wanted, known: &[Known]) -> Change {
    let own = one.spec.checkpoint.as_ref();
    let holder = known.iter().filter(|known| !known.is_over).find(|known| {
        let theirs = known.spec.clone().and_then(|spec| serde_json::from_value(spec).ok());
        let theirs = theirs.and_then(|spec: JobSpec| spec.checkpoint);
        theirs.zip(own).is_some_and(|(theirs, own)| theirs.overlaps(own))
    });
    Change::New { waits_for: holder.map(|holder| holder.key.name.clone()) }
}

/// `None`: nothing changes.
fn compared(one: &Wanted, known: &Known) -> Option<Change> {
    let (run, on_record) = (one.spec.key.run, known.key.run);
    if run < on_record {
        return Some(Change::Refused(format!("run {on_record} is on record; a run only goes up")));
    }
    if run > on_record {
        let why = format!("run {on_record} is not over; cancel it, then run {run} begins");
        return Some(if known.is_over { Change::NewRun } else { Change::Refused(why) });
    }
    if one.digest == known.digest {
        return known.is_unmanaged.then_some(Change::Managed);
    }
    let mut fields = Vec::new();
    match &known.spec {
        Some(spec) => differences(spec, &one.shown, "", &mut fields),
        None => fields.push("(what is on record cannot be read)".to_owned()),
    }
    Some(Change::Edited { fields, open: known.open, is_over: known.is_over })
}

/// The paths at which two documents differ, as deep as both have the same shape.
fn differences(old: &Value, new: &Value, path: &str, found: &mut Vec<String>) {
    let below = |name: &str| if path.is_empty() { name.into() } else { format!("{path}.{name}") };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let added = new.keys().filter(|name| !old.contains_key(*name));
            for name in old.keys().chain(added) {
                let (old, new) = (old.get(name), new.get(name));
                let null = Value::Null;
                differences(old.unwrap_or(&null), new.unwrap_or(&null), &below(name), found);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (place, (old, new)) in old.iter().zip(new).enumerate() {
                differences(old, new, &below(&place.to_string()), found);
            }
        }
        _ if old == new => {}
        _ => found.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests;
