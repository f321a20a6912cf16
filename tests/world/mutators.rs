//! What comes from outside, changed at random: requests to every address of the API, and the files
//! of the configuration. A seed gives the same changes each time; a failure prints it.

use crate::api::Daemon;
use spotkeeper::config::daemon::{Surroundings, read_daemon};
use spotkeeper::config::diagnostic::Source;
use spotkeeper::config::job::{Rules, read_job};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Changed requests an address.
const REQUESTS: u64 = 40;
/// Changed texts a file; `SPOTKEEPER_MUTATIONS` asks for more.
const TEXTS: u64 = 300;
/// Bytes of the largest answer that is read.
const ANSWER_LIMIT: usize = 4 * 1024 * 1024;
/// Long enough for any machine: only a hang takes longer.
const HANGS: Duration = Duration::from_secs(120);

/// A small generator: xorshift, by its seed.
struct Random(u64);

impl Random {
    fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).expect("below a usize")
    }
}

/// Pieces that readers trip over.
const ODD: [&[u8]; 20] = [
    b"\0",
    b"\r\n\r\n",
    b"%00",
    b"%2e%2e%2f",
    b"%ff%fe",
    b"../",
    b"\"\"\"",
    b"'''",
    b"[[",
    b"={",
    b"}}",
    b"{resume}",
    b"99999999999999999999999",
    b"-1",
    b"1e999",
    "\u{feff}".as_bytes(),
    "训练".as_bytes(),
    b"\xc3\x28",
    b"content-length: 18446744073709551616\r\n",
    b"transfer-encoding: chunked\r\n",
];

/// `bytes` with one to four changes.
fn changed(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(out.len() + 1);
        let end = (at + random.below(24)).min(out.len());
        match random.below(6) {
            0 => {
                out.drain(at..end);
            }
            1 => {
                let odd = ODD[random.below(ODD.len())];
                out.splice(at..at, odd.iter().copied());
            }
            2 => {
                let copy = out[at..end].to_vec();
                let to = random.below(out.len() + 1);
                out.splice(to..to, copy);
            }
            3 if at < out.len() => out[at] ^= 1 << random.below(8),
            4 => {
                let odd = ODD[random.below(ODD.len())];
                out.splice(at..end, odd.iter().copied());
            }
            _ if random.below(4) == 0 => out.truncate(at),
            _ => {
                let line = b"x".repeat(random.below(3_000));
                out.splice(at..at, line);
            }
        }
    }
    out
}

/// Sends what may be no request at all; answers the status, if there is one.
async fn send(socket: &Path, request: &[u8]) -> Option<u16> {
    let mut stream = UnixStream::connect(socket).await.expect("the daemon is there");
    // A server that closes while it is written to is heard below.
    drop(stream.write_all(request).await);
    drop(stream.shutdown().await);
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut part).await {
        answer.extend_from_slice(&part[..read]);
        assert!(answer.len() <= ANSWER_LIMIT, "an answer without an end");
    }
    let text = String::from_utf8_lossy(&answer);
    let status = text.strip_prefix("HTTP/1.1 ").or_else(|| text.strip_prefix("HTTP/1.0 "))?;
    status.get(..3)?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_requests_never_harm_the_api() {
    let daemon = Daemon::start().await;
    let act = r#"{"names":["vit-large"],"verb":"retry","from":"900"}"#;
    let addresses = [
        ("GET", "/api/v1/jobs", ""),
        ("GET", "/api/v1/jobs/vit-large", ""),
        ("GET", "/api/v1/jobs/vit-large/why?attempt=2", ""),
        ("GET", "/api/v1/jobs/vit-large/evidence?attempt=2", ""),
        ("GET", "/api/v1/jobs/vit-large/body", ""),
        ("GET", "/api/v1/jobs/vit-large/logs?attempt=2&rank=1", ""),
        ("GET", "/api/v1/jobs/vit-large/checkpoints", ""),
        ("GET", "/api/v1/events?job=vit-large&after=3&limit=5", ""),
        ("GET", "/api/v1/daemon", ""),
        ("GET", "/healthz", ""),
        ("GET", "/readyz?verbose", ""),
        ("GET", "/metrics", ""),
        ("GET", "/version", ""),
        ("POST", "/api/v1/act", act),
        ("POST", "/api/v1/jobs/vit-large/cancel", ""),
        ("POST", "/api/v1/jobs/vit-large/pause", ""),
        ("POST", "/api/v1/jobs/vit-large/resume", ""),
        ("POST", "/api/v1/jobs/vit-large/retry?from=900", ""),
    ];
    for (at, (method, path, body)) in addresses.into_iter().enumerate() {
        let length = body.len();
        let whole = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        for round in 0..REQUESTS {
            let seed = at as u64 * 1_000_003 + round;
            let request = changed(whole.as_bytes(), &mut Random::of(seed));
            let status = tokio::time::timeout(HANGS, send(&daemon.socket, &request)).await;
            let status =
                status.unwrap_or_else(|_| panic!("seed {seed}: no end to {method} {path}"));
            // 500 would be a panic; 503 is what this made-up store answers to a pause.
            let fits = status.is_none_or(|s| (200..500).contains(&s) || s == 503 || s == 505);
            assert!(fits, "seed {seed}: {status:?} to {}", String::from_utf8_lossy(&request));
        }
        assert_eq!(daemon.raw("GET", "/healthz", "").await.0, 200, "after {method} {path}");
    }
}

