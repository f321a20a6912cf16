//! AIWorkSpace's calls on data sets: what an id in `DataSources` stands for. Each has one version.

use super::query::{Order, wrong};
use super::shelves::{Listing, change, record};
use super::{Answered, Request, object};
use crate::emulator::views::USER_ID;
use crate::emulator::world::{CallError, World};
use serde_json::{Map, Value, json};

/// Letters of a name.
const NAME_LIMIT: usize = 127;
/// The only version.
const VERSION: &str = "v1";
const SOURCE_TYPES: [&str; 7] = ["OSS", "NAS", "EXTREMENAS", "CPFS", "BMCPFS", "MAXCOMPUTE", "URL"];

pub(super) fn create(world: &mut World, request: &Request<'_>) -> Answered {
    let fields = request.fields()?;
    check_name(fields.required("Name")?)?;
    fields.required("DataSourceType")?;
    fields.word("DataSourceType", &SOURCE_TYPES)?;
    fields.required("Property")?;
    fields.word("Property", &["FILE", "DIRECTORY"])?;
    let uri = fields.required("Uri")?;
    if !uri.contains("://") {
        return Err(wrong(format!("Uri: {uri} has no scheme such as oss://")));
    }
    if world.records.datasets.iter().any(|other| same_name(other, &fields.0)) {
        return Err(wrong("Name: is taken in this workspace"));
    }
    let made = record(request)?;
    let mut all = object(json!({
        "DataType": "COMMON", "Description": "", "Edition": "BASIC", "Labels": [], "Options": "",
        "ProviderType": "Ecs", "SourceId": "", "SourceType": "USER", "ImportInfo": "",
        "IsShared": false, "MountAccess": "RW", "AccessibleRoleIdList": [],
        "MountAccessReadWriteRoleIdList": [], "OwnerId": USER_ID, "TagTemplateType": "",
    }));
    all.extend(made);
    for name in ["Username", "TenantId", "GmtModifyTime", "DryRun"] {
        all.remove(name);
    }
    all.insert("GmtModifiedTime".to_owned(), request.now.wall.to_string().into());
    if fields.value("DryRun").and_then(Value::as_bool) == Some(true) {
        return Ok(Map::new());
    }
    let id = world.records.datasets.add(all)?;
    Ok(object(json!({"DatasetId": id})))
}

fn check_name(name: &str) -> Result<(), CallError> {
    let letter = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let starts_well = name.chars().next().is_some_and(char::is_alphanumeric);
    if starts_well && name.chars().all(letter) && name.chars().count() <= NAME_LIMIT {
        Ok(())
    } else {
        Err(wrong(format!("Name: 1 to {NAME_LIMIT} letters, digits, `_` or `-`")))
    }
}

fn same_name(other: &Map<String, Value>, fields: &Map<String, Value>) -> bool {
    let workspace = fields.get("WorkspaceId").and_then(Value::as_str);
    let workspace = workspace.unwrap_or(crate::emulator::views::DEFAULT_WORKSPACE);
    other.get("Name") == fields.get("Name")
        && other.get("WorkspaceId").is_some_and(|other| other == workspace)
}

/// The version of a data set, out of its own fields.
fn only_version(dataset: &Map<String, Value>) -> Map<String, Value> {
    let names = [
        "DataSourceType",
        "Description",
        "GmtCreateTime",
        "GmtModifiedTime",
        "ImportInfo",
        "Labels",
        "MountAccess",
        "Options",
        "Property",
        "SourceId",
        "SourceType",
        "Uri",
        "DataCount",
        "DataSize",
    ];
    let mut version: Map<String, Value> = names
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), dataset.get(name)?.clone())))
        .collect();
    version.insert("VersionName".to_owned(), VERSION.into());
    version
}

fn shown(dataset: &Map<String, Value>) -> Map<String, Value> {
    let mut shown = dataset.clone();
    shown.insert("LatestVersion".to_owned(), Value::Object(only_version(dataset)));
    shown
}

pub(super) fn get(world: &mut World, request: &Request<'_>) -> Answered {
    Ok(shown(world.records.datasets.get(request.id(0))?))
}

pub(super) fn version(world: &mut World, request: &Request<'_>) -> Answered {
    let (id, name) = (request.id(0), request.id(1));
    let dataset = world.records.datasets.get(id)?;
    if name != VERSION {
        return Err(CallError::NotFound(format!("{id} version {name}")));
    }
    let mut version = only_version(dataset);
    version.insert("DatasetId".to_owned(), id.into());
    Ok(version)
}

pub(super) fn list(world: &mut World, request: &Request<'_>) -> Answered {
    let query = &request.query;
    let listing = Listing {
        equal: &["Accessibility", "Edition", "Provider", "SourceId", "WorkspaceId"],
        within: &["Name"],
        sort_by: &["GmtCreateTime", "GmtModifiedTime", "Name"],
        order: Order::Ascending,
        made: None,
    };
    let lists = [
        ("DatasetIds", "DatasetId"),
        ("DataSourceTypes", "DataSourceType"),
        ("DataTypes", "DataType"),
        ("Properties", "Property"),
        ("SourceTypes", "SourceType"),
    ];
    let wanted = |dataset: &Map<String, Value>| {
        lists.iter().all(|(parameter, field)| {
            query.list(parameter).is_none_or(|words| {
                let value = dataset.get(*field).and_then(Value::as_str).unwrap_or_default();
                words.contains(&value)
            })
        })
    };
    let (found, total) = listing.page(&world.records.datasets, request, wanted)?;
    let found: Vec<Map<String, Value>> = found.iter().map(shown).collect();
    Ok(object(json!({"Datasets": found, "TotalCount": total})))
}

pub(super) fn update(world: &mut World, request: &Request<'_>) -> Answered {
    if let Some(name) = request.fields()?.text("Name")? {
        check_name(name)?;
    }
    let names = [
        "Name",
        "Description",
        "Options",
        "Accessibility",
        "AccessibleRoleIdList",
        "Edition",
        "MountAccessReadWriteRoleIdList",
        "SharingConfig",
    ];
    let dataset = world.records.datasets.get_mut(request.id(0))?;
    change(dataset, request, &names, "GmtModifiedTime")?;
    Ok(Map::new())
}

pub(super) fn delete(world: &mut World, request: &Request<'_>) -> Answered {
    world.records.datasets.remove(request.id(0))?;
    Ok(Map::new())
}
