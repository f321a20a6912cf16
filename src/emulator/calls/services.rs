//! The calls on what runs beside jobs and can be started and stopped: TensorBoard instances and
//! Ray history servers. No process stands behind them; they run from the moment they are made.

use super::query::{DEFAULT_WINDOW, Order, wrong};
use super::shelves::{Listing, record};
use super::{Answered, Request, object};
use crate::emulator::records::{Records, Shelf};
use crate::emulator::world::{CallError, World};
use crate::model::time::WallTime;
use serde_json::{Map, Value, json};

/// One kind of service.
struct Kind {
    shelf: fn(&mut Records) -> &mut Shelf,
    /// Where its link is shown.
    url_key: &'static str,
    /// Where a list shows all of them.
    list_key: &'static str,
    /// Fields that it cannot be made without.
    required: &'static [&'static str],
    /// Parameters of its list.
    equal: &'static [&'static str],
}

const TENSORBOARD: Kind = Kind {
    shelf: |records| &mut records.tensorboards,
    url_key: "TensorboardUrl",
    list_key: "Tensorboards",
    required: &[],
    equal: &[
        "Accessibility",
        "JobId",
        "QuotaId",
        "SourceId",
        "SourceType",
        "Status",
        "TensorboardId",
        "UserId",
        "Username",
        "WorkspaceId",
    ],
};

const RAY: Kind = Kind {
    shelf: |records| &mut records.ray_history_servers,
    url_key: "RayHistoryServerUrl",
    list_key: "RayHistoryServers",
    required: &["DisplayName", "StoragePath", "WorkspaceId"],
    equal: &["ResourceId", "Status", "StoragePath", "Username", "WorkspaceId"],
};

/// The answer that names what was done something to.
fn named(shelf: &Shelf, id: &str) -> Map<String, Value> {
    [(shelf.id_key().to_owned(), id.into())].into_iter().collect()
}

fn create(world: &mut World, request: &Request<'_>, kind: &Kind) -> Answered {
    let fields = request.fields()?;
    for name in kind.required {
        fields.required(name)?;
    }
    let mut record = record(request)?;
    let url = format!("https://service.emulator.invalid/{}", kind.list_key.to_lowercase());
    record.extend(object(json!({"Status": "Running", "ReasonCode": "", "ReasonMessage": ""})));
    record.insert("GmtFinishTime".to_owned(), "".into());
    record.insert(kind.url_key.to_owned(), url.into());
    let shelf = (kind.shelf)(&mut world.records);
    let id = shelf.add(record)?;
    Ok(named(shelf, &id))
}

fn get(world: &mut World, request: &Request<'_>, kind: &Kind) -> Answered {
    let record = (kind.shelf)(&mut world.records).get(request.id(0))?;
    Ok(seen(record.clone(), request.now.wall))
}

/// A service as it is shown now: how long it has run is counted up.
fn seen(mut record: Map<String, Value>, now: WallTime) -> Map<String, Value> {
    let time = |name: &str| record.get(name).and_then(Value::as_str).and_then(WallTime::parse);
    let ran = time("GmtFinishTime").unwrap_or(now).since(time("GmtCreateTime").unwrap_or(now));
    record.insert("Duration".to_owned(), ran.as_secs().to_string().into());
    record
}

fn list(world: &mut World, request: &Request<'_>, kind: &Kind) -> Answered {
    request.query.flag("ShowOwn")?;
    let listing = Listing {
        equal: kind.equal,
        within: &["DisplayName"],
        sort_by: &["GmtCreateTime", "DisplayName"],
        order: Order::Descending,
        made: Some(request.query.window(request.now, DEFAULT_WINDOW)?),
    };
    let (page, total) = listing.page((kind.shelf)(&mut world.records), request, |_| true)?;
    let page: Vec<Value> =
        page.into_iter().map(|record| Value::Object(seen(record, request.now.wall))).collect();
    let mut answer = object(json!({"TotalCount": total}));
    answer.insert(kind.list_key.to_owned(), Value::Array(page));
    Ok(answer)
}

