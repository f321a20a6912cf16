//! Profiles of the `aliyun` command: `~/.aliyun/config.json`.
//!
//! Read as that command and the SDK read it. A file, or a profile, that is not there or that
//! nobody filled in is passed over; anything else that cannot be used is an error.

use super::command::Command;
use super::file::{Readers, text};
use super::role::{
    LIFE, LIFE_SHORTEST, ROLE_VARIABLE, Role, RoleWanted, SESSION, SESSION_VARIABLE,
};
use super::source::{Found, Source, Way};
use super::{CredentialsError, Surroundings, ecs_role, oidc, server, triple};
use crate::model::spec::Commands;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

pub(super) const PROFILE: &str = "ALIBABA_CLOUD_PROFILE";
const DISABLED: &str = "ALIBABA_CLOUD_CLI_PROFILE_DISABLED";
/// Profiles that may stand behind one another through `source_profile`.
const DEPTH_LIMIT: usize = 8;

/// The profile `name`, else the current one.
pub(super) fn look(around: &Surroundings, name: Option<&str>) -> Result<Found, CredentialsError> {
    let absent = |what: String| Ok(Found::NotThere(format!("CLI profile: {what}")));
    if around.is_on(DISABLED) {
        return absent(format!("{DISABLED} is set to true"));
    }
    let Some(home) = &around.home else {
        return absent("there is no home folder".to_owned());
    };
    let path = home.join(".aliyun").join("config.json");
    if matches!(path.try_exists(), Ok(false)) {
        return absent(format!("there is no {}", path.display()));
    }
    let file = File::read(around, path)?;
    let current = || file.content.get("current")?.as_str();
    let Some(name) = name.or_else(current).map(str::trim).filter(|name| !name.is_empty()) else {
        return absent(format!("{} has no `current`", file.path.display()));
    };
    let Some(profile) = file.profile(name) else {
        return absent(format!("{} has no profile `{name}`", file.path.display()));
    };
    if profile.is_blank() {
        return absent(format!("profile `{name}` of {} has no keys", file.path.display()));
    }
    profile.source(DEPTH_LIMIT).map(Found::There)
}

/// The file, read.
struct File<'a> {
    around: &'a Surroundings,
    path: PathBuf,
    content: Value,
}

impl<'a> File<'a> {
    fn read(around: &'a Surroundings, path: PathBuf) -> Result<Self, CredentialsError> {
        let text = text(&path, Readers::Any)?;
        // The parser's own message quotes the line, and so a secret.
        let content = serde_json::from_str(&text)
            .map_err(|e| form(&path, format!("line {}: not the JSON expected", e.line())))?;
        Ok(Self { around, path, content })
    }

    fn profile(&self, name: &str) -> Option<Profile<'_>> {
        let profiles = self.content.get("profiles")?.as_array()?;
        let fields = profiles
            .iter()
            .filter_map(Value::as_object)
            .find(|fields| fields.get("name").and_then(Value::as_str) == Some(name))?;
        Some(Profile { file: self, name: name.to_owned(), fields })
    }
}

/// One profile.
struct Profile<'a> {
    file: &'a File<'a>,
    name: String,
    fields: &'a Map<String, Value>,
}

