//! Every key of the daemon file and of job files, in one list.
//!
//! The reader takes only keys that stand here, unknown keys are compared with these, and
//! docs/configuration.md has to name each of them. What is below `[submit]` is not listed: it is
//! CreateJob's, and passes through.

use super::nearest::distance;

/// Whether this version can do what a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It can.
    Supported,
    /// The key has its place and its meaning, and this version cannot do it.
    NotYet,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The table it stands in: empty at the top, `*` for a name of the person's own.
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Whether this version supports it.
    pub support: Support,
}

const fn known(table: &'static str, name: &'static str) -> Key {
    Key { table, name, support: Support::Supported }
}

const fn not_yet(table: &'static str, name: &'static str) -> Key {
    Key { table, name, support: Support::NotYet }
}

/// Keys of the daemon file.
pub const DAEMON: &[Key] = &[
    known("", "owner"),
    known("", "state_directory"),
    known("", "jobs_directory"),
    known("", "job_secrets"),
    known("", "sweep"),
    known("", "api"),
    known("", "log"),
    known("", "credentials"),
    known("", "targets"),
    known("", "alerts"),
    known("sweep", "interval"),
    known("api", "socket"),
    known("log", "level"),
    known("api", "listen"),
    known("api", "listen_anywhere"),
    known("api", "token"),
    known("api.token", "file"),
    known("api.token", "systemd"),
    known("api.token", "environment"),
    known("api.token", "secret"),
    known("credentials", "allow_commands"),
    known("targets.*", "region"),
    known("targets.*", "workspace"),
    known("targets.*", "endpoint"),
    known("targets.*", "credentials"),
    known("targets.*", "acceptance"),
    known("targets.*", "storage"),
    known("targets.*", "max_parallel"),
    known("targets.*", "plain_http"),
    known("targets.*.credentials", "environment"),
    known("targets.*.credentials", "file"),
    known("targets.*.credentials", "systemd"),
    known("targets.*.credentials", "profile"),
    known("targets.*.credentials", "ecs_role"),
    known("targets.*.credentials", "oidc"),
    known("targets.*.credentials", "uri"),
    known("targets.*.credentials", "chain"),
    known("targets.*.storage", "endpoint"),
    known("alerts.*", "kind"),
    known("alerts.*", "url"),
    known("alerts.*", "secret"),
    known("alerts.*", "template"),
    known("alerts.*", "program"),
    known("alerts.*", "to"),
    known("alerts.*", "from"),
    known("alerts.*", "jobs"),
    known("alerts.*", "events"),
    known("alerts.*", "fold"),
    known("alerts.*", "quiet"),
    known("alerts.*", "summary"),
    known("alerts.*", "time_zone"),
    known("alerts.*.url", "file"),
    known("alerts.*.url", "systemd"),
    known("alerts.*.url", "environment"),
    known("alerts.*.url", "secret"),
    known("alerts.*.secret", "file"),
    known("alerts.*.secret", "systemd"),
    known("alerts.*.secret", "environment"),
    known("alerts.*.secret", "secret"),
];

