//! A query out of typed parts. What is not given is not sent: the server has defaults of its own.

use super::client::Pairs;
use std::fmt::Display;

/// Collects the pairs of a query.
#[derive(Debug, Default)]
pub(super) struct Query(Pairs);

impl Query {
    /// `name`, if there is a value.
    pub(super) fn maybe(mut self, name: &str, value: Option<&(impl Display + ?Sized)>) -> Self {
        self.0.extend(value.map(|value| (name.to_owned(), value.to_string())));
        self
    }

    /// `name`, its values joined by commas, if there are any.
    pub(super) fn list(mut self, name: &str, values: &[impl Display]) -> Self {
        if !values.is_empty() {
            let texts: Vec<_> = values.iter().map(ToString::to_string).collect();
            self.0.push((name.to_owned(), texts.join(",")));
        }
        self
    }

    pub(super) fn pairs(self) -> Pairs {
        self.0
    }
}
