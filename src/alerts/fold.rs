//! Which of the waiting alerts go next, together, and when.
//!
//! Always holds: of one job none overtakes another; nothing goes in quiet hours; each alert goes in
//! exactly one message.

use super::message::Message;
use crate::model::alert::{Alert, Channel};
use crate::model::time::{BootTime, Now, WallTime};
use std::collections::{BTreeMap, BTreeSet};

/// Alerts of one message at most.
const TOGETHER_LIMIT: usize = 100;
/// Causes that are remembered as told: a repeat of one that is forgotten goes at once.
const SENT_LIMIT: usize = 10_000;

/// When the last message of each cause of each job went out.
#[derive(Debug, Default)]
pub struct Sent(BTreeMap<(String, String), BootTime>);

impl Sent {
    /// A message went out.
    pub fn note(&mut self, message: &Message, now: BootTime) {
        if self.0.len() >= SENT_LIMIT {
            self.0.clear();
        }
        if let Some(alert) = message.alerts.first() {
            self.0.insert((alert.job.clone(), cause(alert)), now);
        }
    }
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Send this; its alerts stood at these places of what was given.
    Send(Message, Vec<usize>),
    /// Nothing before this, unless there is something new.
    Later(BootTime),
    /// Nothing, until there is something new or the quiet hours are over.
    Nothing,
}

/// Which of `waiting`, oldest first, go next; not those of the jobs in `held`.
pub fn next<'a>(
    channel: &Channel,
    waiting: &'a [Alert],
    sent: &Sent,
    mut held: BTreeSet<&'a str>,
    now: Now,
) -> Next {
    if is_quiet(channel, now.wall) {
        return Next::Nothing;
    }
    let mut later: Option<BootTime> = None;
    for (place, first) in waiting.iter().enumerate() {
        if held.contains(first.job.as_str()) {
            continue;
        }
        let (places, is_last) = together(waiting, place);
        let told = sent.0.get(&(first.job.clone(), cause(first)));
        let until = told.map(|at| at.plus(channel.fold)).filter(|until| *until > now.boot);
        // A repeat waits for more of them, unless something else of the job waits behind it.
        if let (Some(until), true) = (until, is_last) {
            held.insert(&first.job);
            later = Some(later.map_or(until, |at| at.min(until)));
            continue;
        }
        let alerts = places.iter().map(|place| waiting[*place].clone()).collect();
        if let Some(message) = Message::of(alerts, channel) {
            return Next::Send(message, places);
        }
    }
    later.map_or(Next::Nothing, Next::Later)
}

/// The alert at `place` and those of the same job and cause that follow it, and whether nothing
/// else of the job follows.
fn together(waiting: &[Alert], place: usize) -> (Vec<usize>, bool) {
    let (first, mut places) = (&waiting[place], vec![place]);
    for (at, alert) in waiting.iter().enumerate().skip(place + 1) {
        if alert.job != first.job {
            continue;
        }
        if cause(alert) != cause(first) || places.len() >= TOGETHER_LIMIT {
            return (places, false);
        }
        places.push(at);
    }
    (places, true)
}

/// What makes two alerts of a job alike: the event, and for an alarm what it is about, whatever
/// numbers and details it names.
fn cause(alert: &Alert) -> String {
    if alert.word != "ALARM" {
        return alert.word.clone();
    }
    let about = alert.text.split(':').next().unwrap_or_default();
    let words = about.chars().filter(|letter| !letter.is_ascii_digit());
    format!("{} {}", alert.word, words.collect::<String>())
}

/// Whether nothing is sent at this time.
pub fn is_quiet(channel: &Channel, wall: WallTime) -> bool {
    channel.quiet.is_some_and(|quiet| minute_of_day(channel, wall).is_some_and(|m| quiet.holds(m)))
}

/// Minutes after midnight on the channel's wall.
fn minute_of_day(channel: &Channel, wall: WallTime) -> Option<u16> {
    let there =
        jiff::Timestamp::from_millisecond(wall.0).ok()?.to_zoned_datetime(channel.zone.clone());
    Some(u16::from(there.hour().unsigned_abs()) * 60 + u16::from(there.minute().unsigned_abs()))
}

