//! Opening: from whatever is left on the disk to an engine that holds all that was acknowledged.
//!
//! Each copy of the state (the engine, each backup, or nothing at all) can be brought forward by
//! the journal entries that follow it without a gap. The copy that gets furthest wins; the engine
//! wins a draw. What should have been reached is the highest sequence that anything names. When
//! something was damaged, a new backup and journal are begun above that number, so that no
//! sequence is ever used for two contents, and only then are damaged files renamed.
//!
//! The journal that goes on is written anew in any case: after a sync that failed, the system may
//! show bytes that are not on the disk.

use std::collections::BTreeMap;

use super::backup::{self, Head, Unusable};
use super::batch::Batch;
use super::disk::Disk;
use super::engine::{
    Applied, Engine, EngineError, EngineHome, Fingerprint, PAGE_RECORDS, examine, fingerprint_after,
};
use super::error::StoreError;
use super::format::{Format, Migration, rewrite};
use super::generations::{
    Journal, Marker, backup_name, retire, set_aside, write_backup, write_journal, write_marker,
};
use super::journal::{self, Damage, Header};
use super::report::{Act, Fresh, OpenReport};
use super::survey::{JournalFile, Survey};

/// Engines that are opened before giving up: the one that is there, and a new one.
const ENGINES_TRIED: u32 = 2;

/// The opened store, before it has a name.
pub(super) struct Recovered {
    pub(super) engine: Box<dyn Engine>,
    pub(super) applied: Applied,
    pub(super) journal: Journal,
    pub(super) report: OpenReport,
}

/// Where replaying starts.
enum Start {
    Engine,
    Backup(String),
    Nothing,
}

struct Recovery<'a> {
    disk: &'a mut dyn Disk,
    home: &'a mut dyn EngineHome,
    format: Format,
    acts: Vec<Act>,
    /// Files to rename once a new generation stands.
    damaged: Vec<String>,
}

/// Opens what is on `disk` and in `home`.
pub(super) fn recover(
    disk: &mut dyn Disk,
    home: &mut dyn EngineHome,
    format: Format,
    acts: Vec<Act>,
) -> Result<Recovered, StoreError> {
    let survey = Survey::take(disk, format)?;
    let mut recovery = Recovery { disk, home, format, acts, damaged: Vec::new() };
    recovery.clean(&survey)?;
    let (engine, applied) = recovery.open_engine()?;
    if let Some(applied) = applied {
        format.check("the engine", applied.format)?;
    }
    recovery.note_damage(&survey);
    recovery.bring_forward(&survey, engine, applied)
}

