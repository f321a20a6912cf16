//! The calls on jobs themselves.

use super::query::{DEFAULT_WINDOW, Order, wrong};
use super::{Answered, Request, job, object, specs};
use crate::emulator::job::{Job, Stage};
use crate::emulator::listing::ListQuery;
use crate::emulator::views;
use crate::emulator::world::{CallError, World};
use crate::model::time::WallTime;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Lines of a log or events answer when nothing is asked for.
const LINES_DEFAULT: usize = 2_000;
/// How far the times of event lines are ahead of UTC.
const LOCAL_OFFSET: Duration = Duration::from_hours(8);
/// Lines of one log or events answer.
const LINES_LIMIT: usize = 100_000;

fn only_id(id: &str) -> Map<String, Value> {
    object(json!({"JobId": id}))
}

pub(super) fn create(world: &mut World, request: &Request<'_>) -> Answered {
    world.create(request.body, request.now).map(|id| only_id(&id))
}

pub(super) fn get(world: &mut World, request: &Request<'_>) -> Answered {
    // What NeedDetail=false leaves out is not documented: nothing is left out here.
    request.query.flag("NeedDetail")?;
    let job = job(world, request)?;
    let mut view = views::whole(job, request.now.wall);
    view.extend(requests(job, Value::from));
    Ok(view)
}

pub(super) fn list(world: &mut World, request: &Request<'_>) -> Answered {
    let query = ListQuery::read(&request.query, request.now)?;
    let shown = world.jobs().filter(|job| job.created.at + request.list_lag <= request.now.at);
    let (page, total) = query.page(shown);
    let item = |job: &Job| {
        let mut view = views::item(job, request.now.wall);
        view.extend(requests(job, |number| Value::from(number.to_string())));
        Value::Object(view)
    };
    let items: Vec<Value> = page.into_iter().map(item).collect();
    Ok(object(json!({"Jobs": items, "TotalCount": total})))
}

/// What a job asks for: numbers in GetJob, texts in ListJobs, as the real ones are.
fn requests(job: &Job, shown: impl Fn(u64) -> Value) -> Vec<(String, Value)> {
    let names = ["RequestCPU", "RequestMemory", "RequestGPU"];
    let numbers = specs::requested(job);
    names.into_iter().map(str::to_owned).zip(numbers.map(shown)).collect()
}

pub(super) fn stop(world: &mut World, request: &Request<'_>) -> Answered {
    world.stop(request.id(0), request.now).map(|()| only_id(request.id(0)))
}

pub(super) fn delete(world: &mut World, request: &Request<'_>) -> Answered {
    world.delete(request.id(0), request.now).map(|()| only_id(request.id(0)))
}

/// UpdateJob. Priority and UserCommand are taken with 200 whatever comes of them: they change
/// nothing unless the job uses a quota and waits.
pub(super) fn update(world: &mut World, request: &Request<'_>) -> Answered {
    let fields = request.fields()?;
    let current = job(world, request)?;
    let priority = fields.number("Priority", 1, 9)?;
    let command = fields.text("UserCommand")?;
    let description = fields.text("Description")?;
    let specs = fields.value("JobSpecs");
    if specs.is_some_and(|specs| !specs.as_array().is_some_and(|s| s.iter().all(Value::is_object)))
    {
        return Err(wrong("JobSpecs: is no list of objects"));
    }
    let accessibility = fields.word("Accessibility", &["PUBLIC", "PRIVATE"])?;
    let is_public = current.submission.body.get("Accessibility").is_some_and(|a| a == "PUBLIC");
    if accessibility == Some("PRIVATE") && is_public {
        return Err(wrong("Accessibility: PUBLIC cannot be taken back"));
    }
    let waits = matches!(current.stage.word(), "Creating" | "Queuing" | "EnvPreparing");
    let heeded = waits && !views::quota(current).is_empty();

    let mut job = world.take(request.id(0))?;
    let body = &mut job.submission.body;
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    };
    set("Accessibility", accessibility.map(Value::from));
    set("Description", description.map(Value::from));
    if heeded {
        set("Priority", priority.map(Value::from));
        set("UserCommand", command.map(Value::from));
        if let Some(command) = command {
            command.clone_into(&mut job.submission.command);
        }
    }
    world.put_back(job);
    Ok(only_id(request.id(0)))
}

pub(super) fn events(world: &mut World, request: &Request<'_>) -> Answered {
    let events = newest(request, &job(world, request)?.events)?;
    Ok(object(json!({"JobId": request.id(0), "Events": events})))
}

/// How many lines a parameter asks for.
pub(super) fn lines(request: &Request<'_>, name: &str) -> Result<usize, CallError> {
    Ok(request.query.number(name, 1)?.unwrap_or(LINES_DEFAULT).min(LINES_LIMIT))
}

/// The newest of the event lines that the query asks for.
pub(super) fn newest(request: &Request<'_>, events: &[String]) -> Result<Vec<String>, CallError> {
    let window = request.query.window(request.now, DEFAULT_WINDOW)?;
    let within = |line: &&String| time_of(line).is_none_or(|wall| window.holds(wall));
    let found: Vec<String> = events.iter().filter(within).cloned().collect();
    let first = found.len().saturating_sub(lines(request, "MaxEventsNum")?);
    Ok(found[first..].to_vec())
}

/// When an event was, by the local time that its line begins with.
fn time_of(line: &str) -> Option<WallTime> {
    let local = line.get(.."2026-01-02 03:04:05".len())?.replacen(' ', "T", 1);
    Some(WallTime::parse(&format!("{local}Z"))?.minus(LOCAL_OFFSET))
}

/// `Order` of a list that is shown newest first.
pub(super) fn newest_first(request: &Request<'_>) -> Result<Order, CallError> {
    request.query.order(Order::Descending)
}

/// Whether a job is running now.
pub(super) fn runs(job: &Job) -> bool {
    matches!(job.stage, Stage::Running { .. })
}
