//! `custom`: a layout of the person's own. A name with `{step}`, parts that have to be there, and
//! perhaps a marker that is written last. Files that look like those of `torch.save` are tested too.

use super::{Case, Checkpoint, Format, Judgement, Pickles, ResumeWay, parts};
use crate::checkpoint::names::NameShape;
use crate::checkpoint::objects::{Folder, Object, StoreError};
use crate::model::checkpoint::{Pin, Wholeness};
use crate::model::spec::CustomLayout;
use crate::model::step_pattern::{PatternProblem, StepPattern};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// Names that files of `torch.save` usually have. `.bin` may be anything else.
const TORCH: [&str; 3] = ["pt", "pth", "ckpt"];

/// A layout of the person's own.
#[derive(Debug)]
pub(super) struct Custom {
    pattern: StepPattern,
    layout: CustomLayout,
}

impl Custom {
    pub(super) fn new(layout: &CustomLayout) -> Result<Self, PatternProblem> {
        Ok(Self { pattern: StepPattern::parse(&layout.pattern)?, layout: layout.clone() })
    }

    /// A checkpoint that is a single file has no parts that could be there or not.
    fn asks_parts_of_a_file(&self, checkpoint: &Checkpoint) -> Option<String> {
        let is_file = matches!(checkpoint.objects.as_slice(), [one] if one.key.is_empty());
        let asked = match (self.layout.required.is_empty(), &self.layout.marker) {
            (true, None) => return None,
            (false, None) => "`required` names parts of it",
            (true, Some(_)) => "`marker` names a part of it",
            (false, Some(_)) => "`required` and `marker` name parts of it",
        };
        is_file.then(|| {
            format!(
                "it is a file, and {asked}: a file has none, leave that out (a file of torch.save is \
                 tested by its end)"
            )
        })
    }

    fn missing(&self, checkpoint: &Checkpoint) -> Option<String> {
        let object = |name: &str| checkpoint.objects.iter().find(|o| o.key == name);
        for part in &self.layout.required {
            let part = part.trim_matches('/');
            match object(part) {
                Some(found) if found.size > 0 => {}
                Some(_) => return Some(format!("{part} is empty")),
                None => return Some(format!("{part} is missing")),
            }
        }
        match &self.layout.marker {
            Some(marker) if object(marker.trim_matches('/')).is_none() => {
                Some(format!("the marker {marker} is missing"))
            }
            Some(_) => None,
            None if checkpoint.objects.iter().all(|o| o.size == 0) => {
                Some("it has nothing but empty files".into())
            }
            None => None,
        }
    }
}

impl Format for Custom {
    fn word(&self) -> &'static str {
        "custom"
    }

    fn shape(&self) -> NameShape {
        NameShape::Custom(self.pattern.clone())
    }

    fn claims(&self, _newest: &[&Checkpoint]) -> bool {
        true
    }

    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool {
        self.pattern.step_of(name).is_some()
            && !(folder.objects.is_empty() && folder.folders.is_empty())
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            if let Some(why) = self.asks_parts_of_a_file(case.checkpoint) {
                return Ok(Judgement { wholeness: Wholeness::Unknown, why });
            }
            if let Some(missing) = self.missing(case.checkpoint) {
                return Ok(Judgement::torn(missing));
            }
            let files: Vec<&Object> = case
                .checkpoint
                .objects
                .iter()
                .filter(|o| is_torch(super::shown(case.checkpoint, o)))
                .filter(|o| self.layout.marker.as_ref() != Some(&o.key))
                .collect();
            if let Some(judgement) = parts::files(case, &files, Pickles::Accepted).await? {
                return Ok(judgement);
            }
            let parts = self.layout.required.len();
            let marker = if self.layout.marker.is_some() { " and the marker" } else { "" };
            let tested = files.len();
            Ok(Judgement::whole(format!(
                "{parts} required parts{marker} there, {tested} files of torch.save whole"
            )))
        }
        .boxed()
    }

    fn resume<'a>(&'a self, _case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        // Nobody but the person knows the argument; a path is what most trainers take.
        let way = ResumeWay { argument: "{path}".into(), pin: Pin::Argument, note: None };
        async move { Ok(way) }.boxed()
    }
}

fn is_torch(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| TORCH.contains(&extension))
}
