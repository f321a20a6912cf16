//! What a keychain finds around it: variables, the home folder, the addresses it asks.

use crate::model::spec::Commands;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Alibaba's metadata service: a link-local address that only its own instances reach.
pub(super) const METADATA: &str = "http://100.100.100.200";

/// Looks a variable of the environment up.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What a keychain finds around it. Tests bring their own; a process has one.
#[derive(Clone)]
pub struct Surroundings {
    /// The environment.
    pub variables: Variables,
    /// The home folder, with `.aliyun` and `.alibabacloud`.
    pub home: Option<PathBuf>,
    /// Base URL of the ECS metadata service.
    pub metadata: String,
    /// Base URL of STS; `None` for the one that region and variables name.
    pub sts: Option<String>,
    /// Whether a profile may run a command.
    pub commands: Commands,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_this_process(commands: Commands) -> Self {
        Self {
            variables: Arc::new(|name| std::env::var(name).ok()),
            home: std::env::home_dir(),
            metadata: METADATA.to_owned(),
            sts: None,
            commands,
        }
    }

    /// A variable, if it is set to something: an empty one counts as not set, as with the SDK.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|text| !text.trim().is_empty())
    }

    /// Whether a switch is on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.variable(name).is_some_and(|text| text.trim().eq_ignore_ascii_case("true"))
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings")
            .field("home", &self.home)
            .field("metadata", &self.metadata)
            .field("sts", &self.sts)
            .field("commands", &self.commands)
            .finish_non_exhaustive()
    }
}
