//! A pass over a list: which rows came, and whether they prove that there are no others.
//!
//! What always holds: a pass is complete only if every page gave the same TotalCount, every row
//! could be read, and as many different jobs came as it says. An empty page proves nothing else.

use super::wire;
use crate::model::cloud::CloudJob;
use crate::model::ids::CloudId;
use crate::model::time::WallTime;
use std::collections::BTreeSet;

/// Rows asked for in one page of ListJobs: the most that other clients are known to ask for.
pub const PAGE_SIZE: u64 = 100;
/// Pages of one list pass.
pub const PAGES_LIMIT: u64 = 500;

/// Which jobs to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListFilter {
    /// Part of the display name; `None` asks for those of our owner.
    pub display_name: Option<String>,
    /// Created at this time or later. Always sent: without it DLC looks back 7 days only.
    pub start: WallTime,
}

/// One pass over a list, all pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPass {
    /// The jobs, each once, oldest first.
    pub jobs: Vec<CloudJob>,
    /// Why the pass does not prove that there are no others; `None` if it does.
    pub gap: Option<String>,
    /// The caller as a hash: passes by different keys may not see the same jobs.
    pub caller: String,
}

impl ListPass {
    /// Whether every job that the filter means was seen.
    pub fn complete(&self) -> bool {
        self.gap.is_none()
    }
}

/// Whether a list has another page.
#[derive(Debug, PartialEq, Eq)]
pub enum More {
    /// Yes.
    Yes,
    /// No, or the server does not turn pages.
    No,
}

/// The rows of a list pass so far, and what speaks against its being complete.
#[derive(Debug, Default)]
pub struct Gathered {
    jobs: Vec<CloudJob>,
    ids: BTreeSet<CloudId>,
    total: Option<u64>,
    gap: Option<String>,
}

impl Gathered {
    /// Takes the next page.
    pub fn take(&mut self, page: wire::Page) -> More {
        match (self.total, page.total) {
            (_, None) => self.note("TotalCount is missing".to_owned()),
            (Some(before), Some(now)) if before != now => {
                self.note(format!("TotalCount went from {before} to {now} between pages"));
            }
            (Some(_) | None, Some(_)) => {}
        }
        self.total = page.total.or(self.total);
        let before = self.ids.len();
        for row in page.rows {
            match row {
                Ok(job) if self.ids.insert(job.id.clone()) => self.jobs.push(job),
                Ok(_) => {}
                Err(error) => self.note(error.to_string()),
            }
        }
        let all = self.total.is_some_and(|total| self.ids.len() as u64 >= total);
        // A page without news is the last, or the server does not turn pages.
        if all || self.ids.len() == before { More::No } else { More::Yes }
    }

    /// Keeps the first reason.
    fn note(&mut self, why: String) {
        self.gap.get_or_insert(why);
    }

    /// What came of the pass.
    pub fn finish(mut self, caller: String) -> ListPass {
        let seen = self.ids.len() as u64;
        if let Some(total) = self.total.filter(|total| *total != seen) {
            self.note(format!("{seen} jobs came where TotalCount says {total}"));
        }
        ListPass { jobs: self.jobs, gap: self.gap, caller }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn page(ids: &[&str], total: impl Into<Value>) -> wire::Page {
        let rows: Vec<_> = ids.iter().map(|id| json!({"JobId": id, "Status": "Running"})).collect();
        wire::page(json!({"Jobs": rows, "TotalCount": total.into()}).to_string().as_bytes())
            .expect("a page")
    }

    fn gathered(pages: &[wire::Page]) -> (usize, Option<String>) {
        let mut pass = Gathered::default();
        for page in pages {
            if pass.take(page.clone()) == More::No {
                break;
            }
        }
        let pass = pass.finish(String::new());
        (pass.jobs.len(), pass.gap)
    }

    #[test]
    fn a_pass_is_complete_only_if_its_own_count_says_so_on_every_page() {
        assert_eq!(gathered(&[page(&[], 0)]), (0, None));
        assert_eq!(gathered(&[page(&["a", "b"], 3), page(&["b", "c"], 3)]), (3, None));
        for (pages, jobs) in [
            (vec![page(&["a"], 2), page(&["b"], 3), page(&["c"], 3)], 3),
            (vec![page(&["a", "b"], 3), page(&["a", "b"], 3)], 2),
            (vec![page(&["a"], 3), page(&[], 3)], 1),
            (vec![page(&[], 5)], 0),
            (vec![page(&["a", "b"], 1)], 2),
            (vec![page(&["a"], Value::Null), page(&[], Value::Null)], 1),
            (vec![page(&[], Value::Null)], 0),
        ] {
            let (seen, gap) = gathered(&pages);
            assert_eq!(seen, jobs, "{pages:?}");
            assert!(gap.is_some(), "{pages:?}");
        }
    }

    #[test]
    fn a_row_that_cannot_be_read_leaves_a_gap() {
        let page = wire::page(br#"{"Jobs":[{"Status":"Running"}],"TotalCount":1}"#).expect("page");
        assert!(gathered(&[page]).1.expect("a gap").contains("JobId"));
    }
}
