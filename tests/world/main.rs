//! Tests that need no process of their own: the core, the store, the client, the bucket.

mod core_model;
mod dlc_calls;
mod dlc_golden;
mod server;
