//! The metrics of a run from outside: over HTTP, by Prometheus' own tools, in the dashboard and in the alert rules.

mod clients;
mod exposition;
mod hostile;

use clients::{ask, get, run};
use flowpeel::handover::Counts;
use flowpeel::list::Header;
use flowpeel::metrics::http::{Server, serve};
use flowpeel::metrics::{CaptureCounts, ListFigures, Load, Metrics, Setup};
use flowpeel::parse::Unusable;
use flowpeel::signal::SignalCounts;
use flowpeel::snapshot::Figures;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn metrics() -> Arc<Metrics> {
    Metrics::new(Setup {
        interfaces: ["eth0", "wan \"\\\n{}", "eth0"].map(str::to_owned).to_vec(),
        connections_max: 1_000,
        interval: Some(Duration::from_secs(10)),
        memory: vec![("filter", 1 << 20), ("tables", 1 << 21)],
    })
}

fn figures() -> ListFigures {
    let figures = Figures { end_ns: 1_767_225_610_500_000_000, ..Figures::default() };
    let header = Header { figures, complete: true, flows: 250, half_open: 3, ..Header::default() };
    ListFigures { header, delta: Load { used: 30, limit: 100 }, ..ListFigures::default() }
}

fn served(metrics: &Arc<Metrics>) -> Server {
    serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Arc::clone(metrics)).unwrap()
}

/// A metric's name as a sample has it, with `_sum` or `_count` where there is one.
fn served_names(page: &str) -> BTreeSet<String> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
}

/// Every name of a metric in a text.
fn names_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("flowpeel_")).map(str::to_owned).collect()
}

fn operations(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations").join(name)
}

#[test]
fn what_is_published_is_served() {
    let metrics = metrics();
    for (index, packets) in [(0, 10), (1, 20), (2, 30)] {
        let signals = SignalCounts { signals: 5, ..SignalCounts::default() };
        let unusable = [packets; Unusable::COUNT];
        let counts = CaptureCounts { packets, lost: 1, signals, unusable, ..CaptureCounts::default() };
        metrics.capture(index).publish(&counts);
    }
    metrics.capture(2).set_up(true);
    let counts = Counts { opened: 15, evicted_idle: 4, ..Counts::default() };
    metrics.connections(&counts, Load { used: 9, limit: 90 });
    metrics.list(&figures(), Instant::now());
    let server = served(&metrics);
    let families = exposition::parse(&get(server.local_addr(), "/metrics").body);
    for (name, series, value) in [
        ("flowpeel_packets_total", "{interface=\"eth0\"}", 40.0),
        ("flowpeel_packets_total", "{interface=\"wan \\\"\\\\\\n{}\"}", 20.0),
        ("flowpeel_dropped_packets_total", "{interface=\"eth0\",cause=\"kernel\"}", 2.0),
        ("flowpeel_interface_up", "{interface=\"eth0\"}", 1.0),
        ("flowpeel_unusable_packets_total", "{reason=\"not_tcp\"}", 60.0),
        ("flowpeel_signals_total", "", 15.0),
        ("flowpeel_connections_opened_total", "", 15.0),
        ("flowpeel_connections_evicted_total", "{reason=\"idle\"}", 4.0),
        ("flowpeel_connections_evicted_total", "{reason=\"age\"}", 0.0),
        ("flowpeel_connections_open", "", 250.0),
        ("flowpeel_connections_load_ratio", "", 0.25),
        ("flowpeel_filter_load_ratio", "", 0.1),
        ("flowpeel_delta_load_ratio", "", 0.3),
        ("flowpeel_list_complete", "", 1.0),
        ("flowpeel_list_end_timestamp_seconds", "", 1_767_225_610.5),
        ("flowpeel_list_interval_seconds", "", 10.0),
        ("flowpeel_memory_plan_bytes", "{part=\"tables\"}", 2_097_152.0),
        ("flowpeel_lists_total", "", 1.0),
    ] {
        assert_eq!(families[name].samples.get(&format!("{name}{series}")), Some(&value), "{name}{series}");
    }
    // Labels are bounded: two interfaces, and as many reasons as there are.
    assert_eq!(families["flowpeel_packets_total"].samples.len(), 2);
    assert_eq!(families["flowpeel_unusable_packets_total"].samples.len(), Unusable::COUNT);
}

#[test]
fn latencies_are_served_as_summaries() {
    let metrics = metrics();
    for ms in 1..=100 {
        metrics.latency(flowpeel::metrics::Latency::Peel, Duration::from_millis(ms));
    }
    let families = exposition::parse(&metrics.exposition(Instant::now()));
    let peel = &families["flowpeel_peel_duration_seconds"];
    assert_eq!(peel.samples["flowpeel_peel_duration_seconds_count"], 100.0);
    assert!((peel.samples["flowpeel_peel_duration_seconds_sum"] - 5.05).abs() < 1e-9);
    assert!((peel.samples["flowpeel_peel_duration_seconds{quantile=\"0.9\"}"] - 0.09).abs() < 0.001);
    assert!(
        families["flowpeel_list_duration_seconds"].samples["flowpeel_list_duration_seconds{quantile=\"0.5\"}"].is_nan()
    );
}

