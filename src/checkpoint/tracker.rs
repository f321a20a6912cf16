//! The tracker: a small object by which some trainers find their newest checkpoint by themselves.
//! Here it is read beside a candidate, and rewritten where a person allowed it.
//!
//! What always holds: what stands in it is compared with what a look saw right before the write; a
//! store that knows conditional writes compares once more. OSS knows none behind its S3 side. The
//! caller sees to it that nothing of the job runs.

use super::formats::Case;
use super::objects::{Read, SMALL_FILE_LIMIT, StoreError, chain, join};
use super::store_s3::StorageAccess;
use super::write::{OpenError, WRITE_LIMIT, Writable, failed};
use crate::model::checkpoint::{Location, Tracker, TrackerRewrite, TrackerText, TrackerWrite};
use crate::model::error::Class;
use object_store::{GetOptions, GetRange, ObjectStoreExt as _, PutMode, UpdateVersion};

/// Where the tracker `file` of a root leads. `reads_as` says whether a content is the wanted one
/// for the trainer; `wanted` is what would be written.
pub(super) async fn leads(
    case: Case<'_>,
    file: &str,
    wanted: String,
    reads_as: impl Fn(&str) -> bool,
) -> Result<Tracker, StoreError> {
    let Some(folder) = &case.root.folder else { return Ok(Tracker::Unseen) };
    let key = join(&case.root.path, file);
    let Some(object) = folder.object(file) else {
        return Ok(Tracker::Differs(Box::new(TrackerRewrite { key, found: None, wanted })));
    };
    // The beginning of a large one is enough to show that it is none.
    match case.objects.read(&key, 0..object.size.min(SMALL_FILE_LIMIT)).await? {
        Read::Changed | Read::Refused(_) => Ok(Tracker::Unseen),
        Read::Bytes(bytes) => {
            let text = std::str::from_utf8(&bytes).ok().filter(|_| object.size <= SMALL_FILE_LIMIT);
            if text.is_some_and(|text| reads_as(text.trim())) {
                return Ok(Tracker::Fits);
            }
            let found = Some(TrackerText::of(&bytes, object.size));
            Ok(Tracker::Differs(Box::new(TrackerRewrite { key, found, wanted })))
        }
    }
}

/// Rewrites a tracker below `location`, if it still says what the look saw. `access` says how a
/// bucket is reached; a folder needs none.
pub async fn rewrite(
    location: &Location,
    access: Option<&StorageAccess>,
    rewrite: &TrackerRewrite,
) -> TrackerWrite {
    let work = async {
        let below = Writable::open(location, access).map_err(|error| match error {
            OpenError::Access(error) => not_done(&error, error.class()),
            OpenError::Store(error) => not_done(&error, error.class()),
        })?;
        compare_and_write(&below, rewrite).await.map_err(|error| not_done(&error, error.class()))
    };
    match tokio::time::timeout(WRITE_LIMIT, work).await {
        Ok(Ok(outcome) | Err(outcome)) => outcome,
        Err(_) => TrackerWrite::Failed {
            why: format!("no answer within {} s", WRITE_LIMIT.as_secs()),
            needs_person: false,
        },
    }
}

fn not_done(error: &dyn std::error::Error, class: Class) -> TrackerWrite {
    let needs_person = match class {
        Class::Operator | Class::Bug => true,
        Class::Retry | Class::Wait => false,
    };
    TrackerWrite::Failed { why: chain(error), needs_person }
}

async fn compare_and_write(
    below: &Writable,
    rewrite: &TrackerRewrite,
) -> Result<TrackerWrite, StoreError> {
    let key = rewrite.key.as_str();
    let (now, version) = match read(below, key).await? {
        Some((bytes, size, version)) => {
            if bytes == rewrite.wanted.as_bytes() {
                return Ok(TrackerWrite::Done);
            }
            (Some(TrackerText::of(&bytes, size)), Some(version))
        }
        None => (None, None),
    };
    if now != rewrite.found {
        return Ok(TrackerWrite::Changed { now });
    }
    let mode = version.map_or(PutMode::Create, PutMode::Update);
    let written = match below.put(key, rewrite.wanted.clone(), mode).await {
        // Such a store has no conditional write: the comparison before it has to do.
        Err(object_store::Error::NotImplemented { .. }) => {
            below.put(key, rewrite.wanted.clone(), PutMode::Overwrite).await
        }
        written => written,
    };
    match written {
        Ok(()) => Ok(TrackerWrite::Done),
        Err(
            object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. },
        ) => {
            let now = read(below, key).await?;
            Ok(TrackerWrite::Changed {
                now: now.map(|(bytes, size, _)| TrackerText::of(&bytes, size)),
            })
        }
        Err(error) => Err(failed("write", key, error)),
    }
}

/// The beginning of an object, its size and its version; `None` if there is no such object.
async fn read(
    below: &Writable,
    key: &str,
) -> Result<Option<(Vec<u8>, u64, UpdateVersion)>, StoreError> {
    let get = async {
        let (store, path) = below.at(key)?;
        let meta = store.head(&path).await?;
        let version = UpdateVersion { e_tag: meta.e_tag.clone(), version: meta.version.clone() };
        if meta.size == 0 {
            return Ok((Vec::new(), 0, version));
        }
        let range = Some(GetRange::Bounded(0..meta.size.min(SMALL_FILE_LIMIT)));
        let answer = store.get_opts(&path, GetOptions { range, ..GetOptions::default() }).await?;
        Ok((answer.bytes().await?.to_vec(), meta.size, version))
    };
    match get.await {
        Ok(found) => Ok(Some(found)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(failed("read", key, error)),
    }
}
