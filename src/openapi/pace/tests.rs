//! Seeded lines of callers against what the pace promises.

use super::*;

const STOP: Api = Api { rank: Rank::Stop, action: "StopJob" };
const CREATE: Api = Api { rank: Rank::Create, action: "CreateJob" };
const LIST: Api = Api { rank: Rank::List, action: "ListJobs" };
const GET: Api = Api { rank: Rank::Get, action: "GetJob" };
const LOGS: Api = Api { rank: Rank::Evidence, action: "GetPodLogs" };
const ALL: [Api; 5] = [STOP, CREATE, LIST, GET, LOGS];
const START: BootTime = BootTime(1_000);

type Line = BTreeMap<Ticket, (Api, &'static str)>;

/// All that may be called at `now`, in order, and done at once.
fn served(
    pace: &mut Pace<&'static str>,
    line: &mut Line,
    now: BootTime,
) -> Vec<(Api, &'static str)> {
    let mut served = Vec::new();
    while let Some(ticket) = pace.next(now) {
        let (api, target) = line.remove(&ticket).expect("a ticket that was given, once");
        pace.done(api, &target);
        served.push((api, target));
    }
    served
}

fn ask(pace: &mut Pace<&'static str>, line: &mut Line, api: Api, target: &'static str, n: u64) {
    for _ in 0..n {
        let ticket = pace.ask(api, target, START).expect("room");
        line.insert(ticket, (api, target));
    }
}

/// A small generator: the same numbers on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[test]
fn in_no_span_are_there_more_turns_than_burst_and_rate_and_everybody_gets_one() {
    for seed in 1..=60 {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let mut pace = Pace::new(START);
        let (mut line, mut now) = (Line::new(), START);
        let mut turns: Vec<(BootTime, Api)> = Vec::new();
        for _ in 0..400 {
            now = now.plus(Duration::from_millis(dice.below(300)));
            let api = ALL[usize::try_from(dice.below(5)).expect("small")];
            let target = ["a", "b", "c"][usize::try_from(dice.below(3)).expect("small")];
            let ticket = pace.ask(api, target, now).expect("room");
            line.insert(ticket, (api, target));
            if dice.below(20) == 0 {
                let code = ["Throttling", "Throttling.User", "Throttling.Api"];
                let code = code[usize::try_from(dice.below(3)).expect("small")];
                let retry_after = Some(Duration::from_millis(dice.below(900)));
                pace.heard(api, now, Heard { code, retry_after }, now);
            }
            turns.extend(served(&mut pace, &mut line, now).iter().map(|(api, _)| (now, *api)));
        }
        // Left alone, everybody is served: the time that is named brings the next turn.
        while let Some(at) = pace.ready_at() {
            assert!(at > now, "seed {seed}: a turn that was there was not given");
            now = at;
            let some = served(&mut pace, &mut line, now);
            turns.extend(some.iter().map(|(api, _)| (now, *api)));
        }
        assert!(line.is_empty(), "seed {seed}: {line:?}");
        for api in ALL {
            let of: Vec<_> = turns.iter().filter(|(_, a)| *a == api).map(|(t, _)| *t).collect();
            let rate = api.rank.rate();
            for (n, from) in of.iter().enumerate() {
                for (m, to) in of.iter().enumerate().skip(n) {
                    let ms = u64::try_from(to.since(*from).as_millis()).expect("small");
                    let most = rate.burst * 1000 + rate.per_second * ms;
                    let got = u64::try_from(m - n + 1).expect("small") * 1000;
                    assert!(got <= most, "seed {seed}: {api:?}: {got} of {most} in {ms} ms");
                }
            }
        }
    }
}

#[test]
fn the_order_is_kept_and_evidence_does_not_wait_for_ever() {
    let mut pace = Pace::new(START);
    let mut line = Line::new();
    for api in [LOGS, GET, LIST, CREATE, STOP] {
        ask(&mut pace, &mut line, api, "a", 5);
    }
    let order = served(&mut pace, &mut line, START);
    let ranks: Vec<Rank> = order.iter().map(|(api, _)| api.rank).collect();
    for (n, rank) in ranks.iter().enumerate() {
        let best = *ranks[n..].iter().min().expect("one");
        // The 8th, the 16th and the 24th are for who came first: evidence.
        let wanted = if (n + 1) % 8 == 0 { Rank::Evidence } else { best };
        assert_eq!(*rank, wanted, "turn {}: {ranks:?}", n + 1);
    }
    // More urgent calls than the account may make, before and after, without end.
    let mut now = START;
    let mut round = |pace: &mut Pace<&'static str>, line: &mut Line| {
        for api in [STOP, CREATE, LIST, GET] {
            ask(pace, line, api, "a", 40);
        }
        now = now.plus(Duration::from_secs(1));
        served(pace, line, now)
    };
    for _ in 0..10 {
        round(&mut pace, &mut line);
    }
    ask(&mut pace, &mut line, LOGS, "a", 1);
    let rounds = (0..100).take_while(|_| {
        let some = round(&mut pace, &mut line);
        some.iter().all(|(api, _)| *api != LOGS)
    });
    assert!(rounds.count() < 100, "evidence starves");
    for api in [STOP, CREATE, LIST, GET] {
        assert!(line.values().any(|(waits, _)| *waits == api), "{api:?} was not urgent");
    }
}

