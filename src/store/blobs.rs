//! Larger things as files named by the SHA-256 of their content.
//!
//! A blob is durable before its name is given back, so a commit may name it. It is never changed.
//! What no record names any more goes only when space is needed, the oldest first, and never one
//! that was put since the last sweep: its commit may be on the way.

use std::collections::BTreeSet;

use super::disk::{ASIDE, Disk, Listed, read_whole};
use super::error::StoreError;
use crate::model::ids::Digest;

/// Bytes of the largest blob.
pub const BLOB_LIMIT_BYTES: u64 = 4 * 1024 * 1024;
/// Bytes of all blobs.
pub const BLOBS_LIMIT_BYTES: u64 = 512 * 1024 * 1024;
/// A sweep goes on until so much is left at most, so that the next ones find space.
pub const BLOBS_SWEPT_BYTES: u64 = BLOBS_LIMIT_BYTES / 2;

const FOLDER: &str = "blobs";
const NAME_LENGTH: usize = 64;

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Blobs removed.
    pub removed: u64,
    /// Bytes of all blobs that are left.
    pub bytes: u64,
}

/// How full the folder of blobs is.
#[derive(Debug, Default)]
pub(super) struct Blobs {
    bytes: u64,
    /// Put since the last sweep.
    young: BTreeSet<Digest>,
}

impl Blobs {
    pub(super) fn open(disk: &mut dyn Disk) -> Result<Self, StoreError> {
        let mut bytes = 0;
        for file in list(disk)? {
            if file.name.ends_with(ASIDE) {
                let name = format!("{FOLDER}/{}", file.name);
                disk.remove(&name).map_err(StoreError::file("remove", &name))?;
            } else {
                bytes += file.bytes;
            }
        }
        Ok(Self { bytes, young: BTreeSet::new() })
    }

    pub(super) fn put(&mut self, disk: &mut dyn Disk, bytes: &[u8]) -> Result<Digest, StoreError> {
        let size = bytes.len() as u64;
        if size > BLOB_LIMIT_BYTES {
            return Err(StoreError::BlobTooLarge { bytes: size });
        }
        let digest = Digest::of(bytes);
        match get(disk, &digest) {
            Ok(_) => {}
            Err(StoreError::BlobDamaged { .. }) => write(disk, &digest, bytes)?,
            Err(StoreError::BlobMissing { .. }) => {
                if self.bytes + size > BLOBS_LIMIT_BYTES {
                    return Err(StoreError::BlobsFull { bytes: self.bytes + size });
                }
                write(disk, &digest, bytes)?;
                self.bytes += size;
            }
            Err(other) => return Err(other),
        }
        self.young.insert(digest.clone());
        Ok(digest)
    }

    pub(super) fn sweep(
        &mut self,
        disk: &mut dyn Disk,
        keep: &BTreeSet<Digest>,
        down_to_bytes: u64,
    ) -> Result<Swept, StoreError> {
        let mut files = list(disk)?;
        files.sort_by(|a, b| (a.age_order, &a.name).cmp(&(b.age_order, &b.name)));
        let mut swept = Swept { removed: 0, bytes: files.iter().map(|file| file.bytes).sum() };
        let young = std::mem::take(&mut self.young);
        for file in files {
            let digest = Digest(file.name);
            if swept.bytes <= down_to_bytes {
                break;
            }
            if keep.contains(&digest) || young.contains(&digest) {
                continue;
            }
            let name = format!("{FOLDER}/{}", digest.0);
            disk.remove(&name).map_err(StoreError::file("remove", name))?;
            swept.removed += 1;
            swept.bytes -= file.bytes;
        }
        self.bytes = swept.bytes;
        Ok(swept)
    }
}

fn write(disk: &mut dyn Disk, digest: &Digest, bytes: &[u8]) -> Result<(), StoreError> {
    let name = path(digest)?;
    disk.write(&name, &mut |out| out.write_all(bytes)).map_err(StoreError::file("write", name))
}

