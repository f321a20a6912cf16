//! Where damaged things are kept for a person to look at: `NAME.bad-1`, `NAME.bad-2`, …

/// Damaged things of one name that are kept; older ones are removed.
pub(super) const KEPT: u64 = 3;

/// What comes before the number.
pub(super) const BAD: &str = ".bad-";

/// The new name of a damaged `name`, and what has to go so that not too many are kept.
pub(super) fn place(existing: &[String], name: &str) -> (String, Vec<String>) {
    let number = |other: &String| other.strip_prefix(name)?.strip_prefix(BAD)?.parse::<u64>().ok();
    let last = existing.iter().filter_map(number).max().unwrap_or(0);
    let next = last.saturating_add(1);
    let too_old = |other: &&String| number(other).is_some_and(|n| n + KEPT <= next);
    (format!("{name}{BAD}{next}"), existing.iter().filter(too_old).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_up_and_the_oldest_go() {
        assert_eq!(place(&[], "sled"), ("sled.bad-1".to_owned(), vec![]));
        let existing: Vec<String> =
            (1..=4).map(|n| format!("sled.bad-{n}")).chain(["sled".to_owned()]).collect();
        let (next, gone) = place(&existing, "sled");
        assert_eq!(next, "sled.bad-5");
        assert_eq!(gone, ["sled.bad-1", "sled.bad-2"]);
    }
}
