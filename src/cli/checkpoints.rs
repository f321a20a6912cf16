//! `spotkeeper checkpoints JOB|URL`: what is there, what is thought of it, and which one a new
//! attempt would go on from. A job's are looked at by the daemon; a URL's by this process.

use super::output::{Column, Format, Page, as_json, or_dash, table};
use super::{Console, Exit, Failure};
use crate::api::wire::document;
use crate::checkpoint::location;
use crate::checkpoint::report::{self, Mendable};
use crate::checkpoint::scan::{ScanOptions, look_at};
use crate::checkpoint::store_s3::{StorageAccess, StorageKeys};
use crate::cli::text::plain;
use crate::config::format_words::{FORMATS, which_there_are};
use crate::config::{DAEMON_FILE, Surroundings, load_daemon};
use crate::model::checkpoint::{Location, Look, Scheme};
use crate::model::spec::{Commands, CredentialsRef, CustomLayout, Target};
use crate::model::step_pattern::StepPattern;
use crate::openapi::credentials::Keychain;
use crate::openapi::error::whole;
use serde_json::Value;
use std::borrow::Cow;
use std::path::Path;

/// Arguments of `checkpoints`.
#[derive(Debug, Clone, clap::Args)]
pub struct CheckpointsArgs {
    /// A job, or a URL: oss://BUCKET/PREFIX, s3://BUCKET/PREFIX, file:///FOLDER
    #[arg(value_name = "JOB|URL")]
    pub place: String,
    /// Show also those that are older than the chosen one and were not looked at; with `-o name`, also
    /// what is not whole
    #[arg(long)]
    pub all: bool,
    /// Read the names by this format [default: auto; for a job, its own]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Name of a checkpoint below a URL, with {step} once: step-{step}; the format is `custom`
    #[arg(long, value_name = "PATTERN")]
    pub pattern: Option<String>,
    /// A file that each checkpoint of the pattern must have; may be given several times
    #[arg(long, value_name = "FILE", requires = "pattern")]
    pub required: Vec<String>,
    /// The file that is written last into a checkpoint of the pattern
    #[arg(long, value_name = "FILE", requires = "pattern")]
    pub marker: Option<String>,
    /// S3 endpoint of a bucket [default: the daemon file's, or the region in an oss:// URL]
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Region of a bucket [default: as for --endpoint]
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,
}

const COLUMNS: &[Column] = &[
    Column { head: "", widest: 0, goes: 0 },
    Column { head: "STEP", widest: 0, goes: 0 },
    Column { head: "PATH", widest: 0, goes: 0 },
    Column { head: "VERDICT", widest: 0, goes: 0 },
    Column { head: "WHY", widest: 60, goes: 1 },
];

/// Which candidates a person sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Those that were looked at.
    Tested,
    /// All.
    All,
}

/// Shows the checkpoints of a job or below a URL.
pub async fn checkpoints(
    args: &CheckpointsArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let found = if args.place.contains("://") {
        document(&look_below(args, console).await?)
    } else if args.place.contains('/') {
        // No job's name has a slash.
        let why = format!("`{}` is not a URL: a folder is file:///FOLDER", args.place);
        return Err(Failure::Usage(why));
    } else {
        for (flag, given) in [
            ("--format", args.format.is_some()),
            ("--pattern", args.pattern.is_some()),
            ("--endpoint", args.endpoint.is_some()),
            ("--region", args.region.is_some()),
        ] {
            if given {
                let why = format!("`{flag}` goes with a URL: a job's file says how to look");
                return Err(Failure::Usage(why));
            }
        }
        console.client()?.of_job::<Value>(&args.place, &["checkpoints"], &[]).await?.json
    };
    let shown = if args.all { Shown::All } else { Shown::Tested };
    match as_json(&found, console.format) {
        Some(json) => write!(console.out, "{json}")?,
        None if console.format == Format::Name => {
            for path in names(&found, shown) {
                writeln!(console.out, "{}", plain(path))?;
            }
        }
        None => write!(console.out, "{}", render(&found, shown, console.width))?,
    }
    // A choice that only a person can make is not a choice.
    let ambiguous = found.get("ambiguous").and_then(Value::as_array).is_some_and(|a| !a.is_empty());
    Ok(if ambiguous { Exit::Error } else { Exit::Done })
}

