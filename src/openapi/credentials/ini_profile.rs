//! Profiles of the SDKs: `~/.alibabacloud/credentials.ini`.

use super::file::{Readers, text};
use super::role::{LIFE, ROLE_VARIABLE, Role, RoleWanted, SESSION, SESSION_VARIABLE};
use super::source::{Found, Source, Way};
use super::{CredentialsError, Surroundings, cli_profile, ecs_role, oidc, server, triple};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FILE: &str = "ALIBABA_CLOUD_CREDENTIALS_FILE";
/// The section where none is named.
const DEFAULT: &str = "default";

/// Keys and values of one section.
type Section = BTreeMap<String, String>;

/// The section `name`, else the one that the environment names, else `default`.
pub(super) fn look(around: &Surroundings, name: Option<&str>) -> Result<Found, CredentialsError> {
    let absent = |what: String| Ok(Found::NotThere(format!("INI profile: {what}")));
    let path = match (around.variable(FILE), &around.home) {
        // A file that somebody named has to be there; reading says so.
        (Some(named), _) => PathBuf::from(named),
        (None, None) => return absent("there is no home folder".to_owned()),
        (None, Some(home)) => {
            let usual = home.join(".alibabacloud").join("credentials.ini");
            if matches!(usual.try_exists(), Ok(false)) {
                return absent(format!("there is no {}", usual.display()));
            }
            usual
        }
    };
    let chosen = name.map(str::to_owned).or_else(|| around.variable(cli_profile::PROFILE));
    let name = chosen.unwrap_or_else(|| DEFAULT.to_owned());
    let sections = sections(&path, &text(&path, Readers::Any)?)?;
    match sections.get(&name) {
        None => absent(format!("{} has no section `{name}`", path.display())),
        Some(fields) => Profile { around, path, name, fields }.source().map(Found::There),
    }
}

/// The sections of the file. A `#` starts a comment, inside a value too, as with the SDK.
fn sections(path: &Path, text: &str) -> Result<BTreeMap<String, Section>, CredentialsError> {
    let mut sections = BTreeMap::<String, Section>::new();
    let mut current: Option<String> = None;
    for (number, line) in text.lines().enumerate() {
        let bad = |what: &str| form(path, format!("line {}: {what}", number + 1));
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with(';') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.entry(name.trim().to_owned()).or_default();
            current = Some(name.trim().to_owned());
            continue;
        }
        let section = current.as_ref().and_then(|name| sections.get_mut(name));
        let section = section.ok_or_else(|| bad("stands before the first [section]"))?;
        let (key, value) =
            line.split_once(['=', ':']).ok_or_else(|| bad("neither [section] nor key = value"))?;
        let key = key.trim().to_ascii_lowercase();
        if section.insert(key, value.trim().to_owned()).is_some() {
            return Err(bad("the same key for the second time in its section"));
        }
    }
    Ok(sections)
}

/// One section.
struct Profile<'a> {
    around: &'a Surroundings,
    path: PathBuf,
    name: String,
    fields: &'a Section,
}

impl Profile<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key).map(String::as_str).filter(|text| !text.is_empty())
    }

    fn needed(&self, key: &str) -> Result<&str, CredentialsError> {
        self.text(key).ok_or_else(|| self.form(&format!("has no `{key}`")))
    }

    fn form(&self, what: &str) -> CredentialsError {
        form(&self.path, format!("section `{}` {what}", self.name))
    }

    fn source(&self) -> Result<Source, CredentialsError> {
        let kind = self.needed("type")?;
        let origin = format!("section `{}` of {} ({kind})", self.name, self.path.display());
        let pair = || -> Result<Way, CredentialsError> {
            let id = self.needed("access_key_id")?;
            let keys = triple(&origin, id, self.needed("access_key_secret")?, None)?;
            Ok(Way::Keys { keys, expires: None })
        };
        let way = match kind {
            "access_key" => pair()?,
            "ram_role_arn" => {
                let base = Source { origin: origin.clone(), way: pair()? };
                let wanted = self.wanted(&origin)?;
                Way::Role(Box::new(Role { base, wanted, external_id: None }))
            }
            "oidc_role_arn" => Way::Oidc(oidc::Oidc {
                wanted: self.wanted(&origin)?,
                provider_arn: self.or_variable("oidc_provider_arn", oidc::PROVIDER_VARIABLE)?,
                token_file: self.or_variable("oidc_token_file_path", oidc::TOKEN_VARIABLE)?.into(),
            }),
            "ecs_ram_role" => {
                return ecs_role::source(&origin, self.around, self.text("role_name"));
            }
            "rsa_key_pair" => {
                return Err(self.form(
                    "has the type rsa_key_pair, which spotkeeper does not support: give it a RAM \
                     role, or keys of a RAM user",
                ));
            }
            _ => {
                return Err(self.form(
                    "has an unknown `type`: access_key, ram_role_arn, oidc_role_arn and \
                     ecs_ram_role are known",
                ));
            }
        };
        Ok(Source { origin, way })
    }

    fn wanted(&self, origin: &str) -> Result<RoleWanted, CredentialsError> {
        let own = self.text("role_session_name").map(str::to_owned);
        Ok(RoleWanted {
            arn: self.or_variable("role_arn", ROLE_VARIABLE)?,
            session: own
                .or_else(|| self.around.variable(SESSION_VARIABLE))
                .unwrap_or_else(|| SESSION.to_owned()),
            life: LIFE,
            policy: self.text("policy").map(str::to_owned),
            sts: server::sts(origin, self.around, None, None)?,
        })
    }

    fn or_variable(&self, key: &str, variable: &str) -> Result<String, CredentialsError> {
        let own = self.text(key).map(str::to_owned);
        own.or_else(|| self.around.variable(variable))
            .ok_or_else(|| self.form(&format!("has no `{key}`")))
    }
}

fn form(path: &Path, what: String) -> CredentialsError {
    CredentialsError::Form { path: path.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_read_as_the_sdk_reads_them() {
        let text = "; by hand\n[default]\nType = access_key # kind\n access_key_id: a=b\n\n[x]\n";
        let sections = sections(Path::new("f"), text).expect("sections");
        assert_eq!(sections["default"]["type"], "access_key");
        assert_eq!(sections["default"]["access_key_id"], "a=b");
        assert!(sections["x"].is_empty());
    }

    #[test]
    fn a_bad_line_is_named_by_its_number_alone() {
        for text in ["[a]\nhunter2\n", "[a]\nk = 1\nk = hunter2", "\nsecret = hunter2"] {
            let error = sections(Path::new("f"), text).expect_err("bad").to_string();
            assert!(error.contains("line ") && !error.contains("hunter2"), "{error}");
        }
    }
}