impl Profile<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key)?.as_str().map(str::trim).filter(|text| !text.is_empty())
    }

    fn needed(&self, key: &str) -> Result<&str, CredentialsError> {
        self.text(key).ok_or_else(|| self.form(&format!("has no `{key}`")))
    }

    fn form(&self, what: &str) -> CredentialsError {
        form(&self.file.path, format!("profile `{}` {what}", self.name))
    }

    /// Whether it is the empty one that the command makes before it asks for keys.
    fn is_blank(&self) -> bool {
        let keys = ["access_key_id", "access_key_secret"];
        matches!(self.text("mode"), Some("AK") | None)
            && keys.iter().all(|key| self.text(key).is_none())
    }

    fn source(&self, depth: usize) -> Result<Source, CredentialsError> {
        let mode = self.needed("mode")?;
        let path = self.file.path.display();
        let origin = format!("profile `{}` of {path} ({mode})", self.name);
        let around = self.file.around;
        let way = match mode {
            "AK" => self.pair(&origin, None)?,
            "StsToken" => self.pair(&origin, Some(self.needed("sts_token")?))?,
            "RamRoleArn" => {
                let base = Source { origin: origin.clone(), way: self.pair(&origin, None)? };
                self.role(&origin, base)?
            }
            "ChainableRamRoleArn" => self.role(&origin, self.behind(depth)?)?,
            "EcsRamRole" => {
                return ecs_role::source(&origin, around, self.text("ram_role_name"));
            }
            "OIDC" => Way::Oidc(oidc::Oidc {
                wanted: self.wanted(&origin, "role_session_name")?,
                provider_arn: self.or_variable("oidc_provider_arn", oidc::PROVIDER_VARIABLE)?,
                token_file: self.or_variable("oidc_token_file", oidc::TOKEN_VARIABLE)?.into(),
            }),
            "External" => match around.commands {
                Commands::Refused => return Err(CredentialsError::CommandForbidden { origin }),
                Commands::Allowed => {
                    let line = self.needed("process_command")?;
                    Way::Command(Command::parse(line).map_err(|what| self.form(what))?)
                }
            },
            "CloudSSO" | "OAuth" => {
                let what = format!(
                    "has the mode {mode}: it needs a person at a browser from time to time, and \
                     spotkeeper runs without one. Give it a RAM role, or keys of a RAM user"
                );
                return Err(self.form(&what));
            }
            _ => {
                return Err(self.form(
                    "has an unknown `mode`: AK, StsToken, RamRoleArn, ChainableRamRoleArn, \
                     EcsRamRole, OIDC and External are known",
                ));
            }
        };
        Ok(Source { origin, way })
    }

    fn pair(&self, origin: &str, token: Option<&str>) -> Result<Way, CredentialsError> {
        let id = self.needed("access_key_id")?;
        let keys = triple(origin, id, self.needed("access_key_secret")?, token)?;
        Ok(Way::Keys { keys, expires: None })
    }

    /// The profile that this one takes its keys from.
    fn behind(&self, depth: usize) -> Result<Source, CredentialsError> {
        let name = self.needed("source_profile")?;
        if depth == 0 {
            return Err(self.form(&format!(
                "has more than {DEPTH_LIMIT} profiles behind it; does `source_profile` go round \
                 in a circle?"
            )));
        }
        let missing = || self.form(&format!("has the `source_profile` {name}, which is not there"));
        self.file.profile(name).ok_or_else(missing)?.source(depth - 1)
    }

    fn role(&self, origin: &str, base: Source) -> Result<Way, CredentialsError> {
        let wanted = self.wanted(origin, "ram_session_name")?;
        let external_id = self.text("external_id").map(str::to_owned);
        Ok(Way::Role(Box::new(Role { base, wanted, external_id })))
    }

    fn wanted(&self, origin: &str, session: &str) -> Result<RoleWanted, CredentialsError> {
        let around = self.file.around;
        // The command writes 0 where nothing was said.
        let life = match self.fields.get("expired_seconds").and_then(Value::as_u64) {
            None | Some(0) => LIFE,
            Some(life) if life < LIFE_SHORTEST => {
                let what =
                    format!("has `expired_seconds` below {LIFE_SHORTEST}, which STS refuses");
                return Err(self.form(&what));
            }
            Some(life) => life,
        };
        let region = self.text("sts_region").map(str::to_owned);
        let vpc = self.fields.get("enable_vpc").and_then(Value::as_bool);
        let own = self.text(session).map(str::to_owned);
        Ok(RoleWanted {
            arn: self.or_variable("ram_role_arn", ROLE_VARIABLE)?,
            session: own
                .or_else(|| around.variable(SESSION_VARIABLE))
                .unwrap_or_else(|| SESSION.to_owned()),
            life,
            policy: self.text("policy").map(str::to_owned),
            sts: server::sts(origin, around, region, vpc)?,
        })
    }

    fn or_variable(&self, key: &str, variable: &str) -> Result<String, CredentialsError> {
        let own = self.text(key).map(str::to_owned);
        own.or_else(|| self.file.around.variable(variable))
            .ok_or_else(|| self.form(&format!("has no `{key}`")))
    }
}

fn form(path: &Path, what: String) -> CredentialsError {
    CredentialsError::Form { path: path.to_owned(), what }
}
