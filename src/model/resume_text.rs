//! Resume arguments as text: filling a template, putting the result into a command, and telling
//! beforehand whether it can reach the trainer.
//!
//! Always holds: a value that comes from a bucket or a path is single-quoted for sh, so that no
//! name of an object is ever run. Must not do: run or parse more of the shell than is needed to
//! answer these questions; what is unclear counts as "not one simple command".

use super::checkpoint::ResumePoint;
use super::shell_text::{Place, not_simple, places};
use super::spec::CheckpointSpec;

/// The placeholders of a resume template.
pub const PLACEHOLDERS: [&str; 4] = ["path", "root", "step", "name"];
/// What may follow the name of a part and a dot: `{critic.path}`.
pub const PART_PLACEHOLDERS: [&str; 3] = ["path", "root", "name"];

/// What is wrong with a resume template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateProblem {
    /// A placeholder that does not exist.
    #[error("`{{{name}}}` is no placeholder; there are {{path}}, {{root}}, {{step}} and {{name}}")]
    Unknown {
        /// The name between the braces.
        name: String,
        /// Byte offset of its brace.
        at: usize,
    },
    /// A placeholder inside quotes, where its own quotes would become part of the value.
    #[error("`{{{name}}}` stands inside quotes: its value is quoted already, leave them out")]
    InQuotes {
        /// The name between the braces.
        name: String,
        /// Byte offset of its brace.
        at: usize,
    },
    /// The checkpoint has no step to put in.
    #[error("`{{step}}` has no value: `{path}` shows no step")]
    NoStep {
        /// Path of the checkpoint.
        path: String,
    },
}

/// Where the resume argument goes in a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumePlace {
    /// The command says so with `{resume}`.
    Placeholder,
    /// The command is one simple command: at its end.
    End,
}

/// Why a resume argument cannot reach the trainer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandProblem {
    /// `{resume}` inside quotes is one word, with quotes in it.
    #[error(
        "`{{resume}}` stands inside quotes, where the argument would be one word; put it outside"
    )]
    InQuotes {
        /// Byte offset of its brace.
        at: usize,
    },
    /// `{resume}` in a comment.
    #[error("`{{resume}}` stands in a comment, which the shell does not read")]
    InComment {
        /// Byte offset of its brace.
        at: usize,
    },
    /// No `{resume}`, and more than one simple command.
    #[error(
        "the command is not one simple command ({what}): write {{resume}} where the trainer's argument belongs"
    )]
    NotSimple {
        /// What was found.
        what: &'static str,
        /// Its byte offset.
        at: usize,
    },
}

/// `text` as one word of sh, whatever is in it.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Whether every placeholder of a resume template exists and stands outside quotes.
///
/// # Errors
/// The first problem.
pub fn check_template(template: &str) -> Result<(), TemplateProblem> {
    check_parts_template(template, &[])
}

/// The same where the checkpoint has parts of these names.
///
/// # Errors
/// The first problem.
pub fn check_parts_template(template: &str, parts: &[&str]) -> Result<(), TemplateProblem> {
    template_problems(template, parts).into_iter().next().map_or(Ok(()), Err)
}

/// Everything that is wrong with the placeholders of a resume template, in the order of its text: one
/// that does not exist may stand inside quotes as well.
pub fn template_problems(template: &str, parts: &[&str]) -> Vec<TemplateProblem> {
    let is_known = |name: &str| match name.split_once('.') {
        Some((part, what)) => parts.contains(&part) && PART_PLACEHOLDERS.contains(&what),
        None => PLACEHOLDERS.contains(&name),
    };
    let mut found = Vec::new();
    for piece in pieces(template) {
        let Kind::Placeholder(name) = piece.kind else { continue };
        if !is_known(name) {
            found.push(TemplateProblem::Unknown { name: name.into(), at: piece.at });
        }
        if piece.place == Place::Quoted {
            found.push(TemplateProblem::InQuotes { name: name.into(), at: piece.at });
        }
    }
    found
}

/// Whether a resume template tells the trainer which checkpoint of a part to load: by a step, which
/// is the same in all, or by its own path.
pub fn names_part(template: &str, part: &str) -> bool {
    let names = |piece: Piece<'_>| match piece.kind {
        Kind::Placeholder("step" | "name") => true,
        Kind::Placeholder(name) => {
            name.split_once('.').is_some_and(|(of, what)| of == part && what != "root")
        }
        Kind::Text | Kind::Literal(_) => false,
    };
    pieces(template).into_iter().any(names)
}

/// Whether a resume template names one checkpoint, rather than the folder in which the trainer
/// finds the newest itself.
pub fn names_one(template: &str) -> bool {
    let names = |piece: Piece<'_>| match piece.kind {
        Kind::Placeholder(name) => name.rsplit('.').next() != Some("root"),
        Kind::Text | Kind::Literal(_) => false,
    };
    pieces(template).into_iter().any(names)
}

