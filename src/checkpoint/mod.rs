//! Checkpoints: layouts, integrity tests, the scan over object storage.
