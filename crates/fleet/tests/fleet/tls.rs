//! A broker that speaks TLS alone and wants to see a certificate, too.

use crate::certificates::certificates;
use crate::server::Server;
use crate::site::{Site, done};
use std::time::Duration;

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
