//! Tests that need a process of their own, since what others allocate would be counted too.

use std::process::{Command, Stdio};

/// Set in the process that a test has to itself.
const IS_ALONE: &str = "FLOWPEEL_TEST_IS_ALONE";

/// Runs the test of this full name, whose steps are `test`, in a process of its own.
pub(crate) fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(IS_ALONE).is_some() {
        return test();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]).env(IS_ALONE, "1");
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}
