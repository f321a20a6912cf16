//! Wiring only.

fn main() {}
