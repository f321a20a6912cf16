//! The demo: its script and its small trainer.
