//! The Prometheus text format, version 0.0.4.
//!
//! It is written by hand because the client library has no summaries with quantiles, and one way for everything is
//! simpler than two.

use crate::metrics::durations::{LatencyReading, QUANTILES};
use std::fmt::{self, Display, Write};

/// The kind of numbers that a family has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A total that only grows.
    Counter,
    /// A value of the moment.
    Gauge,
    /// Quantiles, a sum and a count.
    Summary,
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
        })
    }
}

/// The heading of a family of samples.
#[derive(Clone, Copy)]
pub struct Heading {
    /// The name of the family.
    pub name: &'static str,
    /// What its numbers are.
    pub kind: Kind,
    /// What it counts, for people.
    pub help: &'static str,
}

/// A label's value, with characters escaped that would end it or that would act on a terminal.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                letter if letter.is_control() => {
                    write!(f, "\\\\{}", letter.escape_unicode().skip(1).collect::<String>())?
                }
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// A writer of the samples of one family. A family without samples leaves no trace in the text.
pub struct Samples<'a> {
    text: &'a mut String,
    heading: Heading,
    is_headed: bool,
}

impl<'a> Samples<'a> {
    /// A writer that appends to `text`.
    pub fn new(text: &'a mut String, heading: Heading) -> Self {
        Samples { text, heading, is_headed: false }
    }

    /// Writes the only sample of a family, without labels.
    pub fn value(&mut self, value: impl Display) {
        self.labelled(&[], value);
    }

    /// Writes one sample of several.
    pub fn labelled(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample("", labels, value);
    }

    /// Writes all samples of a summary.
    pub(super) fn summary(&mut self, reading: &LatencyReading) {
        for (quantile, value_s) in QUANTILES.iter().zip(reading.quantiles_s) {
            self.sample("", &[("quantile", &quantile.to_string())], value_s);
        }
        self.sample("_sum", &[], reading.sum_s);
        self.sample("_count", &[], reading.count);
    }

    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        if let Err(error) = self.write_sample(suffix, labels, value) {
            unreachable!("a string takes everything: {error}");
        }
    }

    fn write_sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) -> fmt::Result {
        let Heading { name, kind, help } = self.heading;
        if !self.is_headed {
            self.is_headed = true;
            write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n")?;
        }
        write!(self.text, "{name}{suffix}")?;
        for (at, (label, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            write!(self.text, "{before}{label}=\"{}\"", Escaped(value))?;
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        // Never with an exponent, and `NaN` as the format wants it.
        writeln!(self.text, " {value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: Kind, write: impl Fn(&mut Samples)) -> String {
        let mut text = String::new();
        write(&mut Samples::new(&mut text, Heading { name: "a", kind, help: "What." }));
        text
    }

    #[test]
    fn a_family_is_headed_once_and_only_when_it_has_samples() {
        assert_eq!(written(Kind::Gauge, |_| ()), "");
        let two = |samples: &mut Samples| {
            samples.labelled(&[("b", "1"), ("c", "2")], 3);
            samples.labelled(&[("b", "2"), ("c", "2")], 0.5);
        };
        let text = "# HELP a What.\n# TYPE a gauge\na{b=\"1\",c=\"2\"} 3\na{b=\"2\",c=\"2\"} 0.5\n";
        assert_eq!(written(Kind::Gauge, two), text);
    }

    #[test]
    fn label_values_can_not_end_early() {
        let text = written(Kind::Counter, |samples| samples.labelled(&[("b", "a\"} 1\n\\")], 1));
        assert!(text.ends_with("\na{b=\"a\\\"} 1\\n\\\\\"} 1\n"), "{text}");
    }

    #[test]
    fn a_summary_has_quantiles_a_sum_and_a_count() {
        let reading = LatencyReading { count: 2, sum_s: 0.000_000_1, quantiles_s: [f64::NAN, 0.5, 1.0, 2e9] };
        let text = written(Kind::Summary, |samples| samples.summary(&reading));
        let samples = "a{quantile=\"0.5\"} NaN\na{quantile=\"0.9\"} 0.5\na{quantile=\"0.99\"} 1\n\
                       a{quantile=\"0.999\"} 2000000000\na_sum 0.0000001\na_count 2\n";
        assert_eq!(text, format!("# HELP a What.\n# TYPE a summary\n{samples}"));
    }
}
