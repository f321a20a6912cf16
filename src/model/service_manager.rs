//! What a service manager hands to the one process it watches.

/// Variables that are for the daemon alone: a child that kept them could speak for it.
pub const VARIABLES: [&str; 5] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS"];
