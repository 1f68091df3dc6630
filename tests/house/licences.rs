//! The licences of all crates that flowpeel is built from, as cargo reports them: whoever may use flowpeel may use
//! them.

use serde_json::Value;
use std::process::Command;

/// Licences that only require that their text and the authors' names are kept.
const PERMISSIVE: [&str; 9] =
    ["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "Unicode-3.0", "Unlicense", "0BSD"];

/// Crates of which nothing is in what is built: cbindgen, which only tests use, writes the C header, and tiny-keccak
/// makes random numbers for WebAssembly alone.
const UNBUILT: [&str; 2] = ["cbindgen", "tiny-keccak"];

/// Whether an SPDX expression leaves a choice of permissive licences. Parentheses bind a choice within a conjunction;
/// older manifests write `/` for OR.
fn is_permissive(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    // Within parentheses stand only choices, so a conjunction can be cut at every AND outside of them.
    let (mut depth, mut terms) = (0, vec![String::new()]);
    for word in expression.replace('(', " ( ").replace(')', " ) ").split_whitespace() {
        match (word, depth) {
            ("(", _) => depth += 1,
            (")", _) => depth -= 1,
            ("AND", 0) => terms.push(String::new()),
            _ => *terms.last_mut().unwrap() += &format!("{word} "),
        }
    }
    let is_choice = |term: &String| {
        let mut choices = term.split(" OR ").map(|choice| choice.split(" WITH ").next().unwrap().trim());
        choices.any(|choice| PERMISSIVE.contains(&choice))
    };
    terms.iter().all(is_choice)
}

/// The platform that cargo builds for here: what others would need may not have been downloaded.
fn platform() -> String {
    let output = Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

#[test]
fn every_dependency_is_under_a_permissive_licence() {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--locked",
            "--all-features",
            "--format-version",
            "1",
            "--filter-platform",
            &platform(),
            "--manifest-path",
        ])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    // A manifest at the root is read with those of all members, published or not, and what they depend on.
    let members = metadata["workspace_members"].as_array().unwrap();
    let crates = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/crates")).unwrap();
    assert_eq!(members.len(), 1 + crates.count());
    assert!(packages.len() > 20);
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        if UNBUILT.contains(&package["name"].as_str().unwrap_or_default()) {
            continue;
        }
        assert!(is_permissive(licence), "{} is under {licence}", package["name"]);
    }
}

#[test]
fn every_published_crate_has_both_licences() {
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/crates")).unwrap() {
        let path = entry.unwrap().path();
        let is_unpublished = std::fs::read_to_string(path.join("Cargo.toml")).unwrap().contains("publish = false");
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let root = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/").to_owned() + licence).unwrap();
            let is_there = std::fs::read(path.join(licence)).is_ok_and(|text| text == root);
            assert!(is_there || is_unpublished, "{}: {licence}", path.display());
        }
    }
}

#[test]
fn expressions_are_read() {
    for permissive in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert!(is_permissive(permissive), "{permissive}");
    }
    assert!(is_permissive("Apache-2.0 WITH LLVM-exception"));
    for other in ["none", "GPL-3.0", "MIT AND GPL-3.0", "(GPL-3.0 OR AGPL-3.0) AND MIT", ""] {
        assert!(!is_permissive(other), "{other}");
    }
}
