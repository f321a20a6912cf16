//! A bucket behind a real S3 server: s3s-fs, in this process, on a free port of loopback, reached
//! by host names as OSS is (`http://BUCKET.s3.localhost:PORT`). A gate in front of it refuses what
//! OSS refuses, and makes trouble when a test asks for it.

mod dialect;
mod gate;

pub use gate::{Asked, Keys, Trouble};

use gate::Gate;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::auth::{S3Auth, SecretKey};
use s3s::host::SingleDomain;
use s3s::service::S3ServiceBuilder;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The S3 server's view of the keys that the gate holds.
struct Known(Arc<Gate>);

#[async_trait::async_trait]
impl S3Auth for Known {
    async fn get_secret_key(&self, id: &str) -> s3s::S3Result<SecretKey> {
        match self.0.secret_of(id) {
            Some(secret) => Ok(SecretKey::from(secret)),
            None => Err(s3s::s3_error!(InvalidAccessKeyId)),
        }
    }
}

/// A running server; it stops when this goes.
#[derive(Debug)]
pub struct Server {
    folder: tempfile::TempDir,
    port: u16,
    gate: Arc<Gate>,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts one without buckets that knows `keys`.
    pub async fn start(keys: Keys) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let domain = format!("s3.localhost:{port}");
        let gate = Arc::new(Gate::new(domain.clone(), keys));
        let files = s3s_fs::FileSystem::new(folder.path()).expect("a file system");
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(Known(Arc::clone(&gate)));
        service.set_host(SingleDomain::new(&domain).expect("a domain"));
        let service = service.build();
        let doors = Arc::clone(&gate);
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (gate, service) = (Arc::clone(&doors), service.clone());
                tokio::spawn(async move {
                    let answer = service_fn(move |request| {
                        let (gate, service) = (Arc::clone(&gate), service.clone());
                        async move { gate.pass(request, &service).await }
                    });
                    // A connection that a test cuts ends in an error: that is what it is for.
                    http1::Builder::new().serve_connection(TokioIo::new(socket), answer).await.ok();
                });
            }
        });
        Self { folder, port, gate, task }
    }

    /// The base URL without a bucket.
    pub fn endpoint(&self) -> String {
        format!("http://s3.localhost:{}", self.port)
    }

    /// The same server by its address, where a bucket can only stand in the path.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The folder that is the bucket, made if need be.
    pub fn bucket(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder).expect("a bucket");
        folder
    }

    /// The bytes of an object.
    pub fn object(&self, bucket: &str, key: &str) -> Option<Vec<u8>> {
        std::fs::read(self.folder.path().join(bucket).join(Path::new(key))).ok()
    }

    /// From now on only these keys are known.
    pub fn know(&self, keys: Keys) {
        self.gate.know(keys);
    }

    /// What the gate does to requests from now on.
    pub fn trouble(&self, trouble: Trouble) {
        self.gate.trouble(trouble);
    }

    /// The requests since this was last asked.
    pub fn asked(&self) -> Vec<Asked> {
        self.gate.asked()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
