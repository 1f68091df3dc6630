//! Paging through a million connections while they change.

use crate::network::{Network, escaped};
use crate::rows::{ListRow, line, rows};
use flowpeel_traffic::Random;
use serde_json::json;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

const ROWS: usize = 1_000_000;

fn write(network: &Network, second: u32, rows: &[ListRow]) {
    let time = |second: u32| format!("2026-01-01T02:{:02}:{:02}.000000Z", second / 60, second % 60);
    let header = json!({ "flow_list": { "interval": second + 1, "start": time(second.saturating_sub(10)), "end": time(second), "complete": true } });
    let lines: Vec<String> = rows.iter().map(line).collect();
    network.write("edge", &format!("flows-20260101T02{:02}{:02}Z.ndjson", second / 60, second % 60), header, &lines);
    // What has been read is in the way on a small disk.
    let before =
        second.checked_sub(20).map(|second| format!("flows-20260101T02{:02}{:02}Z.ndjson", second / 60, second % 60));
    before.into_iter().for_each(|name| drop(std::fs::remove_file(network.lists().join("edge").join(name))));
}

/// `cargo test --release -p flowpeel-fleet --test page a_million -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes, and a gigabyte of disk"]
fn a_million_rows_that_change_have_each_that_stayed_on_one_page() {
    let network = Network::empty();
    let all = rows(9, ROWS);
    // One in ten comes and goes; the rest stays.
    let stays = |place: usize| !place.is_multiple_of(10);
    write(&network, 0, &all);
    let serving = network.serve();
    let is_done = AtomicBool::new(false);
    let (found, views) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(3);
            for second in (10..).step_by(10).take_while(|_| !is_done.load(Ordering::Relaxed)) {
                let there = all.iter().enumerate().filter(|(place, _)| stays(*place) || random.below(2) == 0);
                write(&network, second, &there.map(|(_, row)| *row).collect::<Vec<_>>());
            }
        });
        let (mut found, mut views, mut after) = (HashMap::new(), std::collections::BTreeSet::new(), String::new());
        loop {
            let answer = serving.get(&format!("/api/v1/connections?limit=1000{after}")).json();
            views.insert(answer["view"]["view"].as_u64().unwrap());
            for row in answer["connections"].as_array().unwrap() {
                let key = format!("{} {} {} {}", row["src_ip"], row["src_port"], row["dest_ip"], row["dest_port"]);
                *found.entry(key).or_insert(0) += 1;
            }
            match answer["next"].as_str() {
                Some(next) => after = format!("&after={}", escaped(next)),
                None => break,
            }
        }
        is_done.store(true, Ordering::Relaxed);
        (found, views)
    });
    let key = |ListRow { client, server, .. }: &ListRow| {
        format!("\"{}\" {} \"{}\" {}", client.0, client.1, server.0, server.1)
    };
    let missed = all.iter().enumerate().filter(|(place, row)| stays(*place) && !found.contains_key(&key(row))).count();
    let twice = found.values().filter(|count| **count > 1).count();
    println!("{} rows on pages of {} views: {missed} missed, {twice} twice", found.len(), views.len());
    assert!(views.len() > 1, "nothing changed meanwhile");
    assert_eq!((missed, twice), (0, 0));
}