/// The page of a look.
pub fn render(found: &Value, shown: Shown, width: Option<u16>) -> String {
    let mut page = Page::default();
    page.line("Format", found.get("format").and_then(Value::as_str).unwrap_or("none recognised"));
    let chosen = found.get("chosen").filter(|chosen| !chosen.is_null());
    match chosen {
        Some(chosen) => {
            // In full: people copy it for `retry --from`.
            let step = chosen.get("step").and_then(Value::as_u64);
            let step = step.map_or_else(|| "-".to_owned(), |step| step.to_string());
            page.line("Chosen", &format!("step {step}, {}", text(chosen, "path")));
            page.line("Resume", text(chosen, "resume"));
            if let Some(mend) = chosen.get("mend") {
                page.list(
                    "Mend",
                    [text(mend, "why"), text(mend, "command")]
                        .into_iter()
                        .filter(|t| !t.is_empty()),
                );
            }
        }
        None => {
            page.line("Chosen", "none");
        }
    }
    let roots = found.get("ambiguous").and_then(Value::as_array).into_iter().flatten();
    let roots: Vec<&str> = roots.filter_map(Value::as_str).collect();
    if !roots.is_empty() {
        page.line("Ambiguous", "several runs or formats; name the one that is meant:");
        let names = |root: &str| {
            let all = found.get("roots").and_then(Value::as_array).into_iter().flatten();
            let mut all = all.filter(|one| text(one, "path") == root);
            all.next().map(|one| format!("{root}  (names of {})", text(one, "names")))
        };
        let roots: Vec<String> =
            roots.into_iter().map(|root| names(root).unwrap_or_else(|| root.to_owned())).collect();
        page.list("", roots.iter().map(String::as_str));
    }
    let hints = found.get("hints").and_then(Value::as_array).into_iter().flatten();
    page.list("Hint", hints.filter_map(Value::as_str));
    let path = chosen.map_or("", |chosen| text(chosen, "path"));
    let all: Vec<&Value> = candidates(found).collect();
    let chosen_at = all.iter().position(|one| chosen.is_some() && text(one, "path") == path);
    let rows: Vec<Vec<Cow<'_, str>>> = all
        .iter()
        .enumerate()
        .filter(|(at, one)| shown == Shown::All || !is_hidden(*at, one, chosen_at))
        .map(|(_, one)| one)
        .map(|one| cells(one, chosen.is_some() && text(one, "path") == path))
        .collect();
    if !rows.is_empty() {
        page.block("\n").block(&table(COLUMNS, &rows, width));
    }
    let hidden = all.len() - rows.len();
    if hidden > 0 {
        let why = |one: &&&Value| text(one, "why").contains("shows no step");
        let unsure = all.iter().enumerate().filter(|(at, one)| is_hidden(*at, one, chosen_at));
        let is_sure = unsure.map(|(_, one)| one).filter(why).count() == 0;
        let older = if is_sure { "older" } else { "older or of an unknown step" };
        page.block(&format!("{hidden} {older}, not checked; `--all` shows them\n"));
    }
    page.text()
}

/// Whether a row is left out: it was not looked at, since it comes behind the chosen one.
fn is_hidden(at: usize, one: &Value, chosen_at: Option<usize>) -> bool {
    text(one, "verdict") == "not_checked" && chosen_at.is_some_and(|chosen| at > chosen)
}

/// What `-o name` prints: the chosen one first, then the other whole ones, so that the first line is
/// the one to go on from; nothing where none is chosen. With `--all` all others behind these.
pub fn names(found: &Value, shown: Shown) -> Vec<&str> {
    let chosen = found.get("chosen").filter(|chosen| !chosen.is_null());
    let chosen = chosen.map(|chosen| text(chosen, "path"));
    let of = |is_whole: bool| {
        candidates(found)
            .filter(move |one| (text(one, "verdict") == "whole") == is_whole)
            .map(|one| text(one, "path"))
            .filter(move |path| Some(*path) != chosen)
    };
    let mut names: Vec<&str> = chosen.into_iter().collect();
    if chosen.is_some() || shown == Shown::All {
        names.extend(of(true));
    }
    if shown == Shown::All {
        names.extend(of(false));
    }
    names
}

fn candidates(found: &Value) -> impl Iterator<Item = &Value> {
    found.get("candidates").and_then(Value::as_array).into_iter().flatten()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn cells(one: &Value, chosen: bool) -> Vec<Cow<'_, str>> {
    let suspect = one.get("suspect").and_then(Value::as_bool).unwrap_or(false);
    let verdict = plain(text(one, "verdict"));
    vec![
        if chosen { "*".into() } else { " ".into() },
        one.get("step").and_then(Value::as_u64).map_or("-".into(), |n| n.to_string().into()),
        plain(text(one, "path")),
        if suspect { format!("{verdict}, suspect").into() } else { verdict },
        or_dash(text(one, "why")),
    ]
}

