//! The figures of `/metrics`: which there are, and how a page of them is written.
//!
//! Always holds: a figure is in [`ALL`], with its labels, before it can be on a page; docs/metrics.md
//! has a row for each. Labels are bounded: names of jobs, targets and channels from the files, and
//! words of closed lists; never an id, a path or a text from outside.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Jobs that have figures of their own; those behind them are only counted.
pub const JOBS_LIMIT: usize = 1_000;

/// What a figure is to Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up; begins at 0 with the process where `since_start` says so in its help.
    Counter,
    /// Counts by size.
    Histogram,
}

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// What it says.
    pub help: &'static str,
    /// Its labels, in the order in which values are given.
    pub labels: &'static [&'static str],
}

macro_rules! metrics {
    ($($ident:ident $name:literal $kind:ident [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $ident: Metric = Metric {
                name: $name, kind: Kind::$kind, help: $help, labels: &[$($label),*],
            };
        )*

        /// All of them.
        pub const ALL: &[Metric] = &[$($ident),*];
    };
}

metrics! {
    BUILD_INFO "spotkeeper_build_info" Gauge ["version"]
        "Always 1; the label is the version of the program.";
    UPTIME "spotkeeper_uptime_seconds" Gauge []
        "Time since the daemon started.";
    RESIDENT "process_resident_memory_bytes" Gauge []
        "Memory of the process.";
    OPEN_FILES "process_open_fds" Gauge []
        "Files and connections that the process has open.";
    CLOCK_OFFSET "spotkeeper_clock_offset_seconds" Gauge []
        "Clock of this machine less that of the API's servers; absent before a server was heard.";
    STORE_WRITABLE "spotkeeper_store_writable" Gauge []
        "Whether the store can write: 1 or 0. With 0 nothing is decided.";
    STORE_SEQUENCE "spotkeeper_store_commits_total" Counter []
        "Sequence of the store: goes up with every durable change, over restarts too.";
    STORE_FREE "spotkeeper_state_free_bytes" Gauge []
        "Free space where the state folder is.";
    COMMIT_SECONDS "spotkeeper_store_commit_seconds" Histogram []
        "How long a durable change took, its sync included, since the start.";
    EVENTS "spotkeeper_events_total" Counter ["event"]
        "Events by their word, since the start: FOUND are submissions found again, TWIN second jobs that were ended.";
    JOBS "spotkeeper_jobs" Gauge ["phase"]
        "Jobs by phase.";
    JOB_FILES_REFUSED "spotkeeper_job_file_errors" Gauge []
        "Errors of job files that are not taken; what is on record goes on.";
    NEED_PERSON "spotkeeper_jobs_need_person" Gauge []
        "Jobs that go on only after somebody acted.";
    JOBS_LEFT_OUT "spotkeeper_jobs_without_figures" Gauge []
        "Jobs behind the first 1000, of which there are no figures of their own.";
    ENDS "spotkeeper_attempts_ended_total" Counter ["cause"]
        "Attempts seen ended, by cause, since the start.";
    LOST_SECONDS "spotkeeper_lost_seconds_total" Counter ["cause"]
        "Running time behind the last checkpoint at the end of attempts, to be done again, by cause, since the start.";
    REPEATED_STEPS "spotkeeper_repeated_steps_total" Counter []
        "The same in steps, by the pace of the attempt, where that was known, since the start.";
    DETECTION "spotkeeper_detection_seconds" Histogram []
        "From the end of an attempt, by the API's time, until it was seen, since the start.";
    RESUBMISSION "spotkeeper_end_to_submitted_seconds" Histogram []
        "From the end of an attempt, by the API's time, until the next one had its id, back-off included, since the start.";
    REFUSED_CHECKPOINTS "spotkeeper_checkpoints_refused_total" Counter ["verdict"]
        "Checkpoints passed over when a resume point was chosen, by verdict, since the start.";
    JOB_ATTEMPTS "spotkeeper_job_attempts_total" Counter ["job", "run"]
        "Attempts that are known to have existed.";
    JOB_RELEASES "spotkeeper_job_releases_total" Counter ["job", "run"]
        "Attempts that ended by a spot release. A verdict that is amended may take one back.";
    JOB_ERRORS "spotkeeper_job_errors_total" Counter ["job", "run"]
        "Attempts that ended by an error or without explanation. A verdict that is amended may take one back.";
    JOB_RESTARTS "spotkeeper_job_restarts_total" Counter ["job", "run"]
        "Restarts by the platform under the same id.";
    JOB_RAN "spotkeeper_job_running_seconds_total" Counter ["job", "run"]
        "Running time of ended attempts.";
    JOB_STEP "spotkeeper_job_step" Gauge ["job", "run"]
        "Step of the newest whole checkpoint.";
    JOB_CHECKPOINT_AGE "spotkeeper_job_checkpoint_age_seconds" Gauge ["job", "run"]
        "Time since the newest whole checkpoint was written.";
    JOB_AT_RISK "spotkeeper_job_at_risk_seconds" Gauge ["job", "run"]
        "Work that an end would lose now; absent while nothing runs.";
    JOB_REPEATED "spotkeeper_job_repeated_seconds_total" Counter ["job", "run"]
        "Running time behind the last checkpoint at the end of its attempts, since the start.";
    JOB_ENDS "spotkeeper_job_ends_without_progress" Gauge ["job", "run"]
        "Ends in a row without a new whole checkpoint.";
    JOB_BLIND "spotkeeper_job_looks_failing_seconds" Gauge ["job", "run"]
        "How long looks into the bucket have failed, as far as this process saw; 0 while they work.";
    JOB_PERSON "spotkeeper_job_needs_person" Gauge ["job", "run"]
        "Whether only a person can let it go on: 1 or 0.";
    JOB_LIST_PRICE "spotkeeper_job_list_price_yuan" Gauge ["job", "run"]
        "Running time at the job file's list price, all pods: an upper bound of what was paid; absent without a list price.";
    TARGET_VERIFIED "spotkeeper_target_verified" Gauge ["target"]
        "Whether the target was compared with the store since the start: 1 or 0.";
    TARGET_AGE "spotkeeper_target_last_sweep_age_seconds" Gauge ["target"]
        "Time since the last complete sweep began; absent before the first.";
    TARGET_LAG "spotkeeper_sweep_lag_seconds" Gauge ["target"]
        "How much later than its interval the last sweep began; absent before the second.";
    TARGET_FAULT "spotkeeper_target_fault" Gauge ["target", "needs"]
        "Whether something does not work at the target: needs=\"person\" or needs=\"time\".";
    TARGET_CREDENTIALS "spotkeeper_target_credentials_failing" Gauge ["target"]
        "Whether its keys cannot be renewed now: 1 or 0.";
    CALLS "spotkeeper_api_calls_total" Counter ["call", "result"]
        "Calls of the API by outcome, since the start: ok, or the kind of error, such as throttled.";
    ALERTS_WAITING "spotkeeper_alerts_waiting" Gauge ["channel"]
        "Alerts that are not delivered yet.";
    ALERTS_SENT "spotkeeper_alert_messages_total" Counter ["channel"]
        "Messages that were delivered, since the start.";
    ALERTS_FAILED "spotkeeper_alert_failures_total" Counter ["channel"]
        "Deliveries that failed and are tried again, since the start.";
    ALERTS_DROPPED "spotkeeper_alerts_dropped_total" Counter ["channel"]
        "Alerts that were given up, since the start: too many waited, or one for too long.";
}

/// Times and how many were no longer than each.
#[derive(Debug, Clone)]
pub struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    /// An empty one with these upper bounds, ascending.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len()], sum: 0.0, count: 0 }
    }

    /// Counts one.
    pub fn observe(&mut self, value: f64) {
        for (bound, count) in self.bounds.iter().zip(&mut self.counts) {
            *count += u64::from(value <= *bound);
        }
        self.sum += value;
        self.count += 1;
    }
}

