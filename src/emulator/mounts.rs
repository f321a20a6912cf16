//! DataSources in a pod's own mount namespace, through the host's unshare(1): a `file://` folder,
//! or (`--oss-root`) the folder that stands for an OSS prefix, appears at its MountPath, to that
//! pod alone.
//!
//! A MountPath that is missing on the host is made without a trace there: the nearest folder that
//! exists is covered by an empty one that shows what was in it, and what a pod writes into that
//! one is lost with the pod, as in a container. Nothing is mounted over what every program needs,
//! or over and out of the emulator's own folder.

use super::gateway::percent_decode;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// DataSources of one job.
const SOURCES_LIMIT: usize = 64;
/// Entries of a folder that is covered to make a MountPath in it.
const COVERED_LIMIT: usize = 1_000;
/// Where `--data-mount` appears.
const DATA_MOUNT: &str = "/mnt/data";
/// Where programs are looked for, by pods and by us.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Nothing is mounted in these.
const KERNEL_FOLDERS: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Nothing is mounted over these.
const SYSTEM_FOLDERS: [&str; 11] = [
    "/",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/etc",
    "/usr",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/lib64",
];

/// Carries out a plan. `$1` is the command, `$2` what enters the pod with it, `$3` an empty folder,
/// `$4` mount(8), then the steps.
/// The folders are first collected in a tmpfs, so that no step hides the source of a later one.
const CARRY_OUT: &str = r#"
command=$1 enter=$2 stage=$3 mount=$4 here=$PWD root= covers=0
shift 4
must() { "$@" || exit 128; }
cover() {
  new=$stage/c$covers
  covers=$((covers + 1))
  must mkdir "$new"
  must "$mount" -t tmpfs -o mode=755 none "$new"
  for from in "$root$1"/* "$root$1"/.[!.]* "$root$1"/..?*; do
    to=$new/${from##*/}
    if [ -L "$from" ]; then must cp -P "$from" "$to"
    elif [ -d "$from" ]; then must mkdir "$to"; must "$mount" --rbind "$from" "$to"
    elif [ -e "$from" ]; then must touch "$to"; must "$mount" --bind "$from" "$to"
    fi
  done
  if [ "$1" = / ]; then root=$new; else must "$mount" --rbind "$new" "$root$1"; fi
}
protect() {
  # A user namespace must not drop what the mount below it forbids already.
  for more in '' ,nosuid,nodev ,nosuid,nodev,noexec; do
    "$mount" -o "remount,bind,ro$more" "$1" 2>/dev/null && return
  done
  must "$mount" -o remount,bind,ro "$1"
}
must "$mount" -t tmpfs none "$stage"
while [ $# -gt 0 ]; do
  case $1 in
    take) must mkdir "$stage/$2"; must "$mount" --rbind "$3" "$stage/$2"; shift 3 ;;
    cover) cover "$2"; shift 2 ;;
    make) must mkdir -p "$root$2"; shift 2 ;;
    show) must "$mount" --rbind "$stage/$2" "$root$3"; shift 3 ;;
    protect) protect "$root$2"; shift 2 ;;
    *) exit 128 ;;
  esac
done
"#;

/// Goes on as the pod, in its folder, whose path may lead elsewhere now.
const ENTER: &str =
    r#"exec ${root:+chroot} ${root:+"$root"} /bin/sh -c "$enter" sh "$command" "$here""#;

/// One entry of DataSources, or the folder of `--data-mount`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSource {
    /// What it is.
    pub origin: Origin,
    /// `MountPath`; empty where none was given.
    pub mount_path: String,
    /// `MountAccess`.
    pub access: Access,
}

/// What is to be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// `file://`: a folder of this machine.
    Folder(String),
    /// `oss://`: bucket and key prefix.
    Bucket {
        /// Name of the bucket.
        name: String,
        /// Key prefix, without slashes around it.
        prefix: String,
    },
    /// A data set by its id, or a kind of storage that is nowhere here.
    Elsewhere(String),
}

/// `MountAccess`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// `RO`.
    ReadOnly,
    /// `RW`, also when nothing is said.
    ReadWrite,
}

