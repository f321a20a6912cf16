//! `[alerts.NAME]` and `[api] listen`.

use super::short;
use spotkeeper::config::daemon::{DaemonFile, Surroundings, read_daemon};
use spotkeeper::config::diagnostic::Source;
use spotkeeper::config::{DEFAULT_EVENTS, EVENTS};
use spotkeeper::core::event::Word;
use spotkeeper::model::alert::{Quiet, SecretRef, Way};
use std::path::Path;

fn read(text: &str) -> DaemonFile {
    let text = format!(
        "[targets.hz]\nregion = \"r\"\nworkspace = \"1\"\ncredentials = {{ environment = true }}\n{text}"
    );
    let source = Source::new(Path::new("/nowhere/spotkeeper.toml"), text);
    read_daemon(&source, &Surroundings::default())
}

fn wrong(text: &str) -> Vec<String> {
    short(&read(text).diagnostics)
}

#[test]
fn a_channel_has_defaults_for_all_but_its_kind_and_address() {
    let file = read("[alerts.a]\nkind = \"slack\"\nurl = { environment = \"SLACK\" }\n");
    let channel = &file.accepted().unwrap_or_else(|| panic!("{:?}", file.diagnostics)).alerts[0];
    assert_eq!(channel.way, Way::Slack { url: SecretRef::Environment("SLACK".into()) });
    assert_eq!(
        (channel.jobs.clone(), channel.events.clone()),
        (vec!["*".to_owned()], DEFAULT_EVENTS.map(str::to_owned).to_vec())
    );
    assert_eq!((channel.fold.as_secs(), channel.quiet, channel.summary), (900, None, None));
}

#[test]
fn each_kind_is_read_with_what_belongs_to_it() {
    let text = r#"
[alerts.hook]
kind = "webhook"
url = { systemd = "hook" }
secret = { environment = "KEY" }
template = '{"a": {"b": "{text}", "n": {count}}}'
jobs = ["llama*", "vit"]
events = ["RELEASED", "ALARM"]
fold = "1h"
quiet = "22:00-08:00"
summary = "8:05"
time_zone = "UTC"
[alerts.ops]
kind = "mail"
to = ["me@example.org"]
from = "sk@example.org"
program = "bin/send"
"#;
    let file = read(text);
    let config = file.accepted().unwrap_or_else(|| panic!("{:?}", file.diagnostics));
    let [hook, ops] = &config.alerts[..] else { panic!("{:?}", config.alerts) };
    assert!(matches!(&hook.way, Way::Webhook { secret: Some(_), template: Some(_), .. }));
    assert_eq!(hook.quiet, Some(Quiet { from: 1320, until: 480 }));
    assert_eq!((hook.summary, hook.fold.as_secs()), (Some(485), 3_600));
    let Way::Mail { program, to, from } = &ops.way else { panic!("{:?}", ops.way) };
    assert_eq!(program, Path::new("/nowhere/bin/send"));
    assert_eq!((to.len(), from.as_deref()), (1, Some("sk@example.org")));
}

