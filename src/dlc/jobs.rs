//! Jobs one by one and in lists, for people and tools: every filter, every field.
//!
//! What always holds: nothing here proves that a job is absent; that is for [`super::list`] alone. An
//! answer to a change says that it was taken, not that it has an effect.

use super::client::{Answer, ApiError, Ask, Dlc, Pairs};
use super::query::Query;
use super::wire::{self, Acknowledged, Page, Whole, WireError};
use crate::model::cloud::{CloudJob, Status};
use crate::model::ids::CloudId;
use crate::model::time::WallTime;
use crate::openapi::request::Method;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How much of a job GetJob shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// Everything: the server's default.
    #[default]
    Full,
    /// `NeedDetail=false`. What it leaves out is not documented.
    Brief,
}

/// Which workspace a list is of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Workspace {
    /// That of the target.
    #[default]
    OfTarget,
    /// Another one, by its id.
    Id(String),
    /// None is sent: the server takes the caller's default workspace, without a word.
    Unsent,
}

/// Whose jobs a list is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Whose {
    /// All that the caller may see in the workspace.
    #[default]
    Everybodys,
    /// `ShowOwn`: the caller's. Which these are depends on the keys.
    Own,
    /// `ShowOwn` and `FromAllWorkspaces`.
    OwnInAllWorkspaces,
}

/// Which way a list is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// `asc`.
    Ascending,
    /// `desc`.
    Descending,
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ascending => "asc",
            Self::Descending => "desc",
        })
    }
}

/// Bounds on a number that jobs have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumericRange {
    /// `NumericRangeField`.
    pub field: String,
    /// `NumericRangeMin`.
    pub min: Option<i64>,
    /// `NumericRangeMax`.
    pub max: Option<i64>,
}

/// Every filter of ListJobs. Texts that the API calls a search, and `DisplayName`, match parts and
/// either case: compare the rows that come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListQuery {
    /// `WorkspaceId`.
    pub workspace: Workspace,
    /// `ShowOwn`, `FromAllWorkspaces`.
    pub whose: Whose,
    /// `Accessibility`: `PUBLIC` or `PRIVATE`.
    pub accessibility: Option<String>,
    /// `BusinessUserId`.
    pub business_user_id: Option<String>,
    /// `Caller`.
    pub caller: Option<String>,
    /// `Description`.
    pub description: Option<String>,
    /// `DisplayName`: a part of it, in either case.
    pub display_name: Option<String>,
    /// `DisplayNameSearchMode`; its values are not documented.
    pub display_name_search_mode: Option<String>,
    /// `EnableAssignNode`.
    pub enable_assign_node: Option<bool>,
    /// `EndTime`: created before.
    pub end: Option<WallTime>,
    /// `ImageSearch`.
    pub image_search: Option<String>,
    /// `JobId`, exact.
    pub job_id: Option<CloudId>,
    /// `JobIds`; `JobId` wins over it.
    pub job_ids: Vec<CloudId>,
    /// `JobType`.
    pub job_type: Option<String>,
    /// `NumericRangeField`, `NumericRangeMin`, `NumericRangeMax`.
    pub numeric_range: Option<NumericRange>,
    /// `Order`; the server's default is descending.
    pub order: Option<Order>,
    /// `OversoldInfo`.
    pub oversold_info: Option<String>,
    /// `PageNumber`, from 1.
    pub page: Option<u64>,
    /// `PageSize`; 100 is the most that other clients are known to ask for.
    pub page_size: Option<u64>,
    /// `PaymentType`: `PrePaid`, `Spot`, `PostPaid`.
    pub payment_type: Option<String>,
    /// `PipelineId`.
    pub pipeline_id: Option<String>,
    /// `ReasonSearch`.
    pub reason_search: Option<String>,
    /// `ResourceId`: a quota.
    pub resource_id: Option<String>,
    /// `ResourceIds`.
    pub resource_ids: Vec<String>,
    /// `ResourceQuotaName`.
    pub resource_quota_name: Option<String>,
    /// `SortBy`: `DisplayName`, `JobType`, `Status`, `GmtCreateTime`, `GmtFinishTime`.
    pub sort_by: Option<String>,
    /// `StartTime`: created at this time or later. Without it the server looks back 7 days.
    pub start: Option<WallTime>,
    /// `Status`: one word.
    pub status: Option<Status>,
    /// `Tags`. Whether all or any have to match is not documented.
    pub tags: BTreeMap<String, String>,
    /// `TemplateId`.
    pub template_id: Option<String>,
    /// `TimeRangeField`: which time `StartTime` and `EndTime` bound.
    pub time_range_field: Option<String>,
    /// `UserCommandSearch`.
    pub user_command_search: Option<String>,
    /// `UserIdForFilter`.
    pub user_id: Option<String>,
    /// `Username`.
    pub username: Option<String>,
}

