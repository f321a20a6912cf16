//! One place to get keys from, ready to be asked.

use super::command::Command;
use super::ecs_role::EcsRole;
use super::oidc::Oidc;
use super::role::Role;
use super::uri::CredentialsUri;
use super::{Credentials, CredentialsError, Held};
use crate::model::time::WallTime;
use std::pin::Pin;

/// One place to get keys from. Two that are equal give keys of the same identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    /// What people call it: `environment`, `profile dev of /root/.aliyun/config.json`.
    pub(super) origin: String,
    /// How the keys are got.
    pub(super) way: Way,
}

/// How keys are got out of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// They are here.
    Keys { keys: Credentials, expires: Option<WallTime> },
    /// STS gives those of a role to other keys.
    Role(Box<Role>),
    /// STS gives those of a role to the token of an identity provider.
    Oidc(Oidc),
    /// The metadata service gives those of the instance's role.
    EcsRole(EcsRole),
    /// A server near by gives them.
    Uri(CredentialsUri),
    /// A command prints them.
    Command(Command),
}

/// What a look at variables or files found.
#[derive(Debug)]
pub(super) enum Found {
    /// A source that is meant to be used, whether or not it works.
    There(Source),
    /// Nothing that anybody set up, in words.
    NotThere(String),
}

impl Source {
    /// Whether the keys are at hand, so that nothing needs to be held or renewed.
    pub(super) fn is_at_hand(&self) -> bool {
        matches!(self.way, Way::Keys { .. })
    }

    /// Keys out of this source, at `now`. Boxed: a role's own keys may come from a role.
    pub(super) fn fetch(
        &self,
        now: WallTime,
    ) -> Pin<Box<dyn Future<Output = Result<Held, CredentialsError>> + Send + '_>> {
        Box::pin(async move {
            let origin = &self.origin;
            match &self.way {
                Way::Keys { keys, expires } => {
                    Ok(Held { keys: keys.clone(), provider: origin.clone(), expires: *expires })
                }
                Way::Role(role) => role.fetch(origin, now).await,
                Way::Oidc(oidc) => oidc.fetch(origin, now).await,
                Way::EcsRole(role) => role.fetch(origin, now).await,
                Way::Uri(uri) => uri.fetch(origin, now).await,
                Way::Command(command) => command.fetch(origin, now).await,
            }
        })
    }
}