impl Recovery<'_> {
    fn clean(&mut self, survey: &Survey) -> Result<(), StoreError> {
        for name in &survey.leftovers {
            self.disk.remove(name).map_err(StoreError::file("remove", name))?;
            self.acts.push(Act::LeftoverRemoved { name: name.clone() });
        }
        Ok(())
    }

    /// The engine, with records that are what its mark says.
    fn open_engine(&mut self) -> Result<(Box<dyn Engine>, Option<Applied>), StoreError> {
        let mut why = None;
        for _ in 0..ENGINES_TRIED {
            if let Some(error) = why.take() {
                self.set_engine_aside(&error)?;
            }
            let opened = self.home.open().and_then(|(engine, cleaned)| {
                let applied = examine(engine.as_ref());
                applied.map(|applied| (engine, applied, cleaned))
            });
            match opened {
                Ok((engine, applied, cleaned)) => {
                    let cleaned = cleaned.into_iter();
                    self.acts
                        .extend(cleaned.map(|c| Act::EngineCleaned { name: c.name, why: c.why }));
                    return Ok((engine, applied));
                }
                Err(error @ EngineError::Io { .. }) => {
                    return Err(StoreError::Engine { operation: "open", source: error });
                }
                Err(error @ (EngineError::Damaged { .. } | EngineError::Panicked { .. })) => {
                    why = Some(error);
                }
            }
        }
        let source = why.unwrap_or_else(|| EngineError::damaged("no engine was tried"));
        Err(StoreError::Engine { operation: "open", source })
    }

    fn set_engine_aside(&mut self, why: &EngineError) -> Result<(), StoreError> {
        let cause = std::error::Error::source(why).map(|c| format!(": {c}")).unwrap_or_default();
        let to = self.home.set_aside().map_err(StoreError::file("set aside", "the engine"))?;
        self.acts.push(Act::EngineSetAside { to, why: format!("{why}{cause}") });
        Ok(())
    }

    /// Reports what the journals and heads of backups showed of damage.
    fn note_damage(&mut self, survey: &Survey) {
        for file in &survey.journals {
            let active = survey.active().is_some_and(|active| active.name == file.name);
            let name = || file.name.clone();
            let mut bad = file.reading.header == Header::Bad;
            if bad {
                self.acts.push(Act::JournalHeadDamaged { name: name() });
            }
            for damage in &file.reading.damage {
                match *damage {
                    Damage::TornTail { offset, bytes } => {
                        self.acts.push(Act::TornTailCut { name: name(), offset, bytes });
                        bad |= !active;
                    }
                    Damage::Hole { offset, next } => {
                        self.acts.push(Act::JournalDamaged { name: name(), offset, next });
                        bad = true;
                    }
                }
            }
            if bad {
                self.damaged.push(name());
            }
        }
        for file in &survey.backups {
            if let Err(why) = &file.head {
                self.backup_is_damaged(&file.name, why);
            }
        }
    }

    fn backup_is_damaged(&mut self, name: &str, why: &str) {
        self.acts.push(Act::BackupDamaged { name: name.to_owned(), why: why.to_owned() });
        self.damaged.push(name.to_owned());
    }

    fn bring_forward(
        mut self,
        survey: &Survey,
        engine: Box<dyn Engine>,
        applied: Option<Applied>,
    ) -> Result<Recovered, StoreError> {
        let data_format = survey.data_format(applied).unwrap_or(self.format.version);
        let history = History::new(survey, data_format);
        let highest = survey.highest(applied);
        let (start, reached) = self.choose(survey, &history, applied, data_format, highest)?;
        let restored = !matches!(start, Start::Engine);
        let (mut engine, mut applied) = self.begin(start, engine, applied, data_format)?;
        let first = applied.sequence + 1;
        replay(&history, engine.as_mut(), &mut applied, reached)?;
        if reached >= first {
            self.acts.push(Act::Replayed { first, last: reached });
        }
        let fresh = self.judge(survey, applied, reached, highest, restored);

        let journal_end = survey.active().map(JournalFile::end);
        let sound = self.damaged.is_empty() && journal_end == Some(reached) && reached == highest;
        let journal = if data_format < self.format.version {
            self.remember(fresh)?;
            let journal;
            (engine, applied, journal) = self.migrate(engine, applied, highest)?;
            journal
        } else if sound || survey.is_nothing(applied.sequence) {
            self.go_on(survey, reached)?
        } else {
            self.remember(fresh)?;
            if let Some(active) = survey.active()
                && !active.reading.damage.is_empty()
                && !self.damaged.contains(&active.name)
            {
                self.damaged.push(active.name.clone());
            }
            self.renew(engine.as_mut(), &mut applied, highest)?
        };
        let marker = Marker { format: self.format.version, fresh };
        if survey.marker != Some(marker) {
            write_marker(self.disk, marker)?;
        }
        let report = OpenReport { fresh, sequence: applied.sequence, acts: self.acts, moved: None };
        Ok(Recovered { engine, applied, journal, report })
    }

    /// The copy that gets furthest, and how far.
    fn choose(
        &mut self,
        survey: &Survey,
        history: &History<'_>,
        applied: Option<Applied>,
        data_format: u32,
        highest: u64,
    ) -> Result<(Start, u64), StoreError> {
        let (mut start, mut reached) = match applied {
            None => (Start::Engine, history.reach(0)),
            Some(applied) if applied.format == data_format => {
                (Start::Engine, history.reach(applied.sequence))
            }
            Some(_) => (Start::Nothing, history.reach(0)),
        };
        for file in survey.backups.iter().rev() {
            let Ok(head) = &file.head else { continue };
            if reached == highest {
                break;
            }
            if head.format != data_format {
                continue;
            }
            match backup::read(self.disk, &file.name, &mut |_, _| Ok(())) {
                Ok(_) if history.reach(head.sequence) > reached => {
                    start = Start::Backup(file.name.clone());
                    reached = history.reach(head.sequence);
                }
                Ok(_) => {}
                Err(Unusable::Damaged(why)) => self.backup_is_damaged(&file.name, &why),
                Err(Unusable::Stopped(source)) => {
                    return Err(StoreError::Engine { operation: "read a backup", source });
                }
            }
        }
        if history.reach(0) > reached {
            (start, reached) = (Start::Nothing, history.reach(0));
        }
        Ok((start, reached))
    }

    /// An engine that holds the chosen copy.
    fn begin(
        &mut self,
        start: Start,
        engine: Box<dyn Engine>,
        applied: Option<Applied>,
        data_format: u32,
    ) -> Result<(Box<dyn Engine>, Applied), StoreError> {
        let nothing = Applied { format: data_format, sequence: 0, fingerprint: Fingerprint(0) };
        match start {
            Start::Engine => Ok((engine, applied.unwrap_or(nothing))),
            Start::Nothing => Ok((self.empty_engine(engine, applied)?, nothing)),
            Start::Backup(name) => {
                let mut engine = self.empty_engine(engine, applied)?;
                let applied = self.restore(&name, engine.as_mut())?;
                Ok((engine, applied))
            }
        }
    }

    /// An engine without records: this one if it is empty, else a new one.
    fn empty_engine(
        &mut self,
        engine: Box<dyn Engine>,
        applied: Option<Applied>,
    ) -> Result<Box<dyn Engine>, StoreError> {
        let Some(applied) = applied else { return Ok(engine) };
        drop(engine);
        let why = format!("it is at sequence {}, from where no entry leads on", applied.sequence);
        self.set_engine_aside(&EngineError::damaged(why))?;
        Ok(self.open_engine()?.0)
    }

    /// Fills an empty engine from a backup. Until the last record is in, its mark does not fit
    /// its records, so that a half-filled one is never taken for a whole one.
    fn restore(&mut self, name: &str, engine: &mut dyn Engine) -> Result<Applied, StoreError> {
        let unfinished = Applied { format: 0, sequence: 0, fingerprint: Fingerprint(u64::MAX) };
        let mut chunk = Batch::new();
        let read = backup::read(self.disk, name, &mut |key, value| {
            let refused = |error: StoreError| EngineError::damaged(error.to_string());
            chunk.put(key, value).map_err(refused)?;
            if chunk.changes().count() >= CHUNK_RECORDS {
                engine.apply(unfinished, &chunk)?;
                chunk = Batch::new();
            }
            Ok(())
        });
        let (head, fingerprint) = match read {
            Ok(whole) => whole,
            Err(Unusable::Damaged(_)) => {
                return Err(StoreError::Rebuild { from: name.to_owned() });
            }
            Err(Unusable::Stopped(source)) => {
                return Err(StoreError::Engine { operation: "take a backup", source });
            }
        };
        let Head { format, sequence } = head;
        let applied = Applied { format, sequence, fingerprint };
        engine
            .apply(unfinished, &chunk)
            .and_then(|()| engine.apply(applied, &Batch::new()))
            .map_err(StoreError::engine("take a backup"))?;
        self.acts.push(Act::Restored { name: name.to_owned() });
        Ok(applied)
    }

    /// How complete the state is, with the acts that say why.
    fn judge(
        &mut self,
        survey: &Survey,
        applied: Applied,
        reached: u64,
        highest: u64,
        restored: bool,
    ) -> Fresh {
        let nothing = survey.is_nothing(applied.sequence);
        if survey.marker.is_none() && !nothing {
            self.acts.push(Act::MarkerMissing);
        }
        let mut missing = false;
        if reached < highest {
            self.acts.push(Act::Lost { first: reached + 1, last: highest });
            missing = true;
        }
        match survey.active() {
            None if nothing => {}
            // Each backup comes after the journal that goes on from it.
            Some(active) if active.base >= survey.newest_backup() => {
                // The engine takes only what the journal has: a journal that ends before it lost
                // its end, and nobody knows how much of it.
                let last = active.end();
                if reached > last && !restored {
                    self.acts.push(Act::JournalShort { last, engine: reached });
                    missing = true;
                }
            }
            Some(_) | None => {
                self.acts.push(Act::JournalMissing);
                missing = true;
            }
        }
        match survey.marker.map(|marker| marker.fresh) {
            _ if missing => Fresh::DataMissing,
            Some(Fresh::DataMissing) => Fresh::DataMissing,
            Some(Fresh::New) => Fresh::New,
            None if reached == 0 => Fresh::New,
            Some(Fresh::Complete) | None => Fresh::Complete,
        }
    }

    /// Puts what has to be told where the next open finds it, before the traces of it go.
    fn remember(&mut self, fresh: Fresh) -> Result<(), StoreError> {
        write_marker(self.disk, Marker { format: self.format.version, fresh })
    }

    /// The active journal, written anew; or the first one of a new store.
    fn go_on(&mut self, survey: &Survey, reached: u64) -> Result<Journal, StoreError> {
        let mut content = Vec::new();
        let mut base = reached;
        if let Some(active) = survey.active() {
            base = active.base;
            for (sequence, batch) in &active.reading.entries {
                journal::entry(*sequence, batch, &mut content);
            }
        }
        let head = Head { format: self.format.version, sequence: base };
        write_journal(self.disk, head, &content)
    }

    /// Begins a new generation above every number in use.
    fn renew(
        &mut self,
        engine: &mut dyn Engine,
        applied: &mut Applied,
        highest: u64,
    ) -> Result<Journal, StoreError> {
        let sequence = highest + 1;
        let head = Head { format: self.format.version, sequence };
        write_backup(self.disk, head, engine)?;
        let journal = write_journal(self.disk, head, &[])?;
        *applied = Applied { format: head.format, sequence, ..*applied };
        engine
            .apply(*applied, &Batch::new())
            .and_then(|()| engine.flush())
            .map_err(StoreError::engine("take its new sequence"))?;
        self.acts.push(Act::Renewed { sequence });
        self.set_damaged_aside()?;
        Ok(journal)
    }

    fn set_damaged_aside(&mut self) -> Result<(), StoreError> {
        for name in std::mem::take(&mut self.damaged) {
            let to = set_aside(self.disk, &name)?;
            self.acts.push(Act::SetAside { name, to });
        }
        retire(self.disk)
    }

    /// Backs up the old records as they are, writes them anew as a backup of the present format,
    /// and fills a new engine from that.
    fn migrate(
        &mut self,
        engine: Box<dyn Engine>,
        applied: Applied,
        highest: u64,
    ) -> Result<(Box<dyn Engine>, Applied, Journal), StoreError> {
        let Applied { format: from, sequence, .. } = applied;
        let steps = self.format.migrate(from)?;
        let head = Head { format: self.format.version, sequence: highest + 1 };
        // Under a name that is never retired: the way back to the older program.
        let before = format!("before-format-{}.jsonl", head.format);
        backup::write(self.disk, &before, Head { format: from, sequence }, engine.as_ref())
            .map_err(StoreError::file("write", before))?;
        self.write_migrated(head, engine.as_ref(), &steps, from)?;
        let journal = write_journal(self.disk, head, &[])?;
        drop(engine);
        self.set_engine_aside(&EngineError::damaged(format!("it has store format {from}")))?;
        let mut engine = self.open_engine()?.0;
        let applied = self.restore(&backup_name(head.sequence), engine.as_mut())?;
        self.acts.push(Act::Migrated { from, to: head.format });
        self.set_damaged_aside()?;
        Ok((engine, applied, journal))
    }

    fn write_migrated(
        &mut self,
        head: Head,
        engine: &dyn Engine,
        steps: &[Migration],
        from: u32,
    ) -> Result<(), StoreError> {
        let name = backup_name(head.sequence);
        let mut refused = None;
        let written = backup::write_with(self.disk, &name, head, engine, &mut |key, value| {
            let Some((key, value)) = rewrite(steps, key, value) else { return Ok(None) };
            if let Err(error) = Batch::new().put(key.as_slice(), value.as_slice()) {
                let told = std::io::Error::other(error.to_string());
                refused = Some(error);
                return Err(told);
            }
            Ok(Some((key, value)))
        });
        match refused {
            Some(source) => Err(StoreError::Migration { from, source: Box::new(source) }),
            None => written.map_err(StoreError::file("write", name)),
        }
    }
}