impl DataSource {
    /// Reads the DataSources of a CreateJob body.
    ///
    /// # Errors
    /// What is wrong, in words for an `InvalidParameter`.
    pub fn read_all(body: &Map<String, Value>) -> Result<Vec<Self>, String> {
        let items =
            body.get("DataSources").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if items.len() > SOURCES_LIMIT {
            return Err(format!("DataSources: more than {SOURCES_LIMIT}"));
        }
        let sources: Vec<Self> = items.iter().map(Self::read).collect::<Result<_, _>>()?;
        let mut taken = BTreeSet::new();
        for source in sources.iter().filter(|source| !source.mount_path.is_empty()) {
            if !taken.insert(&source.mount_path) {
                return Err(format!("DataSources: {} is mounted twice", source.mount_path));
            }
        }
        Ok(sources)
    }

    fn read(item: &Value) -> Result<Self, String> {
        let text = |key: &str| match (item[key].as_str(), item[key].is_null()) {
            (None, true) => Ok(""),
            (Some(text), _) if !text.contains('\0') => Ok(text),
            (Some(_) | None, _) => Err(format!("DataSources: {key}: {} is no text", item[key])),
        };
        let access = match text("MountAccess")? {
            "" | "RW" => Access::ReadWrite,
            "RO" => Access::ReadOnly,
            other => return Err(format!("DataSources: MountAccess: {other} is neither RO nor RW")),
        };
        let (uri, id) = (text("Uri")?, text("DataSourceId")?);
        let origin = origin_of(if uri.is_empty() { id } else { uri })?;
        let path = text("MountPath")?;
        let mount_path = match (&origin, path) {
            (Origin::Folder(_), "") => return Err(format!("DataSources: {uri} has no MountPath")),
            (_, "") => String::new(),
            (_, path) => plain_path(path).ok_or_else(|| {
                format!("DataSources: MountPath: {path} is no plain absolute path")
            })?,
        };
        Ok(Self { origin, mount_path, access })
    }

    /// The same source, where the data set that it names lies; `uri_of` knows data sets by id.
    ///
    /// # Errors
    /// A URI of the data set that cannot be read.
    pub fn resolved<'a>(&self, uri_of: impl Fn(&str) -> Option<&'a str>) -> Result<Self, String> {
        let uri = match &self.origin {
            Origin::Elsewhere(id) => uri_of(id),
            Origin::Folder(_) | Origin::Bucket { .. } => None,
        };
        let origin = match uri {
            Some(uri) => origin_of(uri)?,
            None => self.origin.clone(),
        };
        if matches!(origin, Origin::Folder(_)) && self.mount_path.is_empty() {
            return Err(format!("DataSources: {} has no MountPath", uri.unwrap_or_default()));
        }
        Ok(Self { origin, ..self.clone() })
    }
}

/// What a URI, or the id of a data set, stands for.
fn origin_of(uri: &str) -> Result<Origin, String> {
    Ok(match uri.split_once("://") {
        Some(("file", rest)) => Origin::Folder(folder_of(uri, rest)?),
        Some(("oss", rest)) => bucket_of(uri, rest)?,
        Some(_) | None => Origin::Elsewhere(uri.to_owned()),
    })
}

fn folder_of(uri: &str, rest: &str) -> Result<String, String> {
    plain_path(&percent_decode(rest))
        .ok_or_else(|| format!("DataSources: {uri} is not file:///, then a path without `..`"))
}

fn bucket_of(uri: &str, rest: &str) -> Result<Origin, String> {
    let (host, key) = rest.split_once('/').unwrap_or((rest, ""));
    let name = host.split('.').next().unwrap_or_default().to_owned();
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match plain_path(&format!("/{key}")) {
        Some(path) if !name.is_empty() && name.chars().all(letter) => {
            Ok(Origin::Bucket { name, prefix: path.trim_start_matches('/').to_owned() })
        }
        Some(_) | None => Err(format!("DataSources: {uri} is not oss://bucket[.endpoint]/prefix/")),
    }
}

/// An absolute path without `.`, `..` and needless slashes.
fn plain_path(text: &str) -> Option<String> {
    let path = Path::new(text);
    let is_plain = path.is_absolute()
        && !text.contains('\0')
        && text.split('/').all(|part| part != "." && part != "..");
    is_plain.then(|| path.components().collect::<PathBuf>().to_str().map(str::to_owned)).flatten()
}

/// What has to be done in a pod's namespace; nothing by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    steps: Vec<String>,
    /// What is not mounted, for the job's events.
    pub notes: Vec<String>,
}

impl Plan {
    /// Whether a pod needs no namespace of its own.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    fn step<const N: usize>(&mut self, words: [&str; N]) {
        self.steps.extend(words.map(str::to_owned));
    }
}