#[test]
fn counters_grow_while_they_are_read() {
    const PACKETS: u64 = 200_000;
    let metrics = metrics();
    let publisher = Arc::clone(&metrics);
    let thread = std::thread::spawn(move || {
        for packets in 1..=PACKETS {
            publisher.capture(1).publish(&CaptureCounts { packets, ..CaptureCounts::default() });
        }
    });
    let mut before = 0.0;
    while before < PACKETS as f64 {
        let families = exposition::parse(&metrics.exposition(Instant::now()));
        let present = families["flowpeel_packets_total"].samples.values().copied().fold(0.0, f64::max);
        assert!(present >= before);
        before = present;
    }
    thread.join().unwrap();
}

#[test]
fn a_page_before_the_first_packet_is_a_whole_page() {
    let families = exposition::parse(&Metrics::new(Setup::default()).exposition(Instant::now()));
    assert_eq!(families["flowpeel_lists_total"].samples["flowpeel_lists_total"], 0.0);
    assert!(!families.contains_key("flowpeel_list_complete"), "no list is neither complete nor not");
}

#[test]
fn every_page_and_every_refusal_has_its_status() {
    let metrics = metrics();
    metrics.capture(0).set_up(true);
    let server = served(&metrics);
    let address = server.local_addr();
    assert_eq!((get(address, "/healthz").status, get(address, "/healthz").body.as_str()), (200, "ok\n"));
    let header = Header { complete: false, missing: 120, ..figures().header };
    metrics.list(&ListFigures { header, ..figures() }, Instant::now());
    let health = get(address, "/healthz");
    assert_eq!((health.status, health.body.as_str()), (503, "list incomplete: about 120 connections missing\n"));
    assert!(get(address, "/metrics").head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(get(address, "/").body.contains("/metrics"));
    let headers = "X: y\r\n".repeat(2_000);
    for (request, status) in [
        ("GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        ("GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        ("DELETE /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 405),
        ("GET /metrics HTTP/1.1\r\n\r\n", 400),
        ("GET /metrics HTTP/1.0\r\n\r\n", 200),
        ("HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("nonsense\r\n\r\n", 400),
        (&format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n"), 431),
    ] {
        assert_eq!(ask(address, request).status, status, "{request:.60}");
    }
}

#[test]
fn ordinary_clients_read_it() {
    let metrics = metrics();
    let server = served(&metrics);
    let url = format!("http://{}/metrics", server.local_addr());
    // A proxy that the environment names is not for this machine.
    let python = "import sys, urllib.request as r; o = r.build_opener(r.ProxyHandler({})); \
                  sys.stdout.write(o.open(sys.argv[1], timeout=60).read().decode())";
    let curl = ["--silent", "--fail", "--noproxy", "*", "--max-time", "60", &url];
    for (program, arguments) in [("curl", curl.as_slice()), ("python3", &["-c", python, &url])] {
        if let Some((is_good, said)) = run(program, arguments, "") {
            assert!(is_good, "{program}: {said}");
            assert!(exposition::parse(&said).len() > 40, "{program}");
        }
    }
}

#[test]
fn a_server_that_is_dropped_is_gone_and_its_address_free() {
    let metrics = metrics();
    let server = served(&metrics);
    let address = server.local_addr();
    let idle = clients::connect(address);
    assert_eq!(get(address, "/").status, 200);
    drop(server);
    assert!(std::net::TcpStream::connect(address).is_err());
    drop(idle);
    assert_eq!(get(serve(address, metrics).unwrap().local_addr(), "/").status, 200);
}

#[test]
fn promtool_finds_nothing_to_object_to() {
    let metrics = metrics();
    metrics.list(&figures(), Instant::now());
    for page in [metrics.exposition(Instant::now()), Metrics::new(Setup::default()).exposition(Instant::now())] {
        if let Some((is_good, said)) = run("promtool", &["check", "metrics"], &page) {
            assert!(is_good && said.is_empty(), "{said}");
        }
    }
    let rules = operations("alerts.yml");
    let rules_test = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/commands/metrics/alerts_test.yml");
    for arguments in [["check", "rules", rules.to_str().unwrap()], ["test", "rules", rules_test]] {
        if let Some((is_good, said)) = run("promtool", &arguments, "") {
            assert!(is_good, "{said}");
        }
    }
}

#[test]
fn dashboard_and_alerts_name_only_what_is_served() {
    let metrics = metrics();
    metrics.list(&figures(), Instant::now());
    let server = served(&metrics);
    let served = served_names(&get(server.local_addr(), "/metrics").body);
    for (file, least) in [("grafana.json", 30), ("alerts.yml", 9)] {
        let text = std::fs::read_to_string(operations(file)).unwrap();
        let named = names_in(&text);
        assert!(named.len() >= least, "{file} names {named:?}");
        let unknown: Vec<_> = named.difference(&served).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
    }
}

#[test]
fn the_dashboard_is_whole() {
    let text = std::fs::read_to_string(operations("grafana.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 38, "that of Grafana 10");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "instance"]);
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have one number");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{}", panel["title"]);
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            assert!(expression.contains("instance=~\"$instance\""), "{expression}");
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{expression}");
        }
    }
}
