//! `deepspeed` and `easyckpt-deepspeed`: folders `global_stepN` of a DeepSpeed engine.
//!
//! ```text
//! latest                                                     the newest tag; last, without a barrier
//! global_step100/mp_rank_00_model_states.pt                  ZeRO 0 to 2: one a model-parallel rank
//!               /[bf16_]zero_pp_rank_<dp>_mp_rank_<mp>_optim_states.pt     one a data-parallel rank
//!               /zero_pp_rank_<dp>_mp_rank_<mp>_model_states.pt            ZeRO 3: one a rank
//!               /layer_<nn>-model_<mm>-model_states.pt       pipeline engine
//!               /layer_<l>_expert_<e>_mp_rank_<mm>_model_states.pt, expp_rank_<e>_mp_rank_<mm>_optim_states.pt
//! ```
//!
//! `latest` may be ahead of a slow rank: the files decide. `dp_world_size` stands inside the model
//! states and says how many optimizer shards there have to be, also for a first checkpoint and after
//! a change of the world. Facts: deepspeed 0.19.8. EasyCkpt writes the same names in the background.

use super::{Case, Checkpoint, Format, Judgement, Pickles, ResumeWay, parts};
use crate::checkpoint::names::{Kind, NameShape};
use crate::checkpoint::objects::{Folder, Object, Read, SMALL_FILE_LIMIT, StoreError, join};
use crate::checkpoint::pickle::{Pickle, Value};
use crate::checkpoint::torch_zip;
use crate::checkpoint::tracker;
use crate::model::checkpoint::{Pin, Tracker};
use crate::model::step_pattern::digits;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};

/// The file that names the newest tag.
pub(super) const LATEST: &str = "latest";

/// DeepSpeed's engine, under either of its words.
#[derive(Debug)]
pub(super) enum DeepSpeed {
    /// Written by the engine itself.
    Engine,
    /// Written by EasyCkpt; never told apart from outside.
    EasyCkpt,
}

/// What a file of a checkpoint holds, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Model states of a model-parallel rank.
    Model { mp: u64 },
    /// ZeRO 3: model states of a rank.
    ModelShard { dp: u64, mp: u64 },
    /// Optimizer states of a rank.
    Optimizer { dp: u64, mp: u64 },
    /// A layer of the pipeline engine.
    Layer { layer: u64, mp: u64 },
    /// An expert of a layer.
    Expert { layer: u64, mp: u64, expert: u64 },
    /// Optimizer states of an expert-parallel rank.
    ExpertOptimizer { expert: u64, mp: u64 },
}

impl Part {
    fn read(name: &str) -> Option<Self> {
        let name = name.strip_suffix("_states.pt")?;
        let name = name.strip_prefix("bf16_").unwrap_or(name);
        if let Some(rest) = name.strip_prefix("zero_pp_rank_") {
            let (dp, rest) = rest.split_once("_mp_rank_")?;
            let (mp, what) = rest.split_once('_')?;
            let (dp, mp) = (digits(dp)?, digits(mp)?);
            return match what {
                "optim" => Some(Self::Optimizer { dp, mp }),
                "model" => Some(Self::ModelShard { dp, mp }),
                _ => None,
            };
        }
        if let Some(rest) = name.strip_prefix("mp_rank_") {
            return Some(Self::Model { mp: digits(rest.strip_suffix("_model")?)? });
        }
        if let Some(rest) = name.strip_prefix("expp_rank_") {
            let (expert, mp) = rest.strip_suffix("_optim")?.split_once("_mp_rank_")?;
            return Some(Self::ExpertOptimizer { expert: digits(expert)?, mp: digits(mp)? });
        }
        let rest = name.strip_prefix("layer_")?;
        if let Some((layer, mp)) = rest.strip_suffix("-model").and_then(|r| r.split_once("-model_"))
        {
            return Some(Self::Layer { layer: digits(layer)?, mp: digits(mp)? });
        }
        let (layer, rest) = rest.strip_suffix("_model")?.split_once("_expert_")?;
        let (expert, mp) = rest.split_once("_mp_rank_")?;
        Some(Self::Expert { layer: digits(layer)?, mp: digits(mp)?, expert: digits(expert)? })
    }
}

/// The files of a checkpoint, by what they hold.
struct States<'a>(BTreeMap<Part, &'a Object>);

impl<'a> States<'a> {
    fn of(checkpoint: &'a Checkpoint, folder: &'a str) -> Self {
        let parts = checkpoint.directly_in(folder);
        Self(parts.filter_map(|(name, object)| Some((Part::read(name)?, object))).collect())
    }