#[test]
fn no_target_waits_for_the_thousand_calls_of_another() {
    let mut pace = Pace::new(START);
    let mut line = Line::new();
    ask(&mut pace, &mut line, LIST, "loud", 1_000);
    let mut now = START;
    served(&mut pace, &mut line, now);
    ask(&mut pace, &mut line, LIST, "quiet", 20);
    let mut seen = Vec::new();
    for _ in 0..10 {
        now = now.plus(Duration::from_secs(1));
        seen.extend(served(&mut pace, &mut line, now));
    }
    let quiet = seen.iter().filter(|(_, target)| *target == "quiet").count();
    assert!((18..=20).contains(&quiet), "{quiet} of {} turns", seen.len());
    // One that asks again each time it was served does not take more than its half either.
    let mut sequential = 0;
    for _ in 0..50 {
        if line.values().all(|(_, target)| *target != "quiet") {
            ask(&mut pace, &mut line, LIST, "quiet", 1);
        }
        now = now.plus(Duration::from_millis(1000 / LIST.rank.rate().per_second));
        let some = served(&mut pace, &mut line, now);
        sequential += some.iter().filter(|(_, target)| *target == "quiet").count();
    }
    assert!((15..=30).contains(&sequential), "{sequential} of 50");
}

#[test]
fn a_target_that_does_not_answer_holds_only_its_own_places() {
    let mut pace = Pace::new(START);
    for _ in 0..20 {
        pace.ask(GET, "dead", START).expect("room");
    }
    let under_way = std::iter::from_fn(|| pace.next(START)).count();
    assert_eq!((under_way, pace.ready_at()), (UNDER_WAY_LIMIT, None));
    let other = pace.ask(GET, "alive", START).expect("room");
    assert_eq!(pace.next(START), Some(other));
    pace.done(GET, &"dead");
    assert!(pace.next(START).is_some() && pace.next(START).is_none());
}

#[test]
fn throttling_halves_once_for_all_under_way_and_quiet_heals_it() {
    let mut pace: Pace<&str> = Pace::new(START);
    let full = LIST.rank.rate().per_second * 1000;
    let later = |s: u64| START.plus(Duration::from_secs(s));
    let no = Heard { code: "Throttling.Api", retry_after: None };
    for _ in 0..8 {
        pace.heard(LIST, START, no, later(1));
    }
    assert_eq!(pace.rate_of(LIST, later(1)), full / 2);
    assert_eq!(pace.rate_of(GET, later(1)), GET.rank.rate().per_second * 1000);
    pace.heard(LIST, later(2), no, later(2));
    let quarter = pace.rate_of(LIST, later(2));
    assert!(quarter > full / 4 && quarter < full / 3, "{quarter}");
    for s in 3..100 {
        pace.heard(LIST, later(s), no, later(s));
    }
    let least = pace.rate_of(LIST, later(100));
    assert!(least >= full / FLOOR_PART && least < full / 16, "{least}");
    let half = pace.rate_of(LIST, later(100 + RECOVERY.as_secs() / 2));
    assert!(half > full / 2 && half < full * 5 / 8, "{half}");
    assert_eq!(pace.rate_of(LIST, later(100 + RECOVERY.as_secs())), full);
}

#[test]
fn retry_after_closes_its_api_and_no_other_and_the_users_limit_closes_all() {
    let wait = Duration::from_millis(2_500);
    for (code, others) in [("Throttling.Api", 1), ("ServiceUnavailable", 1), ("Throttling.User", 0)]
    {
        let mut pace = Pace::new(START);
        let mut line = Line::new();
        ask(&mut pace, &mut line, LIST, "a", 1);
        pace.heard(LIST, START, Heard { code, retry_after: Some(wait) }, START);
        ask(&mut pace, &mut line, GET, "a", 1);
        let now = START.plus(Duration::from_millis(2_499));
        assert_eq!(served(&mut pace, &mut line, now).len(), others, "{code}");
        assert_eq!(pace.ready_at(), Some(START.plus(wait)), "{code}");
        assert_eq!(served(&mut pace, &mut line, START.plus(wait)).len(), 2 - others, "{code}");
    }
}

#[test]
fn who_leaves_the_line_takes_no_turn() {
    let mut pace = Pace::new(START);
    let tickets: Vec<Ticket> =
        (0..100).map(|_| pace.ask(CREATE, "a", START).expect("room")).collect();
    for ticket in &tickets[..99] {
        pace.leave(CREATE, &"a", *ticket);
        pace.leave(CREATE, &"a", *ticket);
    }
    assert_eq!(pace.next(START), Some(tickets[99]));
    pace.leave(CREATE, &"a", tickets[99]);
    assert_eq!((pace.next(START), pace.ready_at(), pace.waiting), (None, None, 0));
}

#[test]
fn the_line_has_an_end() {
    let mut pace = Pace::new(START);
    for _ in 0..WAITING_LIMIT {
        pace.ask(GET, "a", START).expect("room");
    }
    assert_eq!(pace.ask(STOP, "a", START), Err(LineFull));
    assert!(pace.next(START).is_some());
    assert!(pace.ask(STOP, "a", START).is_ok());
}
