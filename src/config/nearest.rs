//! How near one word is to another, for "did you mean".

/// Words longer than this are not compared: nobody means them, and the work grows with the square.
const LONGEST_WORD: usize = 64;

/// How far `word` is from `known`, or `None` if nobody could have meant it. Case and the difference
/// between `-` and `_` do not count; a word that contains the other is near.
pub fn distance(word: &str, known: &str) -> Option<usize> {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let (word, known) = (plain(word), plain(known));
    if word.chars().count().max(known.chars().count()) > LONGEST_WORD {
        return None;
    }
    let far = (word.chars().count() / 3).clamp(1, 3);
    let edits = edits(&word, &known);
    if edits <= far {
        return Some(edits);
    }
    let (short, long) = if word.len() < known.len() { (&word, &known) } else { (&known, &word) };
    (short.len() >= 4 && long.contains(short.as_str())).then_some(2)
}

/// The word of `known` that is nearest to `word`.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let scored = known.into_iter().filter_map(|k| Some((distance(word, k)?, k)));
    scored.min_by_key(|(score, _)| *score).map(|(_, k)| k)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
pub(super) fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_count_each_slip_once() {
        for (a, b, n) in
            [("", "abc", 3), ("settle", "setle", 1), ("settle", "settel", 1), ("a", "a", 0)]
        {
            assert_eq!(edits(a, b), n, "{a} {b}");
            assert_eq!(edits(b, a), n, "{b} {a}");
        }
    }

    #[test]
    fn only_words_that_somebody_could_have_meant_are_near() {
        assert_eq!(nearest("JobSpec", ["JobSpecs", "JobType"]), Some("JobSpecs"));
        assert_eq!(nearest("job-type", ["job_type"]), Some("job_type"));
        assert_eq!(nearest("x", ["run", "name"]), None);
        assert_eq!(nearest(&"n".repeat(10_000), ["name"]), None);
    }
}