    fn files(&self) -> Vec<&'a Object> {
        self.0.values().copied().collect()
    }

    fn any_model(&self) -> Option<&'a Object> {
        let model = |part: &&Part| matches!(part, Part::Model { .. } | Part::ModelShard { .. });
        self.0.iter().find(|(part, _)| model(part)).map(|(_, object)| *object)
    }

    /// Data- and model-parallel ranks of the optimizer's shards.
    fn optimizers(&self) -> BTreeSet<(u64, u64)> {
        let shard = |part: &Part| match part {
            Part::Optimizer { dp, mp } => Some((*dp, *mp)),
            Part::Model { .. }
            | Part::ModelShard { .. }
            | Part::Layer { .. }
            | Part::Expert { .. }
            | Part::ExpertOptimizer { .. } => None,
        };
        self.0.keys().filter_map(shard).collect()
    }

    fn model_shards(&self) -> BTreeSet<(u64, u64)> {
        let shard = |part: &Part| match part {
            Part::ModelShard { dp, mp } => Some((*dp, *mp)),
            Part::Model { .. }
            | Part::Optimizer { .. }
            | Part::Layer { .. }
            | Part::Expert { .. }
            | Part::ExpertOptimizer { .. } => None,
        };
        self.0.keys().filter_map(shard).collect()
    }

    /// The first expert that is not there although one of a higher number is. Layers may have gaps:
    /// one without parameters has no file.
    fn expert_hole(&self) -> Option<String> {
        let mut experts: BTreeMap<(u64, u64), BTreeSet<u64>> = BTreeMap::new();
        let mut optimizers: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for part in self.0.keys() {
            match *part {
                Part::Expert { layer, mp, expert } => {
                    experts.entry((layer, mp)).or_default().insert(expert);
                }
                Part::ExpertOptimizer { expert, mp } => {
                    optimizers.entry(mp).or_default().insert(expert);
                }
                Part::Model { .. }
                | Part::ModelShard { .. }
                | Part::Optimizer { .. }
                | Part::Layer { .. } => {}
            }
        }
        let gap = |found: &BTreeSet<u64>| (0..found.len() as u64).find(|n| !found.contains(n));
        let expert = experts.iter().find_map(|((layer, mp), found)| {
            let expert = gap(found)?;
            Some(format!("layer_{layer}_expert_{expert}_mp_rank_{mp:02}_model_states.pt"))
        });
        expert.or_else(|| {
            optimizers.iter().find_map(|(mp, found)| {
                Some(format!("expp_rank_{}_mp_rank_{mp:02}_optim_states.pt", gap(found)?))
            })
        })
    }

    fn models(&self) -> BTreeSet<u64> {
        let rank = |part: &Part| match part {
            Part::Model { mp } => Some(*mp),
            Part::ModelShard { .. }
            | Part::Optimizer { .. }
            | Part::Layer { .. }
            | Part::Expert { .. }
            | Part::ExpertOptimizer { .. } => None,
        };
        self.0.keys().filter_map(rank).collect()
    }
}

/// What the engine wrote about its own world.
#[derive(Debug, Default)]
struct World {
    data_parallel: Option<u64>,
    model_parallel: Option<u64>,
    /// Whether the optimizer is outside of the model states: ZeRO has it in shards.
    has_zero: bool,
}

async fn world(case: Case<'_>, states: &States<'_>) -> Result<World, StoreError> {
    let Some(model) = states.any_model() else { return Ok(World::default()) };
    let key = case.checkpoint.key(model);
    let Some(bytes) = torch_zip::member(case.objects, &key, model.size, "/data.pkl").await? else {
        return Ok(World::default());
    };
    let Ok(pickle) = Pickle::read(&bytes) else { return Ok(World::default()) };
    let number = |name| {
        let Some(Value::Int(number)) = pickle.field(pickle.root(), name) else { return None };
        u64::try_from(*number).ok().filter(|number| *number > 0)
    };
    Ok(World {
        data_parallel: number("dp_world_size"),
        model_parallel: number("mp_world_size"),
        has_zero: pickle.field(pickle.root(), "optimizer") == Some(&Value::None),
    })
}

/// The first rank of a full grid of data- and model-parallel ranks that is not there.
fn hole(
    ranks: &BTreeSet<(u64, u64)>,
    data_parallel: u64,
    model_parallel: u64,
) -> Option<(u64, u64)> {
    // Looks no further than there are ranks to fill it.
    (0..data_parallel)
        .flat_map(|dp| (0..model_parallel).map(move |mp| (dp, mp)))
        .take(ranks.len() + 1)
        .find(|rank| !ranks.contains(rank))
}

