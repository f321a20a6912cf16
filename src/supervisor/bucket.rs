//! Looking into a bucket with the keys and the endpoint of a target.

use super::driver::chain;
use crate::checkpoint::common_step::look_at_parts;
use crate::checkpoint::fence;
use crate::checkpoint::scan::{ScanOptions, look_at};
use crate::checkpoint::store_s3::{StorageAccess, StorageKeys};
use crate::checkpoint::tracker;
use crate::model::checkpoint::{
    Look, PassOver, Pin, ResumePoint, Scheme, Tracker, TrackerRewrite, TrackerWrite,
};
use crate::model::error::Class;
use crate::model::fence::Fence;
use crate::model::spec::{CheckpointSpec, Place};
use crate::model::time::WallTime;
use crate::openapi::credentials::Keychain;
use crate::service::crash;

/// One look under the location of `checkpoint`.
pub(super) async fn look(
    checkpoint: &CheckpointSpec,
    pass_over: PassOver,
    place: Option<&Place>,
    keychain: &Keychain,
    now: WallTime,
) -> Look {
    let access = match (scheme_of_all(checkpoint), place) {
        (Scheme::File, _) => None,
        (Scheme::S3 | Scheme::Oss, None) => {
            let why = "the daemon file has no target that says how to reach the bucket".to_owned();
            return Look::CouldNotLook { why, needs_person: true };
        }
        (Scheme::S3 | Scheme::Oss, Some(place)) => match access(place, keychain, now).await {
            Ok(access) => Some(access),
            Err(NoAccess { why, needs_person }) => {
                return Look::CouldNotLook { why, needs_person };
            }
        },
    };
    let mut look = if checkpoint.parts.is_empty() {
        let options = ScanOptions::of(checkpoint, pass_over);
        look_at(&checkpoint.location, access.as_ref(), &options, now).await
    } else {
        look_at_parts(checkpoint, pass_over, access.as_ref(), now).await
    };
    if crash::takes_newest() {
        take_newest(&mut look);
    }
    look
}

/// A scheme that needs keys, if any part of the checkpoint does.
fn scheme_of_all(checkpoint: &CheckpointSpec) -> Scheme {
    let mut schemes = checkpoint.locations().map(|location| location.scheme);
    schemes.find(|scheme| *scheme != Scheme::File).unwrap_or(Scheme::File)
}

/// Writes the fence of an attempt, where its job wants one. Answers why it could not.
pub(super) async fn raise_fence(
    checkpoint: &CheckpointSpec,
    place: &Place,
    keychain: &Keychain,
    fence: &Fence<'_>,
    now: WallTime,
) -> Result<(), String> {
    if !checkpoint.fence {
        return Ok(());
    }
    let access = match checkpoint.location.scheme {
        Scheme::File => None,
        Scheme::S3 | Scheme::Oss => {
            Some(access(place, keychain, now).await.map_err(|error| error.why)?)
        }
    };
    crash::point("before fence");
    let written = fence::write(&checkpoint.location, access.as_ref(), fence).await;
    crash::point("fence written");
    written.map_err(|error| chain(&error))
}

/// Rewrites the tracker of a job's trainer.
pub(super) async fn rewrite_tracker(
    checkpoint: &CheckpointSpec,
    place: Option<&Place>,
    keychain: &Keychain,
    rewrite: &TrackerRewrite,
    now: WallTime,
) -> TrackerWrite {
    let access = match (checkpoint.location.scheme, place) {
        (Scheme::File, _) => None,
        (Scheme::S3 | Scheme::Oss, None) => {
            let why = "the daemon file has no target that says how to reach the bucket".to_owned();
            return TrackerWrite::Failed { why, needs_person: true };
        }
        (Scheme::S3 | Scheme::Oss, Some(place)) => match access(place, keychain, now).await {
            Ok(access) => Some(access),
            Err(NoAccess { why, needs_person }) => {
                return TrackerWrite::Failed { why, needs_person };
            }
        },
    };
    tracker::rewrite(&checkpoint.location, access.as_ref(), rewrite).await
}

/// Chooses the newest checkpoint, whatever the tests said of it.
fn take_newest(look: &mut Look) {
    let Look::Done(findings) = look else { return };
    let Some(newest) = findings.candidates.first() else { return };
    findings.chosen = Some(ResumePoint {
        path: newest.path.clone(),
        root: newest.path.rsplit_once('/').map_or(".", |(root, _)| root).to_owned(),
        step: newest.step,
        epoch: newest.epoch,
        position: newest.position,
        format: findings.format.clone().unwrap_or_default(),
        argument: String::new(),
        pin: Pin::Argument,
        tracker: Tracker::Fits,
        parts: Vec::new(),
    });
}

/// Why a bucket cannot even be asked.
struct NoAccess {
    why: String,
    needs_person: bool,
}

async fn access(
    place: &Place,
    keychain: &Keychain,
    now: WallTime,
) -> Result<StorageAccess, NoAccess> {
    let Some(endpoint) = place.storage.clone() else {
        let why = "the target has no storage endpoint".to_owned();
        return Err(NoAccess { why, needs_person: true });
    };
    let held = keychain.keys(&place.credentials, now).await.map_err(|error| NoAccess {
        why: chain(&error),
        needs_person: error.class() == Class::Operator,
    })?;
    let keys = held.keys;
    Ok(StorageAccess {
        plain_http: endpoint.starts_with("http://"),
        endpoint,
        region: place.region.clone(),
        keys: StorageKeys {
            key_id: keys.key_id.expose().to_owned(),
            secret: keys.secret.clone(),
            token: keys.token.clone(),
        },
    })
}
