//! Whose a cloud job is. One stamp of ours is enough to hold back a submission; all of them are
//! needed before we stop a job or take it for our own.

use crate::model::cloud::CloudJob;
use crate::model::ids::{Mark, Owner};
use crate::model::time::WallTime;
use std::time::Duration;

/// A CreateJob is sent within this time of its intent or not at all, so that the time at which a
/// job was created tells ours from a later copy.
pub const SEND_WITHIN: Duration = Duration::from_secs(60);
/// How far two clocks may differ that both follow the server.
const CLOCK_SLACK: Duration = Duration::from_secs(120);

/// The mark of ours that a cloud job carries anywhere.
pub fn mark_of(cloud: &CloudJob, owner: &Owner) -> Option<Mark> {
    let stamp = &cloud.stamp;
    [&stamp.name, &stamp.tag, &stamp.env]
        .into_iter()
        .flatten()
        .find(|(of, _)| of == owner)
        .map(|(_, mark)| mark.clone())
}

/// Whether a cloud job that carries one of our marks is the job that we created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// All stamps, the time and the user fit.
    Ours,
    /// Something does not: a person copied it, or wrote our mark on a job of their own.
    NotProved {
        /// What does not fit.
        why: String,
    },
}

/// Compares a cloud job with the intent that its mark names.
pub fn prove(
    cloud: &CloudJob,
    owner: &Owner,
    mark: &Mark,
    intended: WallTime,
    acceptance: Duration,
    own_user: Option<&str>,
) -> Proof {
    let ours = |stamp: &Option<(Owner, Mark)>| {
        stamp.as_ref().is_some_and(|(of, m)| of == owner && m == mark)
    };
    let not = |why: String| Proof::NotProved { why };
    if !ours(&cloud.stamp.name) {
        return not(format!("its DisplayName `{}` is not the one we sent", cloud.display_name));
    }
    if !ours(&cloud.stamp.tag) && !ours(&cloud.stamp.env) {
        return not("it has neither our tag nor our environment variables".to_owned());
    }
    if let (Some(own), Some(user)) = (own_user, cloud.user_id.as_deref())
        && own != user
    {
        return not(format!("it belongs to user {user}, we are {own}"));
    }
    let earliest = intended.minus(CLOCK_SLACK);
    let latest = intended.plus(SEND_WITHIN + acceptance + CLOCK_SLACK);
    match cloud.created {
        Some(created) if created < earliest || created > latest => {
            not(format!("it was created at {created}, our request was sent at {intended}"))
        }
        Some(_) | None => Proof::Ours,
    }
}
