//! Jobs that run and do nothing any more, by hand: all pods hang, or one is lost and the others go on
//! as if nothing were. Nothing of it is told: the job is shown as Running as before.

use super::job::{Job, Moment, PodLife, Stage};
use super::world::{CallError, World};

impl World {
    /// Lets a running job hang: its processes stand still and take no signal but KILL; a virtual job
    /// prints nothing more and does not end by itself.
    ///
    /// # Errors
    /// [`CallError::NotFound`], or [`CallError::BadRequest`] when it is not Running.
    pub fn hang(&mut self, id: &str, now: Moment) -> Result<(), CallError> {
        self.on_running(id, |job| {
            for pod in &job.pods {
                if let PodLife::Processes(group) = pod.life {
                    group.stop();
                }
            }
            job.hangs.get_or_insert(now.wall);
            job.stage = Stage::Running { ends: None };
            Ok(())
        })
    }

    /// Fails one pod of a running job, the `at`-th from 0, and tells nobody.
    ///
    /// # Errors
    /// As [`World::hang`], or [`CallError::InvalidParameter`] where there is no such pod.
    pub fn lose_pod(&mut self, id: &str, at: usize, now: Moment) -> Result<(), CallError> {
        self.on_running(id, |job| {
            let others =
                job.pods.iter().enumerate().filter(|(other, pod)| *other != at && pod.lives());
            if others.count() == 0 {
                let what = "no other pod would be left: release the job";
                return Err(CallError::BadRequest(job.id.clone(), what));
            }
            let Some(pod) = job.pods.get_mut(at).filter(|pod| pod.lives()) else {
                return Err(CallError::InvalidParameter(format!("pod: there is no pod {at}")));
            };
            if let PodLife::Processes(group) = pod.life {
                group.kill();
            }
            pod.life = PodLife::Lost;
            pod.finished = Some(now.wall);
            Ok(())
        })
    }

    fn on_running(
        &mut self,
        id: &str,
        act: impl FnOnce(&mut Job) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        let mut job = self.take(id)?;
        let result = match job.stage {
            Stage::Running { .. } => act(&mut job),
            Stage::Waiting { .. }
            | Stage::Leaving { .. }
            | Stage::Reserving { .. }
            | Stage::Ended(_) => {
                Err(CallError::BadRequest(id.to_owned(), "only a running job can hang"))
            }
        };
        self.put_back(job);
        result
    }
}
