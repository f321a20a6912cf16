//! Whether the body still fits when the longest attempt is sent: the longest resume argument,
//! launcher, marks and secrets included.

use super::body::Body;
use super::codes;
use super::job::Rules;
use super::secrets;
use crate::model::spec::CheckpointSpec;
use serde_json::Value;
use std::collections::BTreeMap;

/// Bytes of a CreateJob body, what the service adds included.
pub(super) const BODY_BYTES: usize = 65_536;
/// Bodies larger than this are warned about.
const LARGE_BYTES: usize = BODY_BYTES / 10 * 9;
/// Bytes of the launcher as JSON: its text, and the backslashes before its quotes and line breaks.
const LAUNCHER_BYTES: usize = 1_280;
/// Bytes of marks: the end of DisplayName, the tag, WorkspaceId, the `SPOTKEEPER_*` variables but
/// the resume path.
const MARK_BYTES: usize = 700;
/// Bytes of the SpotSpec that `[spot]` puts into each JobSpec.
const SPOT_SPEC_BYTES: usize = 80;
/// Bytes left to the service. How many it needs nobody has published.
const SERVICE_BYTES: usize = 512;
/// Bytes of the longest object name in OSS.
const OBJECT_NAME_BYTES: usize = 1_023;
/// Digits of the longest step.
const STEP_DIGITS: usize = 20;
/// The resume argument where the job file leaves it to the format: the longest of them.
const FORMATS_OWN: &str = "--load {root} --ckpt-step {step}";

/// Whether UserCommand runs in the launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launcher {
    Around,
    None,
}

/// Checks the size that the body of the longest attempt will have.
pub(super) fn check(
    body: &Body<'_, '_>,
    launcher: Launcher,
    checkpoint: Option<&CheckpointSpec>,
    secret_envs: &BTreeMap<String, String>,
    rules: Rules<'_>,
) {
    let size = longest(body, launcher, checkpoint)
        + secret_bytes(secret_envs, rules)
        + MARK_BYTES
        + SERVICE_BYTES;
    let message = format!(
        "the body needs up to {size} of {BODY_BYTES} bytes, with the longest resume argument and \
         everything that is added to it"
    );
    let mend = "move long scripts or values into the image or onto mounted storage";
    if size > BODY_BYTES {
        body.notes.error(&body.key_at(""), codes::BODY_SIZE, message, mend);
    } else if size > LARGE_BYTES {
        body.notes.warning(&body.key_at(""), codes::BODY_SIZE, message, mend);
    }
}

fn longest(body: &Body<'_, '_>, launcher: Launcher, checkpoint: Option<&CheckpointSpec>) -> usize {
    let command = body.text("/UserCommand").unwrap_or_default();
    let added = match launcher {
        Launcher::Around => LAUNCHER_BYTES,
        Launcher::None => 0,
    };
    let fresh = sent(command, launcher);
    let resumed = checkpoint.map_or(0, |checkpoint| {
        let command = checkpoint.resume_command.as_deref().unwrap_or(command);
        let times = command.matches("{resume}").count().max(1);
        let path = longest_path(checkpoint);
        sent(command, launcher) + times * argument(checkpoint, path, launcher) + path
    });
    let rest = body.value.to_string().len() - Value::from(command).to_string().len();
    let specs = body.items("/JobSpecs").count() * SPOT_SPEC_BYTES;
    rest + specs + added + fresh.max(resumed)
}

/// Bytes of a text as it is sent. The launcher puts it in single quotes: each one inside becomes
/// `'\''`, and JSON doubles the backslash.
fn sent(text: &str, launcher: Launcher) -> usize {
    let quotes = match launcher {
        Launcher::Around => text.matches('\'').count() * 4,
        Launcher::None => 0,
    };
    Value::from(text).to_string().len() + quotes
}

/// The longest resume argument: every place that a checkpoint can have in OSS.
fn argument(checkpoint: &CheckpointSpec, path: usize, launcher: Launcher) -> usize {
    let template = checkpoint.resume.as_deref().unwrap_or(FORMATS_OWN);
    let quotes = sent("''", launcher);
    let ends = ["{path}", "{root}", "{name}", ".path}", ".root}", ".name}"];
    let places = ends.iter().map(|name| template.matches(name).count());
    let places: usize = places.sum();
    let steps = template.matches("{step}").count();
    sent(template, launcher) + places * (path + quotes) + steps * (STEP_DIGITS + quotes) + 1
}

/// Bytes of the longest container path of a checkpoint.
fn longest_path(checkpoint: &CheckpointSpec) -> usize {
    let main = (&checkpoint.location, &checkpoint.mount);
    let parts = checkpoint.parts.iter().map(|part| (&part.location, &part.mount));
    let lengths = std::iter::once(main).chain(parts).map(|(location, mount)| {
        mount.len() + OBJECT_NAME_BYTES.saturating_sub(location.prefix.len()) + 1
    });
    lengths.max().unwrap_or_default()
}

fn secret_bytes(secret_envs: &BTreeMap<String, String>, rules: Rules<'_>) -> usize {
    let sizes = secret_envs.iter().map(|(name, file)| {
        let size = rules.job_secrets.and_then(|dir| secrets::check_file(dir, file).ok());
        // Quotes, colon and comma of JSON around name and value.
        name.len() + usize::try_from(size.unwrap_or(0)).unwrap_or(0) + 8
    });
    sizes.sum()
}
