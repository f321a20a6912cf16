//! Names of checkpoints in a layout of the person's own: text with one `{step}` in it.

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternProblem {
    /// No `{step}`, or more than one.
    #[error("pattern `{pattern}` needs `{{step}}` exactly once")]
    Step {
        /// The text.
        pattern: String,
    },
    /// A pattern is one name.
    #[error("pattern `{pattern}` names one folder or file below the root: no `/`")]
    Slash {
        /// The text.
        pattern: String,
    },
}

/// A name with a number in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepPattern {
    before: String,
    after: String,
}

impl StepPattern {
    /// Takes `pattern` apart.
    ///
    /// # Errors
    /// [`PatternProblem`] with the rule that it breaks.
    pub fn parse(pattern: &str) -> Result<Self, PatternProblem> {
        if pattern.contains('/') {
            return Err(PatternProblem::Slash { pattern: pattern.into() });
        }
        match pattern.split_once("{step}") {
            Some((before, after)) if !after.contains("{step}") => {
                Ok(Self { before: before.into(), after: after.into() })
            }
            Some(_) | None => Err(PatternProblem::Step { pattern: pattern.into() }),
        }
    }

    /// The step in `name`, if it is a name of this pattern.
    pub fn step_of(&self, name: &str) -> Option<u64> {
        let number = name.strip_prefix(&self.before)?.strip_suffix(&self.after)?;
        digits(number)
    }
}

/// The whole number that `text` is, if it is nothing but digits and fits.
pub fn digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_is_read_as_a_number() {
        let pattern = StepPattern::parse("step-{step}.pt").expect("a pattern");
        assert_eq!(pattern.step_of("step-0090.pt"), Some(90));
        for other in [
            "step-.pt",
            "step-9.pth",
            "step-x9.pt",
            "Step-9.pt",
            "step-+9.pt",
            "step-99999999999999999999999.pt",
            "step-.pt.pt",
        ] {
            assert_eq!(pattern.step_of(other), None, "{other}");
        }
        assert_eq!(StepPattern::parse("{step}").expect("a pattern").step_of("7"), Some(7));
    }

    #[test]
    fn a_pattern_has_one_step_and_no_slash() {
        assert!(matches!(StepPattern::parse("step"), Err(PatternProblem::Step { .. })));
        assert!(matches!(StepPattern::parse("{step}-{step}"), Err(PatternProblem::Step { .. })));
        assert!(matches!(StepPattern::parse("a/{step}"), Err(PatternProblem::Slash { .. })));
    }
}
