//! `hotdesk sandbox`: the helper of the local provider, which needs a process of one thread.

use std::process::ExitCode;

pub(crate) fn run() -> ExitCode {
    hotdesk_provider::local::sandbox::main()
}
