//! Wiring only.

fn main() -> std::process::ExitCode {
    spotkeeper::cli::main()
}
