//! The launcher: the shell text around a user's command that leaves the command's own end in the
//! log, and gives the trainer time to save when the platform asks to stop.
//!
//! What always holds: the user's text runs in the same shell that DLC would have run it in, byte
//! for byte as written, and its exit code is the launcher's. A log with an end line means that the
//! command ended by itself; an uncut log without one, that the pod was killed from outside. POSIX
//! sh only, at most [`OWN_LIMIT`] bytes of our own.

use crate::model::ids::AttemptNo;

/// Bytes that the launcher adds to a command, quoting of the command aside.
pub const OWN_LIMIT: usize = 1024;
/// Seconds that programs of the pod get after a TERM once the command itself has ended. The
/// platform's own grace is shorter; this only keeps a forgotten program from holding a machine.
pub const GROUP_WAIT_S: u32 = 300;

const LINE: &str = "spotkeeper: end attempt=";

/// What the last line of a pod's log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndLine {
    /// The attempt's number.
    pub attempt: AttemptNo,
    /// The pod's rank, if it was a number.
    pub rank: Option<u32>,
    /// The command's exit code.
    pub rc: i32,
}

/// `user_command` inside the launcher.
pub fn wrap(user_command: &str, attempt: AttemptNo) -> String {
    text(user_command, attempt, GROUP_WAIT_S)
}

/// The user's command in a text that [`wrap`] made, or another version's; `None` for any other text.
pub fn unwrap(text: &str) -> Option<String> {
    const OPEN: &str = "eval '";
    let (before, rest) = text.split_once(OPEN)?;
    if !before.starts_with("sk_") || !text.contains(LINE) {
        return None;
    }
    // A quote of the user's own stands as `'\''`: the first that does not is the end.
    let mut command = String::new();
    let mut rest = rest;
    loop {
        let (part, after) = rest.split_once('\'')?;
        command.push_str(part);
        match after.strip_prefix(r"\''") {
            Some(more) => {
                command.push('\'');
                rest = more;
            }
            None => return Some(command),
        }
    }
}

/// The shell text, line by line:
///
/// - `sk_g` looks at the programs of the launcher's process group, itself and dead ones left out;
///   with an argument it sends them TERM, but not to `tee` and other filters: they end with their
///   input, and a trainer whose output pipe breaks may fail to save. True if it saw one.
/// - On TERM: ignore further ones, then pass it on (to the whole group where there is no /proc).
/// - The user's text runs by `eval`, so that a syntax error in it cannot touch the launcher, in a
///   subshell whose own TERM does nothing: it goes on to wait for the trainer.
/// - A `wait` that TERM interrupted says 143 too early: wait again, for each TERM that came before
///   it was ignored. 127 means that it had ended.
/// - It holds under `sh -eu` as well, should DLC's shell ever be started so.
/// - After a TERM an inner shell may be gone before the trainer below it has saved.
fn text(user_command: &str, attempt: AttemptNo, group_wait_s: u32) -> String {
    let user = user_command.replace('\'', r"'\''");
    format!(
        r#"sk_f(){{ read -r sk_s</proc/$1/stat;}} 2>/dev/null
sk_g(){{ sk_m=1;for sk_d in /proc/[0-9]*;do sk_d=${{sk_d#/proc/}};sk_f $sk_d||continue
sk_n=${{sk_s#*\(}};sk_n=${{sk_n%\)*}};set -- "$1" ${{sk_s##*\) }}
[ "$4" = "$sk_o" ]&&[ "$2" != Z ]&&[ $sk_d != $$ ]||continue
sk_m=0;[ "$1" ]||continue
case $sk_n in tee|cat|ts|tr|sed|*grep|*awk);;*)kill -TERM $sk_d 2>/dev/null||:;;esac;done;return $sk_m;}}
sk_t=;sk_o=;sk_f $$&&sk_s=${{sk_s##*\) }}&&sk_s=${{sk_s#* * }}&&sk_o=${{sk_s%% *}}
trap 'trap "" TERM;sk_t=1;if [ "$sk_o" ];then sk_g 1||:;else kill -TERM 0;fi' TERM
(trap : TERM;unset sk_t sk_o sk_s;eval '{user}')&
sk_p=$!;sk_r=0;wait $sk_p||sk_r=$?
sk_i=0;while [ "$sk_t" ]&&[ $sk_r = 143 ]&&[ $sk_i -lt 9 ];do
sk_s=0;wait $sk_p||sk_s=$?;[ $sk_s != 127 ]||break;sk_r=$sk_s;sk_i=$((sk_i+1));done
sk_i=0;while [ "$sk_t" ]&&[ $sk_i -lt {group_wait_s} ]&&sk_g '';do sleep 1;sk_i=$((sk_i+1));done
echo "{LINE}{attempt} rank=${{RANK:-${{SPOTKEEPER_RANK:-0}}}} rc=$sk_r"
exit $sk_r
"#
    )
}

/// The end line in `line`, whatever the platform or an unfinished line of the trainer put before it.
pub fn parse_end_line(line: &str) -> Option<EndLine> {
    let rest = &line[line.rfind(LINE)? + LINE.len()..];
    let mut words = rest.trim_end().split(' ');
    let attempt = words.next()?.parse().ok()?;
    let rank = words.next()?.strip_prefix("rank=")?.parse().ok();
    let rc = words.next()?.strip_prefix("rc=")?.parse().ok()?;
    words.next().is_none().then_some(EndLine { attempt, rank, rc })
}

#[cfg(test)]
mod bare;
pub mod fence;
#[cfg(test)]
mod tests;