/// When the channel's summary was last due, at `wall`; `None` if it has none.
pub fn summary_due(channel: &Channel, wall: WallTime) -> Option<WallTime> {
    let minute = channel.summary?;
    let now =
        jiff::Timestamp::from_millisecond(wall.0).ok()?.to_zoned_datetime(channel.zone.clone());
    let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
    let on = |day: jiff::civil::Date| {
        let at = day.at(hour, minute, 0, 0).to_zoned_datetime(channel.zone.clone()).ok()?;
        Some(WallTime(at.timestamp().as_millisecond()))
    };
    let today = on(now.date())?;
    if today <= wall { Some(today) } else { on(now.date().yesterday().ok()?) }
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::{alert, channel};
    use super::*;
    use crate::model::alert::Quiet;
    use std::time::Duration;

    const NOW: Now = Now { wall: WallTime(1_796_000_000_000), boot: BootTime(1_000_000) };

    fn next(channel: &Channel, waiting: &[Alert], sent: &Sent, now: Now) -> Next {
        super::next(channel, waiting, sent, BTreeSet::new(), now)
    }

    fn later(time: Duration) -> Now {
        Now { wall: NOW.wall.plus(time), boot: NOW.boot.plus(time) }
    }

    fn places(next: &Next) -> Vec<usize> {
        match next {
            Next::Send(_, places) => places.clone(),
            Next::Later(_) | Next::Nothing => Vec::new(),
        }
    }

    fn tell(sent: &mut Sent, next: &Next, now: Now) {
        if let Next::Send(message, _) = next {
            sent.note(message, now.boot);
        }
    }

    #[test]
    fn the_first_goes_at_once_and_repeats_become_one_message() {
        let (channel, mut sent) = (channel(), Sent::default());
        let first = [alert(1, "a", "RELEASED", "x")];
        let message = next(&channel, &first, &sent, NOW);
        assert_eq!(places(&message), [0]);
        tell(&mut sent, &message, NOW);
        let more = [alert(2, "a", "RELEASED", "x"), alert(3, "a", "RELEASED", "y")];
        let soon = later(Duration::from_mins(1));
        assert_eq!(next(&channel, &more, &sent, soon), Next::Later(later(channel.fold).boot));
        assert_eq!(places(&next(&channel, &more, &sent, later(channel.fold))), [0, 1]);
    }

    #[test]
    fn another_cause_goes_at_once_and_takes_along_what_waits_before_it() {
        let (channel, mut sent) = (channel(), Sent::default());
        let loops = alert(1, "a", "ALARM", "3 ends in a row without a new checkpoint");
        let message = next(&channel, std::slice::from_ref(&loops), &sent, NOW);
        tell(&mut sent, &message, NOW);
        let more = [
            alert(2, "a", "ALARM", "4 ends in a row without a new checkpoint"),
            alert(3, "b", "ALARM", "crash loop"),
            alert(4, "a", "FAILED", "crash loop: 5 ends"),
        ];
        let mut waiting = more.to_vec();
        let mut order = Vec::new();
        while let Next::Send(message, places) = next(&channel, &waiting, &sent, NOW) {
            sent.note(&message, NOW.boot);
            for place in places.into_iter().rev() {
                order.push(waiting.remove(place).id);
            }
        }
        assert_eq!(order, [more[0].id.clone(), more[1].id.clone(), more[2].id.clone()]);
        // Alone it is a repeat, and waits; another job does not wait for it.
        let waiting = [more[0].clone(), alert(9, "c", "ALARM", "crash loop")];
        assert_eq!(places(&next(&channel, &waiting, &sent, NOW)), [1]);
        // Two alarms about different things are two causes.
        let twin = [alert(5, "a", "ALARM", "two jobs of ours at one time: dlc1")];
        assert_eq!(places(&next(&channel, &twin, &sent, NOW)), [0]);
    }

    #[test]
    fn a_message_holds_alerts_of_one_job_in_their_order() {
        let (channel, sent) = (channel(), Sent::default());
        let waiting = [
            alert(1, "a", "RELEASED", "x"),
            alert(2, "b", "RELEASED", "x"),
            alert(3, "a", "RELEASED", "x"),
            alert(4, "a", "ALARM", "y"),
            alert(5, "a", "RELEASED", "x"),
        ];
        assert_eq!(places(&next(&channel, &waiting, &sent, NOW)), [0, 2]);
    }

    #[test]
    fn nothing_goes_in_quiet_hours() {
        let mut channel = channel();
        let minute = minute_of_day(&channel, NOW.wall).expect("a time");
        channel.quiet = Some(Quiet { from: minute, until: minute + 1 });
        let waiting = [alert(1, "a", "RELEASED", "x")];
        assert_eq!(next(&channel, &waiting, &Sent::default(), NOW), Next::Nothing);
        let after = later(Duration::from_mins(1));
        assert_eq!(places(&next(&channel, &waiting, &Sent::default(), after)), [0]);
    }

    #[test]
    fn a_summary_is_due_once_a_day_on_the_channels_wall() {
        let mut channel = channel();
        assert_eq!(summary_due(&channel, NOW.wall), None);
        channel.summary = Some(8 * 60 + 30);
        let at = |text: &str| WallTime::parse(text).expect("a time");
        let due = |text: &str| summary_due(&channel, at(text)).expect("one").to_string();
        // 08:30 at +08:00 is 00:30 UTC.
        assert_eq!(due("2026-11-30T00:29:59Z"), "2026-11-29T00:30:00Z");
        assert_eq!(due("2026-11-30T00:30:00Z"), "2026-11-30T00:30:00Z");
        assert_eq!(due("2026-11-30T23:00:00Z"), "2026-11-30T00:30:00Z");
    }
}