pub(super) fn get(disk: &dyn Disk, digest: &Digest) -> Result<Vec<u8>, StoreError> {
    let name = path(digest)?;
    let bytes = match read_whole(disk, &name, BLOB_LIMIT_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(StoreError::BlobMissing { digest: digest.clone() });
        }
        Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
            return Err(StoreError::BlobDamaged { digest: digest.clone() });
        }
        Err(source) => return Err(StoreError::File { operation: "read", name, source }),
    };
    if Digest::of(&bytes) == *digest {
        Ok(bytes)
    } else {
        Err(StoreError::BlobDamaged { digest: digest.clone() })
    }
}

/// All blobs that are whole by their name, in order.
pub(super) fn names(disk: &dyn Disk) -> Result<Vec<Digest>, StoreError> {
    let digests = list(disk)?.into_iter().map(|file| Digest(file.name));
    Ok(digests.filter(|digest| path(digest).is_ok()).collect())
}

fn list(disk: &dyn Disk) -> Result<Vec<Listed>, StoreError> {
    disk.list(FOLDER).map_err(StoreError::file("list", FOLDER))
}

/// A digest may come out of a record, so it is checked before it becomes a path.
pub(super) fn path(digest: &Digest) -> Result<String, StoreError> {
    let text = &digest.0;
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if text.len() == NAME_LENGTH && text.bytes().all(is_hex) {
        Ok(format!("{FOLDER}/{text}"))
    } else {
        Err(StoreError::BadDigest { text: text.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory_disk::MemoryDisk;
    use super::*;

    #[test]
    fn the_oldest_that_nobody_names_go_first_and_young_ones_stay() {
        let mut disk = MemoryDisk::default();
        let mut blobs = Blobs::open(&mut disk).unwrap();
        let put =
            |blobs: &mut Blobs, text: &str| blobs.put(&mut disk.clone(), text.as_bytes()).unwrap();
        let old: Vec<Digest> = ["1aaa", "2aaa", "3aaa"].map(|t| put(&mut blobs, t)).into();
        let keep = BTreeSet::from([old[0].clone()]);
        let swept = blobs.sweep(&mut disk.clone(), &keep, 0).unwrap();
        assert_eq!(swept, Swept { removed: 0, bytes: 12 }, "all were put since the last sweep");
        let young = put(&mut blobs, "4aaa");
        let swept = blobs.sweep(&mut disk.clone(), &keep, 12).unwrap();
        assert_eq!(swept, Swept { removed: 1, bytes: 12 });
        assert!(matches!(get(&disk, &old[1]), Err(StoreError::BlobMissing { .. })));
        put(&mut blobs, "3aaa");
        let swept = blobs.sweep(&mut disk.clone(), &keep, 0).unwrap();
        assert_eq!(swept, Swept { removed: 1, bytes: 8 });
        assert!(matches!(get(&disk, &young), Err(StoreError::BlobMissing { .. })));
        for kept in [&old[0], &old[2]] {
            get(&disk, kept).unwrap();
        }
        assert_eq!(Blobs::open(&mut disk).unwrap().bytes, 8);
    }

    #[test]
    fn damage_is_seen_and_mended_by_the_next_put() {
        let mut disk = MemoryDisk::default();
        let mut blobs = Blobs::open(&mut disk).unwrap();
        let digest = blobs.put(&mut disk, b"spec").unwrap();
        disk.replace(&path(&digest).unwrap(), Some(b"spex".to_vec()));
        assert!(matches!(get(&disk, &digest), Err(StoreError::BlobDamaged { .. })));
        blobs.put(&mut disk, b"spec").unwrap();
        assert_eq!(get(&disk, &digest).unwrap(), b"spec");
        assert_eq!(blobs.bytes, 4);
    }

    #[test]
    fn limits_and_names_are_checked() {
        let mut disk = MemoryDisk::default();
        let mut blobs = Blobs { bytes: BLOBS_LIMIT_BYTES, young: BTreeSet::new() };
        let limit = usize::try_from(BLOB_LIMIT_BYTES).unwrap();
        let large = blobs.put(&mut disk, &vec![0; limit + 1]);
        assert!(matches!(large, Err(StoreError::BlobTooLarge { .. })));
        assert!(matches!(blobs.put(&mut disk, b"x"), Err(StoreError::BlobsFull { .. })));
        for bad in ["", "../lock", &"A".repeat(64)] {
            let refused = get(&disk, &Digest(bad.to_owned()));
            assert!(matches!(refused, Err(StoreError::BadDigest { .. })), "{bad}");
        }
    }
}
