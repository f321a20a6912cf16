//! What is done in buckets: looks, and the rewriting of a tracker.

use super::Effects;
use crate::core::step::Input;
use crate::model::checkpoint::{Findings, Look, PassOver, TrackerRewrite, TrackerWrite};
use crate::model::ids::{AttemptNo, JobKey};
use crate::model::spec::{JobSpec, Place};
use crate::service::crash;
use crate::supervisor::bucket;
use crate::supervisor::work::Message;
use futures_util::FutureExt as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// What a look is to find, and where.
#[derive(Debug, Clone)]
pub(in crate::supervisor) struct Looking {
    pub(in crate::supervisor) spec: Arc<JobSpec>,
    pub(in crate::supervisor) pass_over: PassOver,
    pub(in crate::supervisor) place: Option<Place>,
}

impl Effects {
    pub(super) async fn look_for(self, key: JobKey, number: u64, looking: Looking) {
        let _permit = self.looks.acquire().await;
        let look = AssertUnwindSafe(self.look(&looking)).catch_unwind().await;
        let look = look.unwrap_or_else(|_| panicked());
        crash::point("looked");
        // A driver that is gone has nobody left to tell.
        drop(self.driver.send(Message::Looked(key, number, look)).await);
    }

    /// A look at a running attempt, where it writes its checkpoints. Nothing waits for it: a process
    /// that has to end drops it.
    pub(super) async fn watch(self, key: JobKey, no: AttemptNo, looking: Looking) {
        let mut going = self.sweeping.subscribe();
        let look = async {
            let _permit = self.watches.acquire().await;
            AssertUnwindSafe(self.look(&looking)).catch_unwind().await
        };
        let look = tokio::select! {
            biased;
            _ = going.wait_for(|going| !going) => return,
            look = look => look.unwrap_or_else(|_| panicked()),
        };
        self.tell(key, Input::Watched { no, look }).await;
    }

    pub(super) async fn rewrite_tracker(
        self,
        key: JobKey,
        rewrite: TrackerRewrite,
        spec: Option<Arc<JobSpec>>,
        place: Option<Place>,
    ) {
        crash::point("before tracker");
        let checkpoint = spec.as_ref().and_then(|spec| spec.checkpoint.as_ref());
        // Whatever was wrong, the job waits for an outcome.
        let outcome = match checkpoint {
            Some(checkpoint) => {
                let now = self.clock.now().wall;
                let write = bucket::rewrite_tracker(
                    checkpoint,
                    place.as_ref(),
                    &self.keychain,
                    &rewrite,
                    now,
                );
                let panicked = |_| TrackerWrite::Failed {
                    why: "writing it panicked; see the log".to_owned(),
                    needs_person: true,
                };
                AssertUnwindSafe(write).catch_unwind().await.unwrap_or_else(panicked)
            }
            None => TrackerWrite::Failed {
                why: "the accepted spec cannot be read".to_owned(),
                needs_person: true,
            },
        };
        crash::point("tracker written");
        self.tell(key, Input::TrackerWritten(outcome)).await;
    }

    /// One look into the bucket of a job.
    pub(in crate::supervisor) async fn look(&self, looking: &Looking) -> Look {
        crash::point("scanning");
        let Looking { spec, pass_over, place } = looking;
        let (place, now) = (place.as_ref(), self.clock.now().wall);
        match &spec.checkpoint {
            Some(checkpoint) => {
                let pass_over = pass_over.clone();
                bucket::look(checkpoint, pass_over, place, &self.keychain, now).await
            }
            None => Look::Done(Findings::default()),
        }
    }
}

fn panicked() -> Look {
    let why = "reading it panicked; see the log".to_owned();
    Look::CouldNotLook { why, needs_person: true }
}
