//! A command in the launcher against the same command alone: output, errors and exit code are the
//! same, but for the last line.

use super::tests::{Run, ended, shells};
use super::wrap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};

fn run(shell: &str, text: &str) -> Output {
    let mut command = Command::new(shell);
    command.args(["-c", text]).env("RANK", "0").stdin(Stdio::null());
    command.output().expect("a shell")
}

/// Texts for any POSIX shell.
const PORTABLE: &[&str] = &[
    "echo one; echo two >&2; echo three",
    "printf 'no line end'",
    "printf '\\377\\000\\001 bytes\\n'; exit 255",
    "exit 256",
    "exit 1000",
    "(exit 3)",
    "set -e; (exit 4); echo never",
    "set -eu; x=1; : $x; false || echo caught; exit 6",
    "f() { return 8; }; f",
    "exec cat /no/such/file",
    "exec 3>&1; echo through >&3",
    "sh -c \"sh -c 'echo \\\"a '\\\\''b c'\\\\'' d\\\"'\"",
    "echo \"$(echo \"in $(echo 'deep \"er\"') out\")\" `echo '\\$x'`",
    "cat <<'A' <<B\nnot shown\nA\nb $((6*7)) `echo c` \\$d 'e' \"f\"\nB",
    "cat <<-E\n\ttabs 'go'\n\tE\necho after",
    "case \"it's\" in *\\'s) echo quote;; esac",
    "x='再開 – é'; echo \"${x}\" '😀' | cat",
    "echo a \\\n  b # a comment that ends nowhere",
    "! true",
    "true && false || (echo no; exit 9)",
    "for i in 1 2 3; do echo $i; done | while read -r n; do echo \"<$n>\"; done",
    "trap 'echo at the end >&2; exit 12' EXIT; false",
    "(sleep 0.1; echo late) & wait; echo done",
    "cd / && pwd; umask 077; echo $# \"$@\"",
    "sk_r=7; sk_p=x; sk_i=5; exit $sk_r",
    "eval \"echo 'in eval'\"; . /dev/null",
    "while :; do break; done; echo ${X:-unset}; unset PATH; no-such-program",
];

/// Texts that only bash reads.
const BASH: &[&str] = &[
    "a=(one 'two three' 再開); echo \"${#a[@]} ${a[1]} ${a[-1]}\"",
    "declare -A m=([k]=v); [[ ${m[k]} == v* && abc =~ ^a(.)c$ ]] && echo \"${BASH_REMATCH[1]}\"",
    "set -o pipefail; false | true",
    "diff <(echo a) <(echo b) >/dev/null; echo $?",
    "x=loud; echo \"${x^^}\" \"${x/ou/OU}\" {1..3} $'tab\\tand \\'quote\\''",
    "cat <<< \"here 'string'\"",
    "function g { local y=5; return $((y + 1)); }; g",
    "shopt -s extglob; case abab in +(ab)) echo matches;; esac",
    "(( 2 ** 10 == 1024 )) && printf '%(%s)T\\n' 0",
    "trap 'echo err at $?' ERR; false; exit 3",
    "coproc cat; echo \"${COPROC_PID:+has a pid}\"; kill $COPROC_PID",
    "exec > >(cat); echo through; exec >&-; wait $!",
];

#[test]
fn a_command_says_and_ends_what_it_says_and_ends_alone() {
    for shell in shells() {
        let bash = if shell.ends_with("bash") { BASH } else { &[] };
        for text in PORTABLE.iter().chain(bash) {
            let (alone, inside) = (run(shell, text), run(shell, &wrap(text, 3)));
            let rc = alone.status.code().expect("no signal");
            let mut want = alone.stdout.clone();
            want.extend(format!("spotkeeper: end attempt=3 rank=0 rc={rc}\n").into_bytes());
            let shown = String::from_utf8_lossy(&inside.stdout);
            assert_eq!(inside.stdout, want, "{shell}: {text}: {shown}");
            assert_eq!(inside.status.code(), Some(rc), "{shell}: {text}");
            // A shell counts lines in its own complaints, and names the `eval`.
            if !String::from_utf8_lossy(&alone.stderr).contains(shell.rsplit('/').next().unwrap()) {
                assert_eq!(inside.stderr, alone.stderr, "{shell}: {text}");
            }
        }
    }
}

/// Whether this process was started with the signal ignored, as `nohup` does: its children ignore it
/// as well, and it ends none of them.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a hexadecimal number");
    mask >> (signal - 1) & 1 == 1
}

#[test]
fn every_signal_that_ends_a_program_shows_in_the_code() {
    for shell in shells() {
        for signal in [1, 6, 8, 9, 10, 11, 14, 15].into_iter().filter(|n| !is_ignored(*n)) {
            for text in
                [format!("sh -c 'kill -{signal} $$'"), format!("exec sh -c 'kill -{signal} $$'")]
            {
                let alone = run(shell, &text).status;
                let rc = alone.code().unwrap_or_else(|| 128 + alone.signal().unwrap_or_default());
                assert_eq!(rc, 128 + signal, "{shell}: {text}");
                assert_eq!(run(shell, &wrap(&text, 3)).status.code(), Some(rc), "{shell}: {text}");
            }
        }
    }
}

/// Trainers that the command itself put into the background: its own `wait` ends at TERM, long
/// before they have saved.
#[test]
fn term_reaches_every_program_of_the_group() {
    let trainer = |name: &str| {
        format!(
            "sh -c 'trap \"sleep 1;echo {name} saved;exit 0\" TERM;echo {name} ready;\
             while :;do sleep 0.1;done'"
        )
    };
    let text = format!(
        "{} & {} & (sh -c \"{}\") & wait",
        trainer("a"),
        trainer("b"),
        trainer("c").replace('"', "\\\"")
    );
    for shell in shells() {
        let mut run = Run::start_text("-c", shell, &super::text(&text, 3, 30), &[]);
        run.until_all(&["a ready", "b ready", "c ready"]);
        run.term();
        let (code, log) = run.end();
        let before = ended(shell, &text, (code, log), code);
        for name in ["a", "b", "c"] {
            assert!(before.contains(&format!("{name} saved")), "{shell}: {before}");
        }
    }
}
