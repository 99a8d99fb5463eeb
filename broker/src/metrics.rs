//! Metrics, in OpenMetrics' text format.
//!
//! What is counted per request is kept here; everything else is the engine's, and is read when somebody asks.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use rgpu_control::api::{Device, Lease, LeaseState, Node};

use crate::engine::{self, Counters};

/// The media type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    path: Cow<'static, str>,
    method: Cow<'static, str>,
    status: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabels {
    path: Cow<'static, str>,
    method: Cow<'static, str>,
}

/// What is counted of requests and connections.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    times: Family<PathLabels, Histogram>,
    connections: Gauge,
    panics: Counter,
    peer_up: Family<[(&'static str, &'static str); 0], Gauge>,
}

fn request_times() -> Histogram {
    Histogram::new(engine::Histogram::BOUNDS)
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("rgpu_broker");
        let requests = Family::default();
        registry.register("http_requests", "Requests answered, by the path's pattern", requests.clone());
        let times = Family::new_with_constructor(request_times as fn() -> Histogram);
        registry.register_with_unit(
            "http_request",
            "Time from a request's header to its answer's; what was told to wait waits",
            Unit::Seconds,
            times.clone(),
        );
        let connections = Gauge::default();
        registry.register("http_connections", "Open connections", connections.clone());
        let panics = Counter::default();
        registry.register(
            "http_panics",
            "Requests that met a bug: they were answered with 500",
            panics.clone(),
        );
        let peer_up = Family::default();
        registry.register(
            "peer_up",
            "Whether the cluster's other broker answers; absent where none is configured",
            peer_up.clone(),
        );
        Self { registry, requests, times, connections, panics, peer_up }
    }
}

/// What the engine knows at one moment.
pub struct Snapshot {
    /// What the engine has counted since it started.
    pub counters: Counters,
    /// The nodes, lost ones included.
    pub nodes: Vec<Node>,
    /// The devices of all nodes.
    pub devices: Vec<Device>,
    /// The leases that have not ended.
    pub leases: Vec<Lease>,
    /// The moment, in seconds since 1970.
    pub now: u64,
    /// The broker's release.
    pub version: String,
}

impl Metrics {
    /// Counts a request that was answered. `path` is the pattern, not what was sent.
    pub fn answered(&self, path: Option<&str>, method: &str, status: u16, time: Duration) {
        const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        // Neither paths nor methods that somebody makes up may make series.
        let path: Cow<'static, str> = path.map_or("unknown".into(), |path| path.to_owned().into());
        let method: Cow<'static, str> =
            KNOWN.iter().find(|known| **known == method).map_or("other", |known| known).into();
        let labels = RequestLabels { path: path.clone(), method: method.clone(), status: status.into() };
        self.requests.get_or_create(&labels).inc();
        self.times.get_or_create(&PathLabels { path, method }).observe(time.as_secs_f64());
    }

    /// Counts a connection for as long as the answer lives.
    pub fn connected(&self) -> Connected {
        self.connections.inc();
        Connected(self.connections.clone())
    }

    /// Counts a request whose handler panicked.
    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// Whether the cluster's other broker answers.
    pub fn peer_is_up(&self, up: bool) {
        self.peer_up.get_or_create(&[]).set(up.into());
    }

