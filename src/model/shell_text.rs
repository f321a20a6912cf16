//! How sh reads a text, as far as a resume argument has to know: which bytes it takes as they are, and
//! whether the text is one simple command.
//!
//! Must not do: run it, or understand more of the shell. What is unclear is not simple.

/// Where the shell is while it reads a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Bare,
    Quoted,
    Comment,
}

/// For each byte, how the shell reads it. A byte after a backslash counts as quoted.
pub(super) fn places(text: &str) -> Vec<Place> {
    #[derive(Clone, Copy, PartialEq)]
    enum In {
        Bare,
        Single,
        /// `$'…'`, where a backslash keeps the next byte.
        Dollar,
        Double,
        Comment,
    }
    let bytes = text.as_bytes();
    let mut places = Vec::with_capacity(bytes.len());
    let mut state = In::Bare;
    let mut escaped = false;
    for (at, &byte) in bytes.iter().enumerate() {
        let before = at.checked_sub(1).map(|n| bytes[n]);
        places.push(match state {
            In::Bare if !escaped => Place::Bare,
            In::Comment => Place::Comment,
            In::Bare | In::Single | In::Dollar | In::Double => Place::Quoted,
        });
        if std::mem::take(&mut escaped) {
            continue;
        }
        let starts_word = before.is_none_or(|b| b.is_ascii_whitespace() || b";&|()".contains(&b));
        state = match (state, byte) {
            (In::Bare | In::Double | In::Dollar, b'\\') => {
                escaped = true;
                state
            }
            (In::Bare, b'\'') if before == Some(b'$') => In::Dollar,
            (In::Bare, b'\'') => In::Single,
            (In::Bare, b'"') => In::Double,
            (In::Bare, b'#') if starts_word => In::Comment,
            (In::Single | In::Dollar, b'\'') | (In::Double, b'"') | (In::Comment, b'\n') => {
                In::Bare
            }
            _ => state,
        };
    }
    places
}

/// Names of shells: an argument behind `sh -c '…'` would be the shell's, not the trainer's.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "zsh", "ksh"];

/// Words that begin something other than a simple command.
const KEYWORDS: [&str; 14] = [
    "if", "for", "while", "until", "case", "select", "function", "{", "!", "[[", "time", "eval",
    "coproc", "exit",
];

/// The first thing that makes `command` more (or less) than one simple command.
pub(super) fn not_simple(command: &str) -> Option<(usize, &'static str)> {
    let end = command.trim_end().len();
    let text = &command[..end];
    if text.is_empty() {
        return Some((0, "it is empty"));
    }
    let places = places(text);
    for (at, byte) in text.bytes().enumerate() {
        let escaped_newline = byte == b'\n' && places[at] == Place::Quoted;
        if places[at] == Place::Comment {
            return Some((at, "a comment"));
        }
        if places[at] == Place::Quoted || escaped_newline {
            continue;
        }
        let what = match byte {
            b';' => "`;`",
            b'&' => "`&`",
            b'|' => "`|`",
            b'\n' => "a line break",
            b'<' | b'>' => "a redirection",
            b'(' | b')' => "parentheses",
            b'`' => "a back-quote",
            b'#' if at == 0 || text.as_bytes()[at - 1].is_ascii_whitespace() => "a comment",
            _ => continue,
        };
        return Some((at, what));
    }
    if ends_open(text) {
        return Some((end - 1, "a quote or backslash that is not closed"));
    }
    let mut words = text.split_ascii_whitespace();
    let first = words.clone().next().unwrap_or_default();
    if KEYWORDS.contains(&first) {
        return Some((0, "it begins with a word of the shell's own"));
    }
    let mut before = "";
    words.find_map(|word| {
        let shell = SHELLS.contains(&before.rsplit('/').next().unwrap_or_default());
        let takes_text = word.starts_with('-') && !word.starts_with("--") && word.contains('c');
        before = word;
        (shell && takes_text).then(|| {
            (word.as_ptr() as usize - text.as_ptr() as usize, "a shell that reads its own text")
        })
    })
}

/// Whether a text ends inside quotes or right behind a backslash.
fn ends_open(text: &str) -> bool {
    let probe = format!("{text}x");
    places(&probe).last() == Some(&Place::Quoted)
}