/// Whether a resume template names the checkpoint under the main prefix: by a step, or by its path.
pub fn names_main(template: &str) -> bool {
    let names = |piece: Piece<'_>| match piece.kind {
        Kind::Placeholder(name) => name != "root" && !name.contains('.'),
        Kind::Text | Kind::Literal(_) => false,
    };
    pieces(template).into_iter().any(names)
}

/// Whether the resume argument has a place in `command`.
pub fn has_resume(command: &str) -> bool {
    pieces(command).into_iter().any(|piece| piece.kind == Kind::Placeholder("resume"))
}

/// The resume argument for `point`, where `mount` is its location as the container sees it.
///
/// # Errors
/// A placeholder that is unknown, quoted, or without a value.
pub fn render(template: &str, mount: &str, point: &ResumePoint) -> Result<String, TemplateProblem> {
    render_with(template, mount, point, |part| format!("{{mount of {part}}}"))
}

/// The resume argument for `point`, with all parts of its checkpoint.
///
/// # Errors
/// A placeholder that is unknown, quoted, or without a value.
pub fn render_parts(
    template: &str,
    checkpoint: &CheckpointSpec,
    point: &ResumePoint,
) -> Result<String, TemplateProblem> {
    let mount_of = |part: &str| checkpoint.mount_of(part).unwrap_or_default().to_owned();
    render_with(template, &checkpoint.mount, point, mount_of)
}

fn render_with(
    template: &str,
    mount: &str,
    point: &ResumePoint,
    mount_of: impl Fn(&str) -> String,
) -> Result<String, TemplateProblem> {
    let value = |what: &str, mount: &str, path: &str, root: &str| {
        let path = below(mount, path);
        match what {
            "path" => Some(quoted(&path)),
            "root" => Some(quoted(&below(mount, root))),
            "name" => Some(quoted(path.rsplit('/').next().unwrap_or_default())),
            _ => None,
        }
    };
    fill(template, |placeholder| {
        if let Some((part, what)) = placeholder.split_once('.') {
            let part = point.parts.iter().find(|one| one.name == part);
            return Ok(part.and_then(|p| value(what, &mount_of(&p.name), &p.path, &p.root)));
        }
        match (placeholder, point.step) {
            ("step", Some(step)) => Ok(Some(quoted(&step.to_string()))),
            ("step", None) => Err(TemplateProblem::NoStep { path: point.path.clone() }),
            (what, _) => Ok(value(what, mount, &point.path, &point.root)),
        }
    })
}

/// The container path of `relative` below `mount`; `.` is the mount itself and `..` the folder that holds it.
pub fn below(mount: &str, relative: &str) -> String {
    let mount = match mount.trim_end_matches('/') {
        "" => "/",
        trimmed => trimmed,
    };
    match relative {
        "." => mount.to_owned(),
        ".." => match mount.rsplit_once('/') {
            Some(("", _)) => "/".to_owned(),
            Some((parent, _)) => parent.to_owned(),
            // Not an absolute path (`{mount}` itself): the reader resolves it.
            None => format!("{mount}/.."),
        },
        inside if mount == "/" => format!("/{inside}"),
        inside => format!("{mount}/{inside}"),
    }
}

fn fill(
    template: &str,
    mut value: impl FnMut(&str) -> Result<Option<String>, TemplateProblem>,
) -> Result<String, TemplateProblem> {
    let mut filled = String::with_capacity(template.len());
    for piece in pieces(template) {
        match piece.kind {
            Kind::Text => filled.push_str(piece.text),
            Kind::Literal(name) => {
                filled.push('{');
                filled.push_str(name);
                filled.push('}');
            }
            Kind::Placeholder(name) => {
                let Some(value) = value(name)? else {
                    return Err(TemplateProblem::Unknown { name: name.into(), at: piece.at });
                };
                match piece.place {
                    Place::Bare | Place::Comment => filled.push_str(&value),
                    Place::Quoted => {
                        return Err(TemplateProblem::InQuotes { name: name.into(), at: piece.at });
                    }
                }
            }
        }
    }
    Ok(filled)
}

/// Where the resume argument goes in `command`.
///
/// # Errors
/// Why it cannot reach the trainer.
pub fn check_command(command: &str) -> Result<ResumePlace, CommandProblem> {
    let mut found = false;
    for piece in pieces(command) {
        if piece.kind == Kind::Placeholder("resume") {
            match piece.place {
                Place::Bare => found = true,
                Place::Quoted => return Err(CommandProblem::InQuotes { at: piece.at }),
                Place::Comment => return Err(CommandProblem::InComment { at: piece.at }),
            }
        }
    }
    if found {
        return Ok(ResumePlace::Placeholder);
    }
    match not_simple(command) {
        None => Ok(ResumePlace::End),
        Some((at, what)) => Err(CommandProblem::NotSimple { what, at }),
    }
}

