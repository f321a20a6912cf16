//! What people asked for while no daemon ran is taken at the start, before anything is submitted, by
//! the way of any other act.

use super::adoptions::Asker;
use super::driver::{Driver, chain};
use crate::core::job::Wanted;
use crate::model::handle::{ActVerb, Refusal};
use crate::model::ids::CloudId;
use crate::model::view::ActReport;
use crate::store::asked::{self, Asked, AskedFile, Names, Wish};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

impl Driver {
    /// Takes all of it, in the order in which it was asked for.
    pub(super) async fn take_asked(&mut self, state: &Path) {
        let mut after = None;
        while let Some((last, more)) = self.take_some_asked(state, after).await {
            if more == 0 {
                return;
            }
            tracing::warn!(more, "more was asked for than is taken at one time: it goes on");
            after = Some(last);
        }
    }

    /// Takes the next files. Gives the last of them and how many more there are, if it goes on.
    async fn take_some_asked(
        &mut self,
        state: &Path,
        after: Option<PathBuf>,
    ) -> Option<(PathBuf, usize)> {
        let folder = state.to_owned();
        let read = move || asked::read_after(&folder, after.as_deref());
        let read = tokio::task::spawn_blocking(read).await;
        let (files, more) = match read {
            Ok(Ok(files)) => files,
            Ok(Err(error)) => {
                tracing::error!(error = %chain(&error), "what was asked for while no daemon ran");
                return None;
            }
            Err(error) => {
                tracing::error!(%error, "reading what was asked for panicked");
                return None;
            }
        };
        if !files.is_empty() {
            // The job files were read a moment ago: what is new in them has to be on record.
            self.turns().await;
        }
        let last = files.last()?.0.clone();
        for ((file, content), taken_back) in taken_back(files) {
            if self.is_asked_to_stop() {
                return None;
            }
            match content {
                Ok(asked) => self.take_one_asked(file, asked, &taken_back).await,
                Err(why) => {
                    tracing::error!(file = %file.display(), %why, "not taken: remove it, and ask again");
                }
            }
        }
        Some((last, more))
    }

    async fn take_one_asked(&mut self, file: PathBuf, asked: Asked, taken_back: &BTreeSet<String>) {
        let verb = match asked.wish {
            Wish::Cancel => ActVerb::Cancel,
            Wish::Pause => ActVerb::Pause,
            Wish::Resume => ActVerb::Resume,
            Wish::Retry => ActVerb::Retry,
            Wish::RetryFrom(from) => ActVerb::RetryFrom(from),
            Wish::Forget => ActVerb::Forget,
            Wish::Adopt(id) => return self.begin_adoption(file, id, asked.names).await,
        };
        let names: Vec<String> = match &asked.names {
            Names::All if taken_back.is_empty() => {
                let done = self.act(&[], verb).await;
                let is_done = !matches!(done, Err(Refusal::StoreDown(_)));
                tell(verb.word(), &[], done);
                if is_done {
                    done_with(&file);
                }
                return;
            }
            Names::All => {
                let keys = self.all_that_may_go_on().into_iter();
                let names: BTreeSet<String> = keys.map(|key| key.name.to_string()).collect();
                names.into_iter().collect()
            }
            Names::These(names) => names.clone(),
        };
        let mut left = Vec::new();
        // One by one: a name that no job has keeps nothing from the others.
        for name in &names {
            let names = std::slice::from_ref(name);
            if taken_back.contains(name) {
                tracing::info!(?names, act = verb.word(), "taken back by what was asked for later");
                continue;
            }
            let done = self.act(names, verb).await;
            if matches!(done, Err(Refusal::StoreDown(_))) {
                left.push(name.clone());
            }
            tell(verb.word(), names, done);
        }
        if left.is_empty() {
            done_with(&file);
        } else if left.len() < names.len()
            && let Err(error) = asked::rewrite(&file, &asked.of_these(left))
        {
            // All of it would be done again.
            tracing::error!(file = %file.display(), error = %chain(&error), "remove it by hand");
        }
    }

