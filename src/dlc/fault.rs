//! What a failed call of PAI-DLC means for a person: kind, page, mend, missing permission.

use super::client::ApiError;
use crate::model::error::{Class, Code};
use crate::openapi::error::{CallError, whole};
use crate::openapi::kind::Kind;

/// The RAM action that allows a call, where it is documented.
const RAM_ACTIONS: &[(&str, &str)] = &[
    ("CreateJob", "pai:CreateJob"),
    ("DeleteJob", "pai:DeleteJob"),
    ("GetJob", "pai:GetJob"),
    ("GetJobEvents", "pai:GetJobEvents"),
    ("GetJobMetrics", "pai:GetJobMetrics"),
    ("GetJobSanityCheckResult", "pai:GetJobSanityCheckResult"),
    ("GetPodEvents", "pai:GetPodEvents"),
    ("GetPodLogs", "pai:GetPodLogs"),
    ("GetWebTerminal", "pai:GetWebTerminal"),
    ("ListEcsSpecs", "pai:ListEcsSpecs"),
    ("ListJobSanityCheckResults", "pai:ListJobSanityCheckResults"),
    ("ListJobs", "pai:ListJobs"),
    ("StopJob", "pai:StopJob"),
    ("UpdateJob", "pai:UpdateJob"),
];

/// The RAM action that allows `call`.
pub fn ram_action(call: &str) -> Option<&'static str> {
    RAM_ACTIONS.iter().find(|(name, _)| *name == call).map(|(_, action)| *action)
}

/// The RAM action that the caller lacks: as the answer names it, else that of the call.
fn missing(error: &CallError) -> Option<String> {
    if error.kind() != Kind::Permission {
        return None;
    }
    let refusal = error.refusal()?;
    refusal.missing.clone().or_else(|| ram_action(refusal.action).map(str::to_owned))
}

/// `; the RAM action pai:CreateJob is missing`, or nothing.
pub(super) fn missing_in_words(error: &CallError) -> String {
    in_words(missing(error))
}

fn in_words(missing: Option<String>) -> String {
    missing.map_or(String::new(), |action| format!("; the RAM action {action} is missing"))
}

impl ApiError {
    /// What went wrong.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Credentials { .. } => Kind::NoKeys,
            Self::Nonce { .. } => Kind::Unsendable,
            Self::Call(error) => error.kind(),
            Self::Wire { .. } => Kind::Unreadable,
        }
    }

    /// What the caller should do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Credentials { source, .. } => source.class(),
            Self::Nonce { .. } => Class::Retry,
            Self::Call(error) => error.class(),
            Self::Wire { source, .. } => source.class(),
        }
    }

    /// Its page in docs/errors.
    pub fn page(&self) -> Code {
        self.kind().page()
    }

    /// The code of the answer; empty if there was none.
    pub fn code(&self) -> &str {
        match self {
            Self::Call(error) => error.refusal().map_or("", |refusal| refusal.code.as_str()),
            Self::Credentials { .. } | Self::Nonce { .. } | Self::Wire { .. } => "",
        }
    }

    /// The RAM action that the caller lacks, if that is what is wrong.
    pub fn missing_action(&self) -> Option<String> {
        match self {
            Self::Call(error) => missing(error),
            Self::Credentials { .. } | Self::Nonce { .. } | Self::Wire { .. } => None,
        }
    }

    /// Everything in one line: what happened, its page, what is missing, what mends it.
    pub fn in_full(&self) -> String {
        let lacks = in_words(self.missing_action());
        let text = format!("[{}] {}{lacks}", self.page(), whole(self));
        match self.kind().row().mend {
            "" => text,
            mend => format!("{text}: {mend}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::error::{Refusal, Told};

    fn denied(missing: Option<&str>) -> ApiError {
        ApiError::Call(CallError::Refused(Box::new(Refusal {
            action: "ListJobs",
            http: 403,
            code: "Forbidden.RAM".to_owned(),
            message: "m".to_owned(),
            missing: missing.map(str::to_owned),
            told: Told::default(),
        })))
    }

    #[test]
    fn a_denial_reads_with_its_page_its_missing_action_and_its_mend() {
        assert_eq!(
            denied(None).in_full(),
            "[E126] ListJobs: HTTP 403 Forbidden.RAM: m; the RAM action pai:ListJobs is missing: \
             grant it to the RAM user or role of these keys"
        );
        let named = denied(Some("pai:ListAllJobs"));
        assert_eq!(named.missing_action().as_deref(), Some("pai:ListAllJobs"));
    }
}