#[test]
fn what_is_wrong_is_found_at_its_place() {
    for (text, found) in [
        ("[alerts.a]\nkind = \"dingtalk\"\n", "5:9 E026"),
        ("[alerts.a]\nurl = { environment = \"U\" }\n", "5:9 E026"),
        ("[alerts.a]\nkind = \"slak\"\nurl = { environment = \"U\" }\n", "6:8 E025 slack"),
        (
            "[alerts.a]\nkind = \"slack\"\nurl = { environment = \"U\", systemd = \"x\" }\n",
            "7:7 E028",
        ),
        ("[alerts.a]\nkind = \"slack\"\nurl = {}\n", "7:7 E026"),
        ("[alerts.a]\nkind = \"slack\"\nurl = { enviroment = \"U\" }\n", "7:9 E021 environment"),
        ("[alerts.a]\nkind = \"slack\"\nurl = \"https://hooks.example/T0/B0/x\"\n", "7:7 E039"),
        (
            "[alerts.a]\nkind = \"slack\"\nurl = { environment = \"U\" }\nsecret = { environment = \"S\" }\n",
            "5:9 E044",
        ),
        ("[alerts.a]\nkind = \"mail\"\n", "5:9 E026"),
        ("[alerts.a]\nkind = \"mail\"\nto = [\"-oQ/tmp@x\"]\n", "7:7 E025"),
        ("[alerts.a]\nkind = \"mail\"\nto = []\n", "7:6 E025"),
        ("[alerts.a]\nkind = \"mail\"\nto = [\"a@b\"]\nevents = [\"ALARMS\"]\n", "8:11 E025 ALARM"),
        ("[alerts.a]\nkind = \"mail\"\nto = [\"a@b\"]\nquiet = \"22-8\"\n", "8:9 E025"),
        ("[alerts.a]\nkind = \"mail\"\nto = [\"a@b\"]\nsummary = \"24:00\"\n", "8:11 E025"),
        ("[alerts.a]\nkind = \"mail\"\nto = [\"a@b\"]\ntime_zone = \"Mars/Base\"\n", "8:13 E025"),
        ("[alerts.a]\nkind = \"mail\"\nto = [\"a@b\"]\nfold = 15\n", "8:8 E027"),
        ("[alerts.a]\nkind = \"mail\"\nto = [\"a@b\"]\nfolds = \"1m\"\n", "8:1 E021 fold"),
        ("[alerts.\"a b\"]\nkind = \"mail\"\nto = [\"a@b\"]\n", "5:9 E025"),
        ("alerts = 3\n", "4:1 E024"),
    ] {
        let seen = wrong(text);
        // The last one stands in the table of the target: another place, and another error.
        if text.starts_with("alerts") {
            assert_eq!(seen.len(), 1, "{text}: {seen:?}");
            continue;
        }
        assert!(seen.iter().any(|one| one == found), "{text}: {seen:?} lacks {found}");
        assert_eq!(seen.len(), 1, "{text}: {seen:?}");
    }
    let template = |body: &str| {
        let rest = "kind = \"webhook\"\nurl = { environment = \"U\" }\n";
        wrong(&format!("[alerts.a]\n{rest}template = '{body}'\n"))
    };
    assert_eq!(template("{\"m\": \"{txt}\"}"), ["8:12 E060 text"]);
    assert_eq!(template("{\"m\": {text}"), ["8:12 E025"]);
}

#[test]
fn an_address_that_stands_in_the_file_is_not_shown() {
    let text = "[alerts.a]\nkind = \"wecom\"\nurl = \"https://qyapi.example/cgi-bin/webhook/send?key=c0ffee\"\n";
    let shown = read(text).diagnostics[0].to_string();
    assert!(shown.contains("E039") && !shown.contains("c0ffee"), "{shown}");
    // Another fault of the same line shows it, but for what is the key.
    let text = text.replace("url = ", "link = ");
    for one in read(&text).diagnostics {
        assert!(!one.to_string().contains("c0ffee"), "{one}");
    }
}

#[test]
fn every_event_can_be_told_of() {
    for word in EVENTS {
        let read: Result<Word, _> = serde_json::from_value(word.into());
        assert!(read.is_ok(), "{word}");
    }
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/core/event.rs"));
    let text = text.expect("the words");
    let body = text.split("pub enum Word {").nth(1).expect("Word").split("\n}").next();
    let words = body.expect("its body").lines().filter(|line| line.ends_with(','));
    assert_eq!(words.count(), EVENTS.len());
}

#[test]
fn tcp_is_for_loopback_or_asked_for_in_so_many_words() {
    let listen = |text: &str| wrong(&format!("[api]\n{text}\n"));
    for good in [
        "listen = \"127.0.0.1:9477\"",
        "listen = \"[::1]:9477\"",
        "listen = \"127.0.0.1:9477\"\ntoken = { environment = \"T\" }",
        "listen = \"0.0.0.0:9477\"\nlisten_anywhere = true\ntoken = { environment = \"T\" }",
    ] {
        assert_eq!(listen(good), [""; 0], "{good}");
    }
    for (bad, found) in [
        ("listen = \"0.0.0.0:9477\"", "6:10 E030"),
        ("listen = \"10.0.0.1:9477\"\ntoken = { environment = \"T\" }", "6:10 E030"),
        ("listen = \"10.0.0.1:9477\"\nlisten_anywhere = true", "6:10 E030"),
        ("listen = \"[::]:9477\"\nlisten_anywhere = true", "6:10 E030"),
        ("listen = \"localhost:9477\"", "6:10 E025"),
        ("listen = 9477", "6:10 E024"),
        ("listen = \"127.0.0.1:9477\"\ntoken = \"abc\"", "7:9 E039"),
        ("listn = \"127.0.0.1:9477\"", "6:1 E021 listen"),
    ] {
        assert_eq!(listen(bad), [found], "{bad}");
    }
}