/// The host's means to mount, and what is mounted for every job.
#[derive(Debug)]
pub struct Mounts {
    folder: PathBuf,
    data_mount: Option<PathBuf>,
    oss_root: Option<PathBuf>,
    /// The plan that was seen to work last.
    tried: Plan,
}

impl Mounts {
    /// Mounts for the pods of the emulator that has `folder`.
    pub fn new(folder: &Path, data_mount: Option<PathBuf>, oss_root: Option<PathBuf>) -> Self {
        let tried = Plan::default();
        Self { folder: folder.to_owned(), data_mount, oss_root, tried }
    }

    /// How the pods of a job with these sources see them. It was tried out on this host.
    ///
    /// # Errors
    /// Why it cannot be, in words for whoever submits the job.
    pub fn plan(&mut self, sources: &[DataSource]) -> Result<Plan, String> {
        let plan = self.arrange(sources)?;
        if plan.is_empty() || plan.steps == self.tried.steps {
            return Ok(plan);
        }
        let output = self
            .command(&plan, CARRY_OUT, "", "")?
            .env_clear()
            .env("PATH", PATH)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("unshare(1) cannot be run: {e}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("this host does not allow the mounts of the job: {}", said.trim()));
        }
        self.tried = plan.clone();
        Ok(plan)
    }

    /// The command that makes the mounts and goes on with the shell text `enter`, of which `$1` is
    /// `user_command`.
    ///
    /// # Errors
    /// Which tool is not installed.
    pub fn pod_command(
        &self,
        plan: &Plan,
        enter: &str,
        user_command: &str,
    ) -> Result<Command, String> {
        let enter = format!("cd \"$2\" || exit 128\n{enter}");
        self.command(plan, &format!("{CARRY_OUT}{ENTER}"), user_command, &enter)
    }

    fn command(
        &self,
        plan: &Plan,
        script: &str,
        user_command: &str,
        enter: &str,
    ) -> Result<Command, String> {
        let stage = self.folder.join("mounts");
        std::fs::create_dir_all(&stage).map_err(|e| format!("make {}: {e}", stage.display()))?;
        let stage = stage.canonicalize().map_err(|e| format!("find {}: {e}", stage.display()))?;
        let mut command = Command::new(tool("unshare")?);
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command
            .args(["--mount", "/bin/sh", "-c", script, "sh", user_command, enter])
            .arg(stage)
            .arg(tool("mount")?)
            .args(&plan.steps);
        Ok(command)
    }

    fn arrange(&self, sources: &[DataSource]) -> Result<Plan, String> {
        let mut plan = Plan::default();
        let mut wanted: BTreeMap<PathBuf, (PathBuf, Access)> = BTreeMap::new();
        if let Some(folder) = &self.data_mount {
            let source = real_folder(folder, "--data-mount")?;
            wanted.insert(DATA_MOUNT.into(), (source, Access::ReadWrite));
        }
        for source in sources {
            let folder = match &source.origin {
                Origin::Folder(path) => real_folder(Path::new(path), "DataSources: file://")?,
                Origin::Bucket { name, prefix } => {
                    let Some(root) = &self.oss_root else {
                        plan.notes.push(format!("oss://{name}/{prefix}: there is no --oss-root"));
                        continue;
                    };
                    bucket_folder(root, name, prefix)?
                }
                Origin::Elsewhere(what) => {
                    plan.notes.push(format!("{what}: only file:// and oss:// are"));
                    continue;
                }
            };
            if source.mount_path.is_empty() {
                plan.notes.push("a source without a MountPath".to_owned());
                continue;
            }
            let own = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
            if folder.starts_with(&own) {
                let shown = folder.display();
                return Err(format!("DataSources: {shown} is in the emulator's own folder"));
            }
            wanted.insert(PathBuf::from(&source.mount_path), (folder, source.access));
        }
        let mut targets: BTreeMap<PathBuf, (PathBuf, Access)> = BTreeMap::new();
        for (path, what) in wanted {
            let target = self.target(&path)?;
            if targets.insert(target, what).is_some() {
                return Err(format!("DataSources: {} is mounted twice", path.display()));
            }
        }
        // What a path means already needs no namespace.
        targets.retain(|path, (folder, access)| path != folder || *access == Access::ReadOnly);
        for (at, (folder, _)) in targets.values().enumerate() {
            plan.step(["take", &at.to_string(), text(folder)?]);
        }
        let mut covered = BTreeSet::new();
        for (at, (path, (_, access))) in targets.iter().enumerate() {
            make_room(&mut plan, &mut covered, &targets, path)?;
            plan.step(["show", &at.to_string(), text(path)?]);
            if *access == Access::ReadOnly {
                plan.step(["protect", text(path)?]);
            }
        }
        Ok(plan)
    }

