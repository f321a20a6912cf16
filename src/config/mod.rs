//! Daemon file and job files: loading with line and column, validation.
