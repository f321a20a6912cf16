//! The pure core: what a job is, and what happens next to it.
