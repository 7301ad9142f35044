//! Samples of one scrape, and their two formats: OpenMetrics by the crate, and Prometheus' text format 0.0.4 made of it.

use std::collections::BTreeMap;
use std::fmt;

use fingerpost_route::Durations;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::registry::Registry;

use super::families::{FAMILIES, Family, Id, PREFIX};

/// Value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Count(u64),
    Time(f64),
    Gauge(f64),
    Durations(Box<Durations>),
    /// The labels are all there is.
    Info,
}

impl Value {
    /// Adds another sample of the same labels.
    fn add(&mut self, other: Self) {
        match (self, other) {
            (Self::Count(sum), Self::Count(more)) => *sum += more,
            (Self::Time(sum), Self::Time(more)) | (Self::Gauge(sum), Self::Gauge(more)) => {
                *sum += more
            }
            (Self::Durations(sum), Self::Durations(more)) => sum.add_all(&more),
            _ => {}
        }
    }

    fn encode(&self, to: &mut MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => to.encode_counter::<NoLabelSet, _, f64>(count, None),
            Self::Time(seconds) => to.encode_counter::<NoLabelSet, _, f64>(seconds, None),
            Self::Gauge(value) => to.encode_gauge(value),
            Self::Durations(durations) => {
                let buckets: Vec<(f64, u64)> = durations.buckets().collect();
                let sum = durations.sum().as_secs_f64();
                to.encode_histogram::<NoLabelSet>(sum, durations.count(), &buckets, None)
            }
            Self::Info => Ok(()),
        }
    }
}

/// Samples of one scrape, by metric and labels.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<Id, BTreeMap<Vec<String>, Value>>);

impl Samples {
    fn put(&mut self, id: Id, labels: &[&str], value: Value) {
        let family: &Family = &FAMILIES[id as usize];
        debug_assert_eq!(labels.len(), family.labels.len(), "{family:?}");
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        match self.0.entry(id).or_default().entry(labels) {
            std::collections::btree_map::Entry::Vacant(free) => drop(free.insert(value)),
            std::collections::btree_map::Entry::Occupied(mut known) => known.get_mut().add(value),
        }
    }

    /// Adds a count of a counter.
    pub(super) fn count(&mut self, id: Id, labels: &[&str], count: u64) {
        self.put(id, labels, Value::Count(count));
    }

    /// Adds the value of a gauge.
    #[allow(clippy::cast_precision_loss, reason = "Prometheus stores numbers of this type")]
    pub(super) fn gauge(&mut self, id: Id, labels: &[&str], value: u64) {
        self.put(id, labels, Value::Gauge(value as f64));
    }

    /// Adds the value of a gauge in seconds or as a share.
    pub(super) fn number(&mut self, id: Id, labels: &[&str], value: f64) {
        self.put(id, labels, Value::Gauge(value));
    }

    /// Adds the nanoseconds of a counter of seconds.
    #[allow(clippy::cast_precision_loss, reason = "Prometheus stores numbers of this type")]
    pub(super) fn time(&mut self, id: Id, labels: &[&str], nanoseconds: u64) {
        self.put(id, labels, Value::Time(nanoseconds as f64 / 1e9));
    }

    /// Adds the durations of a histogram.
    pub(super) fn durations(&mut self, id: Id, labels: &[&str], durations: &Durations) {
        self.put(id, labels, Value::Durations(Box::new(*durations)));
    }

    /// Adds labels.
    pub(super) fn info(&mut self, id: Id, labels: &[&str]) {
        self.put(id, labels, Value::Info);
    }

    /// The page in OpenMetrics.
    pub(super) fn openmetrics(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(self));
        let mut page = String::new();
        text::encode(&mut page, &registry)?;
        Ok(page)
    }
}

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (id, samples) in &self.0 {
            let family = &FAMILIES[*id as usize];
            let (name, unit) = family.parts();
            let mut to =
                encoder.encode_descriptor(name, family.help, unit.as_ref(), family.kind)?;
            for (values, value) in samples {
                let labels = family.labels.iter().copied().zip(values.iter().map(String::as_str));
                let labels: Vec<(&str, &str)> = labels.collect();
                if *value == Value::Info {
                    to.encode_info(&labels)?;
                } else if labels.is_empty() {
                    value.encode(&mut to)?;
                } else {
                    value.encode(&mut to.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

/// A page of OpenMetrics in Prometheus' text format 0.0.4: there the name of a counter and of an info has its ending in
/// its description, too, and an info is a gauge.
pub(super) fn plain(openmetrics: &str) -> String {
    let mut page = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described;
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|described| described.split_once(' '))
        {
            let (end, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            let words = help.strip_prefix(name).unwrap_or_default();
            page += &format!("# HELP {name}{end}{words}\n# TYPE {name}{end} {kind}\n");
        } else if !line.starts_with('#') {
            page.push_str(line);
            page.push('\n');
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_page_has_both_formats() {
        let mut samples = Samples::default();
        samples.info(Id::Build, &["1.0"]);
        samples.gauge(Id::Workers, &[], 2);
        samples.count(Id::RxBytes, &["a\"b", "xdp"], 3);
        samples.count(Id::RxBytes, &["a\"b", "xdp"], 4);
        samples.time(Id::WorkerGraph, &["0"], 1_500_000_000);
        let mut durations = Durations::default();
        durations.add(Duration::from_micros(20));
        durations.add(Duration::from_secs(60));
        samples.durations(Id::Visible, &[], &durations);
        let page = samples.openmetrics().unwrap();
        for line in [
            "# TYPE fingerpost_build info",
            "fingerpost_build_info{version=\"1.0\"} 1",
            "# UNIT fingerpost_interface_receive_bytes bytes",
            "fingerpost_interface_receive_bytes_total{interface=\"a\\\"b\",path=\"xdp\"} 7",
            "fingerpost_worker_graph_seconds_total{worker=\"0\"} 1.5",
        ] {
            assert!(page.lines().any(|other| other == line), "{line}: {page}");
        }
        assert!(page.ends_with("# EOF\n"), "{page}");
        let plain = plain(&page);
        for line in [
            "# TYPE fingerpost_build_info gauge",
            "# HELP fingerpost_interface_receive_bytes_total Bytes of these frames, link headers included.",
            "# TYPE fingerpost_interface_receive_bytes_total counter",
            "# TYPE fingerpost_change_to_visible_seconds histogram",
            "fingerpost_change_to_visible_seconds_count 2",
            "fingerpost_change_to_visible_seconds_bucket{le=\"0.000016\"} 0",
            "fingerpost_change_to_visible_seconds_bucket{le=\"0.000032\"} 1",
            "fingerpost_change_to_visible_seconds_bucket{le=\"+Inf\"} 2",
            "fingerpost_workers 2.0",
        ] {
            assert!(plain.lines().any(|other| other == line), "{line}: {plain}");
        }
        assert!(!plain.contains("EOF") && !plain.contains("UNIT"), "{plain}");
    }
}