fn texts() -> u64 {
    std::env::var("SPOTKEEPER_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(TEXTS)
}

/// Every finding stands at a place of the file, and can be shown.
fn assert_places(seed: u64, text: &str, found: &[spotkeeper::config::Diagnostic]) {
    let lines = text.split('\n').count();
    for one in found {
        let place = (one.at.line, one.at.column);
        assert!((1..=lines.max(1)).contains(&place.0) && place.1 > 0, "seed {seed}: {place:?}");
        assert!(!one.to_string().is_empty() && one.json().is_object(), "seed {seed}");
    }
}

#[test]
fn changed_job_files_are_read_or_refused_at_their_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let daemon = "owner = \"k3f9qz\"\n[targets.hangzhou]\nregion = \"cn-hangzhou\"\nworkspace = \"12345\"\n\
                  credentials = { environment = true }\n";
    let source = Source::new(Path::new("/nowhere/spotkeeper.toml"), daemon.into());
    let config = read_daemon(&source, &Surroundings::default());
    let config = config.accepted().cloned().unwrap_or_else(|| panic!("{:?}", config.diagnostics));
    for (at, name) in
        ["plain.toml", "megatron-easyckpt.toml", "pytorch-custom.toml"].into_iter().enumerate()
    {
        let whole = std::fs::read(root.join("examples").join(name)).expect("an example");
        for round in 0..texts() {
            let seed = at as u64 * 1_000_003 + round;
            let text = changed(&whole, &mut Random::of(seed));
            let text = String::from_utf8_lossy(&text).into_owned();
            let source = Source::new(Path::new("/nowhere/job.toml"), text.clone());
            let file = read_job(&source, Rules::of(&config));
            assert_places(seed, &text, &file.diagnostics);
            let is_wrong = file
                .diagnostics
                .iter()
                .any(|one| one.severity == spotkeeper::config::Severity::Error);
            assert_eq!(file.spec.is_none(), is_wrong, "seed {seed}: {text}");
        }
    }
}

#[test]
fn changed_daemon_files_are_read_or_refused_at_their_place() {
    let whole = "owner = \"k3f9qz\"\n[sweep]\ninterval = \"15s\"\n[api]\nlisten = \"127.0.0.1:9477\"\n\
                 token = { environment = \"X\" }\n[targets.hz]\nregion = \"cn-hangzhou\"\nworkspace = \"1\"\n\
                 credentials = { environment = true }\n[alerts.team]\nkind = \"webhook\"\n\
                 url = { environment = \"URL\" }\ntemplate = '{\"m\": \"{text}\"}'\njobs = [\"llama*\"]\n\
                 events = [\"ALARM\"]\nquiet = \"22:00-08:00\"\nsummary = \"08:30\"\nfold = \"15m\"\n\
                 [alerts.ops]\nkind = \"mail\"\nto = [\"me@example.org\"]\nfrom = \"sk@example.org\"\n";
    for seed in 0..texts() {
        let text = changed(whole.as_bytes(), &mut Random::of(seed));
        let text = String::from_utf8_lossy(&text).into_owned();
        let source = Source::new(Path::new("/nowhere/spotkeeper.toml"), text.clone());
        let file = read_daemon(&source, &Surroundings::default());
        assert_places(seed, &text, &file.diagnostics);
    }
}
