//! A data set of AIWorkSpace: where its files are.

use super::{WireError, field};
use serde_json::Value;

/// What GetDataset says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// `DatasetId`.
    pub id: Option<String>,
    /// `Name`.
    pub name: Option<String>,
    /// `Uri` of the first version, e.g. `oss://bucket.oss-cn-hangzhou.aliyuncs.com/team/`.
    pub uri: String,
    /// `DataSourceType`: `OSS`, `NAS`, `CPFS`.
    pub data_source_type: Option<String>,
    /// `MountAccess`: `RO` or `RW`.
    pub mount_access: Option<String>,
    /// `LatestVersion`, where there is one.
    pub latest: Option<Version>,
}

/// A version of a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// `VersionName`, e.g. `v2`.
    pub name: String,
    /// `Uri`.
    pub uri: String,
}

/// The data set in an answer of GetDataset.
///
/// # Errors
/// [`WireError::Field`] if `Uri` is missing, empty or no text.
pub fn dataset(value: &Value) -> Result<Dataset, WireError> {
    let latest = field::get(value, "LatestVersion").and_then(|version| {
        field::text(version, "VersionName")
            .zip(field::text(version, "Uri"))
            .map(|(name, uri)| Version { name, uri })
    });
    Ok(Dataset {
        id: field::text(value, "DatasetId"),
        name: field::text(value, "Name"),
        uri: field::needed("GetDataset", value, "Uri")?,
        data_source_type: field::text(value, "DataSourceType"),
        mount_access: field::text(value, "MountAccess"),
        latest,
    })
}
