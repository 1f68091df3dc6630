//! The past: figures of intervals against the headers, the life of connections against the lists, and connections of
//! an archive against the archive.

use crate::network::{Serving, fleet};
use crate::schema::objections;
use flowpeel::archive::{Ages, Archive, ArchiveConfig, ListFeed};
use flowpeel::engine::{Config, Plan};
use flowpeel::export::{Directory, Format, Keep, Shape};
use flowpeel::list::List;
use flowpeel::queue::WhenFull;
use flowpeel::run::replay;
use flowpeel_traffic::{Traffic, TrafficConfig, write_pcap};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const CONNECTIONS: u64 = 5_000;

/// Two routers that see the same connections, with a list every ten seconds, and the archive of one that is "east".
pub(crate) struct Years(TempDir);

impl Years {
    pub(crate) fn new() -> Self {
        Years::of(["east", "west"], 11)
    }

    /// Routers with these names, and connections of this seed.
    pub(crate) fn of(names: [&str; 2], seed: u64) -> Self {
        let years = Years(tempfile::tempdir().unwrap());
        let capture = years.path("capture.pcap");
        let config = TrafficConfig { data_packets: 0..=3, ..TrafficConfig::mixed(seed, CONNECTIONS) };
        write_pcap(&mut Traffic::new(config).unwrap(), &mut BufWriter::new(File::create(&capture).unwrap())).unwrap();
        let config = Config { every: Some(Duration::from_secs(10)), ..Config::default() };
        for (router, is_compressed) in names.into_iter().zip([false, true]) {
            let path = years.path("lists").join(flowpeel_fleet::subject::folder(router));
            let format = Format { compress: is_compressed, ..Format::default() };
            let mut directory = Directory::new(&path, false, format, Keep::default()).unwrap();
            replay(&[&capture], &config, &mut directory, &mut ()).unwrap();
        }
        years.end_with_the_fullest();
        let (archive, _) = Archive::start(&years.path("east"), ArchiveConfig::default(), WhenFull::Wait).unwrap();
        let plan = Plan::new(&config).unwrap().recording(archive.inlet());
        let mut feed = ListFeed::new(&archive);
        let mut lists = |list: &List| feed.list(list, Arc::new(Ages::of(list)));
        let inputs = std::iter::once(flowpeel::capture::Replay::open(&capture));
        flowpeel::run::run(&plan, inputs, &mut lists, &mut (), None).unwrap();
        archive.finish().unwrap();
        years
    }

    /// Takes the lists away that come after the one with the most connections: in the last, few are still open.
    fn end_with_the_fullest(&self) {
        let all: Vec<PathBuf> = fs::read_dir(self.path("lists"))
            .unwrap()
            .flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap())
            .map(|entry| entry.unwrap().path())
            .collect();
        let plain = all.iter().filter(|path| path.extension().is_some_and(|extension| extension == "ndjson"));
        let fullest = plain.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
        let second = |path: &Path| path.file_name().unwrap().to_str().unwrap().split('.').next().unwrap().to_owned();
        let later = all.iter().filter(|path| second(path) > second(fullest));
        later.for_each(|path| fs::remove_file(path).unwrap());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn serve(&self) -> Serving {
        Serving::start(&self.path("lists"), &["--archive", self.path("east").to_str().unwrap()])
    }

    /// The lists of the router that are not compressed: each one's header and lines, by time.
    fn lists(&self) -> Vec<(Value, Vec<Value>)> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(self.path("lists/east")).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let lists = paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "ndjson"));
        let read = |path: &Path| {
            let text = fs::read_to_string(path).unwrap();
            let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
            (lines.next().unwrap(), lines.collect())
        };
        lists.map(|path| read(path)).collect()
    }
}

fn described(serving: &Serving, path: &str, query: &str, status: u16) -> Value {
    let api = serving.get("/openapi.json").json();
    let answer = serving.get(&format!("{path}{query}"));
    assert_eq!(answer.status, status, "{query}: {answer:?}");
    let schema = &api["paths"][path]["get"]["responses"][status.to_string()]["content"]["application/json"]["schema"];
    let value = serde_json::from_str(&answer.body).unwrap();
    let objections = objections(&api, schema, &value, path);
    assert!(objections.is_empty(), "{query}: {objections:?}");
    value
}

