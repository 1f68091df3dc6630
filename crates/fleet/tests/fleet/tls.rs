//! A broker that speaks TLS alone and wants to see a certificate, too.

use crate::server::Server;
use crate::site::{Site, done};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

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
fn certificates(directory: &Path) -> Option<()> {
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

#[test]
fn frames_go_over_tls_with_certificates_on_both_sides() {
    let site = Site::new();
    let directory = site.path("fleet.key").parent().unwrap().to_path_buf();
    let Some(()) = certificates(&directory) else { return };
    let file = |name: &str| site.path(name).to_str().unwrap().to_owned();
    let tls = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}",
        file("server.pem"),
        file("server.key"),
        file("ca.pem")
    );
    let Some(server) = Server::start(&tls) else { return };
    site.router("east", 1, 500, Duration::from_secs(20));
    site.put_all("east");
    let url = server.url().replace("nats://", "tls://");
    let (ca, certificate, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let options = ["--once", "--tls-ca", &ca, "--tls-certificate", &certificate, "--tls-key", &key];
    done(&mut site.collect("out", &url, &options));
    done(&mut site.ship("east", &url, &options));
    done(&mut site.collect("out", &url, &options));
    site.assert_lists("out", "east");
}