    /// Where a MountPath really is, when it may be mounted on.
    fn target(&self, path: &Path) -> Result<PathBuf, String> {
        let refuse = |why: &str| Err(format!("DataSources: MountPath {}: {why}", path.display()));
        let (there, missing) = nearest(path);
        if !there.is_dir() {
            return refuse("is no folder");
        }
        let real = there.join(missing).components().collect::<PathBuf>();
        let own = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
        if KERNEL_FOLDERS.iter().any(|folder| real.starts_with(folder))
            || SYSTEM_FOLDERS.iter().any(|folder| real == Path::new(folder))
        {
            return refuse("nothing can be mounted there");
        }
        if own.starts_with(&real) || real.starts_with(&own) {
            return refuse("the emulator's own folder is there");
        }
        Ok(real)
    }
}

/// Sees to it that the MountPath `path` exists when it is mounted on.
fn make_room(
    plan: &mut Plan,
    covered: &mut BTreeSet<PathBuf>,
    targets: &BTreeMap<PathBuf, (PathBuf, Access)>,
    path: &Path,
) -> Result<(), String> {
    // A folder comes before what is in it.
    let outer = targets.iter().rev().find(|(outer, _)| path != *outer && path.starts_with(outer));
    if let Some((outer, (folder, access))) = outer {
        let inside = path.strip_prefix(outer).unwrap_or(path);
        if folder.join(inside).is_dir() {
            return Ok(());
        }
        if *access == Access::ReadOnly {
            let (path, outer) = (path.display(), outer.display());
            return Err(format!("DataSources: {path} is not there in the read-only {outer}"));
        }
    } else if path.is_dir() {
        return Ok(());
    } else {
        let (there, _) = nearest(path);
        let count =
            std::fs::read_dir(&there).map_or(0, |entries| entries.take(COVERED_LIMIT).count());
        if count >= COVERED_LIMIT {
            let (path, there) = (path.display(), there.display());
            return Err(format!("DataSources: {there} is too full: make the folder {path} first"));
        }
        if covered.insert(there.clone()) {
            plan.step(["cover", text(&there)?]);
        }
    }
    plan.step(["make", text(path)?]);
    Ok(())
}

/// The nearest part of `path` that exists, without symbolic links, and the rest of the path.
fn nearest(path: &Path) -> (PathBuf, &Path) {
    path.ancestors()
        .find_map(|there| Some((there.canonicalize().ok()?, path.strip_prefix(there).ok()?)))
        .unwrap_or_else(|| ("/".into(), path.strip_prefix("/").unwrap_or(path)))
}

fn real_folder(path: &Path, what: &str) -> Result<PathBuf, String> {
    let real = path.canonicalize().map_err(|e| format!("{what}{}: {e}", path.display()))?;
    if real.is_dir() { Ok(real) } else { Err(format!("{what}{} is no folder", path.display())) }
}

/// The folder that stands for a prefix. A prefix needs no object to be named, so it is made.
fn bucket_folder(root: &Path, name: &str, prefix: &str) -> Result<PathBuf, String> {
    let root = real_folder(root, "--oss-root ")?;
    let folder = root.join(name).join(prefix);
    std::fs::create_dir_all(&folder).map_err(|e| format!("make {}: {e}", folder.display()))?;
    let real = real_folder(&folder, "--oss-root ")?;
    if real.starts_with(&root) {
        Ok(real)
    } else {
        Err(format!("--oss-root: {} leads out of it", folder.display()))
    }
}

fn text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("DataSources: {} is no UTF-8", path.display()))
}

