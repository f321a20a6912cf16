//! docs/threat-model.md names a test for each line: they are there.

use std::path::{Path, PathBuf};

/// Everything of `folder` that is a Rust file.
fn sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path: PathBuf = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            into.push_str(&std::fs::read_to_string(&path).expect("a text"));
        }
    }
}

#[test]
fn each_defence_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/threat-model.md")).expect("the page");
    let (_, defended) = page.split_once("## What is defended").expect("a part");
    let (defended, _) = defended.split_once("## What is not").expect("a part");
    let mut code = String::new();
    for folder in ["src", "tests"] {
        sources(&root.join(folder), &mut code);
    }
    let rows = defended.lines().filter(|line| line.starts_with("| ")).skip(2);
    let mut count = 0;
    for row in rows {
        count += 1;
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().expect("a column");
        if tests.starts_with("none: ") {
            continue;
        }
        for name in tests.split('`').skip(1).step_by(2) {
            let is_there = if name.contains('/') {
                root.join(name).exists()
            } else {
                code.contains(&format!("fn {name}("))
            };
            assert!(is_there, "`{name}` of the line {row}");
        }
        assert!(tests.contains('`'), "no test: {row}");
    }
    assert!(count >= 15, "{count} lines");
}