impl ListQuery {
    /// The query for a target with workspace `own`.
    pub(super) fn pairs(&self, own: &str) -> Pairs {
        let workspace = match &self.workspace {
            Workspace::OfTarget => Some(own),
            Workspace::Id(id) => Some(id.as_str()),
            Workspace::Unsent => None,
        };
        let (show_own, everywhere) = match self.whose {
            Whose::Everybodys => (None, None),
            Whose::Own => (Some(&true), None),
            Whose::OwnInAllWorkspaces => (Some(&true), Some(&true)),
        };
        let range = self.numeric_range.as_ref();
        let tags = (!self.tags.is_empty()).then(|| json!(self.tags));
        Query::default()
            .maybe("Accessibility", self.accessibility.as_ref())
            .maybe("BusinessUserId", self.business_user_id.as_ref())
            .maybe("Caller", self.caller.as_ref())
            .maybe("Description", self.description.as_ref())
            .maybe("DisplayName", self.display_name.as_ref())
            .maybe("DisplayNameSearchMode", self.display_name_search_mode.as_ref())
            .maybe("EnableAssignNode", self.enable_assign_node.as_ref())
            .maybe("EndTime", self.end.as_ref())
            .maybe("FromAllWorkspaces", everywhere)
            .maybe("ImageSearch", self.image_search.as_ref())
            .maybe("JobId", self.job_id.as_ref())
            .list("JobIds", &self.job_ids)
            .maybe("JobType", self.job_type.as_ref())
            .maybe("NumericRangeField", range.map(|range| &range.field))
            .maybe("NumericRangeMax", range.and_then(|range| range.max.as_ref()))
            .maybe("NumericRangeMin", range.and_then(|range| range.min.as_ref()))
            .maybe("Order", self.order.as_ref())
            .maybe("OversoldInfo", self.oversold_info.as_ref())
            .maybe("PageNumber", self.page.as_ref())
            .maybe("PageSize", self.page_size.as_ref())
            .maybe("PaymentType", self.payment_type.as_ref())
            .maybe("PipelineId", self.pipeline_id.as_ref())
            .maybe("ReasonSearch", self.reason_search.as_ref())
            .maybe("ResourceId", self.resource_id.as_ref())
            .list("ResourceIds", &self.resource_ids)
            .maybe("ResourceQuotaName", self.resource_quota_name.as_ref())
            .maybe("ShowOwn", show_own)
            .maybe("SortBy", self.sort_by.as_ref())
            .maybe("StartTime", self.start.as_ref())
            .maybe("Status", self.status.as_ref().map(Status::word))
            .maybe("Tags", tags.as_ref())
            .maybe("TemplateId", self.template_id.as_ref())
            .maybe("TimeRangeField", self.time_range_field.as_ref())
            .maybe("UserCommandSearch", self.user_command_search.as_ref())
            .maybe("UserIdForFilter", self.user_id.as_ref())
            .maybe("Username", self.username.as_ref())
            .maybe("WorkspaceId", workspace)
            .pairs()
    }
}

/// What UpdateJob changes; there is no new name and no new bid.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobUpdate {
    /// `Priority`, 1 to 9. Has an effect only with a quota, and only before the job runs.
    pub priority: Option<u8>,
    /// `Accessibility`: only from `PRIVATE` to `PUBLIC`.
    pub accessibility: Option<String>,
    /// `Description`.
    pub description: Option<String>,
    /// `JobSpecs`.
    pub job_specs: Vec<Value>,
    /// `UserCommand`.
    pub user_command: Option<String>,
}

impl JobUpdate {
    fn body(&self) -> Value {
        let given = [
            ("Accessibility", self.accessibility.as_ref().map(|text| json!(text))),
            ("Description", self.description.as_ref().map(|text| json!(text))),
            ("JobSpecs", (!self.job_specs.is_empty()).then(|| json!(self.job_specs))),
            ("Priority", self.priority.map(|number| json!(number))),
            ("UserCommand", self.user_command.as_ref().map(|text| json!(text))),
        ];
        let given = given.into_iter();
        given
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect::<Map<_, _>>()
            .into()
    }
}

impl Dlc {
    /// One job, with every field as it came. `id` is what a person wrote: perhaps no id at all, which
    /// the server then says.
    pub async fn show_job(
        &self,
        id: &str,
        detail: Detail,
        now: WallTime,
    ) -> Result<Answer<Whole<CloudJob>>, ApiError> {
        let need = match detail {
            Detail::Full => None,
            Detail::Brief => Some(&false),
        };
        let query = Query::default().maybe("NeedDetail", need).pairs();
        let segments = ["api", "v1", "jobs", id];
        let answer = self.whole(Ask::get("GetJob", &segments, query), wire::whole_job, now).await?;
        let found = answer.value.read.id.as_str();
        if found == id {
            return Ok(answer);
        }
        let found = format!("{found}, but {id} was asked for");
        let source = WireError::Field { what: "GetJob", field: "JobId", found };
        Err(ApiError::Wire { source, date: answer.date })
    }

    /// One page of a list.
    pub async fn list_page(
        &self,
        query: &ListQuery,
        now: WallTime,
    ) -> Result<Answer<Whole<Page>>, ApiError> {
        let query = query.pairs(&self.place().workspace);
        let ask = Ask::get("ListJobs", &["api", "v1", "jobs"], query);
        self.whole(ask, wire::whole_page, now).await
    }

    /// Asks for changes of a job. A priority is taken without an effect where there is no quota:
    /// look at the job to see what came of it.
    pub async fn update_job(
        &self,
        id: &CloudId,
        update: &JobUpdate,
        now: WallTime,
    ) -> Result<Answer<Whole<Acknowledged>>, ApiError> {
        let segments = ["api", "v1", "jobs", id.as_str()];
        let body = Some(update.body().to_string().into_bytes());
        let ask = Ask { method: Method::Put, body, ..Ask::post("UpdateJob", &segments) };
        self.acknowledged(ask, id, now).await
    }

    /// Removes an ended job and everything that is known of it. Nothing here does that by itself: of
    /// a job that is gone nobody can tell any more why it ended.
    pub async fn delete_job(
        &self,
        id: &CloudId,
        now: WallTime,
    ) -> Result<Answer<Whole<Acknowledged>>, ApiError> {
        let segments = ["api", "v1", "jobs", id.as_str()];
        let ask = Ask { method: Method::Delete, ..Ask::post("DeleteJob", &segments) };
        self.acknowledged(ask, id, now).await
    }
}
