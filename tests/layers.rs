//! Who may import whom: ARCHITECTURE.md, "Layout".

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Each room and the rooms that it may import. A name with `::` is one file of a room.
fn allowed() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("model", &[] as &[&str]),
        ("core", &["model"]),
        ("openapi", &["model"]),
        ("dlc", &["openapi", "model"]),
        ("checkpoint", &["openapi::credentials", "openapi::tls", "model"]),
        ("store", &["core", "model"]),
        ("config", &["model"]),
        ("alerts", &["model"]),
        ("service", &["model"]),
        ("emulator", &["dlc::wire", "openapi::signature", "service::clock", "model"]),
        ("demo", &["emulator", "supervisor", "config", "model", "service", "checkpoint"]),
        (
            "supervisor",
            &[
                "core",
                "store",
                "dlc",
                "checkpoint",
                "config",
                "service",
                "model",
                "openapi",
                "alerts",
            ],
        ),
        ("api", &["model", "core", "openapi::tls"]),
    ])
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn rooms_import_only_what_they_may() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed = allowed();
    let mut all = Vec::new();
    files(&src, &mut all);
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in all {
        let relative = path.strip_prefix(&src).expect("below src");
        let room = relative.components().next().expect("a name").as_os_str().to_string_lossy();
        let Some(may) = allowed.get(room.as_ref()) else { continue };
        let text = std::fs::read_to_string(&path).expect("UTF-8 source");
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for (at, _) in line.match_indices("crate::") {
                let rest = &line[at + "crate::".len()..];
                let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
                let target = rest[..end.unwrap_or(rest.len())].trim_end_matches(':');
                let other = target.split("::").next().unwrap_or_default();
                seen += 1;
                let fits = other == room
                    || may.iter().any(|m| target == *m || target.starts_with(&format!("{m}::")));
                if !fits {
                    wrong.push(format!("{}:{}: crate::{target}", relative.display(), number + 1));
                }
            }
        }
    }
    assert!(seen > 0, "no import was seen: the test looks in the wrong place");
    assert!(wrong.is_empty(), "imports that ARCHITECTURE.md forbids:\n{}", wrong.join("\n"));
}

#[test]
fn only_the_store_knows_sled() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&src, &mut all);
    let users: Vec<_> = all
        .iter()
        .filter(|p| std::fs::read_to_string(p).expect("UTF-8 source").contains("sled::"))
        .map(|p| p.strip_prefix(&src).expect("below src").display().to_string())
        .collect();
    assert!(users.iter().all(|p| p.starts_with("store/")), "{users:?}");
}
