//! What the program is made of: licences, sources and banned crates, by the rules of deny.toml, for
//! people who do not have cargo-deny.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What cargo says of every package on this machine's kind.
struct Tree {
    packages: Vec<Value>,
    /// Who depends on a name, by names.
    parents: BTreeMap<String, BTreeSet<String>>,
}

fn tree() -> Tree {
    let rustc = Command::new("rustc").arg("-vV").output().expect("rustc");
    let rustc = String::from_utf8(rustc.stdout).expect("text");
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let asked = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", host, "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo");
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let found: Value = serde_json::from_slice(&asked.stdout).expect("JSON");
    let packages = found["packages"].as_array().expect("packages").clone();
    let names: BTreeMap<&str, &str> =
        packages.iter().map(|p| (text(p, "id"), text(p, "name"))).collect();
    let mut parents: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in found["resolve"]["nodes"].as_array().expect("nodes") {
        for dependency in node["deps"].as_array().expect("deps") {
            let child = names[text(dependency, "pkg")].to_owned();
            parents.entry(child).or_default().insert(names[text(node, "id")].to_owned());
        }
    }
    assert!(packages.len() > 50, "too few packages: cargo was asked in the wrong way");
    Tree { packages, parents }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn rules() -> toml::Table {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deny.toml");
    std::fs::read_to_string(path).expect("deny.toml").parse().expect("TOML")
}

/// Whether an SPDX expression can be met with the allowed licences alone.
fn is_met(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let plain = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ").replace(" WITH ", "+WITH+");
    let words: Vec<&str> = plain.split(' ').collect();
    let mut at = 0;
    let met = either(&words, &mut at, allowed);
    met && at == words.len()
}

fn either(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let mut met = both(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= both(words, at, allowed);
    }
    met
}

fn both(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let word = words.get(*at).copied().unwrap_or_default();
    *at += 1;
    if word == "(" {
        let met = either(words, at, allowed);
        *at += 1;
        return met;
    }
    allowed.contains(word.replace("+WITH+", " WITH ").as_str())
}

#[test]
fn expressions_are_read_as_they_are_meant() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"]);
    for good in [
        "MIT",
        "MIT/GPL-3.0",
        "GPL-3.0 OR MIT",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
    ] {
        assert!(is_met(good, &allowed), "{good}");
    }
    for bad in
        ["", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "MIT GPL-3.0", "(GPL-3.0 OR X) AND MIT"]
    {
        assert!(!is_met(bad, &allowed), "{bad}");
    }
}

#[test]
fn every_licence_is_allowed_and_every_source_is_the_registry() {
    let rules = rules();
    let list = rules["licenses"]["allow"].as_array().expect("a list");
    let allowed: BTreeSet<&str> = list.iter().filter_map(|word| word.as_str()).collect();
    let mut wrong = Vec::new();
    for package in tree().packages {
        let name = format!("{} {}", text(&package, "name"), text(&package, "version"));
        let licence = package["license"].as_str().unwrap_or_default();
        if !is_met(licence, &allowed) {
            wrong.push(format!("{name}: licence {licence:?}"));
        }
        let own = text(&package, "name") == env!("CARGO_PKG_NAME");
        let source = package["source"].as_str().unwrap_or_default();
        // A mirror of the registry stands in the configuration of cargo, not here.
        let registry = source.starts_with("registry+") && source.ends_with("/crates.io-index");
        if !own && !registry {
            wrong.push(format!("{name}: source {source:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_banned_crate_is_there() {
    let rules = rules();
    let tree = tree();
    let mut wrong = Vec::new();
    for ban in rules["bans"]["deny"].as_array().expect("a list") {
        let name = ban["crate"].as_str().expect("a name");
        let wrappers: Vec<&str> = ban
            .get("wrappers")
            .and_then(|list| list.as_array())
            .map(|list| list.iter().filter_map(|word| word.as_str()).collect())
            .unwrap_or_default();
        let parents = tree.parents.get(name).cloned().unwrap_or_default();
        let there = tree.packages.iter().any(|package| text(package, "name") == name);
        let allowed = !parents.is_empty() && parents.iter().all(|p| wrappers.contains(&p.as_str()));
        if there && !allowed {
            wrong.push(format!("{name}, through {parents:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
