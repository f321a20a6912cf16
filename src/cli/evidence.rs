//! `spotkeeper evidence JOB`: the raw answers of an attempt's end, redacted, as files.

use super::output::{Format, as_json};
use super::text::{self, Lines, plain};
use super::{Console, Exit, Failure};
use crate::model::view::EvidenceView;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Arguments of `evidence`.
#[derive(Debug, Clone, clap::Args)]
pub struct EvidenceArgs {
    /// The job
    pub job: String,
    /// The answers of this attempt [default: the last one that ended]
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
    /// Folder for the files; `-` writes one JSON document to standard output
    /// [default: JOB.runR.attemptN]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
}

/// Writes the answers.
pub async fn evidence(args: &EvidenceArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let query: Vec<(&str, String)> =
        args.attempt.iter().map(|no| ("attempt", no.to_string())).collect();
    let answer = console.client()?.of_job::<EvidenceView>(&args.job, &["evidence"], &query).await?;
    let to_stdout = args.into.as_deref() == Some(Path::new("-"));
    let format = if to_stdout { Format::Json } else { console.format };
    if (args.into.is_none() || to_stdout)
        && let Some(json) = as_json(&answer.json, format)
    {
        write!(console.out, "{json}")?;
        return Ok(Exit::Done);
    }
    let view = answer.view;
    let folder = args.into.clone().unwrap_or_else(|| {
        PathBuf::from(format!("{}.run{}.attempt{}", view.job, view.run, view.attempt))
    });
    for path in save(&view, &folder)? {
        writeln!(console.out, "{}", plain(&path.display().to_string()))?;
    }
    for missing in &view.missing {
        console.remark(&format!("{} is missing: {}", plain(&missing.file), plain(&missing.why)))?;
    }
    Ok(Exit::Done)
}

/// Writes each answer into `folder`, which is made if it is missing.
pub fn save(view: &EvidenceView, folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |path: &Path, cause| Failure::File { path: path.to_owned(), cause };
    std::fs::create_dir_all(folder).map_err(|cause| failed(folder, cause))?;
    let mut written = Vec::new();
    for (name, answer) in view.files.iter().filter(|(name, _)| is_file_name(name)) {
        let path = folder.join(name);
        let text = text::json(answer, Lines::Many) + "\n";
        let mut file = std::fs::File::create(&path).map_err(|cause| failed(&path, cause))?;
        file.write_all(text.as_bytes()).map_err(|cause| failed(&path, cause))?;
        written.push(path);
    }
    Ok(written)
}

/// A name that came over the socket leads nowhere but into the folder.
fn is_file_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !name.starts_with('.') && !name.is_empty() && name.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::view::MissingView;
    use serde_json::json;

    #[test]
    fn answers_become_files_and_no_name_leads_out_of_the_folder() {
        let names = ["get_job.json", "../x.json", ".hidden", "a/b.json"];
        let view = EvidenceView {
            job: "train".into(),
            run: 1,
            attempt: 2,
            id: "dlc1".into(),
            taken: "2026-11-30T00:00:00Z".into(),
            files: names.map(|name| (name.to_owned(), json!({ "JobId": "dlc1" }))).into(),
            missing: vec![MissingView { file: "x".into(), why: "y".into() }],
        };
        let folder = tempfile::tempdir().expect("a folder");
        let into = folder.path().join("new/folder");
        let written = save(&view, &into).expect("written");
        assert_eq!(written, [into.join("get_job.json")]);
        let text = std::fs::read_to_string(&written[0]).expect("a file");
        assert_eq!(text, "{\n  \"JobId\": \"dlc1\"\n}\n");
        assert_eq!(std::fs::read_dir(&into).expect("a folder").count(), 1);
        let refused = save(&view, &written[0]).expect_err("a file is no folder");
        assert_eq!(refused.exit(), Exit::Error);
    }
}
