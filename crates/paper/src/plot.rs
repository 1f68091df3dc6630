//! Plots: named lines of points over a grid, as the text of an SVG picture. Equal points give equal text.

use flowpeel::error::{Error, Result};
use plotters::prelude::*;

/// A line of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The name of the line in the legend.
    pub name: String,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The name of its file.
    pub file_name: &'static str,
    /// The title of the plot.
    pub title: &'static str,
    /// The label of the horizontal axis.
    pub x: &'static str,
    /// The label of the vertical axis.
    pub y: &'static str,
    /// The lines.
    pub lines: Vec<Line>,
}

const SIZE: (u32, u32) = (640, 360);

/// The width that margins and labels take.
const AROUND: u32 = 80;

/// Colours that can be distinguished with colour blindness and in print.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
];

/// The ends of the points' coordinates, with some room above and below. There is a range even for a single point or
/// none.
fn range(values: impl Iterator<Item = f64> + Clone, air: f64) -> std::ops::Range<f64> {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if low > high {
        return 0.0..1.0;
    }
    let margin = if high > low { (high - low) * air } else { 1.0 };
    low - margin..high + margin
}

/// How much wider than its points a plot has to be, as a share of its width, so that the names of its lines fit beside
/// them.
fn legend_room(lines: &[Line]) -> f64 {
    let longest = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    let part = (longest as f64 * 5.5 + 50.0) / f64::from(SIZE.0 - AROUND);
    if lines.len() > 1 { part / (1.0 - part) } else { 0.0 }
}

/// A number with as many decimals as it needs, at most four.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Draws a plot as the text of an SVG file.
///
/// # Errors
///
/// The plot cannot be drawn.
pub fn svg(plot: &Plot) -> Result<String> {
    let mut text = String::new();
    drawn(plot, &mut text).map_err(|error| Error::new("cannot draw a plot").in_file(plot.file_name).because(error))?;
    Ok(text)
}

fn drawn(plot: &Plot, text: &mut String) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let points = || plot.lines.iter().flat_map(|line| line.points.iter().copied());
    let mut x = range(points().map(|point| point.0), 0.02);
    x.end += (x.end - x.start) * legend_room(&plot.lines);
    let mut chart = ChartBuilder::on(&area)
        .caption(plot.title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(x, range(points().map(|point| point.1), 0.05))?;
    chart
        .configure_mesh()
        .x_desc(plot.x)
        .y_desc(plot.y)
        .x_label_formatter(&|x| short(*x))
        .y_label_formatter(&|y| short(*y))
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .label_style(("sans-serif", 12))
        .axis_desc_style(("sans-serif", 13))
        .draw()?;
    for (line, colour) in plot.lines.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style))?
            .label(line.name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        chart.draw_series(line.points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
    }
    if plot.lines.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::MiddleRight)
            .background_style(WHITE.mix(0.85))
            .label_font(("sans-serif", 12))
            .draw()?;
    }
    area.present()?;
    Ok(())
}
