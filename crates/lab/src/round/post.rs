//! Rounds that produce through a gateway in front of the brokers: one record after the other as through a balancer, as
//! fast as can be, or to see where records go.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use experiment::workload::{CountBy, Workload};
use perf::load::{self, PostLoad, PostReport, ProduceLoad};
use perf::web::Connection;
use serde_json::Value;

use super::distribute;
use super::ground::Ground;
use super::measured::{Measured, VERIFY_IDLE};
use super::translate;
use crate::admin::{self, block_on};

/// The load over HTTP of a round.
fn load_of(ground: &Ground<'_>, query: String) -> Result<PostLoad> {
    let workload = ground.workload;
    let (topics, stamp) = (&ground.topics, ground.stamp());
    let native: ProduceLoad =
        translate::producers(&ground.clients_at, topics, workload, ground.seed, stamp)?;
    let [topic] = topics.as_slice() else { bail!("through a gateway a round has one topic") };
    Ok(PostLoad {
        gateway: ground.gateway()?.to_owned(),
        topic: topic.clone(),
        connections: workload.producers.max(1),
        records_per_request: workload.records_per_request.max(1),
        sizes: native.sizes,
        keys: native.keys,
        payload: native.payload,
        query,
        offered: native.offered,
        records: native.records,
        time: native.time,
        warmup: native.warmup,
        stamp,
        seed: ground.seed,
    })
}

/// The choices of a round in the gateway's words. A broker is chosen first where each has partitions of its own.
fn choices(workload: &Workload) -> String {
    let name = |strategy| translate::strategy_of(strategy).name();
    let partitioner = name(workload.strategy);
    match workload.partitions_per_broker {
        true => format!("partitioner={partitioner}&broker={}", name(workload.broker_strategy)),
        false => format!("partitioner={partitioner}"),
    }
}

/// Produces as a balancer does: the next record is sent when the last one is acknowledged.
pub fn balance(ground: &Ground<'_>) -> Result<Measured> {
    let load = load_of(ground, format!("{}&timing=1", choices(ground.workload)))?;
    let load = PostLoad { connections: 1, records_per_request: 1, ..load };
    let meter = ground.meter()?;
    let report = load::post(&load, &ground.stop)?;
    let used = meter.used()?;
    let mut measured = measured(ground, &report)?;
    let mean_us = |sum_s: f64| sum_s * 1e6 / report.requests.max(1) as f64;
    measured.put("read_us", mean_us(report.steps.read_s));
    measured.put("decide_us", mean_us(report.steps.decide_s));
    measured.put("send_us", mean_us(report.steps.send_s));
    measured.put("forward_us", mean_us(report.steps.forward_s));
    used.into_metrics(report.records, report.bytes, &mut measured.metrics);
    verify(ground, &report, &mut measured)?;
    Ok(measured)
}

/// Produces as fast as can be, or at a rate.
pub fn produce(ground: &Ground<'_>) -> Result<Measured> {
    let load = load_of(ground, choices(ground.workload))?;
    let meter = ground.meter()?;
    let report = load::post(&load, &ground.stop)?;
    let used = meter.used()?;
    let mut measured = measured(ground, &report)?;
    if ground.workload.offered > 0.0 {
        let per_s = measured.metrics.get("throughput").copied().unwrap_or(0.0);
        measured.put("reached_share", per_s / ground.workload.offered);
    }
    // CPU is counted from the first record of the warm-up on, and so are these.
    let mean_bytes = report.bytes as f64 / report.records.max(1) as f64;
    let all_bytes = (mean_bytes * report.acknowledged as f64) as u64;
    used.into_metrics(report.acknowledged, all_bytes, &mut measured.metrics);
    verify(ground, &report, &mut measured)?;
    Ok(measured)
}

/// Produces to see where records go: by what the answers say, what the gateway counted and where the logs end.
pub fn distribute(ground: &Ground<'_>) -> Result<Measured> {
    let workload = ground.workload;
    let load = load_of(ground, choices(workload))?;
    let report = load::post(&load, &ground.stop)?;
    ensure!(
        report.acknowledged == workload.records || ground.stop.is_stopped(),
        "{} of {} records were acknowledged: {}",
        report.acknowledged,
        workload.records,
        report.errors.join("; ")
    );
    let mut measured = measured(ground, &report)?;
    measured.put("ns_per_decision", distribute::ns_per_decision(ground)?);
    let of = |partition| report.partitions.get(&partition).copied().unwrap_or(0);
    let told: Vec<u64> = (0..ground.partitions as i32).map(of).collect();
    let topic = &ground.topics[0];
    let ends =
        admin::end_offsets(&ground.brokers_at, topic, ground.partitions, report.acknowledged)?;
    if told != ends {
        measured.warnings.push(format!("told {told:?}, in the topic {ends:?}"));
    }
    let counted = counted_by_gateway(&load.gateway, topic, ground.partitions as usize)?;
    if counted != ends {
        measured.warnings.push(format!("the gateway counted {counted:?}, in the topic {ends:?}"));
    }
    measured.counts = summed(&ends, ground.spread() as usize, workload.count_by);
    distribute::put_skew(&mut measured);
    verify(ground, &report, &mut measured)?;
    Ok(measured)
}

