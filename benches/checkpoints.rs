//! What a look at a large prefix costs: listings, reads, time, memory.
//!
//! The store makes its pages up, 1,000 keys at most, as they are asked for; so what is counted is
//! what the scan itself asks for and keeps. Each case runs in a process of its own. Prints a table,
//! and ends with 1 if a demand is not met. What the figures mean: docs/performance.md.

#![allow(clippy::disallowed_methods, reason = "a measurement needs the monotonic clock itself")]
#![allow(clippy::print_stdout, reason = "the table is the product of a bench")]

use anyhow::{Context as _, Result, ensure};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;
use spotkeeper::checkpoint::location;
use spotkeeper::checkpoint::objects::{Depth, Object, Objects, Page, Read, Store, StoreError};
use spotkeeper::checkpoint::scan::{ScanOptions, look};
use spotkeeper::model::checkpoint::Look;
use spotkeeper::model::time::WallTime;
use std::collections::BTreeSet;
use std::ops::Range;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Files of one checkpoint.
const FILES: usize = 500;
/// Checkpoints of one prefix.
const CHECKPOINTS: [usize; 2] = [200, 800];
/// Keys of one page.
const PAGE: usize = 1_000;
/// The folder of checkpoints, one level below the URL.
const ROOT: &str = "out/";
/// Listings that a look may ask for: three, and one for the level between URL and root.
const LISTINGS_AIM: usize = 4;
const TIME_AIM: Duration = Duration::from_secs(1);
const MEMORY_AIM_KIB: u64 = 32 * 1024;
/// Bytes of a made-up tensor file after its header, and of a made-up zip before its directory.
const BODY: u64 = 1_000_000_000;
/// Names the case that a child process measures.
const CASE: &str = "SPOTKEEPER_BENCH_CASE";

#[derive(Debug, Clone, Copy)]
enum Layout {
    HfTrainer,
    MegatronLegacy,
    TorchDcp,
}

const LAYOUTS: [Layout; 3] = [Layout::HfTrainer, Layout::MegatronLegacy, Layout::TorchDcp];

/// An object's bytes: its first ones, its last ones, zeros between them.
struct Content {
    head: Vec<u8>,
    size: u64,
    tail: Vec<u8>,
}

impl Content {
    fn text(text: impl Into<Vec<u8>>) -> Self {
        let head = text.into();
        Self { size: head.len() as u64, head, tail: Vec::new() }
    }

    /// A file of torch.save, as far as its end record shows it.
    fn zip() -> Self {
        let (entries, directory) = (3_u16, 180_u32);
        let mut tail = b"PK\x05\x06\0\0\0\0".to_vec();
        tail.extend(entries.to_le_bytes());
        tail.extend(entries.to_le_bytes());
        tail.extend(directory.to_le_bytes());
        tail.extend(u32::try_from(BODY).unwrap_or(u32::MAX).to_le_bytes());
        tail.extend([0, 0]);
        let size = BODY + u64::from(directory) + tail.len() as u64;
        Self { head: b"PK\x03\x04".to_vec(), size, tail }
    }

    fn tensors() -> Self {
        let tensor = json!({"dtype": "U8", "shape": [BODY], "data_offsets": [0, BODY]});
        let header = json!({ "weight": tensor }).to_string();
        let mut head = (header.len() as u64).to_le_bytes().to_vec();
        head.extend(header.as_bytes());
        Self { size: head.len() as u64 + BODY, head, tail: Vec::new() }
    }

    fn read(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let byte = |at: u64| {
            let part = |bytes: &[u8], at: u64| bytes.get(usize::try_from(at).ok()?).copied();
            let from_end = at.checked_sub(self.size - self.tail.len() as u64);
            part(&self.head, at).or_else(|| part(&self.tail, from_end?)).unwrap_or(0)
        };
        (range.end <= self.size).then(|| range.map(byte).collect())
    }
}

