//! The command line: one file a verb. Each verb is a function that writes to what it is given and
//! returns an exit code; nothing here ends the process.

pub mod check;
pub mod init;