async fn look_below(args: &CheckpointsArgs, console: &Console<'_>) -> Result<Value, Failure> {
    let place = location::parse(&args.place).map_err(|e| Failure::Usage(e.to_string()))?;
    let access = match place.scheme {
        Scheme::File => None,
        Scheme::S3 | Scheme::Oss => Some(access(args, &place, console).await?),
    };
    let options = options(args)?;
    match look_at(&place, access.as_ref(), &options, console.moment.now).await {
        Look::Done(findings) => {
            let storage = access.as_ref().map(|access| access.endpoint.as_str());
            let mendable = Mendable { location: &place, storage };
            let found = report::json_with_mend(&findings, None, &[], mendable);
            let mut found = found.map_err(|e| Failure::Look(e.to_string()))?;
            if options.custom.as_ref().is_some_and(CustomLayout::tells_no_torn_one) {
                let hint = "nothing tells a torn one of this layout from a whole one: add --required \
                            FILE, or --marker FILE (the one written last)";
                match found.get_mut("hints").and_then(Value::as_array_mut) {
                    Some(hints) => hints.push(hint.into()),
                    None => found["hints"] = serde_json::json!([hint]),
                }
            }
            Ok(found)
        }
        Look::CouldNotLook { why, .. } => {
            Err(Failure::Look(format!("could not look below {place}: {why}")))
        }
    }
}

/// What is looked for: a format's word, or the layout that the flags describe.
fn options(args: &CheckpointsArgs) -> Result<ScanOptions, Failure> {
    let format = match (args.format.as_deref(), &args.pattern) {
        (None, None) => "auto",
        (Some("custom"), None) => {
            let why = "`--format custom` needs `--pattern`, such as --pattern 'step-{step}'";
            return Err(Failure::Usage(why.to_owned()));
        }
        (Some(word), None) if FORMATS.contains(&word) => word,
        (Some(word), None) => {
            let why = format!("unknown format `{word}`: {}", which_there_are(word));
            return Err(Failure::Usage(why));
        }
        (None | Some("custom"), Some(_)) => "custom",
        (Some(word), Some(_)) => {
            let why = format!("`--pattern` is a layout of your own: not with `--format {word}`");
            return Err(Failure::Usage(why));
        }
    };
    let custom = args.pattern.clone().map(|pattern| CustomLayout {
        pattern,
        required: args.required.clone(),
        marker: args.marker.clone(),
    });
    if let Some(layout) = &custom {
        StepPattern::parse(&layout.pattern).map_err(|e| Failure::Usage(e.to_string()))?;
    }
    Ok(ScanOptions { format: format.to_owned(), custom, ..ScanOptions::default() })
}

/// How a bucket is reached: the flags, else the target of the daemon file that fits, else the
/// region in the URL.
async fn access(
    args: &CheckpointsArgs,
    place: &Location,
    console: &Console<'_>,
) -> Result<StorageAccess, Failure> {
    let config = console.global.config.as_deref().unwrap_or(Path::new(DAEMON_FILE));
    let daemon = load_daemon(config, &Surroundings::of_this_process()).draft;
    let commands = daemon.as_ref().map_or(Commands::Refused, |draft| draft.credential_commands);
    let targets: Vec<Target> =
        daemon.map_or(Vec::new(), |draft| draft.targets.into_values().collect());
    let region = args.region.clone().or_else(|| region_in(&args.place));
    let target = match &region {
        Some(region) => targets.iter().find(|target| target.place.region == *region),
        None => targets.first().filter(|_| targets.len() == 1),
    };
    let region = region.or_else(|| target.map(|target| target.place.region.clone()));
    let endpoint = args
        .endpoint
        .clone()
        .or_else(|| target.and_then(|target| target.place.storage.clone()))
        .or_else(|| Some(format!("https://s3.oss-{}.aliyuncs.com", region.as_ref()?)));
    let Some(endpoint) = endpoint else {
        return Err(Failure::Usage(format!(
            "where is {place}? add `--endpoint` or `--region`, or name a daemon file with one \
             target by `--config`"
        )));
    };
    let reference = target.map_or(CredentialsRef::Chain, |target| target.place.credentials.clone());
    let held = Keychain::of_this_process(commands).keys(&reference, console.moment.now).await;
    let keys = held.map_err(|e| Failure::Look(whole(&e)))?.keys;
    Ok(StorageAccess {
        endpoint,
        region: region.unwrap_or_default(),
        keys: StorageKeys {
            key_id: keys.key_id.expose().to_owned(),
            secret: keys.secret,
            token: keys.token,
        },
        plain_http: args.endpoint.is_none() && target.is_some_and(|target| target.plain_http),
    })
}

/// The region in `oss://bucket.oss-REGION[-internal].aliyuncs.com/…`.
fn region_in(url: &str) -> Option<String> {
    let host = url.split_once("://")?.1.split('/').next()?;
    let name = host.strip_suffix(".aliyuncs.com")?.rsplit_once(".oss-")?.1;
    Some(name.strip_suffix("-internal").unwrap_or(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_stands_in_the_host() {
        for (url, region) in [
            ("oss://b.oss-cn-hangzhou-internal.aliyuncs.com/a", Some("cn-hangzhou")),
            ("oss://b.oss-cn-wulanchabu.aliyuncs.com", Some("cn-wulanchabu")),
            ("oss://b/oss-cn-hangzhou.aliyuncs.com", None),
            ("s3://b/a", None),
        ] {
            assert_eq!(region_in(url).as_deref(), region, "{url}");
        }
    }
}