/// `command` with the resume argument in it; `resume` is empty on a fresh start. A command without
/// `{resume}` that is not one simple command is returned as it is: [`check_command`] refuses it.
pub fn insert(command: &str, resume: &str) -> String {
    let mut whole = replace(command, resume);
    if check_command(command) == Ok(ResumePlace::End) && !resume.is_empty() {
        whole.truncate(whole.trim_end().len());
        whole.push(' ');
        whole.push_str(resume);
    }
    whole
}

/// `command` with the resume argument in place of each `{resume}`, and nowhere else.
pub fn replace(command: &str, resume: &str) -> String {
    let mut whole = String::with_capacity(command.len() + resume.len());
    for piece in pieces(command) {
        match piece.kind {
            Kind::Placeholder("resume") => whole.push_str(resume),
            Kind::Literal("resume") => whole.push_str("{resume}"),
            Kind::Text | Kind::Placeholder(_) | Kind::Literal(_) => whole.push_str(piece.text),
        }
    }
    whole
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind<'a> {
    Text,
    /// `{name}`.
    Placeholder(&'a str),
    /// `{{name}}`.
    Literal(&'a str),
}

struct Piece<'a> {
    text: &'a str,
    kind: Kind<'a>,
    at: usize,
    place: Place,
}

/// Cuts a text at its placeholders. `{` after `$` begins a shell variable, not a placeholder.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let places = places(text);
    let mut found = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while let Some(brace) = text[at..].find('{').map(|n| at + n) {
        let after_dollar = text[..brace].ends_with('$');
        let cut = (!after_dollar)
            .then(|| {
                let literal = name_between(&text[brace..], "{{", "}}")
                    .map(|name| (Kind::Literal(name), name.len() + 4));
                literal.or_else(|| {
                    name_between(&text[brace..], "{", "}")
                        .map(|name| (Kind::Placeholder(name), name.len() + 2))
                })
            })
            .flatten();
        let Some((kind, length)) = cut else {
            at = brace + 1;
            continue;
        };
        found.push(Piece {
            text: &text[start..brace],
            kind: Kind::Text,
            at: start,
            place: Place::Bare,
        });
        let end = brace + length;
        found.push(Piece { text: &text[brace..end], kind, at: brace, place: places[brace] });
        start = end;
        at = end;
    }
    found.push(Piece { text: &text[start..], kind: Kind::Text, at: start, place: Place::Bare });
    found
}

