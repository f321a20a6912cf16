//! An empty bucket that answers for a prefix only once it is told to.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const EMPTY: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>bucket</Name>\
    <Prefix></Prefix><KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>\
    </ListBucketResult>";

#[derive(Debug, Default)]
struct Prefixes {
    asked: BTreeSet<String>,
    answered: BTreeSet<String>,
}

pub(crate) struct SlowBucket {
    url: String,
    prefixes: Arc<Mutex<Prefixes>>,
}

impl SlowBucket {
    /// Listens for as long as the test runs.
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let prefixes = Arc::<Mutex<Prefixes>>::default();
        let shared = Arc::clone(&prefixes);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        Self { url, prefixes }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn was_asked(&self, prefix: &str) -> bool {
        lock(&self.prefixes).asked.contains(prefix)
    }

    /// From now on, this prefix is answered for.
    pub(crate) fn answer(&self, prefix: &str) {
        lock(&self.prefixes).answered.insert(prefix.to_owned());
    }
}

fn lock(prefixes: &Mutex<Prefixes>) -> MutexGuard<'_, Prefixes> {
    prefixes.lock().expect("no test thread panicked")
}

fn serve(mut stream: &TcpStream, prefixes: &Mutex<Prefixes>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(request) = lines.next() {
        // The rest of the head.
        while lines.next().is_some_and(|line| !line.is_empty()) {}
        let prefix = request.split("prefix=").nth(1).unwrap_or_default();
        let prefix = prefix.split("%2F").next().unwrap_or_default().to_owned();
        lock(prefixes).asked.insert(prefix.clone());
        while !lock(prefixes).answered.contains(&prefix) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let length = EMPTY.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {length}\r\n\r\n"
        );
        if stream.write_all(format!("{head}{EMPTY}").as_bytes()).is_err() {
            return;
        }
    }
}
