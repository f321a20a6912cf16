//! What editors, tools and clusters do to a folder of job files, and what is read then.

use super::*;
use crate::config::{Surroundings, load_daemon};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

const JOB: &str = "target = \"here\"\n[submit]\nJobType = \"PyTorchJob\"\n\
    UserCommand = \"python train.py\"\n[[submit.JobSpecs]]\nType = \"Worker\"\n\
    Image = \"image:1\"\nPodCount = 1\nEcsSpec = \"ecs.gn7e-c16g1.4xlarge\"\n";

const SOON: Duration = Duration::from_millis(200);
/// A test that waits for a poll of a folder with files has failed: what it does has to ring.
const BY_BELL: fn(usize) -> Duration =
    |files| if files == 0 { SOON } else { Duration::from_hours(1) };
const BY_POLL: fn(usize) -> Duration = |_| SOON;

/// A folder that is watched.
struct Watched {
    folder: tempfile::TempDir,
    sets: mpsc::Receiver<Message>,
    _config: watch::Sender<Arc<DaemonConfig>>,
    watching: tokio::task::JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Watched {
    /// Watches `jobs.d` of a new folder, made as `make` makes it.
    fn start(pause: fn(usize) -> Duration, make: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("spotkeeper.toml");
        let text = "jobs_directory = \"jobs.d\"\n[targets.here]\nregion = \"cn-hangzhou\"\n\
            workspace = \"1\"\n";
        fs::write(&file, text).expect("written");
        make(folder.path());
        let config = load_daemon(&file, &Surroundings::default());
        let config = Arc::new(config.accepted().expect("no errors").clone());
        let (sender, current) = watch::channel(config);
        let (driver, sets) = mpsc::channel(1);
        let watching = tokio::spawn(watch_and_poll(pause, current, driver));
        Self { folder, sets, _config: sender, watching }
    }

    fn in_a_plain_folder() -> Self {
        Self::start(BY_BELL, |root| fs::create_dir(root.join("jobs.d")).expect("made"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file beside the others, hidden, and renames it into its place.
    fn save(&self, name: &str, text: &str) {
        let new = self.path("jobs.d/.new");
        fs::write(&new, text).expect("written");
        fs::rename(new, self.path("jobs.d").join(name)).expect("renamed");
    }

    /// Waits for a reading of which `is_so` holds.
    async fn until(&mut self, what: &str, is_so: impl Fn(&JobSet) -> bool) -> JobSet {
        let mut last = None;
        let found = tokio::time::timeout(Duration::from_mins(2), async {
            loop {
                match self.sets.recv().await.expect("it watches") {
                    Message::Files(set) if is_so(&set) => return set,
                    Message::Files(set) => last = Some(set),
                    Message::Input(..)
                    | Message::Looked(..)
                    | Message::Swept(_)
                    | Message::LookedUp(..)
                    | Message::Gathered(_)
                    | Message::Reload { .. }
                    | Message::Dump
                    | Message::AlertsDone(_) => unreachable!("the watcher reads files alone"),
                }
            }
        });
        let found = found.await.ok();
        found.unwrap_or_else(|| unreachable!("waited in vain until {what}; the last one: {last:?}"))
    }

    async fn until_images(&mut self, wanted: &[&str]) {
        self.until(&format!("{wanted:?}"), |set| images(set) == wanted).await;
    }
}

/// `JOB:IMAGE` of what was accepted.
fn images(set: &JobSet) -> Vec<String> {
    let of = |spec: &JobSpec| {
        let body = serde_json::to_value(spec).expect("JSON").to_string();
        let image = body.split("image:").nth(1).and_then(|rest| rest.split('"').next());
        format!("{}:{}", spec.key.name, image.unwrap_or_default().trim_end_matches('\\'))
    };
    set.accepted.iter().map(|(_, spec)| of(spec)).collect()
}

fn job(image: &str) -> String {
    JOB.replace("image:1", &format!("image:{image}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn editors_save_in_many_ways_and_their_own_files_are_no_jobs() {
    let mut watched = Watched::in_a_plain_folder();
    watched.until_images(&[]).await;
    let at = |name: &str| watched.path("jobs.d").join(name);
    let (file, backup, swap) = (at("a.toml"), at("a.toml~"), at(".a.toml.swp"));
    fs::write(&swap, "b0VIM").expect("written");
    fs::write(&file, job("1")).expect("written in place");
    watched.until_images(&["a:1"]).await;
    // vim with `backupcopy=no`: the old one is renamed away, a new one is made.
    fs::rename(&file, &backup).expect("renamed");
    fs::write(&file, job("2")).expect("written");
    fs::remove_file(&backup).expect("removed");
    watched.until_images(&["a:2"]).await;
    watched.save("a.toml", &job("3"));
    watched.until_images(&["a:3"]).await;
    // sed -i and the like: written elsewhere on the same disk, renamed over it.
    let elsewhere = watched.path("sedXXXX");
    fs::write(&elsewhere, job("4")).expect("written");
    fs::rename(elsewhere, &file).expect("renamed");
    watched.until_images(&["a:4"]).await;
    fs::remove_file(&file).expect("removed");
    watched.until_images(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_of_links_is_seen_within_the_folder_and_of_the_folder() {
    // As a ConfigMap is mounted: x.toml -> ..data/x.toml, ..data -> ..2026_1, swapped by a rename.
    let mut watched = Watched::in_a_plain_folder();
    let generation = |folder: &Path, no: &str| {
        let name = format!("..2026_{no}");
        fs::create_dir(folder.join(&name)).expect("made");
        fs::write(folder.join(&name).join("x.toml"), job(no)).expect("written");
        symlink(&name, folder.join("..data_tmp")).expect("linked");
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("renamed");
    };
    let folder = watched.path("jobs.d");
    generation(&folder, "1");
    symlink("..data/x.toml", folder.join("x.toml")).expect("linked");
    watched.until_images(&["x:1"]).await;
    generation(&folder, "2");
    fs::remove_dir_all(folder.join("..2026_1")).expect("removed");
    watched.until_images(&["x:2"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_is_a_link_and_one_that_cannot_be_watched_are_polled() {
    let mut watched = Watched::start(BY_POLL, |root| {
        for no in ["1", "2"] {
            fs::create_dir(root.join(no)).expect("made");
            fs::write(root.join(no).join("x.toml"), job(no)).expect("written");
        }
        symlink("1", root.join("jobs.d")).expect("linked");
    });
    watched.until_images(&["x:1"]).await;
    // No bell: nothing within the folder that is watched has changed.
    symlink("2", watched.path("new")).expect("linked");
    fs::rename(watched.path("new"), watched.path("jobs.d")).expect("renamed");
    watched.until_images(&["x:2"]).await;
    fs::write(watched.path("2/x.toml"), job("3")).expect("written");
    watched.until_images(&["x:3"]).await;
    fs::remove_file(watched.path("jobs.d")).expect("removed");
    watched.until("the folder is missed", |set| !set.whole).await;
    fs::create_dir(watched.path("jobs.d")).expect("made");
    fs::write(watched.path("jobs.d/y.toml"), job("4")).expect("written");
    watched.until_images(&["y:4"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_is_deleted_and_made_again_is_watched_again() {
    let mut watched = Watched::in_a_plain_folder();
    watched.save("a.toml", &job("1"));
    watched.until_images(&["a:1"]).await;
    fs::remove_dir_all(watched.path("jobs.d")).expect("removed");
    // A folder that is not there says nothing about its jobs.
    let gone = watched.until("it is missed", |set| !set.whole).await;
    assert!(gone.accepted.is_empty());
    fs::create_dir(watched.path("jobs.d")).expect("made");
    watched.save("a.toml", &job("2"));
    watched.until_images(&["a:2"]).await;
    watched.save("a.toml", &job("3"));
    watched.until_images(&["a:3"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_files_at_once_are_one_heap_and_not_a_thousand_readings() {
    let mut watched = Watched::in_a_plain_folder();
    watched.until_images(&[]).await;
    let dropping = watched.path("jobs.d");
    let dropped = tokio::task::spawn_blocking(move || {
        for no in 0..1_000 {
            fs::write(dropping.join(format!("job{no:03}x.toml")), job("1")).expect("written");
        }
    });
    let mut readings = 0;
    loop {
        readings += 1;
        let set = watched.until("a reading", |_| true).await;
        if set.accepted.len() == 1_000 {
            break;
        }
    }
    dropped.await.expect("dropped");
    assert!(readings <= 20, "{readings} readings");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_file_is_named_alone_and_taken_once_it_is_mended() {
    let mut watched = Watched::in_a_plain_folder();
    watched.save("good.toml", &job("1"));
    let whole = job("2");
    let (half, rest) = whole.split_at(whole.len() / 2);
    // Half a text, a folder, a link to nowhere, a link to itself.
    fs::write(watched.path("jobs.d/half.toml"), half).expect("written");
    fs::create_dir(watched.path("jobs.d/folder.toml")).expect("made");
    symlink("nowhere", watched.path("jobs.d/link.toml")).expect("linked");
    symlink("loop.toml", watched.path("jobs.d/loop.toml")).expect("linked");
    let set = watched.until("four are refused", |set| set.rejected.len() == 4).await;
    assert_eq!(images(&set), ["good:1"]);
    let mut half = fs::OpenOptions::new().append(true).open(watched.path("jobs.d/half.toml"));
    std::io::Write::write_all(half.as_mut().expect("open"), rest.as_bytes()).expect("written");
    watched.until_images(&["good:1", "half:2"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_rings_no_bell() {
    let mut watched = Watched::in_a_plain_folder();
    watched.save("a.toml", &job("1"));
    watched.until_images(&["a:1"]).await;
    let quiet = 5 * CALM;
    for _ in 0..20 {
        if tokio::time::timeout(quiet, watched.sets.recv()).await.is_err() {
            return;
        }
    }
    unreachable!("nothing changes, and it reads again and again");
}

#[test]
fn the_more_files_the_longer_the_pause() {
    assert_eq!((pause(0), pause(1_000)), (PAUSE, Duration::from_millis(10_500)));
    assert_eq!((pause(10_000), pause(usize::MAX)), (PAUSE_LIMIT, PAUSE_LIMIT));
}
