//! Files of one JSON value a line.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The text of such a file.
pub fn write<'a, T: Serialize + 'a>(values: impl IntoIterator<Item = &'a T>) -> String {
    values.into_iter().fold(String::new(), |mut text, value| {
        text.push_str(&serde_json::json!(value).to_string());
        text.push('\n');
        text
    })
}

/// The values of a file that somebody may be writing: a last line without its end is none yet,
/// and a line of another shape is passed over.
pub fn read<T: DeserializeOwned>(text: &str) -> Vec<T> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    // By way of a value: a number straight out of the text cannot be read into a tagged enum.
    let read = |line| serde_json::from_value(serde_json::from_str(line).ok()?).ok();
    whole.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::trainer::LogLine;

    #[test]
    fn a_line_that_was_cut_is_passed_over() {
        let lines = [LogLine::Start { from: 0 }, LogLine::Step { step: 1 }, LogLine::Done];
        let text = write(&lines);
        assert_eq!(read::<LogLine>(&text), lines);
        assert_eq!(read::<LogLine>(&text[..text.len() - 1]), lines[..2]);
        assert_eq!(read::<LogLine>(&format!("{{}}\n{text}")), lines);
        assert!(read::<LogLine>("").is_empty());
    }
}
