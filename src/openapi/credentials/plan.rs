//! Which source a reference points to: a look at variables and files, and at nothing else.
//!
//! The chain takes the SDK's order. What nobody set up is passed over; what somebody set up and
//! what cannot be used is an error at once. There the SDK would go on to the next provider and
//! act under another identity; a daemon whose proofs hang on one identity must not.

use super::source::{Found, Source};
use super::{
    CredentialsError, Surroundings, cli_profile, ecs_role, environment, file, ini_profile, oidc,
    uri,
};
use crate::model::spec::CredentialsRef;
use std::path::{Component, Path};

/// Whom to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// What was passed over, in words.
    pub(super) passed: Vec<String>,
    /// Asked first; it may turn out not to be there, and is passed over then.
    pub(super) maybe: Option<Source>,
    /// Asked then; what it says is final.
    pub(super) sure: Option<Source>,
}

/// Reads what `reference` points to. Blocks on files.
pub(super) fn plan(
    reference: &CredentialsRef,
    around: &Surroundings,
) -> Result<Plan, CredentialsError> {
    let source = match reference {
        CredentialsRef::Chain => return chain(around),
        CredentialsRef::Environment => environment::read(around)?,
        CredentialsRef::File(path) => {
            file::read(format!("credentials file {}", path.display()), path)?
        }
        CredentialsRef::Systemd(name) => systemd(name, around)?,
        CredentialsRef::Profile(name) => profile(name, around)?,
        CredentialsRef::EcsRole(name) => ecs_role::source("ECS RAM role", around, name.as_deref())?,
        CredentialsRef::Oidc => match oidc::look(around)? {
            Found::There(source) => source,
            Found::NotThere(what) => {
                let what = what.trim_start_matches("OIDC: ").to_owned();
                return Err(CredentialsError::Setting { origin: "OIDC".to_owned(), what });
            }
        },
        CredentialsRef::Uri(text) => uri::source(text)?,
    };
    Ok(Plan::of(source))
}

impl Plan {
    /// To ask `source` and nobody else.
    pub(super) fn of(source: Source) -> Self {
        Self { passed: Vec::new(), maybe: None, sure: Some(source) }
    }

    /// The source that was found; what was not there is written down.
    fn take(&mut self, found: Found) -> Option<Source> {
        match found {
            Found::There(source) => Some(source),
            Found::NotThere(what) => {
                self.passed.push(what);
                None
            }
        }
    }
}

fn chain(around: &Surroundings) -> Result<Plan, CredentialsError> {
    let mut plan = Plan { passed: Vec::new(), maybe: None, sure: None };
    let at_hand: [&dyn Fn() -> Result<Found, CredentialsError>; 4] = [
        &|| environment::look(around),
        &|| oidc::look(around),
        &|| cli_profile::look(around, around.variable(cli_profile::PROFILE).as_deref()),
        &|| ini_profile::look(around, None),
    ];
    for look in at_hand {
        plan.sure = plan.take(look()?);
        if plan.sure.is_some() {
            return Ok(plan);
        }
    }
    // Whether this is an ECS instance shows only when its metadata service is asked.
    plan.maybe = plan.take(ecs_role::look(around)?);
    plan.sure = plan.take(uri::look(around)?);
    Ok(plan)
}

/// The profile `name`, of the `aliyun` command first, then of the SDKs.
fn profile(name: &str, around: &Surroundings) -> Result<Source, CredentialsError> {
    let mut missing = Vec::new();
    for found in [cli_profile::look(around, Some(name)), ini_profile::look(around, Some(name))] {
        match found? {
            Found::There(source) => return Ok(source),
            Found::NotThere(what) => missing.push(what),
        }
    }
    let origin = format!("profile `{name}`");
    Err(CredentialsError::Setting { origin, what: missing.join("; ") })
}

/// A credential that systemd keeps for this service, in the form of our own file.
fn systemd(name: &str, around: &Surroundings) -> Result<Source, CredentialsError> {
    let origin = format!("systemd credential {name}");
    let bad = |what: String| CredentialsError::Setting { origin: origin.clone(), what };
    let mut parts = Path::new(name).components();
    if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
        return Err(bad("its name must be that of a file, without folders".to_owned()));
    }
    let folder = around.variable("CREDENTIALS_DIRECTORY").ok_or_else(|| {
        bad(format!(
            "CREDENTIALS_DIRECTORY is not set; the service needs LoadCredential={name}:/a/file"
        ))
    })?;
    file::read(origin.clone(), &Path::new(&folder).join(name))
}
