//! `spotkeeper explain Ennn`: the page of docs/errors, which is part of the program.

use super::output::as_json;
use super::{Console, Exit, Failure};
use crate::api::wire::document;
use serde_json::json;

/// Arguments of `explain`.
#[derive(Debug, Clone, clap::Args)]
pub struct ExplainArgs {
    /// The code, such as E021
    pub code: String,
}

macro_rules! pages {
    ($($code:literal)*) => {
        /// Each code and its page.
        pub const PAGES: &[(&str, &str)] = &[$((
            $code,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors/", $code, ".md")),
        )),*];
    };
}

pages! {
    "E020" "E021" "E022" "E023" "E024" "E025" "E026" "E027" "E028" "E029"
    "E030" "E031" "E032" "E033" "E034" "E035" "E036" "E037" "E038" "E039"
    "E040" "E041" "E043" "E044" "E045" "E046" "E047" "E048" "E049" "E050" "E051" "E052" "E053" "E054"
    "E055" "E056" "E057" "E058" "E059" "E060" "E061" "E062" "E063" "E064" "E065" "E066" "E067" "E068" "E069" "E070" "E071" "E072" "E073" "E074" "E080" "E081" "E082" "E101"
    "E102" "E103" "E104" "E105" "E106" "E107" "E108" "E109" "E110" "E111" "E112" "E113"
    "E120" "E121" "E122" "E123" "E124" "E125" "E126" "E127" "E128" "E129"
    "E130" "E131" "E132" "E133" "E134" "E135" "E136"
}

/// The page of a code, written as `E021`, `e21` or `21`.
pub fn page(code: &str) -> Option<(&'static str, &'static str)> {
    let number = code.trim().trim_start_matches(['E', 'e', 'W', 'w']);
    let number: u16 = number.parse().ok()?;
    let code = format!("E{number:03}");
    PAGES.iter().find(|(known, _)| *known == code).copied()
}

/// Shows the page of a code; needs no daemon.
pub fn explain(args: &ExplainArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let Some((code, text)) = page(&args.code) else {
        let first = PAGES.first().map_or("", |(code, _)| code);
        let last = PAGES.last().map_or("", |(code, _)| code);
        return Err(Failure::Usage(format!(
            "`{}` is not the code of an error: there are {} of them from {first} to {last}",
            args.code,
            PAGES.len(),
        )));
    };
    let json = document(&json!({ "code": code, "text": text }));
    let text = as_json(&json, console.format).unwrap_or_else(|| text.trim_end().to_owned() + "\n");
    write!(console.out, "{text}")?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_part_of_the_program_and_no_code_is_without_one() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("the folder of pages")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
            .collect();
        files.sort();
        let pages: Vec<&str> = PAGES.iter().map(|(code, _)| *code).collect();
        assert_eq!(pages, files);
        let calls = crate::openapi::kind::TABLE.iter().map(|row| &row.page);
        let others = crate::api::wire::codes::ALL.iter().chain(crate::config::codes::ALL);
        for code in others.chain(calls) {
            let (_, text) = page(&code.to_string()).unwrap_or_else(|| panic!("{code}: no page"));
            assert!(text.starts_with(&format!("# {code}: ")), "{code}");
            assert!(text.contains("## What to do"), "{code}");
        }
    }

    #[test]
    fn a_code_is_read_as_people_write_it() {
        for text in ["E021", "e21", " 21", "W021"] {
            assert_eq!(page(text).map(|(code, _)| code), Some("E021"), "{text}");
        }
        for text in ["", "E", "E999", "E-1", "x"] {
            assert_eq!(page(text), None, "{text}");
        }
    }
}