fn name_between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let inner = text.strip_prefix(open)?;
    let end = inner.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))?;
    let is_name = end > 0 && !inner.as_bytes()[0].is_ascii_digit();
    (is_name && inner[end..].starts_with(close)).then(|| &inner[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checkpoint::{Pin, Position, Tracker};

    fn point(path: &str, root: &str, step: Option<u64>) -> ResumePoint {
        ResumePoint {
            path: path.into(),
            root: root.into(),
            step,
            epoch: None,
            position: Position { epoch: 0, step: step.unwrap_or(0) },
            format: "custom".into(),
            argument: String::new(),
            pin: Pin::Argument,
            tracker: Tracker::Fits,
            parts: Vec::new(),
        }
    }

    #[test]
    fn a_template_is_filled_with_quoted_values() {
        let p = point("ck/iter_0000100", "ck", Some(100));
        let text = render("--load {root} --ckpt-step {step} --from={path} {name}", "/mnt/x/", &p);
        let wanted =
            "--load '/mnt/x/ck' --ckpt-step '100' --from='/mnt/x/ck/iter_0000100' 'iter_0000100'";
        assert_eq!(text.as_deref(), Ok(wanted));
    }

    #[test]
    fn names_from_a_bucket_are_never_run() {
        let p = point("a'; rm -rf $HOME #`/step-1", "a'; rm -rf $HOME #`", Some(1));
        let text = render("{root}", "/m", &p).expect("a value");
        assert_eq!(text, r"'/m/a'\''; rm -rf $HOME #`'");
        let mut shell = std::process::Command::new("sh");
        let shown = shell.arg("-c").arg(format!("printf %s {text}")).output().expect("sh");
        assert_eq!(String::from_utf8_lossy(&shown.stdout), "/m/a'; rm -rf $HOME #`");
    }

    #[test]
    fn the_location_itself_and_its_parent_are_paths_too() {
        let p = point(".", "..", Some(7));
        assert_eq!(
            render("{path} {root} {name}", "/mnt/ck/iter_0000007/", &p).as_deref(),
            Ok("'/mnt/ck/iter_0000007' '/mnt/ck' 'iter_0000007'")
        );
        assert_eq!(
            render("{path} {root}", "/", &point("ck", ".", None)).as_deref(),
            Ok("'/ck' '/'")
        );
        assert_eq!(render("{root}", "{mount}", &p).as_deref(), Ok("'{mount}/..'"));
    }

    #[test]
    fn unknown_and_quoted_placeholders_are_named() {
        let error = check_template("--x {stp}").expect_err("unknown");
        assert_eq!(error, TemplateProblem::Unknown { name: "stp".into(), at: 4 });
        for known in PLACEHOLDERS {
            assert!(error.to_string().contains(&format!("{{{known}}}")), "{error}");
        }
        assert!(matches!(
            check_template("--x \"{root}/a\""),
            Err(TemplateProblem::InQuotes { at: 5, .. })
        ));
        assert_eq!(check_template("--load {root} ${HOME} {{root}} {\"a\":1} {a,b}"), Ok(()));
        let all: Vec<(bool, usize)> = template_problems("--x '{root}' {stp} '{stq}'", &[])
            .into_iter()
            .map(|problem| match problem {
                TemplateProblem::Unknown { at, .. } => (true, at),
                TemplateProblem::InQuotes { at, .. } => (false, at),
                TemplateProblem::NoStep { .. } => panic!("it needs a checkpoint"),
            })
            .collect();
        assert_eq!(all, [(false, 5), (true, 13), (true, 20), (false, 20)]);
        let no_step = render("{step}", "/m", &point("x", ".", None));
        assert_eq!(no_step, Err(TemplateProblem::NoStep { path: "x".into() }));
    }

    #[test]
    fn resume_is_put_where_the_command_says() {
        assert_eq!(
            insert("python a.py {resume} && echo ok", "--load 'x'"),
            "python a.py --load 'x' && echo ok"
        );
        assert_eq!(insert("python a.py {resume} && echo ok", ""), "python a.py  && echo ok");
        assert_eq!(insert("echo ${resume} {{resume}} {resume}", "R"), "echo ${resume} {resume} R");
        assert_eq!(insert("python a.py\n", "--load 'x'"), "python a.py --load 'x'");
        assert_eq!(insert("python a.py\n", ""), "python a.py\n");
        assert_eq!(insert("a && b", "R"), "a && b");
        assert_eq!(insert("python {cfg}.py", "R"), "python {cfg}.py R");
    }

    #[test]
    fn one_simple_command_takes_the_argument_at_its_end() {
        for simple in [
            "python train.py",
            "A=1 B='x;y' torchrun --n 2 train.py --m \"a && b\" \n",
            "python train.py \\\n  --x 1",
            "python train.py --x a\\;b c#d ${X}",
            "python 'it''s' \"$(date)\"",
            "torchrun -c train.py",
        ] {
            assert_eq!(check_command(simple), Ok(ResumePlace::End), "{simple:?}");
        }
        for (other, at) in [
            ("a; b", 1),
            ("cd /x && a", 6),
            ("a | tee log", 2),
            ("a > log", 2),
            ("a\nb", 1),
            ("(a)", 0),
            ("a &", 2),
            ("a `b`", 2),
            ("a # b", 2),
            ("a 'b", 3),
            ("a \\", 2),
            ("if a", 0),
            ("bash -lc 'a'", 5),
            ("/bin/sh -c 'a'", 8),
            ("", 0),
        ] {
            match check_command(other) {
                Err(CommandProblem::NotSimple { at: found, .. }) => {
                    assert_eq!(found, at, "{other:?}");
                }
                wrong => panic!("{other:?}: {wrong:?}"),
            }
        }
    }

    #[test]
    fn a_placeholder_that_the_shell_would_not_split_is_refused() {
        assert_eq!(check_command("a && b {resume}"), Ok(ResumePlace::Placeholder));
        assert_eq!(check_command("(cd x; a {resume}) > log"), Ok(ResumePlace::Placeholder));
        assert_eq!(check_command("bash -c 'a \"$@\"' _ {resume}"), Ok(ResumePlace::Placeholder));
        assert_eq!(check_command("bash -c 'a {resume}'"), Err(CommandProblem::InQuotes { at: 11 }));
        assert_eq!(check_command("a \"{resume}\""), Err(CommandProblem::InQuotes { at: 3 }));
        assert_eq!(check_command("a $'\\'{resume}'"), Err(CommandProblem::InQuotes { at: 6 }));
        assert_eq!(check_command("a # {resume}"), Err(CommandProblem::InComment { at: 4 }));
        assert_eq!(check_command("a #x\nb {resume}"), Ok(ResumePlace::Placeholder));
        // Neither of these is the placeholder.
        assert_eq!(check_command("a ${resume}"), Ok(ResumePlace::End));
        assert_eq!(check_command("a '{{resume}}'"), Ok(ResumePlace::End));
    }
}