/// A page of figures.
#[derive(Debug, Clone, Default)]
pub struct Page {
    lines: BTreeMap<&'static str, Vec<String>>,
}

impl Page {
    /// Adds a figure; `values` are those of its labels, in order.
    pub fn put(&mut self, metric: Metric, values: &[&str], figure: f64) {
        #[cfg(test_hooks)]
        assert_eq!(metric.labels.len(), values.len(), "{}", metric.name);
        let labels: Vec<String> = metric
            .labels
            .iter()
            .zip(values)
            .map(|(l, v)| format!("{l}=\"{}\"", quoted(v)))
            .collect();
        self.line(metric, "", &labels, figure);
    }

    /// Adds a histogram, of a metric without labels.
    pub fn put_histogram(&mut self, metric: Metric, histogram: &Histogram) {
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            self.line(metric, "_bucket", &[format!("le=\"{bound}\"")], exact(*count));
        }
        self.line(metric, "_bucket", &["le=\"+Inf\"".to_owned()], exact(histogram.count));
        self.line(metric, "_sum", &[], histogram.sum);
        self.line(metric, "_count", &[], exact(histogram.count));
    }

    fn line(&mut self, metric: Metric, suffix: &str, labels: &[String], figure: f64) {
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let line = format!("{}{suffix}{labels} {figure}", metric.name);
        self.lines.entry(metric.name).or_default().push(line);
    }

    /// The page in Prometheus' text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for metric in ALL {
            let Some(lines) = self.lines.get(metric.name) else { continue };
            let kind = match metric.kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
                Kind::Histogram => "histogram",
            };
            let help = metric.help.replace('\\', "\\\\");
            // Writing to a text cannot fail.
            let _ = writeln!(text, "# HELP {0} {help}\n# TYPE {0} {kind}", metric.name);
            for line in lines {
                let _ = writeln!(text, "{line}");
            }
        }
        text
    }
}

