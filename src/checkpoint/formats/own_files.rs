//! The files by which a format is known. A layout of a person's own may have a format's names and none of
//! these: then the answer says so, in place of calling each of its checkpoints torn and no more.

use super::{Checkpoint, Format};
use crate::checkpoint::numbered::pattern_of;
use std::collections::BTreeMap;

/// Names that a person is shown of a layout of their own.
const SHOWN: usize = 3;

/// A file that every checkpoint of a format has, or one of several in its place.
struct OwnFile {
    /// For people.
    name: &'static str,
    is: fn(&str) -> bool,
}

const fn file(name: &'static str, is: fn(&str) -> bool) -> OwnFile {
    OwnFile { name, is }
}

const TENSORS: OwnFile = file("model.safetensors or pytorch_model.bin", |key| {
    last(key).starts_with("model") && ends(key, "safetensors") || key.starts_with("pytorch_model")
});
const DCP_NAMES: OwnFile = file(".metadata", |key| last(key).ends_with(".metadata"));
const DCP_SHARDS: OwnFile = file("__<rank>_<n>.distcp", |key| ends(key, "distcp"));

const ACCELERATE: &[OwnFile] = &[
    TENSORS,
    file("optimizer.bin", |key| key == "optimizer.bin" || key.starts_with("optimizer_")),
    file("random_states_<rank>.pkl", |key| key.starts_with("random_states_")),
];
const TRAINER: &[OwnFile] = &[
    file("model.safetensors, adapter_model.safetensors or pytorch_model.bin", |key| {
        (TENSORS.is)(key) || key.starts_with("adapter_model")
    }),
    file("optimizer.pt", |key| {
        ["optimizer.pt", "optimizer.bin"].contains(&key)
            || ["optimizer_", "global_step"].iter().any(|folder| key.starts_with(folder))
    }),
    file("trainer_state.json", |key| key == "trainer_state.json"),
];
const DEEPSPEED: &[OwnFile] = &[
    file("mp_rank_<NN>_model_states.pt", |key| key.ends_with("model_states.pt")),
    file("zero_pp_rank_<N>_mp_rank_<NN>_optim_states.pt", |key| {
        // Without ZeRO the optimizer is in the model states.
        key.ends_with("optim_states.pt") || key.ends_with("model_states.pt")
    }),
];
const DCP: &[OwnFile] = &[DCP_NAMES, DCP_SHARDS];
const MEGATRON: &[OwnFile] = &[file("mp_rank_<NN>/model_optim_rng.pt", |key| {
    key.starts_with("mp_rank_") && key.ends_with("/model_optim_rng.pt")
})];
const VERL: &[OwnFile] = &[
    file("actor/model_world_size_<W>_rank_<R>.pt", |key| key.contains("_world_size_")),
    file("data.pt", |key| key == "data.pt"),
];
const COLOSSAL: &[OwnFile] = &[
    file("modeling/", |key| key.starts_with("modeling/")),
    file("optimizer/", |key| key.starts_with("optimizer/")),
    file("running_states.json", |key| key == "running_states.json"),
];
const ORBAX: &[OwnFile] = &[file("_CHECKPOINT_METADATA or <item>/_METADATA", |key| {
    ["_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt"].contains(&last(key))
})];

/// The last part of a key.
fn last(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

fn ends(key: &str, extension: &str) -> bool {
    key.rsplit_once('.').is_some_and(|(_, found)| found == extension)
}

/// What every checkpoint of a format has; nothing where the names alone tell enough.
fn own_files(format: &str) -> &'static [OwnFile] {
    match format {
        "accelerate" => ACCELERATE,
        "hf-trainer" | "llama-factory" | "ms-swift" => TRAINER,
        "deepspeed" | "easyckpt-deepspeed" => DEEPSPEED,
        "torch-dcp" | "torchtitan" | "dlrover" | "megatron-torch-dist" => DCP,
        "megatron-legacy" | "easyckpt-megatron" => MEGATRON,
        "verl" => VERL,
        "colossalai" => COLOSSAL,
        "orbax" => ORBAX,
        _ => &[],
    }
}

