//! Exit codes, for the CLI and the daemon alike. docs/exit-codes.md explains them; none ever
//! changes its meaning.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Done; no differences; the job succeeded.
    Done = 0,
    /// Any other error.
    Error = 1,
    /// A wrong flag or argument, or a question without a terminal to ask on.
    Usage = 2,
    /// The job ended in failure.
    JobFailed = 3,
    /// No such job.
    NoSuchJob = 4,
    /// A file of the configuration is not valid.
    ConfigNotValid = 5,
    /// There are differences.
    Differences = 6,
    /// The daemon is not reachable.
    NotReachable = 7,
    /// Refused: another instance holds the state, or the plan is out of date.
    Refused = 8,
    /// The time is over.
    TimedOut = 9,
    /// Interrupted; the job goes on.
    Interrupted = 130,
}

impl Exit {
    /// All of them, in order.
    pub const ALL: &[Self] = &[
        Self::Done,
        Self::Error,
        Self::Usage,
        Self::JobFailed,
        Self::NoSuchJob,
        Self::ConfigNotValid,
        Self::Differences,
        Self::NotReachable,
        Self::Refused,
        Self::TimedOut,
        Self::Interrupted,
    ];

    /// The number that the shell sees.
    pub fn number(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_each_code_and_no_other() {
        let page = include_str!("../../docs/exit-codes.md");
        let listed: Vec<u8> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
            .collect();
        let all: Vec<u8> = Exit::ALL.iter().map(|exit| exit.number()).collect();
        assert_eq!(listed, all);
    }
}