    /// Everything, as text.
    pub fn text(&self, snapshot: Snapshot) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        let mut rest = Registry::with_prefix("rgpu_broker");
        rest.register_collector(Box::new(snapshot));
        encode_registry(&mut text, &rest)?;
        let mut process = Registry::with_prefix("process");
        process.register_collector(Box::new(Process));
        encode_registry(&mut text, &process)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

/// An open connection.
pub struct Connected(Gauge);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

/// Writes a gauge for each of a list's items.
fn gauges<'a, T: 'a, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, Option<Unit>),
    items: impl IntoIterator<Item = T>,
    value: impl Fn(&T) -> Option<([(&'static str, String); N], f64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
    for item in items {
        if let Some((labels, value)) = value(&item) {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, Option<Unit>),
    value: f64,
) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
    ConstCounter::new(value).encode(metric)
}

fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    times: &engine::Histogram,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    let bounds = engine::Histogram::BOUNDS.into_iter().chain([f64::INFINITY]);
    let buckets: Vec<_> = bounds.zip(times.counts).collect();
    metric.encode_histogram::<[(&str, &str); 0]>(times.sum_s, times.count(), &buckets, None)
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        encoder
            .encode_descriptor("build", "The release", None, MetricType::Info)?
            .encode_info(&[("version", self.version.clone())])?;
        let c = &self.counters;
        histogram(encoder, ("grant", "Time from a request for a lease to its grant"), &c.grant_times)?;
        histogram(encoder, ("round", "Time of a placement round"), &c.round_times)?;
        let help = "Time from the decision to resize a lease until its node reported it";
        histogram(encoder, ("resize", help), &c.resize_times)?;
        for (name, help, value) in [
            ("rounds", "Placement rounds", c.rounds),
            ("jobs_considered", "Jobs looked at in placement rounds", c.considered),
            ("cluster_rebuilds", "How often the model of the cluster was built anew", c.rebuilds),
            ("lease_requests", "Requests for leases that were accepted", c.requests),
            ("grants", "Leases granted", c.grants),
            ("renewals", "Leases renewed", c.renewals),
            ("lease_changes", "Leases changed", c.changes),
            ("lease_resizes", "Times that leases were resized by what they use", c.resizes),
            ("leases_lent", "Leases placed into time that others leave", c.lent),
            ("leases_released", "Leases given back by their holders", c.released),
            ("requests_withdrawn", "Requests taken back while they waited", c.withdrawn),
            ("leases_expired", "Leases that were not renewed in time", c.expired),
            ("leases_revoked", "Leases that ended because a node was lost, left or lost a device", c.revoked),
            (
                "deadlines_missed",
                "Deadlines that passed while their lease waited or was active",
                c.deadlines_missed,
            ),
            ("deadlines_kept", "Deadlines by which a program had ended well", c.deadlines_kept),
            ("leases_adopted", "Leases that were not known, or given up, and that a node serves", c.adopted),
            ("requests_limited", "Requests refused because of a tenant's limit", c.limited),
            ("requests_impossible", "Requests refused because they could never be granted", c.impossible),
            ("heartbeats", "Heartbeats heard", c.heartbeats),
            ("nodes_lost", "Nodes that were lost", c.nodes_lost),
            ("store_commits", "Transactions stored", c.commits),
            ("store_commit_failures", "Transactions that could not be stored", c.commit_failures),
            ("store_records", "Records stored", c.records),
        ] {
            counter(encoder, (name, help, None), value as f64)?;
        }
        for (name, help, us) in [
            ("placement", "Time in which the placement library decided", c.schedule_us),
            (
                "placement_update",
                "Time in which rounds told the placement library what has changed",
                c.update_us,
            ),
            (
                "round_wait",
                "Time from what rounds decided until it was stored, without making the grants",
                c.round_wait_us,
            ),
            ("cluster_note", "Time of taking note of changes when nothing waited", c.note_us),
            ("cluster_rebuild", "Time spent building the model of the cluster", c.rebuild_us),
            ("store_commit", "Time spent storing", c.commit_us),
        ] {
            counter(encoder, (name, help, Some(Unit::Seconds)), us as f64 / 1e6)?;
        }
        self.encode_leases(encoder)?;
        self.encode_nodes(encoder)?;
        self.encode_devices(encoder)
    }
}

impl Snapshot {
    fn encode_leases(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut counts = std::collections::BTreeMap::<(&str, &str), (u64, u64, u64, u64)>::new();
        for lease in self.leases.iter().filter(|lease| lease.state != LeaseState::Ended) {
            let count = counts.entry((&lease.tenant, lease.state.name())).or_default();
            count.0 += 1;
            count.1 += lease.grants.iter().map(|grant| u64::from(grant.share_milli)).sum::<u64>();
            count.2 += lease.grants.iter().map(|grant| grant.memory).sum::<u64>();
            count.3 += lease.processors.iter().map(|node| u64::from(node.usage.cpu_milli)).sum::<u64>();
        }
        let mut oldest = std::collections::BTreeMap::<&str, u64>::new();
        for lease in self.leases.iter().filter(|lease| lease.state == LeaseState::Waiting) {
            let waits = oldest.entry(&lease.tenant).or_default();
            *waits = (*waits).max(self.now.saturating_sub(lease.submitted));
        }
        let help = "How long the request has waited that has waited longest";
        gauges(encoder, ("oldest_wait", help, Some(Unit::Seconds)), &oldest, |(tenant, waits)| {
            Some(([("tenant", (**tenant).to_owned())], **waits as f64))
        })?;
        let labels =
            |&(tenant, state): &(&str, &str)| [("tenant", tenant.to_owned()), ("state", state.to_owned())];
        gauges(encoder, ("leases", "Leases", None), &counts, |(key, count)| {
            Some((labels(key), count.0 as f64))
        })?;
        let help = "Devices granted to leases; parts count as such";
        gauges(encoder, ("lease_devices", help, None), &counts, |(key, count)| {
            Some((labels(key), count.1 as f64 / 1000.0))
        })?;
        gauges(
            encoder,
            ("lease_memory", "Device memory granted to leases", Some(Unit::Bytes)),
            &counts,
            |(key, count)| Some((labels(key), count.2 as f64)),
        )?;
        let help = "Measured: processors that the programs of leases use on their nodes";
        gauges(encoder, ("lease_processors", help, None), &counts, |(key, count)| {
            Some((labels(key), count.3 as f64 / 1000.0))
        })
    }

