//! Any text as the listing of a kernel filter.
//!
//! What enters: bytes. What leaves: nothing; a program or one line that says what is wrong.

use flowpeel::capture::live::BpfProgram;

/// Reads one listing.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let read = || BpfProgram::from_listing(&text);
    match (read(), read()) {
        (Ok(program), Ok(again)) => assert_eq!(program, again),
        (Err(error), Err(again)) => {
            let line = error.to_string();
            assert_eq!(line, again.to_string());
            assert!(line.starts_with("line ") && !line.contains(['\n', '\x1b']), "{line}");
        }
        _ => panic!("reading twice"),
    }
    // Space around lines and numbers says nothing.
    if let Ok(program) = read() {
        let spaced: String = text.lines().map(|line| format!(" {line} \n")).collect();
        assert_eq!(BpfProgram::from_listing(&spaced).unwrap(), program);
    }
}
