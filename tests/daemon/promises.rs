//! What the daemon promises about job files, first starts, signals and panics.
