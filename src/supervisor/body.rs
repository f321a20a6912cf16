//! The CreateJob body of an attempt: what the person wrote, with resume argument, launcher, bid and
//! stamps. Secrets are not in it; they are added at the send.

use crate::config;
use crate::core::job::{Attempt, Start};
use crate::dlc::launcher;
use crate::dlc::wire::{self, Submission, WireError};
use crate::model::fence::Fence;
use crate::model::ids::{JobKey, Owner};
use crate::model::resume_text::{self, TemplateProblem};
use crate::model::secret::Secret;
use crate::model::spec::JobSpec;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Why an attempt cannot be put into a body. All of these were checked when the job file was taken;
/// they come up when something changed since.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// The resume argument cannot be written.
    #[error("the resume argument")]
    Resume(#[source] TemplateProblem),
    /// The body does not take our stamps.
    #[error("the CreateJob body")]
    Stamp(#[source] WireError),
    /// A secret file cannot be read.
    #[error("the secret `{name}` of the environment variable {variable}: {why}")]
    Secret {
        /// The variable.
        variable: String,
        /// The file's name below `job_secrets`.
        name: String,
        /// What is wrong.
        why: String,
    },
}

/// The body of `attempt`, secrets left out.
pub(super) fn build(
    owner: &Owner,
    key: &JobKey,
    attempt: &Attempt,
    spec: &JobSpec,
) -> Result<Map<String, Value>, BodyError> {
    let written = spec.body.get("UserCommand").and_then(Value::as_str).unwrap_or_default();
    let (command, resume_path, resume_step): (String, Option<String>, Option<u64>) =
        match (&attempt.start, &spec.checkpoint) {
            (Start::From(point), Some(checkpoint)) => {
                let fill = |template: &str| {
                    resume_text::render_parts(template, checkpoint, point)
                        .map_err(BodyError::Resume)
                };
                let command = if let Some(whole) = &checkpoint.resume_command {
                    let template = checkpoint.resume.as_ref().unwrap_or(&point.argument);
                    resume_text::replace(whole, &fill(template)?)
                } else {
                    let template = checkpoint.resume.as_ref().unwrap_or(&point.argument);
                    resume_text::insert(written, &fill(template)?)
                };
                (command, Some(resume_text::below(&checkpoint.mount, &point.path)), point.step)
            }
            (Start::From(_), None) | (Start::Fresh, _) => {
                (resume_text::insert(written, ""), None, None)
            }
        };
    let mut command = if spec.launcher { launcher::wrap(&command, attempt.no) } else { command };
    if let Some(checkpoint) = spec.checkpoint.as_ref().filter(|c| c.fence && spec.launcher) {
        let fence = fence_of(owner, key, attempt);
        command.insert_str(0, &launcher::fence::check(&fence, &checkpoint.mount));
    }
    let mut body = spec.body.clone();
    let ours = Submission {
        owner,
        mark: &attempt.mark,
        job: key,
        attempt: attempt.no,
        workspace: &attempt.place.workspace,
        user_command: &command,
        bid: attempt.bid,
        resume_path: resume_path.as_deref(),
        resume_step,
    };
    wire::stamp_body(&mut body, &ours).map_err(BodyError::Stamp)?;
    Ok(body)
}

/// The fence that names `attempt`.
pub(super) fn fence_of<'a>(owner: &'a Owner, job: &'a JobKey, attempt: &'a Attempt) -> Fence<'a> {
    Fence { owner, job, attempt: attempt.no, mark: &attempt.mark }
}

/// Reads the secrets of a spec, each a regular file right below `folder`.
pub(super) fn secrets(
    folder: &Path,
    spec: &JobSpec,
) -> Result<BTreeMap<String, Secret>, BodyError> {
    let read = |one: (&String, &String)| Ok((one.0.clone(), secret(folder, one)?));
    spec.secret_envs.iter().map(read).collect()
}

/// Reads one secret: the variable, and the name of its file.
pub(super) fn secret(
    folder: &Path,
    (variable, name): (&String, &String),
) -> Result<Secret, BodyError> {
    config::secrets::read(folder, name).map_err(|why| BodyError::Secret {
        variable: variable.clone(),
        name: name.clone(),
        why,
    })
}
