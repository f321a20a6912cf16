//! What is found of open attempts is what a walk over all jobs finds.

use super::*;
use crate::core::job::Missing;
use crate::core::{hang, runs, waiting, watch};
use crate::model::cloud::Status;

/// Numbers from a seed: xorshift.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, limit: u8) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u8::try_from(self.0 % u64::from(limit)).expect("small")
    }
}

fn live(id: CloudId) -> AttemptState {
    AttemptState::Live {
        id,
        status: Status::Running,
        odd: None,
        running: None,
        restarts: 0,
        runs: runs::Runs::default(),
        recheck: crate::core::job::Recheck::NotDue,
        missing: Missing::No,
        watch: watch::Watch::default(),
        hang: hang::Hang::default(),
        wait: waiting::Wait::begun(WallTime(0)),
    }
}

fn some_job(random: &mut Seeded) -> Job {
    let minutes = random.below(4);
    let acceptance = (minutes > 0).then(|| u32::from(minutes) * MINUTE);
    let mut job = open_job(acceptance);
    let name = format!("job{}", random.below(3));
    job.key = JobKey { name: JobName::new(name).expect("a name"), run: 1 };
    let mut open = Vec::new();
    for _ in 0..random.below(3) {
        let mut attempt = job.open[0].clone();
        // Marks and ids meet, also in two jobs: whatever led there, nothing may be lost of it.
        attempt.mark = Mark::from_random([random.below(6); 10]);
        attempt.place.workspace = random.below(2).to_string();
        if random.below(2) == 0 {
            attempt.state = live(id(u32::from(random.below(6))));
        }
        open.push(attempt);
    }
    job.open = open;
    job
}

#[test]
fn what_is_found_is_what_a_walk_over_all_jobs_finds() {
    let mut random = Seeded(4_711);
    let mut jobs = Jobs::default();
    for _ in 0..2_000 {
        let job = some_job(&mut random);
        let before = jobs.get(&job.key).cloned();
        let replaced = match random.below(3) {
            0 => jobs.remove(&job.key),
            _ => jobs.insert(job.key.clone(), job),
        };
        assert_eq!(replaced, before);
        let walk = |is_it: &dyn Fn(&Attempt) -> bool| {
            jobs.values().find(|job| job.open.iter().any(is_it)).map(|job| &job.key)
        };
        for n in 0..6 {
            let mark = Mark::from_random([n; 10]);
            let by_mark = jobs.open_with(&mark).map(|job| &job.key);
            assert_eq!(by_mark, walk(&|attempt| attempt.mark == mark));
            let id = id(u32::from(n));
            let by_id = jobs.open_as(&id).map(|job| &job.key);
            assert_eq!(by_id, walk(&|attempt| attempt.id() == Some(&id)));
        }
        let open: Vec<&Attempt> = jobs.values().flat_map(|job| &job.open).collect();
        let places: BTreeSet<&Place> = open.iter().map(|attempt| &attempt.place).collect();
        assert!(jobs.open_places().eq(places.iter().copied()));
        for workspace in ["0", "1"] {
            let place = Place { workspace: workspace.into(), ..place() };
            let here = open.iter().filter(|attempt| attempt.place == place);
            let longest = here.filter_map(|a| a.terms.as_ref()).map(|t| t.acceptance).max();
            assert_eq!(jobs.longest_acceptance(&place), longest);
        }
    }
}
