//! A guess at `[checkpoint]`, from what is mounted and what the command says.
//!
//! The table is written to be used only where nothing else can be meant: one place to save, in a
//! bucket, by Megatron's own `--save`, and a command that takes the argument. Else it is a comment.

use super::toml_text::{comment, quoted};
use crate::config::mapping::{Mount, NoPlace, mount, normal_path, place_of};
use crate::model::checkpoint::Location;
use crate::model::resume_text::{ResumePlace, check_command};
use serde_json::Value;

/// Arguments that name the folder of checkpoints.
const SAVES: [&str; 9] = [
    "save",
    "save_dir",
    "save_path",
    "output_dir",
    "checkpoint_dir",
    "checkpoint_path",
    "ckpt_dir",
    "ckpt_path",
    "default_root_dir",
];
/// Arguments that name where to go on from.
const LOADS: [&str; 6] =
    ["load", "load_dir", "resume", "resume_from", "resume_from_checkpoint", "load_checkpoint"];

/// A path that the command names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    flag: String,
    path: String,
    saves: bool,
}

/// The `[checkpoint]` part of a job file. `sources` are the mounts with everything that is known of
/// them, `body` those that the job file has.
pub(super) fn checkpoint(command: &str, sources: &[Value], body: &[Value]) -> String {
    let (all, own): (Vec<Mount>, Vec<Mount>) =
        (sources.iter().map(mount).collect(), body.iter().map(mount).collect());
    let named = named(command);
    let mut text = String::new();
    text.push_str(&comment(
        "Where checkpoints are, and how a resumed attempt is told: docs/configuration.md.",
    ));
    let mut paths: Vec<&str> = named.iter().filter(|n| n.saves).map(|n| n.path.as_str()).collect();
    paths.dedup();
    let megatron = named.iter().any(|n| n.saves && n.flag == "save");
    match paths[..] {
        [path] => {
            let flag = named.iter().find(|n| n.path == path && n.saves).map_or("", |n| &n.flag);
            text.push_str(&comment(&format!("By `--{flag}` of the command it saves to {path}.")));
            let place = place_of(path, &all).map(|(place, _)| place);
            let hidden = matches!(place_of(path, &own), Err(NoPlace::Hidden(_)));
            let reaches = check_command(command).is_ok();
            let active = megatron && place.is_ok() && reaches;
            if !reaches {
                text.push_str(&comment(
                    "First write {resume} into UserCommand, where the trainer's argument belongs.",
                ));
            }
            if !megatron {
                text.push_str(&comment("Its layout is not certain: name it (format), and the argument that resumes (resume)."));
            }
            text.push_str(&table(path, place.as_ref().ok(), hidden, active, load_flag(&named)));
        }
        [] => {
            text.push_str(&comment(if all.is_empty() {
                "The command names no folder to save to, and nothing is mounted."
            } else {
                "The command names no folder to save to; the mounts are:"
            }));
            for mount in &all {
                let path = mount.path.as_deref().unwrap_or("(the data set's own path)");
                text.push_str(&comment(&format!("  {path}")));
            }
            text.push_str(&table("/mnt/…", None, false, false, load_flag(&named)));
        }
        _ => {
            text.push_str(&comment(&format!(
                "The command names several folders, {}: choose one.",
                paths.join(", ")
            )));
            text.push_str(&table(
                paths[0],
                place_of(paths[0], &all).ok().map(|(p, _)| p).as_ref(),
                false,
                false,
                load_flag(&named),
            ));
        }
    }
    text
}

fn load_flag(named: &[Named]) -> Option<&str> {
    named.iter().find(|named| !named.saves).map(|named| named.flag.as_str())
}

fn table(
    path: &str,
    place: Option<&Location>,
    hidden: bool,
    active: bool,
    load: Option<&str>,
) -> String {
    let mut lines = vec!["[checkpoint]".to_owned(), format!("path = {}", quoted(path))];
    match place {
        Some(place) if hidden => lines.push(format!("url = \"{place}\"")),
        None if hidden => lines.push("url = \"oss://BUCKET/PREFIX/\"".to_owned()),
        Some(_) | None => {}
    }
    if !active {
        let flag = load.unwrap_or("load");
        lines.push("format = \"auto\"".to_owned());
        lines.push(format!("resume = \"--{flag} {{path}}\""));
    }
    let mark = if active { "" } else { "# " };
    lines.into_iter().fold(String::new(), |text, line| text + mark + &line + "\n")
}

/// The paths that a command names by arguments that are known.
fn named(command: &str) -> Vec<Named> {
    let words: Vec<&str> =
        command.split_whitespace().flat_map(|word| word.split(['=', ';'])).collect();
    let mut found: Vec<Named> = Vec::new();
    for pair in words.windows(2) {
        let Some(flag) = pair[0].strip_prefix("--") else { continue };
        let name = flag.replace('-', "_");
        let saves = SAVES.contains(&name.as_str());
        if !saves && !LOADS.contains(&name.as_str()) {
            continue;
        }
        if let Ok(path) = normal_path(pair[1].trim_matches(['"', '\''])) {
            found.push(Named { flag: flag.to_owned(), path, saves });
        }
    }
    found
}

/// What to say above UserCommand about the resume argument.
pub(super) fn about_command(command: &str) -> &'static str {
    match check_command(command) {
        Ok(ResumePlace::Placeholder) => "{resume} is where a resumed attempt gets its argument",
        Ok(ResumePlace::End) => {
            "a resumed attempt gets its argument at the end; write {resume} to have it elsewhere"
        }
        Err(_) => "with [checkpoint], write {resume} where the trainer's argument belongs",
    }
}