/// Keys of a job file.
pub const JOB: &[Key] = &[
    known("", "name"),
    known("", "run"),
    known("", "target"),
    known("", "launcher"),
    known("", "submit"),
    known("", "submit_file"),
    known("", "spot"),
    known("", "checkpoint"),
    known("", "progress"),
    known("", "retry"),
    known("", "budget"),
    known("", "waiting"),
    known("", "placements"),
    known("", "hang"),
    known("spot", "discount_limit"),
    known("spot", "price_limit_per_minute"),
    known("spot", "price_limit_per_hour"),
    known("checkpoint", "path"),
    known("checkpoint", "url"),
    known("checkpoint", "format"),
    known("checkpoint", "custom"),
    known("checkpoint", "resume"),
    known("checkpoint", "resume_command"),
    known("checkpoint", "first_start"),
    known("checkpoint", "expect_within"),
    known("checkpoint", "settle"),
    known("checkpoint", "settle_interval"),
    known("checkpoint", "ranks"),
    known("checkpoint", "fence"),
    known("checkpoint", "repair_tracker"),
    known("checkpoint", "parts"),
    known("checkpoint.parts.*", "path"),
    known("checkpoint.parts.*", "url"),
    known("checkpoint.parts.*", "format"),
    known("checkpoint.parts.*", "custom"),
    known("checkpoint.parts.*.custom", "pattern"),
    known("checkpoint.parts.*.custom", "required"),
    known("checkpoint.parts.*.custom", "marker"),
    known("checkpoint.custom", "pattern"),
    known("checkpoint.custom", "required"),
    known("checkpoint.custom", "marker"),
    known("progress", "total_steps"),
    not_yet("progress", "done_when"),
    known("retry", "alike"),
    known("retry", "give_up"),
    known("retry", "on_stopped"),
    known("hang", "log_silence"),
    known("hang", "no_checkpoint"),
    known("hang", "then"),
    known("waiting", "queuing"),
    known("waiting", "bidding"),
    known("waiting", "preparing"),
    known("waiting", "max_discount"),
    known("waiting", "max_price_per_minute"),
    known("waiting", "max_price_per_hour"),
    known("waiting.queuing", "after"),
    known("waiting.queuing", "then"),
    known("waiting.bidding", "after"),
    known("waiting.bidding", "then"),
    known("waiting.preparing", "after"),
    known("waiting.preparing", "then"),
    known("placements.*", "target"),
    known("placements.*", "EcsSpec"),
    known("placements.*", "PodCount"),
    known("placements.*", "spot"),
    known("placements.*", "on_demand"),
    known("placements.*", "list_price_per_hour"),
    known("placements.*.spot", "discount_limit"),
    known("placements.*.spot", "price_limit_per_minute"),
    known("placements.*.spot", "price_limit_per_hour"),
    known("budget", "list_price_per_hour"),
    not_yet("budget", "money"),
];

/// The key `name` of `table`.
pub fn find(keys: &[Key], table: &str, name: &str) -> Option<Key> {
    keys.iter().find(|key| key.table == table && key.name == name).copied()
}

/// The known key that is nearest to `name`, with its table if that is another one. A key of the
/// same table wins over an equally near one elsewhere.
pub fn nearest(keys: &[Key], table: &str, name: &str) -> Option<String> {
    // A field of CreateJob that stands outside of its table.
    if find(keys, "", "submit").is_some() && super::fields::BODY.contains(&name) {
        return Some(format!("submit.{name}"));
    }
    let scored = keys.iter().filter_map(|key| {
        let score = distance(name, key.name)?;
        Some((score * 2 + usize::from(key.table != table), key))
    });
    let (_, key) = scored.min_by_key(|(score, _)| *score)?;
    if key.table == table || key.table.is_empty() {
        return Some(key.name.to_owned());
    }
    Some(format!("{}.{}", key.table, key.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_prefers_the_same_table_and_finds_keys_of_others() {
        assert_eq!(nearest(JOB, "checkpoint", "setle").as_deref(), Some("settle"));
        assert_eq!(nearest(JOB, "", "settle").as_deref(), Some("checkpoint.settle"));
        assert_eq!(nearest(JOB, "spot", "target").as_deref(), Some("target"));
        assert_eq!(nearest(JOB, "spot", "discount").as_deref(), Some("discount_limit"));
        assert_eq!(nearest(JOB, "", "zebra_crossing"), None);
    }

    #[test]
    fn every_key_stands_in_the_documentation() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
        let text = std::fs::read_to_string(path).expect("docs/configuration.md");
        for (part, keys) in [("# Daemon file", DAEMON), ("# Job file", JOB)] {
            let from = text.find(part).expect(part);
            let end = text[from + 2..].find("\n# ").map_or(text.len(), |end| from + 2 + end);
            let rows: Vec<&str> =
                text[from..end].lines().filter(|line| line.starts_with("| `")).collect();
            for key in keys {
                let full = [key.table, key.name].map(|t| t.replace('*', "NAME"));
                let full = full.join(".").trim_start_matches('.').to_owned();
                let row = rows.iter().find(|row| row.starts_with(&format!("| `{full}` |")));
                let row = row.unwrap_or_else(|| panic!("`{full}` has no row in {part}"));
                let says_so = row.contains("not supported by this version");
                assert_eq!(says_so, key.support == Support::NotYet, "{full}");
            }
        }
    }
}
