//! Plots of the benchmark of growth: a growth.json in, two pictures beside it out.

use crate::plot::{Line, Plot, svg};
use flowpeel::error::{Error, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;

const MIB: f64 = (1 << 20) as f64;

/// The processes, by name.
const NAMES: [&str; 3] = ["flowpeel", "exact map", "bare loop"];

/// The cost that a plot shows, for the first processes of [`NAMES`].
struct Cost {
    process_count: usize,
    of: fn(&Value, &Value) -> Option<f64>,
}

/// The median of a figure over all rounds of a process.
fn median(rounds: &Value, figure: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
    let mut figures: Vec<f64> = rounds.as_array()?.iter().filter_map(figure).collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len().checked_sub(1)? / 2;
    Some((figures[middle] + figures[figures.len() / 2]) / 2.0)
}

fn cpu_s(round: &Value) -> Option<f64> {
    Some(round["user_s"].as_f64()? + round["system_s"].as_f64()?)
}

/// A line for each process, over powers of ten of connections.
fn plot(sizes: &[Value], file_name: &'static str, title: &'static str, y: &'static str, cost: Cost) -> Plot {
    let point = |size: &Value, name: &str| {
        let connections = size["connections"].as_f64()?.log10();
        Some((connections, (cost.of)(size, &size["processes"][name])?))
    };
    let lines = NAMES[..cost.process_count].iter().map(|name| Line {
        name: (*name).to_owned(),
        points: sizes.iter().filter_map(|size| point(size, name)).collect(),
    });
    Plot { file_name, title, x: "connections, as powers of ten", y, lines: lines.collect() }
}

fn plots(sizes: &[Value]) -> [Plot; 2] {
    let time = Cost {
        process_count: NAMES.len(),
        of: |size, rounds| Some(median(rounds, cpu_s)? * 1e9 / size["packets"].as_f64()?),
    };
    let peak = |_: &Value, rounds: &Value| Some((median(rounds, |round| round["peak_size"].as_f64())? / MIB).log10());
    let memory = Cost { process_count: NAMES.len() - 1, of: peak };
    [
        plot(sizes, "growth-time.svg", "CPU time of a packet, list included", "ns a packet", time),
        plot(sizes, "growth-memory.svg", "Peak memory, list included", "MiB, as powers of ten", memory),
    ]
}

/// Draws the plots of this file beside it.
///
/// # Errors
///
/// The file cannot be read or is none of the benchmark's, or a plot cannot be written.
pub fn draw(measured: &Path) -> Result<()> {
    let text = fs::read(measured).map_err(|error| Error::new("cannot read it").in_file(measured).because(error))?;
    let measurements: Result<Value> =
        serde_json::from_slice(&text).map_err(|error| Error::new("it is no JSON").in_file(measured).because(error));
    let measurements = measurements?;
    let sizes = measurements["sizes"].as_array();
    let sizes = sizes.ok_or_else(|| Error::new("it is no file of the benchmark of growth").in_file(measured))?;
    for plot in plots(sizes) {
        let path = measured.with_file_name(plot.file_name);
        fs::write(&path, svg(&plot)?).map_err(|error| Error::new("cannot write it").in_file(&path).because(error))?;
    }
    Ok(())
}