/// Counts of partitions of `brokers` brokers, of which each has a run of the same length: summed over the brokers, or over
/// each broker's partitions.
fn summed(ends: &[u64], brokers: usize, count_by: CountBy) -> Vec<u64> {
    let of_each = ends.len() / brokers.max(1);
    match count_by {
        CountBy::Broker if brokers > 1 => {
            ends.chunks(of_each).map(|run| run.iter().sum()).collect()
        }
        CountBy::Broker | CountBy::Partition => (0..of_each)
            .map(|number| ends.iter().skip(number).step_by(of_each.max(1)).sum())
            .collect(),
    }
}

/// The records of each partition, as `GET /api/v1/gateway/distribution` counts them.
fn counted_by_gateway(gateway: &str, topic: &str, partitions: usize) -> Result<Vec<u64>> {
    let path = format!("/api/v1/gateway/distribution?topic={topic}");
    let answer = get(gateway, &path)?;
    let answer: Value = serde_json::from_slice(&answer)?;
    let mut counts = vec![0; partitions];
    for row in answer["counts"].as_array().context("the gateway tells no counts")? {
        let partition = row["partition"].as_u64().context("a row has a partition")? as usize;
        let count = counts.get_mut(partition);
        *count.context("the gateway counts a partition that there is not")? +=
            row["records"].as_u64().context("a row has records")?;
    }
    Ok(counts)
}

/// The body of a page of a gateway.
pub fn get(gateway: &str, path: &str) -> Result<Vec<u8>> {
    block_on(async {
        let mut connection = Connection::open(gateway).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {gateway}\r\n\r\n");
        let answer = connection.ask(request.as_bytes()).await?;
        let words = String::from_utf8_lossy(&answer.body[..answer.body.len().min(400)]);
        ensure!(answer.head.status == 200, "GET {path}: {}: {words}", answer.head.status);
        Ok(answer.body)
    })
}

/// What all of these rounds tell.
fn measured(ground: &Ground<'_>, report: &PostReport) -> Result<Measured> {
    ensure!(report.records > 0, "nothing was acknowledged: {}", report.errors.join("; "));
    let counts = (0..ground.partitions as i32)
        .map(|partition| report.partitions.get(&partition).copied().unwrap_or(0));
    let mut measured = Measured {
        records: report.records,
        bytes: report.bytes,
        counts: counts.collect(),
        warnings: report.errors.clone(),
        ..Measured::default()
    };
    let elapsed_s = report.elapsed.max(Duration::from_nanos(1)).as_secs_f64();
    measured.put_rates(report.records as f64 / elapsed_s, report.bytes as f64 / elapsed_s);
    measured.put("runtime_ms", elapsed_s * 1e3);
    measured.put_latencies("", &report.response);
    measured.put("response_p99_ms", report.response.value_at_quantile(0.99) as f64 / 1e3);
    measured.put("service_p50_ms", report.service.value_at_quantile(0.5) as f64 / 1e3);
    measured.put("service_p99_ms", report.service.value_at_quantile(0.99) as f64 / 1e3);
    measured.keep("response", &report.response);
    measured.keep("service", &report.service);
    measured.put("requests", report.requests as f64);
    measured.put("records_per_request", report.records as f64 / report.requests.max(1) as f64);
    measured.put("failed", (report.sent - report.acknowledged) as f64);
    measured.put("client_busy_share", report.busiest_share);
    Ok(measured)
}

fn verify(ground: &Ground<'_>, report: &PostReport, measured: &mut Measured) -> Result<()> {
    if ground.verify {
        let verdict = load::verify(&ground.brokers_at, &report.acknowledgements, VERIFY_IDLE);
        measured.judge(&verdict.context("the records could not be read back")?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use experiment::workload::Strategy;

    use super::*;

    #[test]
    fn counts_are_those_of_partitions_or_of_brokers() {
        let ends = [1, 2, 3, 10, 20, 30];
        assert_eq!(summed(&ends, 2, CountBy::Partition), [11, 22, 33]);
        assert_eq!(summed(&ends, 2, CountBy::Broker), [6, 60]);
        assert_eq!(summed(&ends, 1, CountBy::Broker), ends, "partitions stand for brokers");
        assert_eq!(summed(&ends, 1, CountBy::Partition), ends);
    }

    #[test]
    fn a_broker_is_chosen_where_each_has_partitions_of_its_own() {
        let mut workload = Workload { strategy: Strategy::Cs6Mod, ..Workload::default() };
        assert_eq!(choices(&workload), "partitioner=cs6-mod");
        workload.partitions_per_broker = true;
        assert_eq!(choices(&workload), "partitioner=cs6-mod&broker=random");
    }
}
