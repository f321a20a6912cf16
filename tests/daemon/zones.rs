//! The host's time zone changes nothing.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Row 80: "Host in Asia/Shanghai, API in UTC, checkpoint names with local time. -> order by step,
/// then by store time". The zones on either side of UTC, one with a change of its hour, and nonsense.
#[test]
fn scenario_80_checkpoints_are_chosen_alike_in_every_time_zone() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/checkpoint-fixtures");
    for case in ["auto/v-time-launch-folders", "ms-swift/versioned-run-dirs", "lightning/complete"]
    {
        let text = std::fs::read_to_string(fixtures.join(case).join("expected.json"));
        let expected: Value = serde_json::from_str(&text.expect("a file")).expect("JSON");
        for zone in ["UTC", "Asia/Shanghai", "America/New_York", "CST-8", "EST5EDT", "no/where"] {
            let url = format!("file://{}/tree", fixtures.join(case).display());
            let output = Command::new(env!("CARGO_BIN_EXE_spotkeeper"))
                .args(["checkpoints", &url, "-o", "json"])
                .env("TZ", zone)
                .stdin(Stdio::null())
                .output()
                .expect("it runs");
            let shown = String::from_utf8_lossy(&output.stdout);
            let shown: Value = serde_json::from_str(&shown)
                .unwrap_or_else(|_| panic!("{shown}{}", String::from_utf8_lossy(&output.stderr)));
            let chosen = &shown["chosen"];
            assert_eq!(chosen["step"], expected["latest_valid_step"], "{case} {zone}: {shown:#}");
            assert_eq!(chosen["path"], expected["path"], "{case} {zone}");
        }
    }
}
