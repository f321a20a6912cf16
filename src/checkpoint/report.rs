//! Findings as `spotkeeper checkpoints URL -o json` prints them.

use super::hints::{hints, mend};
use crate::model::checkpoint::{Findings, Location, ResumePoint};
use crate::model::resume_text::{TemplateProblem, render};
use serde_json::{Map, Value, json};

/// Where a tracker that leads elsewhere would be mended.
#[derive(Debug, Clone, Copy)]
pub struct Mendable<'a> {
    /// The location that was looked into.
    pub location: &'a Location,
    /// The endpoint of its bucket, where one was named.
    pub storage: Option<&'a str>,
}

/// The JSON of findings, with what mends a tracker that makes the resume argument useless.
///
/// # Errors
/// A template that cannot be filled.
pub fn json_with_mend(
    findings: &Findings,
    template: Option<&str>,
    suspects: &[String],
    place: Mendable<'_>,
) -> Result<Value, TemplateProblem> {
    let mut report = json(findings, template, suspects)?;
    let mend = findings.chosen.as_ref().and_then(|point| mend(point, template, place));
    if let (Some(mend), Some(chosen)) = (mend, report.get_mut("chosen")) {
        chosen["mend"] = json!({ "why": mend.why, "command": mend.command });
    }
    Ok(report)
}

/// The JSON of findings. `template` is the person's own resume argument, if any; the argument's paths
/// begin with `{mount}`, which stands for the location as the container sees it. `suspects` are
/// paths on which attempts died.
///
/// # Errors
/// A template that cannot be filled.
pub fn json(
    findings: &Findings,
    template: Option<&str>,
    suspects: &[String],
) -> Result<Value, TemplateProblem> {
    let mut report = Map::new();
    report.insert("format".into(), json!(findings.format));
    let chosen = findings.chosen.as_ref().map(|point| chosen(point, template)).transpose()?;
    report.insert("chosen".into(), json!(chosen));
    if !findings.ambiguous.is_empty() {
        report.insert("ambiguous".into(), json!(findings.ambiguous));
    }
    if !findings.ambiguous_of.is_empty() {
        let roots = findings.ambiguous.iter().zip(&findings.ambiguous_of);
        let roots = roots.map(|(path, names)| json!({ "path": path, "names": names }));
        report.insert("roots".into(), roots.collect());
    }
    let hints = hints(findings);
    if !hints.is_empty() {
        report.insert("hints".into(), json!(hints));
    }
    let candidates: Vec<Value> = findings
        .candidates
        .iter()
        .map(|candidate| {
            json!({
                "step": candidate.step,
                "path": candidate.path,
                "verdict": candidate.wholeness.word(),
                "suspect": suspects.contains(&candidate.path),
                "why": candidate.why,
            })
        })
        .collect();
    report.insert("candidates".into(), Value::Array(candidates));
    Ok(Value::Object(report))
}

fn chosen(point: &ResumePoint, template: Option<&str>) -> Result<Value, TemplateProblem> {
    let resume = render(template.unwrap_or(&point.argument), "{mount}", point)?;
    let mut chosen = Map::new();
    chosen.insert("step".into(), json!(point.step));
    if let Some(epoch) = point.epoch {
        chosen.insert("epoch".into(), json!(epoch));
    }
    chosen.insert("path".into(), json!(point.path));
    chosen.insert("resume".into(), json!(resume));
    if !point.parts.is_empty() {
        let parts = point.parts.iter();
        let parts = parts.map(|part| json!({ "name": part.name, "path": part.path }));
        chosen.insert("parts".into(), parts.collect());
    }
    Ok(Value::Object(chosen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checkpoint::{Candidate, Pin, Position, Tracker, Wholeness};

    #[test]
    fn the_report_has_the_published_keys() {
        let position = Position { epoch: 0, step: 8 };
        let candidate = Candidate {
            path: "ck/iter_0000008".into(),
            step: Some(8),
            epoch: None,
            position,
            wholeness: Wholeness::Whole,
            why: "all there".into(),
            size: 1,
            newest_object: None,
            oldest_object: None,
        };
        let point = ResumePoint {
            path: "ck/iter_0000008".into(),
            root: "ck".into(),
            step: Some(8),
            epoch: None,
            position,
            format: "megatron-legacy".into(),
            argument: "--load {root} --ckpt-step {step}".into(),
            pin: Pin::Argument,
            tracker: Tracker::Fits,
            parts: Vec::new(),
        };
        let findings = Findings {
            format: Some("megatron-legacy".into()),
            chosen: Some(point),
            candidates: vec![candidate],
            ..Findings::default()
        };
        let report = json(&findings, None, &["ck/iter_0000008".into()]).expect("a report");
        assert_eq!(
            report,
            json!({
                "format": "megatron-legacy",
                "chosen": {
                    "step": 8,
                    "path": "ck/iter_0000008",
                    "resume": "--load '{mount}/ck' --ckpt-step '8'",
                },
                "candidates": [{
                    "step": 8,
                    "path": "ck/iter_0000008",
                    "verdict": "whole",
                    "suspect": true,
                    "why": "all there",
                }],
            })
        );
        let ambiguous = Findings { ambiguous: vec!["a".into(), "b".into()], ..Findings::default() };
        let report = json(&ambiguous, None, &[]).expect("a report");
        let wanted =
            json!({"format": null, "chosen": null, "ambiguous": ["a", "b"], "candidates": []});
        assert_eq!(report, wanted);
        let of = vec!["Accelerate".to_owned(), "DeepSpeed".to_owned()];
        let named = Findings { ambiguous_of: of, ..ambiguous };
        let report = json(&named, None, &[]).expect("a report");
        assert_eq!(report["roots"][1], json!({ "path": "b", "names": "DeepSpeed" }));
    }
}