/// Asks until what is read beside the view is there.
fn history(serving: &Serving, query: &str, points: usize) -> Value {
    loop {
        let answer = described(serving, "/api/v1/history", query, 200);
        if answer["points"].as_array().unwrap().len() >= points {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn figures_are_those_of_the_headers() {
    let years = Years::new();
    let serving = years.serve();
    let lists = years.lists();
    assert!(lists.len() > 5, "{}", lists.len());
    let one = history(&serving, "?router=east&points=1000", lists.len());
    let both = history(&serving, "?points=1000", lists.len());
    for ((point, sum), (header, lines)) in
        one["points"].as_array().unwrap().iter().zip(both["points"].as_array().unwrap()).zip(&lists)
    {
        let header = &header["flow_list"];
        for (field, name) in [("open", "flows"), ("half_open", "half_open"), ("opened", "opened"), ("closed", "closed")]
        {
            assert_eq!(point[field], header[name], "{point} {header}");
            assert_eq!(sum[field].as_u64().unwrap(), 2 * header[name].as_u64().unwrap());
        }
        assert_eq!((&point["complete"], &point["missing"]), (&header["complete"], &header["missing"]));
        assert_eq!(lines.len() as u64, point["open"].as_u64().unwrap() + point["half_open"].as_u64().unwrap());
        assert_eq!(sum["routers"], 2);
    }
    assert_eq!((&one["step"], &both["routers"]), (&10.0.into(), &2.into()));
    let opened = |course: &Value| {
        course["points"].as_array().unwrap().iter().map(|point| point["opened"].as_u64().unwrap()).sum::<u64>()
    };
    let coarse = described(&serving, "/api/v1/history", "?router=east&points=3", 200);
    assert!(coarse["points"].as_array().unwrap().len() <= 3);
    assert_eq!(opened(&coarse), opened(&one), "what opened is in some step, however long steps are");
    assert!(described(&serving, "/api/v1/history", "?router=north", 200)["points"].as_array().unwrap().is_empty());
    assert_eq!(
        described(&serving, "/api/v1/history", "?since=1ms&router=east", 200)["points"].as_array().unwrap().len(),
        1
    );
    for query in ["?points=0", "?points=1001", "?since=yesterday", "?until=", "?router=a&router=b", "?x=1"] {
        described(&serving, "/api/v1/history", query, 400);
    }
}

#[test]
fn the_life_of_a_connection_is_what_the_lists_have() {
    let years = Years::new();
    let serving = years.serve();
    let lists = years.lists();
    // Each connection with the lists in which it is, and its states in them.
    let mut lives: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (header, lines) in &lists {
        for line in lines {
            let end = |side: &str| {
                let (ip, port) = (line[format!("{side}_ip")].as_str().unwrap(), &line[format!("{side}_port")]);
                if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
            };
            let ends = format!("?client={}&server={}", end("src"), end("dest"));
            let state = line["flow"]["state"].as_str().unwrap().to_owned();
            lives.entry(ends).or_default().push((header["flow_list"]["end"].as_str().unwrap().to_owned(), state));
        }
    }
    let changing = lives.iter().filter(|(_, words)| words.iter().any(|(_, state)| *state != words[0].1));
    let longest = lives.iter().max_by_key(|(_, words)| words.len());
    let some: Vec<_> = changing.take(5).chain(longest).chain(lives.iter().step_by(lives.len() / 40)).collect();
    assert!(some.len() > 20);
    for (ends, words) in some {
        let life = described(&serving, "/api/v1/life", ends, 200);
        assert_eq!((&life["complete"], &life["lists"]), (&true.into(), &(2 * lists.len()).into()));
        for router in life["routers"].as_array().unwrap() {
            let stages = router["stages"].as_array().unwrap();
            assert_eq!(stages.iter().map(|stage| stage["lists"].as_u64().unwrap()).sum::<u64>(), words.len() as u64);
            assert_eq!(stages[0]["since"], words[0].0, "{ends}");
            assert_eq!(stages[0]["state"], words[0].1);
            let last = &stages[stages.len() - 1];
            assert_eq!(
                (&last["until"], &last["state"]),
                (&words[words.len() - 1].0.clone().into(), &words[words.len() - 1].1.clone().into())
            );
        }
    }
    let nobody = described(&serving, "/api/v1/life", "?client=203.0.113.7:1&server=203.0.113.8:2", 200);
    assert!(nobody["routers"].as_array().unwrap().iter().all(|router| router["stages"].as_array().unwrap().is_empty()));
    for query in [
        "",
        "?client=1.1.1.1:1",
        "?client=1.1.1.1:1&server=[::1]:1",
        "?client=1.1.1.1&server=1.1.1.1:1",
        "?client=1.1.1.1:1&server=1.1.1.2:1&vlan=x",
    ] {
        described(&serving, "/api/v1/life", query, 400);
    }
}

#[test]
fn pages_of_an_address_are_what_the_archive_has() {
    let years = Years::new();
    let serving = years.serve();
    let mut of_server: BTreeMap<String, u64> = BTreeMap::new();
    for (_, lines) in years.lists() {
        lines.iter().for_each(|line| *of_server.entry(line["dest_ip"].as_str().unwrap().to_owned()).or_default() += 1);
    }
    let (server, _) = of_server.iter().max_by_key(|(_, count)| **count).unwrap();
    let expected = flowpeel::archive::find(
        &years.path("east"),
        &flowpeel::archive::Query { one: server.parse().unwrap(), other: None },
    );
    let mut expected: Vec<String> = expected
        .unwrap()
        .entries
        .iter()
        .map(|entry| format!("{} {} {}", entry.client(), entry.start_ns(), entry.fate.reason().unwrap_or("open")))
        .collect();
    let (mut found, mut after, mut starts) = (Vec::new(), String::new(), Vec::new());
    loop {
        let page = described(&serving, "/api/v1/past", &format!("?end={server}&limit=7{after}"), 200);
        assert_eq!(page["complete"], true);
        for row in page["connections"].as_array().unwrap() {
            let start = flowpeel::select::time_ns(row["flow"]["start"].as_str().unwrap()).unwrap();
            let client: std::net::IpAddr = row["src_ip"].as_str().unwrap().parse().unwrap();
            let client = std::net::SocketAddr::new(client, row["src_port"].as_u64().unwrap() as u16);
            found.push(format!("{client} {start} {}", row["flow"]["reason"].as_str().unwrap_or("open")));
            starts.push(start);
            assert_eq!(row["router"], "east");
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", crate::network::escaped(next)),
            None => break,
        }
    }
    assert!(found.len() > 20 && starts.is_sorted_by(|one, other| one >= other));
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let reset = described(&serving, "/api/v1/past", &format!("?end={server}&filter=reason+rst&limit=1000"), 200);
    let is_reset = |row: &String| row.ends_with(" rst");
    assert_eq!(reset["connections"].as_array().unwrap().len(), expected.iter().filter(|row| is_reset(row)).count());
    for query in [
        "",
        "?end=host",
        "?end=1.1.1.1&limit=0",
        "?end=1.1.1.1&after=1",
        "?end=1.1.1.1&filter=prot",
        "?end=1.1.1.1&since=x",
    ] {
        described(&serving, "/api/v1/past", query, 400);
    }
}

#[test]
fn without_an_archive_the_answer_says_so() {
    let years = Years::new();
    let serving = Serving::start(&years.path("lists"), &[]);
    let answer = described(&serving, "/api/v1/past", "?end=1.1.1.1", 404);
    assert!(answer["error"]["reason"].as_str().unwrap().contains("serve --archive"), "{answer}");
    let lists = years.path("lists");
    let ended = fleet("serve").arg("--from").arg(&lists).arg("--archive").arg(years.path("nowhere")).output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
}

#[test]
fn lists_as_parquet_have_the_same_past_and_present() {
    if Shape::Parquet.check().is_err() {
        return eprintln!("skipped: this build has no Parquet");
    }
    let place = tempfile::tempdir().unwrap();
    let capture = place.path().join("capture.pcap");
    let traffic = TrafficConfig { data_packets: 0..=3, ipv6_share: 0.3, ..TrafficConfig::mixed(12, CONNECTIONS) };
    write_pcap(&mut Traffic::new(traffic).unwrap(), &mut BufWriter::new(File::create(&capture).unwrap())).unwrap();
    let config = Config { every: Some(Duration::from_secs(10)), ..Config::default() };
    let serving = [("lines", Shape::Ndjson), ("columns", Shape::Parquet)].map(|(name, shape)| {
        let format = Format { shape, ..Format::default() };
        let mut directory =
            Directory::new(place.path().join(name).join("east"), false, format, Keep::default()).unwrap();
        replay(&[&capture], &config, &mut directory, &mut ()).unwrap();
        Serving::start(&place.path().join(name), &[])
    });
    let lists = fs::read_dir(place.path().join("lines/east")).unwrap().map(|entry| entry.unwrap().path());
    let mut lists: Vec<PathBuf> =
        lists.filter(|path| path.extension().is_some_and(|extension| extension == "ndjson")).collect();
    lists.sort();
    let [lines, columns] = serving.each_ref().map(|serving| history(serving, "?points=1000", lists.len()));
    assert_eq!(lines, columns);
    let [lines, columns] =
        serving.each_ref().map(|serving| described(serving, "/api/v1/connections", "?limit=1000", 200));
    assert!(lines["connections"].as_array().unwrap().len() > 50);
    assert_eq!(lines["connections"], columns["connections"]);
    let middle = fs::read_to_string(&lists[lists.len() / 2]).unwrap();
    let flows: Vec<Value> = middle.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(flows.len() > 100);
    for flow in flows.iter().step_by(flows.len() / 10) {
        let end = |side: &str| {
            let address: std::net::IpAddr = flow[format!("{side}_ip")].as_str().unwrap().parse().unwrap();
            std::net::SocketAddr::new(address, flow[format!("{side}_port")].as_u64().unwrap() as u16)
        };
        let query = format!("?client={}&server={}", end("src"), end("dest"));
        let [lines, columns] = serving.each_ref().map(|serving| described(serving, "/api/v1/life", &query, 200));
        assert!(!lines["routers"][0]["stages"].as_array().unwrap().is_empty(), "{lines}");
        assert_eq!(lines, columns);
    }
}
