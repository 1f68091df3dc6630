//! The header and the examples: the header is what cbindgen makes of the source, and C programs do what they should.

use std::path::{Path, PathBuf};
use std::process::Command;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The header that cbindgen makes of the source.
fn header() -> String {
    let config = cbindgen::Config::from_file(here("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_config(config).with_src(here("src/lib.rs")).generate().unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_is_that_of_the_source() {
    let path = here("include/flowpeel.h");
    let header = header();
    if std::env::var_os("FLOWPEEL_WRITE_HEADER").is_some() {
        std::fs::write(&path, &header).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == header, "write it anew: FLOWPEEL_WRITE_HEADER=1 cargo test -p flowpeel-capi --test c");
}

/// Where cargo has put the libraries of this build: this test is beside them, or one directory below.
fn library() -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap();
    let library = program.ancestors().skip(1).take(2).find(|directory| directory.join("libflowpeel_capi.so").is_file());
    if library.is_none() {
        println!("skipped: the library was not built with this test: cargo build -p flowpeel-capi");
    }
    library.map(Path::to_path_buf)
}

/// Compiles an example with every warning an error, and returns the program; `None`, after saying why, where that is
/// not possible.
fn compiled(example: &str, libraries: &[&str], place: &Path) -> Option<(PathBuf, PathBuf)> {
    let directory = library()?;
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: there is no C compiler");
        return None;
    }
    for library in libraries {
        let mut probe = Command::new("cc")
            .args(["-xc", "-", "-o"])
            .arg(place.join("probe"))
            .arg(format!("-l{library}"))
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut probe.stdin.take().unwrap(), b"int main(void){return 0;}").unwrap();
        if !probe.wait().unwrap().success() {
            println!("skipped: lib{library} is not installed");
            return None;
        }
    }
    let program = place.join(example);
    let output = Command::new("cc")
        .args(["-std=c11", "-D_DEFAULT_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"])
        .arg(here("examples").join(format!("{example}.c")))
        .arg("-I")
        .arg(here("include"))
        .arg("-L")
        .arg(&directory)
        .arg("-lflowpeel_capi")
        .args(libraries.iter().map(|library| format!("-l{library}")))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((program, directory))
}

#[test]
fn what_is_done_wrong_gets_an_error() {
    let place = tempfile::tempdir().unwrap();
    let Some((program, directory)) = compiled("misuse", &[], place.path()) else { return };
    let output = Command::new(program).env("LD_LIBRARY_PATH", directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The connections that the engine lists of a capture, as the example prints them.
fn expected(path: &Path) -> String {
    use flowpeel::engine::Config;
    let mut text = String::new();
    let mut exporter = |list: &flowpeel::list::List| {
        for row in list.rows() {
            text += &format!("{} {} {}\n", row.client, row.server, row.state.name());
        }
        Ok(())
    };
    flowpeel::run::replay(&[path], &Config::default(), &mut exporter, &mut ()).unwrap();
    text
}

#[test]
fn captures_replayed_by_c_make_the_same_lists() {
    let place = tempfile::tempdir().unwrap();
    let Some((program, directory)) = compiled("replay", &["pcap"], place.path()) else { return };
    let captures = std::fs::read_dir(here("../../pcaps")).unwrap().map(|entry| entry.unwrap().path());
    let captures: Vec<_> = captures.filter(|path| path.extension().is_some_and(|kind| kind == "pcap")).collect();
    assert!(!captures.is_empty());
    for capture in captures {
        let output = Command::new(&program).env("LD_LIBRARY_PATH", &directory).arg(&capture).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected(&capture), "{}", capture.display());
    }
}
