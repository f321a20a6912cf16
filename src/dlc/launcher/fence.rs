//! The fence in front of the launcher: a late twin ends here, before anything of the command runs.
//!
//! What always holds: only a fence that was read whole and names a *later* attempt of the same job
//! stops an attempt. A missing, unreadable, torn or lagging one lets it start: a mount may show
//! yesterday's object, and a job that never starts is worse than a twin, which the daemon also
//! stops by itself as soon as a pass shows it. POSIX sh, true under `sh -eu` too, at most
//! [`FENCE_LIMIT`] bytes besides the path and the job's name.

use crate::model::fence::{EXIT_CODE, Fence, KEY};
use crate::model::ids::AttemptNo;
use crate::model::resume_text::below;

/// Bytes of the fence's shell text, path and job name aside.
pub const FENCE_LIMIT: usize = 320;

const LINE: &str = "spotkeeper: fenced attempt=";

/// The shell text that stands before the launcher's. `mount` is the checkpoint prefix as the
/// container sees it.
pub fn check(fence: &Fence<'_>, mount: &str) -> String {
    let path = below(mount, KEY).replace('\'', r"'\''");
    let (whose, order, attempt) = (fence.whose(), fence.order(), fence.attempt);
    format!(
        r#"if {{ read -r sk_w sk_v sk_s<'{path}';}} 2>/dev/null&&[ "$sk_w" = {whose} ]&&[ "$sk_v" -gt {order} ] 2>/dev/null;then
echo "{LINE}{attempt} rank=${{RANK:-${{SPOTKEEPER_RANK:-0}}}} by $sk_s"
exit {EXIT_CODE};fi;unset sk_w sk_v sk_s
"#
    )
}

/// The attempt that a log line says was stopped by the fence.
pub fn parse_fenced_line(line: &str) -> Option<AttemptNo> {
    let rest = &line[line.rfind(LINE)? + LINE.len()..];
    let (attempt, rest) = rest.split_once(" rank=")?;
    rest.contains(" by run=").then(|| attempt.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Run, TRAINER, ended, shells};
    use super::super::wrap;
    use super::*;
    use crate::model::ids::{JobKey, JobName, Mark, Owner};
    use std::path::Path;

    fn owned(run: u32) -> (Owner, JobKey, Mark) {
        let job = JobKey { name: JobName::new("a.b-c_1").expect("a name"), run };
        (Owner::new("k3f9qz").expect("an owner"), job, Mark::from_random([7; 10]))
    }

    fn text_of(run: u32, attempt: AttemptNo) -> String {
        let (owner, job, mark) = owned(run);
        Fence { owner: &owner, job: &job, attempt, mark: &mark }.text()
    }

    /// The whole text of attempt 3 of run 2 under `mount`.
    fn command(mount: &Path, user: &str) -> String {
        let (owner, job, mark) = owned(2);
        let fence = Fence { owner: &owner, job: &job, attempt: 3, mark: &mark };
        check(&fence, mount.to_str().expect("a text")) + &wrap(user, 3)
    }

    #[test]
    fn the_text_is_small() {
        let (owner, job, mark) = owned(1_000_000);
        let fence = Fence { owner: &owner, job: &job, attempt: u32::MAX, mark: &mark };
        let text = check(&fence, "/mnt");
        assert!(text.len() <= FENCE_LIMIT + "/mnt".len() + "a.b-c_1".len(), "{}", text.len());
    }

    #[test]
    fn trap_29_only_a_later_attempt_in_the_fence_stops_an_attempt_before_it_trains() {
        let folder = tempfile::tempdir().expect("a folder");
        let mount = folder.path().join("it's é");
        let at = mount.join(KEY);
        std::fs::create_dir_all(at.parent().expect("a parent")).expect("a folder");
        let other = |from: &str, to: &str| text_of(2, 9).replace(from, to);
        for (fence, starts) in [
            (None, true),
            (Some(text_of(2, 3)), true),
            (Some(text_of(2, 2)), true),
            (Some(text_of(1, 9)), true),
            (Some(text_of(2, 4)), false),
            (Some(text_of(3, 1)), false),
            // Of another owner, of another job, torn, empty, and of a later version.
            (Some(other("k3f9qz", "aaaaaa")), true),
            (Some(other("a.b-c_1", "a.b-c_11")), true),
            (Some(text_of(2, 9).trim_end().to_owned()), true),
            (Some(String::new()), true),
            (Some("k3f9qz.a.b-c_1 99x\n".to_owned()), true),
            (Some("\u{0}\u{1}\n\n".to_owned()), true),
        ] {
            std::fs::remove_file(&at).ok();
            if let Some(text) = &fence {
                std::fs::write(&at, text).expect("written");
            }
            for (shell, flags) in shells().into_iter().flat_map(|s| [(s, "-c"), (s, "-euc")]) {
                let user = "echo trained ${sk_w-unset} ${sk_v-unset} ${sk_s-unset};exit 5";
                let text = command(&mount, user);
                let case = format!("{shell} {flags} {fence:?}");
                let (code, log) = Run::start_text(flags, shell, &text, &[("RANK", "4")]).end();
                if starts {
                    let log = ended(shell, user, (code, log), 5);
                    assert_eq!(log, "trained unset unset unset", "{case}");
                    continue;
                }
                let named = fence.as_ref().and_then(|text| text.splitn(3, ' ').nth(2));
                let line = format!("{LINE}3 rank=4 by {}", named.expect("a fence"));
                assert_eq!((code, log.as_str()), (EXIT_CODE, line.as_str()), "{case}");
                assert_eq!(parse_fenced_line(&log), Some(3), "{case}");
            }
        }
        std::fs::remove_file(&at).ok();
        std::fs::create_dir(&at).expect("a folder in its place");
        for shell in shells() {
            let text = command(&mount, "exit 5");
            assert_eq!(Run::start_text("-c", shell, &text, &[]).end().0, 5, "{shell}");
        }
    }

    #[test]
    fn behind_an_open_fence_term_still_reaches_the_trainer() {
        let folder = tempfile::tempdir().expect("a folder");
        for shell in shells() {
            let mut run = Run::start_text("-c", shell, &command(folder.path(), TRAINER), &[]);
            run.until("ready");
            run.term();
            let before = ended(shell, TRAINER, run.end(), 7);
            assert!(before.contains("saved"), "{shell}: {before}");
        }
    }

    #[test]
    fn other_lines_are_none_of_the_fence() {
        for line in ["", LINE, "spotkeeper: fenced attempt=x rank=0 by run=1", "fenced attempt=3"] {
            assert_eq!(parse_fenced_line(line), None, "{line}");
        }
        let quoted = format!("echo \"{LINE}3 rank=${{RANK:-0}} by $sk_s\"");
        assert_eq!(parse_fenced_line(&quoted), None);
    }
}