/// Applies the entries behind the engine's mark, up to `reached`.
fn replay(
    history: &History<'_>,
    engine: &mut dyn Engine,
    applied: &mut Applied,
    reached: u64,
) -> Result<(), StoreError> {
    let newer = history.entries.range(applied.sequence + 1..);
    for (sequence, batch) in newer.take_while(|(sequence, _)| **sequence <= reached) {
        let fingerprint = fingerprint_after(engine, applied.fingerprint, batch)
            .map_err(StoreError::engine("read for a replay"))?;
        *applied = Applied { sequence: *sequence, fingerprint, ..*applied };
        engine.apply(*applied, batch).map_err(StoreError::engine("replay an entry"))?;
    }
    Ok(())
}

/// Records of a backup that the engine takes at once: far below a batch's limit.
const CHUNK_RECORDS: usize = PAGE_RECORDS / 4;

/// All journal entries by their sequence.
struct History<'a> {
    entries: BTreeMap<u64, &'a Batch>,
}

impl<'a> History<'a> {
    fn new(survey: &'a Survey, data_format: u32) -> Self {
        let fits = |file: &&JournalFile| file.format().is_none_or(|f| f == data_format);
        let files = survey.journals.iter().filter(fits);
        let entries = files.flat_map(|file| file.reading.entries.iter());
        Self { entries: entries.map(|(sequence, batch)| (*sequence, batch)).collect() }
    }

    /// The last sequence that can be reached from `from` without a gap.
    fn reach(&self, from: u64) -> u64 {
        let following = self.entries.range(from + 1..).map(|(sequence, _)| *sequence);
        following.zip(from + 1..).take_while(|(found, wanted)| found == wanted).count() as u64
            + from
    }
}