    fn encode_nodes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let node = |node: &&Node| [("node", node.name.clone())];
        let bytes = |mbps: u64| mbps as f64 * 125_000.0;
        let rate = || Some(Unit::Other("bytes_per_second".into()));
        gauges(encoder, ("node_ready", "Whether a node gets new leases", None), &self.nodes, |n| {
            Some((node(n), f64::from(u8::from(n.state == "ready"))))
        })?;
        let help = "Time since a node's last heartbeat";
        gauges(encoder, ("node_silence", help, Some(Unit::Seconds)), &self.nodes, |n| {
            (n.devices > 0).then(|| (node(n), n.heard_s))
        })?;
        let help = "Capacity of a node's network interface, each way";
        gauges(encoder, ("node_network_capacity", help, rate()), &self.nodes, |n| {
            Some((node(n), bytes(n.nic_mbps)))
        })?;
        let help = "Measured traffic into a node's network interface";
        gauges(encoder, ("node_network_receive", help, rate()), &self.nodes, |n| {
            Some((node(n), bytes(n.nic_in_mbps)))
        })?;
        let help = "Measured traffic out of a node's network interface";
        gauges(encoder, ("node_network_transmit", help, rate()), &self.nodes, |n| {
            Some((node(n), bytes(n.nic_out_mbps)))
        })?;
        let help =
            "Measured traffic of a node's network interface that isn't the leases', as decisions see it";
        gauges(encoder, ("node_network_others", help, rate()), &self.nodes, |n| {
            Some((node(n), bytes(n.others_mbps)))
        })
    }

    fn encode_devices(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let device = |d: &&Device| [("node", d.node.clone()), ("device", d.report.index.to_string())];
        let ratio = || Some(Unit::Other("ratio".into()));
        let bytes = || Some(Unit::Bytes);
        let list = &self.devices;
        gauges(encoder, ("device_available", "Whether a device can be granted now", None), list, |d| {
            Some((device(d), f64::from(u8::from(d.available))))
        })?;
        gauges(
            encoder,
            ("device_granted", "Which part of a device's time is granted", ratio()),
            list,
            |d| Some((device(d), f64::from(d.granted_milli) / 1000.0)),
        )?;
        let help = "Measured: in which part of the time a device was executing something";
        gauges(encoder, ("device_utilization", help, ratio()), list, |d| {
            Some((device(d), f64::from(d.load.utilization_percent) / 100.0))
        })?;
        gauges(encoder, ("device_memory", "Memory of a device", bytes()), list, |d| {
            Some((device(d), d.report.memory as f64))
        })?;
        gauges(
            encoder,
            ("device_memory_granted", "Memory of a device that is granted", bytes()),
            list,
            |d| Some((device(d), d.granted_memory as f64)),
        )?;
        gauges(encoder, ("device_memory_used", "Measured: memory of a device in use", bytes()), list, |d| {
            Some((device(d), d.load.memory_used as f64))
        })?;
        let help = "The most memory of a device that programs have had allocated at a time";
        gauges(encoder, ("device_memory_peak", help, bytes()), list, |d| {
            Some((device(d), d.load.peak_memory as f64))
        })?;
        gauges(encoder, ("device_power", "Measured power", Some(Unit::Other("watts".into()))), list, |d| {
            d.load.power_w.map(|watts| (device(d), watts))
        })
    }
}

/// What Prometheus' clients usually say of their process.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(bytes) = resident_bytes() {
            let unit = Some(Unit::Bytes);
            let metric = encoder.encode_descriptor(
                "resident_memory",
                "Memory in use",
                unit.as_ref(),
                MetricType::Gauge,
            )?;
            ConstGauge::new(bytes as f64).encode(metric)?;
        }
        Ok(())
    }
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_told() {
        let metrics = Metrics::default();
        metrics.answered(Some("/v1/leases/{id}"), "GET", 200, Duration::from_millis(3));
        metrics.answered(Some("/v1/leases/{id}"), "GET", 200, Duration::from_millis(3));
        metrics.answered(None, "BREW", 404, Duration::ZERO);
        let _connected = metrics.connected();
        let mut counters = Counters { rounds: 7, commit_us: 1_500_000, ..Counters::default() };
        counters.grant_times.add(0.003);
        counters.grant_times.add(1e6);
        let snapshot = Snapshot {
            counters,
            nodes: vec![],
            devices: vec![],
            leases: vec![],
            now: 0,
            version: "1.2.3".into(),
        };
        let text = metrics.text(snapshot).unwrap();
        for line in [
            "rgpu_broker_http_requests_total{path=\"/v1/leases/{id}\",method=\"GET\",status=\"200\"} 2",
            "rgpu_broker_http_requests_total{path=\"unknown\",method=\"other\",status=\"404\"} 1",
            "rgpu_broker_http_request_seconds_count{path=\"/v1/leases/{id}\",method=\"GET\"} 2",
            "rgpu_broker_http_connections 1",
            "rgpu_broker_build_info{version=\"1.2.3\"} 1",
            "rgpu_broker_rounds_total 7.0",
            "rgpu_broker_store_commit_seconds_total 1.5",
            "rgpu_broker_grant_seconds_count 2",
            "rgpu_broker_grant_seconds_bucket{le=\"0.005\"} 1",
            "rgpu_broker_grant_seconds_bucket{le=\"+Inf\"} 2",
            "# TYPE rgpu_broker_round_seconds histogram",
            "# UNIT rgpu_broker_round_seconds seconds",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.contains("process_resident_memory_bytes ") && text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_connection_counts_while_it_lives() {
        let metrics = Metrics::default();
        drop(metrics.connected());
        assert_eq!(metrics.connections.get(), 0);
    }
}