/// A count as a figure: exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
pub fn exact(count: u64) -> f64 {
    count as f64
}

/// A yes or no as a figure.
pub fn yes(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

fn quoted(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_in_the_text_format() {
        let mut page = Page::default();
        page.put(JOBS, &["RUNNING"], 2.0);
        page.put(JOBS, &["a\"b\\c\nd"], 0.5);
        let mut times = Histogram::new(&[0.1, 1.0]);
        for value in [0.05, 0.5, 7.0] {
            times.observe(value);
        }
        page.put_histogram(COMMIT_SECONDS, &times);
        let text = page.render();
        assert_eq!(
            text,
            "# HELP spotkeeper_store_commit_seconds How long a durable change took, its sync included, since the start.\n\
             # TYPE spotkeeper_store_commit_seconds histogram\n\
             spotkeeper_store_commit_seconds_bucket{le=\"0.1\"} 1\n\
             spotkeeper_store_commit_seconds_bucket{le=\"1\"} 2\n\
             spotkeeper_store_commit_seconds_bucket{le=\"+Inf\"} 3\n\
             spotkeeper_store_commit_seconds_sum 7.55\n\
             spotkeeper_store_commit_seconds_count 3\n\
             # HELP spotkeeper_jobs Jobs by phase.\n\
             # TYPE spotkeeper_jobs gauge\n\
             spotkeeper_jobs{phase=\"RUNNING\"} 2\n\
             spotkeeper_jobs{phase=\"a\\\"b\\\\c\\nd\"} 0.5\n"
        );
    }

    #[test]
    fn every_figure_stands_in_the_documentation_once() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
        let text = std::fs::read_to_string(path).expect("docs/metrics.md");
        let mut names = std::collections::BTreeSet::new();
        for metric in ALL {
            assert!(names.insert(metric.name), "{} is there twice", metric.name);
            let kind = format!("{:?}", metric.kind).to_lowercase();
            let labels = metric.labels.iter().map(|l| format!("`{l}`")).collect::<Vec<_>>();
            let row = format!("| `{}` | {kind} | {} |", metric.name, labels.join(", "));
            let row = row.replace("|  |", "| |");
            assert!(text.contains(&row), "docs/metrics.md lacks the row: {row} {} |", metric.help);
            assert!(text.contains(metric.help), "docs/metrics.md says otherwise: {}", metric.help);
        }
        let rows = text
            .lines()
            .filter(|line| line.starts_with("| `spotkeeper_") || line.starts_with("| `process_"));
        assert_eq!(rows.count(), ALL.len(), "docs/metrics.md has rows of figures that are gone");
    }
}