fn has(checkpoint: &Checkpoint, file: &OwnFile) -> bool {
    checkpoint.objects.iter().any(|object| (file.is)(&object.key))
}

fn listed(files: &[&OwnFile]) -> String {
    files.iter().map(|file| file.name).collect::<Vec<_>>().join(", ")
}

/// What speaks for a layout of a person's own, if anything: files that each checkpoint of `format` has
/// and none of `looked_at`, newest first, has.
pub(in crate::checkpoint) fn doubt(
    format: &dyn Format,
    looked_at: &[&Checkpoint],
) -> Option<String> {
    let all: Vec<&OwnFile> = own_files(format.word()).iter().collect();
    let lacking: Vec<&OwnFile> = all
        .iter()
        .copied()
        .filter(|file| !looked_at.iter().any(|checkpoint| has(checkpoint, file)))
        .collect();
    if lacking.is_empty() || looked_at.iter().all(|checkpoint| checkpoint.objects.is_empty()) {
        return None;
    }
    let word = format.word();
    let text = if lacking.len() == all.len() {
        format!(
            "only the names are those of `{word}`: nothing that it writes ({}) is in any of the {} \
             that were looked at",
            listed(&all),
            looked_at.len(),
        )
    } else {
        let files = listed(&lacking);
        format!("the names are those of `{word}`, and none that was looked at has {files}")
    };
    Some(format!("{text}; {}", own_layout(looked_at)))
}

/// The same for names that several formats have, where nothing inside is any one's.
pub(in crate::checkpoint) fn nobodys(formats: &[&dyn Format], looked_at: &[&Checkpoint]) -> String {
    let each: Vec<String> = formats
        .iter()
        .map(|format| (format.word(), own_files(format.word())))
        .filter(|(_, files)| !files.is_empty())
        .map(|(word, files)| format!("`{word}` ({})", listed(&files.iter().collect::<Vec<_>>())))
        .collect();
    let writers =
        if each.is_empty() { "a format that is known".to_owned() } else { each.join(", ") };
    format!(
        "only the names are known: nothing that {writers} writes is in any of the {} that were looked \
         at; {}",
        looked_at.len(),
        own_layout(looked_at),
    )
}

/// How a layout of a person's own is named, after the newest one.
fn own_layout(looked_at: &[&Checkpoint]) -> String {
    let newest = looked_at.first();
    let name = newest.map_or("", |checkpoint| last(&checkpoint.name));
    let pattern = pattern_of(name).map_or("step-{step}".to_owned(), |(pattern, _)| pattern);
    let (required, lacks) = required(looked_at);
    let flags: Vec<String> =
        required.iter().take(SHOWN).map(|key| format!(" --required '{key}'")).collect();
    let lacks = lacks.map(|lacks| format!("; {lacks}")).unwrap_or_default();
    format!(
        "a layout of your own is looked at by `--pattern '{pattern}'{}` (or `--marker FILE`, the one \
         written last), and in a job file by format = \"custom\" with [checkpoint.custom]{lacks}",
        flags.concat(),
    )
}