/// What is wrong with the states in `folder` of a checkpoint (empty, or ending in `/`).
pub(super) async fn settle(case: Case<'_>, folder: &str) -> Result<parts::Settled, StoreError> {
    let states = States::of(case.checkpoint, folder);
    let (models, shards) = (states.models(), states.model_shards());
    let optimizers = states.optimizers();
    let torn = |why: String| Ok(Some(Judgement::torn(why)));
    if states.any_model().is_none() {
        let place = if folder.is_empty() { String::new() } else { format!("{folder}: ") };
        return torn(format!("{place}no model states"));
    }
    if let found @ Some(_) = parts::files(case, &states.files(), Pickles::Undecided).await? {
        return Ok(found);
    }
    let world = world(case, &states).await?;
    let end = |ranks: &BTreeSet<(u64, u64)>, of: fn(&(u64, u64)) -> u64| {
        ranks.iter().map(of).max().map_or(0, |last| last.saturating_add(1))
    };
    let model_end = models.last().map_or(0, |last| last.saturating_add(1));
    let model_parallel = world
        .model_parallel
        .unwrap_or(0)
        .max(model_end)
        .max(end(&shards, |rank| rank.1))
        .max(end(&optimizers, |rank| rank.1));
    let data_parallel = world
        .data_parallel
        .unwrap_or(0)
        .max(end(&shards, |rank| rank.0))
        .max(end(&optimizers, |rank| rank.0));
    if shards.is_empty()
        && let Some(missing) =
            (0..model_parallel).take(models.len() + 1).find(|mp| !models.contains(mp))
    {
        return torn(format!("{folder}mp_rank_{missing:02}_model_states.pt is missing"));
    }
    if !shards.is_empty()
        && let Some((dp, mp)) = hole(&shards, data_parallel, model_parallel)
    {
        return torn(format!(
            "{folder}zero_pp_rank_{dp}_mp_rank_{mp:02}_model_states.pt is missing"
        ));
    }
    // Without ZeRO the optimizer is inside the model states.
    let has_experts = states.0.keys().any(|p| matches!(p, Part::ExpertOptimizer { .. }));
    let zero = (world.has_zero && !has_experts)
        || !optimizers.is_empty()
        || !shards.is_empty()
        || others_have_zero(case, folder);
    if zero && let Some((dp, mp)) = hole(&optimizers, data_parallel, model_parallel) {
        let (have, of) = (optimizers.len(), data_parallel.saturating_mul(model_parallel));
        return torn(format!(
            "{have} of {of} optimizer shards: zero_pp_rank_{dp}_mp_rank_{mp:02} is missing"
        ));
    }
    if let Some(missing) = states.expert_hole() {
        return torn(format!("{folder}{missing} is missing"));
    }
    Ok(lacks_layers(case, folder, &states).map(Judgement::torn))
}

fn others_have_zero(case: Case<'_>, folder: &str) -> bool {
    case.siblings.iter().any(|sibling| {
        let folder = sibling_folder(sibling, folder);
        !States::of(sibling, &folder).optimizers().is_empty()
    })
}

/// Layers and experts say nowhere how many there are: older ones are compared.
fn lacks_layers(case: Case<'_>, folder: &str, mine: &States<'_>) -> Option<String> {
    let layered = |part: &&Part| {
        matches!(part, Part::Layer { .. } | Part::Expert { .. } | Part::ExpertOptimizer { .. })
    };
    let compared = case.siblings.iter().filter(|sibling| case.is_older(sibling));
    for sibling in compared {
        let inner = sibling_folder(sibling, folder);
        let others = States::of(sibling, &inner);
        let missing = others
            .0
            .iter()
            .filter(|(p, _)| layered(p))
            .find(|(part, _)| !mine.0.contains_key(part));
        if let Some((_, object)) = missing {
            let name = object.key.rsplit('/').next().unwrap_or_default();
            return Some(format!("{name} is missing, which the older one has"));
        }
    }
    None
}

/// Within another checkpoint the inner folder carries the other one's step.
fn sibling_folder(sibling: &Checkpoint, folder: &str) -> String {
    if folder.is_empty() {
        return String::new();
    }
    inner(sibling).unwrap_or_default()
}

