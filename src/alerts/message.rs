//! One or more alerts of one cause as one message, in words.

use crate::model::alert::{Alert, Channel, SUMMARY, TEST};
use crate::model::time::{WallTime, human};

/// Texts of folded alerts that are shown, the last ones.
const TEXTS_SHOWN: usize = 3;

/// What is sent at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// That of its first alert.
    pub id: String,
    /// One line.
    pub title: String,
    /// The whole, title included.
    pub text: String,
    /// What it tells of, oldest first; never empty.
    pub alerts: Vec<Alert>,
}

impl Message {
    /// A message of these alerts: at least one, all of one job and cause.
    pub fn of(alerts: Vec<Alert>, channel: &Channel) -> Option<Self> {
        let (first, last) = (alerts.first()?.clone(), alerts.last()?.clone());
        let title = title(&first, &last, alerts.len());
        let mut text = title.clone();
        for alert in alerts.iter().skip(alerts.len().saturating_sub(TEXTS_SHOWN)) {
            text.push('\n');
            text.push_str(&line(alert, channel));
        }
        Some(Self { id: first.id, title, text, alerts })
    }
}

fn title(first: &Alert, last: &Alert, count: usize) -> String {
    if first.word == SUMMARY {
        return "spotkeeper: summary of all jobs".to_owned();
    }
    if first.word == TEST {
        return "spotkeeper: a test".to_owned();
    }
    if first.job.is_empty() {
        return format!("spotkeeper: {}", first.word);
    }
    if count == 1 {
        return format!("spotkeeper: {} {}", first.job, first.word);
    }
    let within = human(last.at.since(first.at));
    let what = if first.word == "RELEASED" {
        format!("{count} releases")
    } else {
        format!("{count} times {}", first.word)
    };
    format!("spotkeeper: {}: {what} in {within}{}", first.job, progress(first, last))
}

/// Whether the job got on between two alerts, as far as its checkpoints show.
fn progress(first: &Alert, last: &Alert) -> String {
    match (first.step, last.step) {
        (Some(from), Some(to)) if to > from => {
            format!(", still progressing (step {from} to {to})")
        }
        (None, Some(to)) => format!(", still progressing (step {to})"),
        (Some(from), Some(_)) => format!(", no new checkpoint since step {from}"),
        (_, None) => String::new(),
    }
}

fn line(alert: &Alert, channel: &Channel) -> String {
    if alert.word == SUMMARY {
        return alert.text.clone();
    }
    let at = clock_time(alert.at, channel);
    match alert.attempt {
        Some(no) => format!("{at}  attempt {no}: {}", alert.text),
        None => format!("{at}  {}", alert.text),
    }
}

/// A time as the channel's readers see it on the wall.
fn clock_time(at: WallTime, channel: &Channel) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(
        |_| at.to_string(),
        |t| t.to_zoned_datetime(channel.zone.clone()).strftime("%Y-%m-%d %H:%M:%S %:z").to_string(),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::alert::{SecretRef, Way};
    use jiff::tz::{TimeZone, offset};
    use std::time::Duration;

    pub(in crate::alerts) fn channel() -> Channel {
        Channel {
            name: "team".into(),
            way: Way::Slack { url: SecretRef::Environment("X".into()) },
            jobs: vec!["*".into()],
            events: vec!["ALARM".into(), "RELEASED".into()],
            fold: Duration::from_mins(15),
            quiet: None,
            summary: None,
            zone: TimeZone::fixed(offset(8)),
        }
    }

    pub(in crate::alerts) fn alert(n: i64, job: &str, word: &str, text: &str) -> Alert {
        Alert {
            id: format!("k3f9qz-{n}"),
            at: WallTime(1_796_000_000_000 + n * 1_800_000),
            job: job.into(),
            run: 1,
            attempt: Some(u32::try_from(n).expect("small")),
            word: word.into(),
            text: text.into(),
            step: None,
        }
    }

    #[test]
    fn one_alert_says_what_happened_and_when() {
        let one = alert(1, "vit", "ALARM", "3 ends in a row without a new checkpoint");
        let message = Message::of(vec![one], &channel()).expect("a message");
        assert_eq!(message.title, "spotkeeper: vit ALARM");
        assert_eq!(
            message.text,
            "spotkeeper: vit ALARM\n\
             2026-11-30 09:23:20 +08:00  attempt 1: 3 ends in a row without a new checkpoint"
        );
        assert_eq!(Message::of(Vec::new(), &channel()), None);
    }

    #[test]
    fn repeats_are_folded_and_tell_whether_the_job_gets_on() {
        let mut seven: Vec<_> = (1..=7).map(|n| alert(n, "vit", "RELEASED", "released")).collect();
        let title =
            |alerts: &[Alert]| Message::of(alerts.to_vec(), &channel()).expect("a message").title;
        assert_eq!(title(&seven), "spotkeeper: vit: 7 releases in 3h");
        seven[0].step = Some(8_000);
        seven[6].step = Some(31_000);
        assert_eq!(
            title(&seven),
            "spotkeeper: vit: 7 releases in 3h, still progressing (step 8000 to 31000)"
        );
        seven[6].step = Some(8_000);
        assert!(title(&seven).ends_with("no new checkpoint since step 8000"));
        let message = Message::of(seven, &channel()).expect("a message");
        assert_eq!(message.text.lines().count(), 4, "{}", message.text);
        assert_eq!((message.id.as_str(), message.alerts.len()), ("k3f9qz-1", 7));
    }
}