/// The files that most of those looked at have, and who lacks one. The newest may be the one that was
/// cut: what all have in common would take it for whole. What lies in fewer goes first, as it tells a torn one.
fn required<'a>(looked_at: &[&'a Checkpoint]) -> (Vec<&'a str>, Option<String>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let some: Vec<&&Checkpoint> = looked_at.iter().filter(|c| !c.objects.is_empty()).collect();
    for checkpoint in &some {
        let step = checkpoint.position.map(|position| position.step.to_string());
        let is_own = |key: &str| step.as_ref().is_some_and(|step| key.contains(step.as_str()));
        let files = checkpoint.objects.iter().filter(|o| o.size > 0 && !o.key.is_empty());
        for object in files.filter(|object| !is_own(&object.key)) {
            *counts.entry(&object.key).or_default() += 1;
        }
    }
    let mut common: Vec<(usize, &str)> = counts
        .into_iter()
        .filter(|(_, count)| count * 2 >= some.len())
        .map(|(key, count)| (count, key))
        .collect();
    common.sort_unstable();
    let has = |checkpoint: &Checkpoint, key: &str| {
        checkpoint.objects.iter().any(|object| object.key == key && object.size > 0)
    };
    let lacks = looked_at.iter().find_map(|checkpoint| {
        let (_, key) = common.iter().find(|(_, key)| !has(checkpoint, key))?;
        Some(format!("{} lacks {key}, which most here have", last(&checkpoint.name)))
    });
    let keys: Vec<&str> = common.into_iter().map(|(_, key)| key).collect();
    // Only a folder has parts.
    let are_files = some.iter().all(|c| c.objects.iter().all(|object| object.key.is_empty()));
    let is_unnamed = keys.is_empty() && (some.is_empty() || !are_files);
    (if is_unnamed { vec!["FILE"] } else { keys }, lacks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::formats::FORMATS;
    use crate::checkpoint::objects::Object;
    use crate::model::time::WallTime;

    fn checkpoint(name: &str, keys: &[&str]) -> Checkpoint {
        let objects = keys.iter().map(|key| Object {
            key: (*key).to_owned(),
            size: 1,
            modified: WallTime(0),
        });
        let (name, path) = (name.to_owned(), name.to_owned());
        Checkpoint { name, path, position: None, objects: objects.collect(), closed: None }
    }

    fn format(word: &str) -> &'static dyn Format {
        *FORMATS.iter().find(|format| format.word() == word).expect("a format")
    }

    #[test]
    fn what_each_of_a_format_has_and_none_here_is_named() {
        let own = checkpoint("step_30", &["model.safetensors", "opt.pt"]);
        let text = doubt(format("accelerate"), &[&own]).expect("a doubt");
        for part in [
            "none that was looked at has optimizer.bin, random_states_<rank>.pkl",
            "--pattern 'step_{step}'",
            "--required 'model.safetensors'",
            "--marker",
            "format = \"custom\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let real =
            checkpoint("step_20", &["model.safetensors", "optimizer.bin", "random_states_0.pkl"]);
        assert_eq!(
            doubt(format("accelerate"), &[&own, &real]),
            None,
            "one of them is Accelerate's"
        );
        let none = checkpoint("step_30", &[]);
        assert_eq!(doubt(format("accelerate"), &[&none]), None, "an empty folder says nothing");
        let text = doubt(format("hf-trainer"), &[&checkpoint("checkpoint-3", &["config.json"])]);
        assert!(text.expect("a doubt").contains("nothing that it writes"));
    }

    #[test]
    fn a_pattern_is_made_of_the_newest_name() {
        for (name, pattern) in [
            ("step_30", "step_{step}"),
            ("global_step30", "global_step{step}"),
            ("run/epoch_3", "epoch_{step}"),
            ("ep0-ba12.pt", "ep0-ba{step}.pt"),
            ("7", "{step}"),
            ("步3", "步{step}"),
            ("last", "step-{step}"),
        ] {
            let text = own_layout(&[&checkpoint(name, &["a.pt"])]);
            assert!(text.contains(&format!("--pattern '{pattern}' --required 'a.pt'")), "{text}");
        }
    }

    #[test]
    fn a_newest_one_that_was_cut_does_not_say_what_is_required() {
        let full = |name| checkpoint(name, &["model.pt", "opt.pt"]);
        for keys in [&["model.pt"][..], &[]] {
            let text = own_layout(&[&checkpoint("step_30", keys), &full("step_20")]);
            assert!(text.contains("--required 'opt.pt'"), "{text}");
            assert!(text.contains("step_30 lacks ") && !text.contains("'FILE'"), "{text}");
        }
        let (newest, older) = (full("step_30"), full("step_20"));
        let (names, lacks) = required(&[&newest, &older]);
        assert_eq!((names, lacks), (vec!["model.pt", "opt.pt"], None));
    }
}
