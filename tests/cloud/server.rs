//! A server on loopback that answers in ways that no well-behaved one would.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Bytes of the longest request that a test sends.
const REQUEST_LIMIT: usize = 256 * 1024;

/// What the server does once it has read a whole request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Writes these bytes and closes.
    Bytes(Vec<u8>),
    /// Writes these bytes and keeps the connection, but reads nothing more from it.
    Kept(Vec<u8>),
    /// Closes without a word.
    Close,
    /// Never answers.
    Silence,
}

impl Reply {
    /// A complete HTTP answer.
    pub(crate) fn http(status: u16, body: &str) -> Self {
        Self::with(status, "", body)
    }

    /// A complete HTTP answer with more headers, each ending in `\r\n`.
    pub(crate) fn with(status: u16, headers: &str, body: &str) -> Self {
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {status} X\r\nDate: Mon, 30 Nov 2026 08:10:18 GMT\r\n{headers}\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        Self::Bytes(text.into_bytes())
    }
}

/// One request as its bytes came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// The request line.
    pub(crate) line: String,
    /// Lower-case names and values, in the order they came.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Seen {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Method, path and raw query of the request line.
    pub(crate) fn target(&self) -> (&str, &str, &str) {
        let mut words = self.line.split(' ');
        let (method, target) = (words.next().expect("a method"), words.next().expect("a target"));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        (method, path, query)
    }
}

/// The server. It ends with the test's runtime.
#[derive(Debug)]
pub(crate) struct Server {
    /// Base URL.
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// Answers the n-th request with the n-th of `replies`, the last one for ever.
    pub(crate) async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            let mut replies = VecDeque::from(replies);
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let request = read(&mut stream).await;
                log.lock().expect("a lock").push(request);
                let reply = match replies.len() {
                    1 => replies.front().cloned(),
                    _ => replies.pop_front(),
                };
                match reply.expect("a reply") {
                    Reply::Bytes(bytes) => {
                        let _sent = stream.write_all(&bytes).await;
                        let _closed = stream.shutdown().await;
                    }
                    Reply::Kept(bytes) => {
                        let _sent = stream.write_all(&bytes).await;
                        open.push(stream);
                    }
                    Reply::Close => drop(stream),
                    Reply::Silence => open.push(stream),
                }
            }
        });
        Self { url, seen }
    }

    /// Every request so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("a lock").clone()
    }
}

async fn read(stream: &mut TcpStream) -> Seen {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let read = stream.read(&mut part).await.expect("a read");
        bytes.extend_from_slice(&part[..read]);
        assert!(bytes.len() <= REQUEST_LIMIT, "a request too long for a test");
        if let Some(seen) = whole(&bytes) {
            return seen;
        }
        assert!(read > 0, "the request broke off: {}", String::from_utf8_lossy(&bytes));
    }
}

/// The request in `bytes`, if all of it is there.
fn whole(bytes: &[u8]) -> Option<Seen> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = String::from_utf8(bytes[..end].to_vec()).expect("a text");
    let mut lines = head.split("\r\n").map(str::to_owned);
    let line = lines.next()?;
    let headers: Vec<_> = lines
        .map(|l| {
            let (name, value) = l.split_once(':').expect("a header");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        })
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, value)| value.parse().expect("a length"));
    let body = &bytes[end + 4..];
    (body.len() >= length).then(|| Seen { line, headers, body: body[..length].to_vec() })
}
