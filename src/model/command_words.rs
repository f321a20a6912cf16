//! The words of a command, as sh would cut them, for questions such as "does it name this trainer".
//!
//! Must not do: run or expand anything. A variable stays as it is written.

/// The words of `command`, quotes taken off. `;`, `&`, `|`, `(` and `)` end a word, as in sh; what
/// follows a `#` that begins a word is a comment.
pub fn words(command: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), close) if open == close => quote = None,
            (Some('"') | None, '\\') => match letters.next() {
                // A line that goes on.
                Some('\n') | None => {}
                Some(kept) => word.get_or_insert_default().push(kept),
            },
            (Some(_), inside) => word.get_or_insert_default().push(inside),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => {
                while letters.next().is_some_and(|letter| letter != '\n') {}
            }
            (None, ';' | '&' | '|' | '(' | ')') => found.extend(word.take()),
            (None, blank) if blank.is_whitespace() => found.extend(word.take()),
            (None, other) => word.get_or_insert_default().push(other),
        }
    }
    found.extend(word);
    found
}

/// Whether a word is the option `name`, alone (`--load`) or with its value (`--load=/mnt/ck`).
pub fn is_option(word: &str, name: &str) -> bool {
    word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_cut_as_sh_cuts_it() {
        let cut = |text: &str| words(text).join("|");
        assert_eq!(cut("torchrun a.py --load /x"), "torchrun|a.py|--load|/x");
        assert_eq!(cut("a 'b c' \"d e\"f g\\ h"), "a|b c|d ef|g h");
        assert_eq!(cut("cd /x && (a --load=1;b)|c"), "cd|/x|a|--load=1|b|c");
        assert_eq!(cut("a \\\n  --b # --load\n--c"), "a|--b|--c");
        assert_eq!(cut("a 'not # a comment' b#c"), "a|not # a comment|b#c");
        assert_eq!(cut("''"), "");
        assert_eq!(words("a ''").len(), 2);
        assert!(is_option("--load", "--load") && is_option("--load=/x", "--load"));
        assert!(!is_option("--load-dir", "--load") && !is_option("x--load", "--load"));
    }
}