    /// The job is paused first: it must not be submitted beside what is to be adopted.
    async fn begin_adoption(&mut self, file: PathBuf, id: CloudId, names: Names) {
        let Names::These(names) = names else { return done_with(&file) };
        let Some(name) = names.into_iter().next() else { return done_with(&file) };
        let known = self.book.on_record(&id);
        if known.is_some_and(|(key, _)| key.name.as_str() == name) {
            // An earlier start took it, and ended before the file was gone.
            return done_with(&file);
        }
        let is_free = self.may_adopt(&id, &name).is_ok();
        let wanted = self.find(&name).map(|job| job.wanted);
        if is_free
            && matches!(wanted, Ok(Wanted::Run))
            && let Err(refusal) = self.act(std::slice::from_ref(&name), ActVerb::Pause).await
        {
            return tell("adopt", &[name], Err(refusal));
        }
        self.adopt(&id, &name, Asker::Written(file));
    }
}

/// Each file with the names for which a later one asks for the opposite: of these two the last word
/// holds, and the first is not done at all, since a stop that was sent cannot be taken back.
fn taken_back(files: Vec<AskedFile>) -> Vec<(AskedFile, BTreeSet<String>)> {
    let mut later: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    let mut folded = Vec::new();
    for (file, content) in files.into_iter().rev() {
        let words = content.as_ref().ok().and_then(|asked| match asked.wish {
            Wish::Cancel => Some(("cancel", "retry")),
            Wish::Retry => Some(("retry", "cancel")),
            Wish::Pause => Some(("pause", "resume")),
            Wish::Resume => Some(("resume", "pause")),
            Wish::RetryFrom(_) | Wish::Adopt(_) | Wish::Forget => None,
        });
        let mut back = BTreeSet::new();
        if let (Some((word, opposite)), Ok(asked)) = (words, &content) {
            back = later.get(opposite).cloned().unwrap_or_default();
            if let Names::These(names) = &asked.names {
                back.retain(|name| names.contains(name));
                later.entry(word).or_default().extend(names.iter().cloned());
            }
        }
        folded.push(((file, content), back));
    }
    folded.reverse();
    folded
}

/// What a file asked for is durable, or refused for good.
pub(super) fn done_with(file: &Path) {
    if let Err(error) = asked::remove(file) {
        // The next start would do it again.
        tracing::error!(file = %file.display(), error = %chain(&error), "remove it by hand");
    }
}

fn tell(word: &str, names: &[String], done: Result<Vec<ActReport>, Refusal>) {
    match done {
        Ok(reports) => {
            for report in reports {
                tracing::info!(
                    job = report.job,
                    act = word,
                    text = report.text,
                    "asked for while no daemon ran"
                );
            }
        }
        Err(refusal) => {
            tracing::error!(?names, act = word, why = %refusal, "asked for while no daemon ran: not done");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_two_opposites_holds() {
        let ask = |wish, names: &[&str]| {
            let names = match names {
                [] => Names::All,
                names => Names::These(names.iter().map(|name| (*name).to_owned()).collect()),
            };
            (PathBuf::new(), Ok(Asked::new(wish, names, String::new())))
        };
        let files = vec![
            ask(Wish::Cancel, &["a", "b"]),
            ask(Wish::Retry, &["a"]),
            ask(Wish::Pause, &["a", "b"]),
            ask(Wish::Cancel, &[]),
            ask(Wish::Resume, &["b"]),
            ask(Wish::Retry, &["b"]),
        ];
        let back: Vec<Vec<String>> =
            taken_back(files).into_iter().map(|(_, names)| names.into_iter().collect()).collect();
        assert_eq!(back, [vec!["a", "b"], vec![], vec!["b"], vec!["b"], vec![], vec![]]);
    }
}