impl Layout {
    fn word(self) -> &'static str {
        match self {
            Self::HfTrainer => "hf-trainer",
            Self::MegatronLegacy => "megatron-legacy",
            Self::TorchDcp => "torch-dcp",
        }
    }

    /// Names of equal length: byte order is the order of steps.
    fn folder(self, at: usize) -> String {
        let step = step(at);
        match self {
            Self::HfTrainer => format!("checkpoint-{step}"),
            Self::MegatronLegacy => format!("iter_{step:07}"),
            Self::TorchDcp => format!("step-{step}"),
        }
    }

    /// The names of a checkpoint's files, in byte order.
    fn files(self) -> Vec<String> {
        let shards = 240;
        let mut files: Vec<String> = match self {
            Self::HfTrainer => {
                let fixed = [
                    "config.json",
                    "model.safetensors.index.json",
                    "optimizer.pt",
                    "scheduler.pt",
                    "trainer_state.json",
                    "training_args.bin",
                ];
                let ranks = 0..FILES - fixed.len() - shards;
                (1..=shards)
                    .map(|n| format!("model-{n:05}-of-{shards:05}.safetensors"))
                    .chain(ranks.map(|n| format!("rng_state_{n}.pth")))
                    .chain(fixed.map(str::to_owned))
                    .collect()
            }
            Self::MegatronLegacy => (0..FILES)
                .map(|n| {
                    let (rank, file) = (n / 2, ["distrib_optim.pt", "model_optim_rng.pt"][n % 2]);
                    format!("mp_rank_{:02}_{:03}/{file}", rank / 25, rank % 25)
                })
                .collect(),
            Self::TorchDcp => {
                let shards = (0..FILES - 1).map(|n| format!("__{n}_0.distcp"));
                shards.chain([".metadata".to_owned()]).collect()
            }
        };
        files.sort();
        files
    }

    fn content(self, step: usize, name: &str) -> Content {
        match name.rsplit_once('.').map_or(name, |(_, extension)| extension) {
            "safetensors" => Content::tensors(),
            "pt" | "pth" | "bin" => Content::zip(),
            "distcp" => Content { head: Vec::new(), size: BODY, tail: Vec::new() },
            "metadata" => Content::text(metadata(&self.files())),
            _ if name == "trainer_state.json" => {
                Content::text(json!({ "global_step": step }).to_string())
            }
            _ if name.ends_with(".index.json") => {
                let shards = self.files().into_iter().filter(|f| f.ends_with(".safetensors"));
                let map: serde_json::Map<_, _> =
                    shards.map(|name| (format!("weight of {name}"), json!(name))).collect();
                Content::text(json!({ "weight_map": map }).to_string())
            }
            _ => Content::text("{}"),
        }
    }
}

/// A pickle like that of DCP: where each shard lies and how long it is.
fn metadata(files: &[String]) -> Vec<u8> {
    let text = |text: &str| {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        [&b"X"[..], &length.to_le_bytes(), text.as_bytes()].concat()
    };
    let number = |n: u64| [&b"\x8a\x08"[..], &n.to_le_bytes()].concat();
    let mut bytes = [&b"\x80\x02}"[..], &text("storage_data"), b"}("].concat();
    for name in files.iter().filter(|name| name.ends_with(".distcp")) {
        bytes.extend([text(name), b"ctorch\n_StorageInfo\n)\x81}(".to_vec()].concat());
        bytes.extend([text("relative_path"), text(name), text("offset"), number(0)].concat());
        bytes.extend([text("length"), number(BODY), b"ub".to_vec()].concat());
    }
    bytes.extend(b"us.");
    bytes
}

fn step(at: usize) -> usize {
    100_000 + 500 * at
}

/// What a look asked for.
#[derive(Debug, Default)]
struct Asked {
    listings: usize,
    reads: usize,
    folders_read: BTreeSet<String>,
}

/// The store. Clones are the same one.
#[derive(Debug, Clone)]
struct MadeUp {
    layout: Layout,
    checkpoints: usize,
    asked: Arc<Mutex<Asked>>,
}

impl MadeUp {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn object(&self, folder: &str, name: &str) -> Object {
        let step = folder.rsplit(['-', '_']).next().and_then(|text| text.parse().ok());
        let size = self.layout.content(step.unwrap_or_default(), name).size;
        Object { key: format!("{ROOT}{folder}/{name}"), size, modified: WallTime(1_000) }
    }

    fn tracker(&self) -> Content {
        Content::text(step(self.checkpoints - 1).to_string())
    }

    /// Folders and objects that begin with `prefix`, from the one of number `from` on.
    fn make_up(&self, prefix: &str, depth: Depth, from: usize) -> Page {
        let mut page = Page::default();
        let total = match prefix.strip_prefix(ROOT) {
            Some("") if depth == Depth::Direct => {
                let end = self.checkpoints.min(from + PAGE);
                let folders = (from..end).map(|at| format!("{ROOT}{}/", self.layout.folder(at)));
                page.folders = folders.collect();
                if from == 0 && matches!(self.layout, Layout::MegatronLegacy) {
                    page.objects.push(Object {
                        key: format!("{ROOT}latest_checkpointed_iteration.txt"),
                        size: self.tracker().size,
                        modified: WallTime(1_000),
                    });
                }
                self.checkpoints
            }
            Some("") | None => {
                page.folders.push(ROOT.to_owned());
                1
            }
            Some(folder) => {
                let folder = folder.trim_end_matches('/');
                let files = self.layout.files();
                let shown = files.iter().skip(from).take(PAGE);
                page.objects = shown.map(|name| self.object(folder, name)).collect();
                files.len()
            }
        };
        page.next = (from + PAGE < total).then(|| (from + PAGE).to_string());
        page
    }
}