fn tool(name: &str) -> Result<PathBuf, String> {
    PATH.split(':')
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
        .ok_or_else(|| format!("{name}(1) is not installed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(sources: &Value) -> Result<Vec<DataSource>, String> {
        let body = json!({"DataSources": sources});
        DataSource::read_all(body.as_object().expect("an object"))
    }

    fn steps(plan: &Plan) -> String {
        plan.steps.join(" ")
    }

    #[test]
    fn sources_are_read_and_odd_paths_refused() {
        let read_one = |uri: &str, path: &str| {
            read(&json!([{"Uri": uri, "MountPath": path, "MountAccess": "RO"}]))
        };
        let found = read_one("file:///tmp/a%20b//", "/mnt/x/").expect("fine");
        assert_eq!(found[0].origin, Origin::Folder("/tmp/a b".to_owned()));
        assert_eq!((found[0].mount_path.as_str(), found[0].access), ("/mnt/x", Access::ReadOnly));
        let found = read_one("oss://b.oss-cn-hangzhou.aliyuncs.com/k//l/", "/mnt").expect("fine");
        let bucket = Origin::Bucket { name: "b".into(), prefix: "k/l".into() };
        assert_eq!(found[0].origin, bucket);
        for (uri, path) in [
            ("file:///tmp/../etc", "/mnt/x"),
            ("file:///tmp/%2e%2e/etc", "/mnt/x"),
            ("file://host/tmp", "/mnt/x"),
            ("file:///tmp", "mnt/x"),
            ("file:///tmp", "/mnt/../x"),
            ("file:///tmp", "/mnt/./x"),
            ("file:///tmp", ""),
            ("oss:///k", "/mnt/x"),
            ("oss://b/../c", "/mnt/x"),
        ] {
            assert!(read_one(uri, path).is_err(), "{uri} {path}");
        }
        let twice = json!([{"Uri": "file:///a", "MountPath": "/m"}, {"Uri": "file:///b", "MountPath": "/m/"}]);
        assert!(read(&twice).is_err());
        assert!(
            read(&json!([{"Uri": "file:///a", "MountPath": "/m", "MountAccess": "rw"}])).is_err()
        );
    }

    #[test]
    fn what_every_program_or_the_emulator_needs_is_not_covered() {
        let top = tempfile::tempdir().expect("a folder");
        let top = top.path().canonicalize().expect("there");
        let own = top.join("emulator");
        let data = top.join("data");
        std::fs::create_dir_all(own.join("jobs")).expect("made");
        std::fs::create_dir(&data).expect("made");
        std::fs::write(top.join("file"), "").expect("written");
        std::os::unix::fs::symlink("/etc", top.join("link")).expect("linked");
        let mounts = Mounts::new(&own, None, None);
        let arrange = |from: &Path, to: &Path| {
            let source = json!([{"Uri": format!("file://{}", from.display()), "MountPath": to}]);
            mounts.arrange(&read(&source)?)
        };
        for to in ["/", "/etc", "/usr", "/proc/1", "/dev/new"] {
            assert!(arrange(&data, Path::new(to)).is_err(), "{to}");
        }
        for to in ["", "emulator", "emulator/jobs/x", "file", "file/x", "link"] {
            assert!(arrange(&data, &top.join(to)).is_err(), "{to}");
        }
        assert!(arrange(&own.join("jobs"), Path::new("/mnt/x")).is_err());
        assert!(arrange(&top.join("missing"), Path::new("/mnt/x")).is_err());
        let same = arrange(&data, &data).expect("nothing to do");
        assert!(same.is_empty());
    }

    #[test]
    fn a_mount_path_is_made_without_a_trace_on_the_host() {
        let top = tempfile::tempdir().expect("a folder");
        let top = top.path().canonicalize().expect("there");
        for folder in ["own", "a", "b", "host"] {
            std::fs::create_dir(top.join(folder)).expect("made");
        }
        let mounts = Mounts::new(&top.join("own"), None, None);
        let (at, show) =
            (|name: &str| top.join(name), |name: &str| top.join(name).display().to_string());
        let source = |from: &str, to: &str, access: &str| json!({"Uri": format!("file://{}", show(from)), "MountPath": at(to), "MountAccess": access});
        let arrange = |sources: Value| mounts.arrange(&read(&sources).expect("sources"));
        let plan =
            arrange(json!([source("b", "host/new/in", "RO"), source("a", "host/new", "RW")]));
        assert_eq!(
            steps(&plan.expect("a plan")),
            format!(
                "take 0 {a} take 1 {b} cover {host} make {host}/new show 0 {host}/new \
                 make {host}/new/in show 1 {host}/new/in protect {host}/new/in",
                a = show("a"),
                b = show("b"),
                host = show("host")
            )
        );
        assert!(!at("host/new").exists());
        let top = json!([{"Uri": format!("file://{}", show("a")), "MountPath": "/no-such-top/x"}]);
        let steps = steps(&arrange(top).expect("a plan"));
        assert!(steps.ends_with("cover / make /no-such-top/x show 0 /no-such-top/x"), "{steps}");
        let inside = arrange(json!([source("a", "host/x", "RO"), source("b", "host/x/y", "RW")]));
        assert!(inside.expect_err("cannot be made").contains("read-only"));
    }
}