fn delete(world: &mut World, request: &Request<'_>, kind: &Kind) -> Answered {
    let shelf = (kind.shelf)(&mut world.records);
    shelf.remove(request.id(0))?;
    Ok(named(shelf, request.id(0)))
}

/// Starts or stops one that is in the other state.
fn turn(world: &mut World, request: &Request<'_>, kind: &Kind, status: &str) -> Answered {
    let shelf = (kind.shelf)(&mut world.records);
    let record = shelf.get_mut(request.id(0))?;
    if record.get("Status").is_some_and(|now| now == status) {
        let id = request.id(0).to_owned();
        return Err(CallError::BadRequest(id, "it is in that state already"));
    }
    let now = request.now.wall.to_string();
    let finished = if status == "Stopped" { now.clone() } else { String::new() };
    record.extend(object(json!({
        "Status": status, "GmtModifyTime": now, "GmtFinishTime": finished,
    })));
    Ok(named(shelf, request.id(0)))
}

pub(super) fn create_tensorboard(world: &mut World, request: &Request<'_>) -> Answered {
    let fields = request.fields()?;
    if let Some(job) = fields.text("JobId")? {
        world.job(job)?;
    }
    let mut answer = create(world, request, &TENSORBOARD)?;
    for name in ["JobId", "DataSourceId"] {
        answer.insert(name.to_owned(), fields.value(name).cloned().unwrap_or_else(|| "".into()));
    }
    Ok(answer)
}

/// UpdateTensorboard: a PUT whose parameters stand in the query.
pub(super) fn update_tensorboard(world: &mut World, request: &Request<'_>) -> Answered {
    let query = &request.query;
    let accessibility = query.word("Accessibility", &["PRIVATE", "PUBLIC"])?;
    let minutes = query.number("MaxRunningTimeMinutes", 0)?;
    let priority = query.number("Priority", 1)?;
    if priority.is_some_and(|priority| priority > 9) {
        return Err(wrong("Priority: is not 1 to 9"));
    }
    let shelf = &mut world.records.tensorboards;
    let record = shelf.get_mut(request.id(0))?;
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            record.insert(name.to_owned(), value);
        }
    };
    set("Accessibility", accessibility.map(Value::from));
    set("MaxRunningTimeMinutes", minutes.map(Value::from));
    set("Priority", priority.map(|priority| priority.to_string().into()));
    set("GmtModifyTime", Some(request.now.wall.to_string().into()));
    Ok(named(shelf, request.id(0)))
}

pub(super) fn get_tensorboard(world: &mut World, request: &Request<'_>) -> Answered {
    get(world, request, &TENSORBOARD)
}

pub(super) fn list_tensorboards(world: &mut World, request: &Request<'_>) -> Answered {
    request.query.flag("Verbose")?;
    list(world, request, &TENSORBOARD)
}

pub(super) fn delete_tensorboard(world: &mut World, request: &Request<'_>) -> Answered {
    delete(world, request, &TENSORBOARD)
}

pub(super) fn start_tensorboard(world: &mut World, request: &Request<'_>) -> Answered {
    turn(world, request, &TENSORBOARD, "Running")
}

pub(super) fn stop_tensorboard(world: &mut World, request: &Request<'_>) -> Answered {
    turn(world, request, &TENSORBOARD, "Stopped")
}

pub(super) fn create_ray(world: &mut World, request: &Request<'_>) -> Answered {
    create(world, request, &RAY)
}

pub(super) fn get_ray(world: &mut World, request: &Request<'_>) -> Answered {
    get(world, request, &RAY)
}

pub(super) fn list_ray(world: &mut World, request: &Request<'_>) -> Answered {
    list(world, request, &RAY)
}

pub(super) fn delete_ray(world: &mut World, request: &Request<'_>) -> Answered {
    delete(world, request, &RAY)
}

pub(super) fn start_ray(world: &mut World, request: &Request<'_>) -> Answered {
    turn(world, request, &RAY, "Running")
}

pub(super) fn stop_ray(world: &mut World, request: &Request<'_>) -> Answered {
    turn(world, request, &RAY, "Stopped")
}