impl Store for MadeUp {
    fn page<'a>(
        &'a self,
        prefix: &'a str,
        depth: Depth,
        from: Option<String>,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.asked().listings += 1;
        let from = from.and_then(|text| text.parse().ok()).unwrap_or(0);
        let page = self.make_up(prefix, depth, from);
        async move { Ok(page) }.boxed()
    }

    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Read, StoreError>> {
        let below = key.strip_prefix(ROOT).unwrap_or(key);
        let content = match below.split_once('/') {
            Some((folder, name)) => {
                let step = folder.rsplit(['-', '_']).next().and_then(|text| text.parse().ok());
                let mut asked = self.asked();
                asked.reads += 1;
                asked.folders_read.insert(folder.to_owned());
                self.layout.content(step.unwrap_or_default(), name)
            }
            None => self.tracker(),
        };
        let read = content.read(range).map_or(Read::Changed, Read::Bytes);
        async move { Ok(read) }.boxed()
    }
}

/// A line of `/proc/self/status`, in KiB.
fn status(line: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let found = status.lines().find_map(|text| text.strip_prefix(line));
    let found = found.with_context(|| format!("no {line} in /proc/self/status"))?;
    Ok(found.trim().trim_end_matches(" kB").parse()?)
}

/// Looks once, prints a row of the table, and says whether the demands are met.
fn measure(layout: Layout, checkpoints: usize, format: &str) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = MadeUp { layout, checkpoints, asked: Arc::default() };
    let objects = Objects::new(Box::new(store.clone()), Arc::default());
    let place = location::parse("oss://bucket/team/run42")?;
    let options = ScanOptions { format: format.to_owned(), custom: None, ..ScanOptions::default() };
    // The high-water mark from here on.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = status("VmRSS:")?;
    let start = Instant::now();
    let look = runtime.block_on(look(&objects, &place, &options, WallTime(1_000_000)));
    let took = start.elapsed();
    let memory = status("VmHWM:")?.saturating_sub(before);
    let Look::Done(findings) = look else { anyhow::bail!("{look:?}") };
    let chosen = findings.chosen.with_context(|| format!("{:?}", findings.candidates.first()))?;
    ensure!(findings.format.as_deref() == Some(layout.word()), "{:?}", findings.format);
    let newest = layout.folder(checkpoints - 1);
    ensure!(chosen.path == format!("{ROOT}{newest}"), "{} was chosen", chosen.path);
    let asked = store.asked();
    println!(
        "| {} | {format} | {} | {} | {} | {} | {:.1} | {memory} |",
        layout.word(),
        checkpoints * FILES,
        asked.listings,
        asked.reads,
        asked.folders_read.len(),
        took.as_secs_f64() * 1_000.0,
    );
    Ok(asked.listings <= LISTINGS_AIM
        && asked.folders_read.iter().all(|folder| *folder == newest)
        && took < TIME_AIM
        && memory <= MEMORY_AIM_KIB)
}

fn main() -> Result<ExitCode> {
    let cases: Vec<(Layout, usize, &str)> = LAYOUTS
        .iter()
        .flat_map(|layout| CHECKPOINTS.map(|count| (*layout, count)))
        .flat_map(|(layout, count)| [(layout, count, layout.word()), (layout, count, "auto")])
        .collect();
    if let Ok(case) = std::env::var(CASE) {
        let (layout, count, format) = *cases.get(case.parse::<usize>()?).context("no such case")?;
        return Ok(ExitCode::from(u8::from(!measure(layout, count, format)?)));
    }
    println!("| layout | asked for | objects | listings | reads | folders read | ms | KiB |");
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut is_met = true;
    for case in 0..cases.len() {
        let mut itself = Command::new(std::env::current_exe()?);
        is_met &= itself.env(CASE, case.to_string()).status()?.success();
    }
    if !is_met {
        println!("\na demand is not met");
    }
    Ok(ExitCode::from(u8::from(!is_met)))
}
