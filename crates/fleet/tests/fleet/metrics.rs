//! What `ship` and `collect` serve with `--metrics`, of a real broker.

use crate::server::Server;
use crate::site::{Running, Site, done, fleet, run};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(20);

/// How long a figure may take to be what it is to be.
const PATIENCE: Duration = Duration::from_secs(120);

/// A command that serves metrics.
struct Served {
    _running: Running,
    address: String,
}

impl Served {
    fn start(command: &mut Command) -> Self {
        let (running, line) = Running::with_first_line(command.args(["--metrics", "127.0.0.1:0"]));
        let address = line.strip_prefix("metrics at http://").and_then(|rest| rest.strip_suffix("/metrics\n"));
        Served { _running: running, address: address.unwrap_or_else(|| panic!("{line}")).to_owned() }
    }

    /// The answer to a request.
    fn get(&self, path: &str) -> String {
        let mut client = TcpStream::connect(&self.address).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The value of this sample, if it is there.
    fn value(&self, sample: &str) -> Option<f64> {
        let page = self.get("/metrics");
        let value = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok());
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        value
    }

    fn assert(&self, sample: &str, expected: f64) {
        assert_eq!(self.value(sample), Some(expected), "{sample} in\n{}", self.get("/metrics"));
    }

    fn wait_for(&self, sample: &str, expected: f64) {
        let began = Instant::now();
        while self.value(sample) != Some(expected) {
            assert!(began.elapsed() < PATIENCE, "{sample} is not {expected} in\n{}", self.get("/metrics"));
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_shipper_shows_what_it_sent_and_that_the_broker_is_away() {
    let Some(mut server) = Server::start("") else { return };
    let site = Site::new();
    site.router("east", 1, 500, EVERY);
    done(&mut site.collect("out", &server.url(), &["--once"]));
    let snapshots = site.snapshots("east");
    let (last, first) = snapshots.split_last().unwrap();
    first.iter().for_each(|name| site.put("east", name));
    let ship = Served::start(&mut site.ship("east", &server.url(), &[]));
    ship.wait_for("flowpeel_ship_snapshots_total", first.len() as f64);
    ship.wait_for("flowpeel_ship_waiting", 0.0);
    ship.assert("flowpeel_ship_frames_total", 8.0 * first.len() as f64);
    ship.assert("flowpeel_ship_whole_frames_total", 8.0);
    ship.assert("flowpeel_ship_connected", 1.0);
    for sample in ["bytes_total", "messages_total", "lag_seconds", "lag_intervals", "end_seconds"] {
        let value = ship.value(&format!("flowpeel_ship_{sample}"));
        assert!(value.is_some_and(|value| value > 0.0), "{sample}: {value:?}");
    }
    assert!(ship.get("/healthz").starts_with("HTTP/1.1 200 OK"));

    server.kill();
    site.put("east", last);
    ship.wait_for("flowpeel_ship_connected", 0.0);
    ship.wait_for("flowpeel_ship_waiting", 1.0);
    let health = ship.get("/healthz");
    assert!(health.starts_with("HTTP/1.1 503") && health.ends_with("the broker is not connected\n"), "{health}");

    server.restart();
    ship.wait_for("flowpeel_ship_snapshots_total", snapshots.len() as f64);
    ship.wait_for("flowpeel_ship_connected", 1.0);
    ship.wait_for("flowpeel_ship_waiting", 0.0);
}

#[test]
fn a_collector_shows_what_it_took_and_could_not_use() {
    let Some(server) = Server::start("") else { return };
    let site = Site::new();
    for (router, seed) in [("east", 1), ("west", 2)] {
        site.router(router, seed, 500, EVERY);
    }
    site.put_all("east");
    let collect = Served::start(&mut site.collect("out", &server.url(), &[]));
    collect.wait_for("flowpeel_collect_connected", 1.0);
    // The stream is made before anything is sent.
    collect.wait_for("flowpeel_collect_waiting_messages", 0.0);
    done(&mut site.ship("east", &server.url(), &["--once"]));
    let count = site.snapshots("east").len() as f64;
    collect.wait_for("flowpeel_collect_lists_total", count);
    collect.assert("flowpeel_collect_frames_total", 8.0 * count);
    for sample in ["lag_seconds", "lag_intervals", "end_seconds"] {
        let value = collect.value(&format!("flowpeel_collect_{sample}{{router=\"east\"}}"));
        assert!(value.is_some_and(|value| value > 0.0), "{sample}: {value:?}");
    }
    collect.wait_for("flowpeel_collect_waiting", 0.0);
    collect.wait_for("flowpeel_collect_waiting_messages", 0.0);
    let bytes = collect.value("flowpeel_collect_bytes_total");
    assert!(bytes > collect.value("flowpeel_collect_messages_total"), "{bytes:?}");
    collect.assert("flowpeel_collect_redelivered_total", 0.0);
    for reason in ["tag", "late", "base", "cut"] {
        collect.assert(&format!("flowpeel_collect_unused_total{{reason=\"{reason}\"}}"), 0.0);
    }

    // West was stolen, and speaks for east with its own key.
    let mut stolen = fleet("ship");
    stolen.args(["--once", "--nats", &server.url(), "--spool"]).arg(site.spool("east"));
    stolen.arg("--note").arg(site.path("stolen.note")).arg("--router-key").arg(site.path("west.key"));
    done(&mut stolen);
    collect.wait_for("flowpeel_collect_unused_total{reason=\"tag\"}", 8.0 * count);
    collect.assert("flowpeel_collect_lists_total", count);
}

#[test]
fn metrics_are_for_this_machine_alone() {
    let site = Site::new();
    let url = "nats://127.0.0.1:1";
    for mut command in [site.ship("east", url, &[]), site.collect("out", url, &[])] {
        let (status, said) = run(command.args(["--metrics", "0.0.0.0:0"]));
        assert!(status == Some(2) && said.contains("only this machine may ask"), "{said}");
    }
}

#[test]
fn alerts_are_what_they_are_to_be_where_promtool_is_installed() {
    let directory = env!("CARGO_MANIFEST_DIR");
    let rules = format!("{directory}/../../docs/operations/fleet-alerts.yml");
    let test = format!("{directory}/tests/fleet/alerts_test.yml");
    for arguments in [["check", "rules", &rules], ["test", "rules", &test]] {
        let Ok(ended) = Command::new("promtool").args(arguments).output() else {
            eprintln!("skipped: promtool is not installed");
            return;
        };
        let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{said}");
    }
}