/// The inner folder `global_stepN/` of a checkpoint of another trainer; the newest if several.
pub(super) fn inner(checkpoint: &Checkpoint) -> Option<String> {
    let folders = checkpoint.objects.iter().filter_map(|object| object.key.split_once('/'));
    let steps = folders.filter_map(|(folder, _)| {
        Some((NameShape::GlobalStep.read(folder, Kind::Folder)?, format!("{folder}/")))
    });
    steps.max().map(|(_, folder)| folder)
}

/// The tag that `latest` of the root names; `None` if there is none that can be read.
async fn latest(case: Case<'_>) -> Result<Option<String>, StoreError> {
    let Some(folder) = &case.root.folder else { return Ok(None) };
    let Some(object) = folder.object(LATEST).filter(|o| o.size <= SMALL_FILE_LIMIT) else {
        return Ok(None);
    };
    Ok(match case.objects.read(&join(&case.root.path, LATEST), 0..object.size).await? {
        Read::Bytes(bytes) => String::from_utf8(bytes).ok().map(|text| text.trim().to_owned()),
        Read::Changed | Read::Refused(_) => None,
    })
}

impl Format for DeepSpeed {
    fn word(&self) -> &'static str {
        match self {
            Self::Engine => "deepspeed",
            Self::EasyCkpt => "easyckpt-deepspeed",
        }
    }

    fn shape(&self) -> NameShape {
        NameShape::GlobalStep
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        // EasyCkpt's files have the same names.
        matches!(self, Self::Engine)
            && newest.iter().any(|checkpoint| !States::of(checkpoint, "").0.is_empty())
    }

    fn is_checkpoint(&self, _name: &str, folder: &Folder) -> bool {
        folder.objects.iter().any(|object| Part::read(&object.key).is_some())
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            if let Some(judgement) = parts::dlrover_stage(case).await? {
                return Ok(judgement);
            }
            if let Some(judgement) = settle(case, "").await? {
                return Ok(judgement);
            }
            let shards = States::of(case.checkpoint, "").optimizers().len();
            Ok(Judgement::whole(format!("model states and {shards} optimizer shards whole")))
        }
        .boxed()
    }

    fn tracker<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Tracker, StoreError>> {
        let name = &case.checkpoint.name;
        async move { tracker::leads(case, LATEST, name.clone(), |tag| tag == name).await }.boxed()
    }

    fn resume<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        async move {
            let own = latest(case).await?.is_some_and(|tag| tag == case.checkpoint.name);
            let note = "the same number of data-parallel ranks is needed to load it";
            Ok(if own {
                ResumeWay {
                    argument: "--load {root}".into(),
                    pin: Pin::OwnChoice,
                    note: Some(note.into()),
                }
            } else {
                ResumeWay {
                    argument: "--load {root} --load-tag {name}".into(),
                    pin: Pin::Argument,
                    note: Some(format!(
                        "`{LATEST}` does not name it: a script without an argument for the tag needs \
                         that file rewritten; {note}"
                    )),
                }
            })
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_file_holds() {
        for (name, part) in [
            ("mp_rank_00_model_states.pt", Part::Model { mp: 0 }),
            ("zero_pp_rank_3_mp_rank_01_optim_states.pt", Part::Optimizer { dp: 3, mp: 1 }),
            ("bf16_zero_pp_rank_3_mp_rank_01_optim_states.pt", Part::Optimizer { dp: 3, mp: 1 }),
            ("zero_pp_rank_0_mp_rank_00_model_states.pt", Part::ModelShard { dp: 0, mp: 0 }),
            ("layer_07-model_01-model_states.pt", Part::Layer { layer: 7, mp: 1 }),
            (
                "layer_2_expert_5_mp_rank_01_model_states.pt",
                Part::Expert { layer: 2, mp: 1, expert: 5 },
            ),
            ("expp_rank_4_mp_rank_00_optim_states.pt", Part::ExpertOptimizer { expert: 4, mp: 0 }),
        ] {
            assert_eq!(Part::read(name), Some(part), "{name}");
        }
        for name in ["latest", "mp_rank_00_optim_states.pt", "zero_to_fp32.py", "x_model_states.pt"]
        {
            assert_eq!(Part::read(name), None, "{name}");
        }
    }

    #[test]
    fn the_first_hole_of_a_grid_is_named_without_walking_a_huge_one() {
        let ranks = BTreeSet::from([(0, 0), (0, 1), (1, 1)]);
        assert_eq!(hole(&ranks, 2, 2), Some((1, 0)));
        assert_eq!(hole(&ranks, u64::MAX, 2), Some((1, 0)));
        assert_eq!(hole(&BTreeSet::from([(0, 0)]), 1, 1), None);
    }
}
