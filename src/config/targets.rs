//! The targets of the daemon file: where jobs may be sent.

use super::codes;
use super::credentials::credentials;
use super::diagnostic::{Anchor, Diagnostic, Notes};
use super::reader::{Found, Table};
use crate::model::ids::TargetName;
use crate::model::spec::{CredentialsRef, Place, Target};
use std::collections::BTreeMap;
use std::time::Duration;

const ACCEPTANCE: Duration = Duration::from_mins(15);
const ACCEPTANCE_SHORTEST: Duration = Duration::from_millis(100);
const ACCEPTANCE_LONGEST: Duration = Duration::from_hours(24);
const MAX_PARALLEL: u32 = 50;
const MAX_PARALLEL_MOST: u64 = 10_000;

/// All targets; a file without any is told.
pub(super) fn targets(notes: &Notes<'_>, top: &mut Table<'_, '_>) -> BTreeMap<TargetName, Target> {
    let asked = top.has("targets");
    let mut targets = BTreeMap::new();
    for (name, table) in top.named_tables("targets") {
        let target = target(notes, &name, table);
        targets.extend(target.map(|target| (target.name.clone(), target)));
    }
    if targets.is_empty() && !asked {
        let file = notes.source.file.as_path();
        let mend = "add a [targets.NAME] table with region and workspace";
        let message = "no targets: no job can be sent anywhere";
        notes.add(Diagnostic::warning(Anchor::whole(file), codes::IDLE, message, mend));
    }
    targets
}

/// A target. Whatever is wrong in it is reported and filled in, so that jobs that name it are not
/// told that it does not exist.
fn target(notes: &Notes<'_>, name: &Found<String>, mut table: Table<'_, '_>) -> Option<Target> {
    for (key, example) in [("region", "cn-hangzhou"), ("workspace", "12345")] {
        if !table.has(key) {
            let message = format!("target `{}` has no `{key}`", name.value);
            notes.error(&name.key, codes::MISSING, message, format!("add {key} = \"{example}\""));
        }
    }
    let region = id(notes, &mut table, "region");
    let workspace = id(notes, &mut table, "workspace");
    let plain_http = table.flag("plain_http").is_some_and(|found| found.value);
    let endpoint = endpoint(notes, &mut table, plain_http)
        .unwrap_or_else(|| format!("https://pai-dlc.{region}.aliyuncs.com"));
    let mut storage = None;
    if let Some(mut part) = table.table("storage") {
        storage = self::endpoint(notes, &mut part, plain_http);
        part.finish();
    }
    let storage = storage.unwrap_or_else(|| format!("https://s3.oss-{region}.aliyuncs.com"));
    let credentials = match table.table("credentials") {
        Some(part) => credentials(notes, part),
        None => CredentialsRef::Chain,
    };
    let acceptance = table.duration("acceptance", ACCEPTANCE_SHORTEST..=ACCEPTANCE_LONGEST);
    let parallel = table.count("max_parallel", 1..=MAX_PARALLEL_MOST);
    table.finish();
    let name = match TargetName::new(name.value.clone()) {
        Ok(name) => name,
        Err(bad) => {
            let message = "not a name of a target";
            notes.error(&name.key, codes::WRONG_VALUE, message, format!("wanted: {}", bad.rule));
            return None;
        }
    };
    Some(Target {
        name,
        place: Place { region, workspace, endpoint, storage: Some(storage), credentials },
        acceptance: acceptance.map_or(ACCEPTANCE, |found| found.value),
        max_parallel: parallel
            .and_then(|found| u32::try_from(found.value).ok())
            .unwrap_or(MAX_PARALLEL),
        plain_http,
    })
}

/// A region or workspace id. It becomes part of host names and queries.
fn id(notes: &Notes<'_>, table: &mut Table<'_, '_>, key: &'static str) -> String {
    let Some(found) = table.text(key) else { return String::new() };
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if (1..=64).contains(&found.value.len()) && found.value.bytes().all(letter) {
        return found.value;
    }
    let message = format!("`{key}` cannot have this value");
    notes.error(&found.span, codes::WRONG_VALUE, message, "wanted: letters, digits, `-` and `_`");
    String::new()
}

fn endpoint(notes: &Notes<'_>, table: &mut Table<'_, '_>, plain_http: bool) -> Option<String> {
    let found = table.text("endpoint")?;
    match check_endpoint(&found.value, plain_http) {
        Ok(endpoint) => Some(endpoint),
        Err((message, mend)) => {
            notes.error(&found.span, codes::ENDPOINT, message, mend);
            None
        }
    }
}

/// An endpoint without slash at its end, or what is wrong with it and the mend.
fn check_endpoint(text: &str, plain_http: bool) -> Result<String, (&'static str, &'static str)> {
    let example = "write it as https://pai-dlc.cn-hangzhou.aliyuncs.com";
    let (scheme, rest) =
        text.split_once("://").ok_or(("not an address with its scheme", example))?;
    let host = rest.trim_end_matches('/');
    if host.contains('@') {
        return Err(("an address with a user or password in it", "keys come from `credentials`"));
    }
    let letter = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if host.is_empty() || !host.chars().all(letter) {
        return Err(("not scheme, host and port alone", example));
    }
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) => (name, port.strip_prefix(':')),
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err(("not scheme, host and port alone", example));
    }
    let loopback = name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    match scheme {
        "https" => {}
        "http" if loopback || plain_http => {}
        "http" => {
            return Err((
                "plain http:// sends tokens and environment values in the clear",
                "use https://, or set plain_http = true in this target",
            ));
        }
        _ => return Err(("neither https:// nor http://", example)),
    }
    Ok(format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_loopback_or_by_name() {
        for good in [
            "https://h",
            "http://127.0.0.1:80/",
            "http://localhost:1",
            "http://[::1]:8080",
            "http://127.8.8.8",
        ] {
            assert!(check_endpoint(good, false).is_ok(), "{good}");
        }
        for bad in [
            "http://h",
            "http://127.0.0.1.example.com",
            "http://10.0.0.1",
            "h",
            "ftp://h",
            "https://",
            "https://h/path",
            "https://u:p@h",
            "https://h:port",
            "https://h?x",
            "https://:80",
        ] {
            assert!(check_endpoint(bad, false).is_err(), "{bad}");
        }
        assert_eq!(check_endpoint("http://h/", true), Ok("http://h".into()));
    }
}
