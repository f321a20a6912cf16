//! What the real program refuses before it does anything: docs/threat-model.md.

use crate::harness::{JobFile, World};
use std::os::unix::fs::PermissionsExt as _;

fn set_mode(world: &World, name: &str, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(world.path(name), permissions).expect("a mode");
}

fn mode(world: &World, name: &str) -> u32 {
    let about = std::fs::symlink_metadata(world.path(name)).expect("it is there");
    about.permissions().mode() & 0o7777
}

#[test]
fn a_daemon_file_that_everybody_can_change_starts_nothing() {
    let mut world = World::new(&["--virtual"]);
    set_mode(&world, "spotkeeper.toml", 0o666);
    world.start(&[]);
    let mut code = None;
    world.wait("it refuses", |world| {
        code = world.ended().map(|ended| ended.code());
        code.is_some()
    });
    assert_eq!(code, Some(Some(5)));
    let log = world.log();
    assert!(log.contains("E082") && log.contains("can be changed by everybody"), "{log}");
    assert!(!world.path("state").exists(), "nothing was made");
    // The same of a job file: that job alone is not taken.
    set_mode(&world, "spotkeeper.toml", 0o640);
    world.put_job("open", &JobFile::new("open", 1_000));
    set_mode(&world, "jobs.d/open.toml", 0o666);
    world.put_job("good", &JobFile::new("good", 1_000));
    world.start(&[]);
    world.wait("the other one is created", |world| world.ledger().created("good") == 1);
    world.wait_log("E082");
    assert_eq!(world.ledger().created("open"), 0);
    assert_eq!((mode(&world, "state"), mode(&world, "api.sock")), (0o700, 0o660));
    // Mended, it is taken.
    set_mode(&world, "jobs.d/open.toml", 0o644);
    world.wait("it is created", |world| world.ledger().created("open") == 1);
}
