//! Certificates that openssl makes, where it is installed.

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs openssl in this directory; `None`, and a word about it, if it is not installed.
fn openssl(directory: &Path, arguments: &str) -> Option<()> {
    let mut command = Command::new("openssl");
    command.current_dir(directory).args(arguments.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) => assert!(status.success(), "openssl {arguments}"),
        Err(_) => {
            eprintln!("skipped: openssl is not installed");
            return None;
        }
    }
    Some(())
}

/// An authority, and the certificates of a server and of a client that it signed.
pub(crate) fn certificates(directory: &Path) -> Option<()> {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(directory, &format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=authority"))?;
    std::fs::write(directory.join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    for name in ["server", "client"] {
        openssl(directory, &format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"))?;
        let signed = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names";
        openssl(directory, &format!("x509 -req -in {name}.csr {signed} -out {name}.pem"))?;
    }
    Some(())
}
