//! The tools for what brokers without access rules, quotas and transactions have little of: access
//! lists, users, loggers, elections, reassignments, features, transactions, the quorum. What they
//! print was recorded from Apache Kafka 4.3.1.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::clients::scenario::{
    Context, TOOL_LIMIT, Verdict, must_contain, must_have_row, must_lack,
};

/// Runs a tool that must fail with these words.
fn must_refuse(
    context: &Context<'_>,
    tool: &str,
    arguments: &[&str],
    words: &[&str],
) -> Result<()> {
    let outcome = context.try_tool(tool, arguments, b"")?;
    ensure!(!outcome.success(), "{tool} {arguments:?} was accepted: {}", outcome.story());
    must_contain(&(outcome.text() + &outcome.errors()), words)
}

/// Runs a tool that must succeed and has nothing to say.
fn must_be_silent(context: &Context<'_>, tool: &str, arguments: &[&str]) -> Result<()> {
    let said = context.tool(tool, arguments)?;
    ensure!(said.trim().is_empty(), "{tool} {arguments:?} said:\n{said}");
    Ok(())
}

/// Without an authorizer, listing, adding and removing rules is refused as security being disabled.
pub fn access_lists(context: &Context<'_>) -> Result<Verdict> {
    let refused = ["SecurityDisabledException: No Authorizer is configured"];
    let rule = ["--allow-principal", "User:a", "--operation", "Read", "--topic", "t"];
    must_refuse(context, "kafka-acls", &["--list"], &refused)?;
    must_refuse(context, "kafka-acls", &[&["--add"], &rule[..]].concat(), &refused)?;
    must_refuse(context, "kafka-acls", &[&["--remove", "--force"], &rule[..]].concat(), &refused)?;
    Ok(Verdict::Pass)
}

/// Quotas and credentials: none by default, and what is not there can be taken away.
pub fn users_and_clients(context: &Context<'_>) -> Result<Verdict> {
    let tool = "kafka-configs";
    let user = context.name("user");
    for entity in [
        &["--entity-type", "users"][..],
        &["--entity-type", "users", "--entity-name", &user],
        &["--entity-type", "clients"],
        &["--entity-type", "clients", "--entity-default"],
        &["--entity-type", "users", "--entity-name", &user, "--entity-type", "clients"],
        &["--entity-type", "ips"],
    ] {
        must_be_silent(context, tool, &[entity, &["--describe"]].concat())?;
    }
    let entity = ["--entity-type", "users", "--entity-name", &user];
    let remove = ["--alter", "--delete-config", "consumer_byte_rate"];
    must_refuse(context, tool, &[&entity[..], &remove].concat(), &["Invalid config(s)"])?;
    let set = ["--alter", "--add-config", "nosuch_rate=1"];
    must_refuse(context, tool, &[&entity[..], &set].concat(), &["nosuch_rate"])?;
    Ok(Verdict::Pass)
}

/// Loggers are listed, a level is set, shown and taken away; what is no logger is refused.
pub fn broker_loggers(context: &Context<'_>) -> Result<Verdict> {
    let tool = "kafka-configs";
    let entity = ["--entity-type", "broker-loggers", "--entity-name", "1"];
    let describe = || context.tool(tool, &[&entity[..], &["--describe"]].concat());
    let before = describe()?;
    must_contain(&before, &["Dynamic configs for broker-logger 1 are:", "  root="])?;
    let line = before.lines().find(|line| line.contains("=INFO") && !line.contains("root="));
    let logger = line.and_then(|line| line.trim().split_once('=')).context("no logger at INFO")?.0;
    let alter = |what: &str, value: &str| {
        context.tool(tool, &[&entity[..], &["--alter", what, value]].concat())
    };
    let said = alter("--add-config", &format!("{logger}=DEBUG"))?;
    must_contain(&said, &["Completed updating config for broker-logger 1."])?;
    must_contain(&describe()?, &[&format!("  {logger}=DEBUG sensitive=false synonyms={{}}")])?;
    alter("--delete-config", logger)?;
    must_contain(&describe()?, &[&format!("  {logger}=INFO sensitive=false synonyms={{}}")])?;
    let unknown = [&entity[..], &["--alter", "--add-config", "nosuch=DEBUG"]].concat();
    must_refuse(context, tool, &unknown, &["Invalid broker logger(s): nosuch"])?;
    let loud = format!("{logger}=LOUD");
    let level = [&entity[..], &["--alter", "--add-config", &loud]].concat();
    must_refuse(context, tool, &level, &["not a supported log level"])?;
    Ok(Verdict::Pass)
}

/// One voter leads the metadata quorum, and the others of up to three follow it to its end.
pub fn quorum(context: &Context<'_>) -> Result<Verdict> {
    let tool = "kafka-metadata-quorum";
    let voters = voters(context);
    let status = || context.tool(tool, &["describe", "--status"]);
    let before = number_behind(&status()?, "HighWatermark:")?;
    context.make_topic("decided", 1)?;
    let after = status()?;
    let high_watermark = number_behind(&after, "HighWatermark:")?;
    ensure!(high_watermark > before, "a new topic left the metadata log at {before}");
    let leader = number_behind(&after, "LeaderId:")?;
    ensure!((1..=voters as i64).contains(&leader), "{leader} is no voter:\n{after}");
    let ids = |row: &str| {
        after.lines().find(|line| line.starts_with(row)).map(|l| l.matches("\"id\": ").count())
    };
    ensure!(ids("CurrentVoters:") == Some(voters), "not {voters} voters:\n{after}");
    let observers = context.target().brokers - voters;
    ensure!(ids("CurrentObservers:") == Some(observers), "not {observers} observers:\n{after}");
    if voters == 1 {
        must_have_row(&after, "MaxFollowerLag: 0")?;
        must_have_row(&after, "MaxFollowerLagTimeMs: 0")?;
    }
    let deadline = Instant::now() + TOOL_LIMIT;
    loop {
        let replication = context.tool(tool, &["describe", "--replication"])?;
        let rows: Vec<Vec<&str>> =
            replication.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        ensure!(rows.len() == context.target().brokers, "not all members:\n{replication}");
        let leads: Vec<_> = rows.iter().filter(|row| row[6] == "Leader").collect();
        ensure!(leads.len() == 1 && leads[0][3] == "0", "not one leader:\n{replication}");
        // Kafka's controllers write to the log all the time: a follower is where the leader was a moment ago.
        let reached =
            |row: &Vec<&str>| row[2].parse::<i64>().is_ok_and(|end| end >= high_watermark);
        if rows.iter().all(reached) {
            return Ok(Verdict::Pass);
        }
        ensure!(Instant::now() < deadline, "not all reach {high_watermark}:\n{replication}");
    }
}

/// How many brokers vote, of those that this suite starts: one of one or two, three of more with Highwater, all with Kafka.
fn voters(context: &Context<'_>) -> usize {
    let brokers = context.target().brokers;
    match context.target().name.as_str() {
        "apache-kafka" => brokers,
        _ if brokers < 3 => 1,
        _ => 3,
    }
}

/// The number behind a word at the beginning of a line.
fn number_behind(text: &str, word: &str) -> Result<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    Ok(line.with_context(|| format!("no {word} in:\n{text}"))?.trim().parse()?)
}

/// Every preferred replica leads, so no election is needed; what is not there is named.
pub fn elections(context: &Context<'_>) -> Result<Verdict> {
    let tool = "kafka-leader-election";
    let topic = context.make_topic("elected", 2)?;
    must_be_silent(context, tool, &["--election-type", "preferred", "--all-topic-partitions"])?;
    for kind in ["preferred", "unclean"] {
        let one = ["--election-type", kind, "--topic", &topic, "--partition", "1"];
        let words = format!("Valid replica already elected for partitions {topic}-1");
        must_contain(&context.tool(tool, &one)?, &[&words])?;
    }
    let absent = context.name("absent");
    let one = ["--election-type", "preferred", "--topic", &absent, "--partition", "0"];
    let words = ["UnknownTopicOrPartitionException", "1 replica(s) could not be elected"];
    must_refuse(context, tool, &one, &words)?;
    Ok(Verdict::Pass)
}

/// Nothing is being moved, and a partition that stays where it is is done at once.
pub fn reassignments(context: &Context<'_>) -> Result<Verdict> {
    let tool = "kafka-reassign-partitions";
    let topic = context.make_topic("stays", 1)?;
    must_contain(&context.tool(tool, &["--list"])?, &["No partition reassignments found."])?;
    let plan = |word: &str, replicas: &str| -> Result<String> {
        let path = context.folder().join(format!("{topic}-{word}.json"));
        let directories = vec![r#""any""#; replicas.split(',').count()].join(",");
        let text = format!(
            r#"{{"version":1,"partitions":[{{"topic":"{topic}","partition":0,"replicas":[{replicas}],"log_dirs":[{directories}]}}]}}"#
        );
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let (stay, leave) = (plan("stay", &replicas(context, &topic)?)?, plan("leave", "7")?);
    let run = |what: &str| context.tool(tool, &[what, "--reassignment-json-file", &stay]);
    let done = format!("Reassignment of partition {topic}-0 is completed.");
    must_contain(&run("--verify")?, &[&done])?;
    let started = format!("Successfully started partition reassignment for {topic}-0");
    must_contain(&run("--execute")?, &[&started])?;
    must_contain(&run("--verify")?, &[&done])?;
    let idle = "None of the specified partition reassignments are active.";
    must_contain(&run("--cancel")?, &[idle])?;
    let away = ["--execute", "--reassignment-json-file", &leave];
    must_refuse(context, tool, &away, &["7"])?;
    Ok(Verdict::Pass)
}

/// The replicas of a topic's first partition, separated by commas.
fn replicas(context: &Context<'_>, topic: &str) -> Result<String> {
    let described = context.tool("kafka-topics", &["--describe", "--topic", topic])?;
    let found =
        described.split("Replicas: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    Ok(found.with_context(|| format!("no replicas in:\n{described}"))?.to_owned())
}

/// The metadata version is that of Kafka 4.3; a level that is finalized can be finalized again, and
/// none can that is not supported.
pub fn features(context: &Context<'_>) -> Result<Verdict> {
    let tool = "kafka-features";
    let described = context.tool(tool, &["describe"])?;
    let line = described.lines().find(|line| line.starts_with("Feature: metadata.version"));
    let line = line.with_context(|| format!("no metadata.version in:\n{described}"))?;
    must_contain(line, &["SupportedMaxVersion: 4.3-IV0", "FinalizedVersionLevel: 4.3-IV0"])?;
    must_lack(line, "Epoch: -")?;
    let again = ["upgrade", "--feature", "metadata.version=30"];
    must_contain(&context.tool(tool, &again)?, &["metadata.version was upgraded to 30."])?;
    must_refuse(
        context,
        tool,
        &["upgrade", "--feature", "metadata.version=31"],
        &[
            "Invalid update version 31 for feature metadata.version",
            "1 out of 1 operation(s) failed",
        ],
    )?;
    must_refuse(
        context,
        tool,
        &["disable", "--feature", "nosuch"],
        &["Could not disable nosuch. The update failed for all features"],
    )?;
    Ok(Verdict::Pass)
}

/// No transaction is open, hangs, or is known to a partition.
pub fn transactions(context: &Context<'_>) -> Result<Verdict> {
    let tool = "kafka-transactions";
    let topic = context.make_topic("untouched", 1)?;
    let heads = [
        (&["list"][..], "TransactionalId Coordinator ProducerId TransactionState"),
        (
            &["find-hanging", "--broker-id", "1"],
            "Topic Partition ProducerId ProducerEpoch CoordinatorEpoch",
        ),
        (
            &["describe-producers", "--topic", &topic, "--partition", "0"],
            "ProducerId ProducerEpoch LatestCoordinatorEpoch LastSequence",
        ),
    ];
    for (arguments, head) in heads {
        let said = context.tool(tool, arguments)?;
        must_have_row(&said, head)?;
        ensure!(said.lines().count() == 1, "{arguments:?} found something:\n{said}");
    }
    Ok(Verdict::Pass)
}

/// Groups of every kind in one list, filtered by kind and by protocol.
pub fn groups(context: &Context<'_>) -> Result<Verdict> {
    let tool = "kafka-groups";
    let topic = context.make_topic("read", 1)?;
    let group = context.name("group");
    context.produce_lines(&topic, "1\n")?;
    let consume = ["--topic", &topic, "--group", &group, "--from-beginning", "--max-messages", "1"];
    context.tool("kafka-console-consumer", &[&consume[..], &["--timeout-ms", "60000"]].concat())?;
    let row = format!("{group} Classic consumer");
    must_have_row(&context.tool(tool, &["--list"])?, &row)?;
    must_have_row(&context.tool(tool, &["--list", "--group-type", "classic"])?, &row)?;
    must_have_row(&context.tool(tool, &["--list", "--consumer"])?, &row)?;
    must_lack(&context.tool(tool, &["--list", "--group-type", "share"])?, &group)?;
    must_lack(&context.tool(tool, &["--list", "--share"])?, &group)?;
    Ok(Verdict::Pass)
}

/// The cluster's id and its brokers; this tool takes its address behind the command.
pub fn cluster(context: &Context<'_>) -> Result<Verdict> {
    let id = context.tool_of_command("kafka-cluster", &["cluster-id"])?;
    let id = id.trim().strip_prefix("Cluster ID: ").with_context(|| format!("no id: {id}"))?;
    ensure!(id.len() == 22, "{id:?} is not the id of a cluster");
    let listed = context.tool_of_command("kafka-cluster", &["list-endpoints"])?;
    for id in 1..=context.target().brokers {
        let row = listed.lines().find(|line| line.trim_start().starts_with(&format!("{id} ")));
        let row = row.with_context(|| format!("broker {id} is not listed:\n{listed}"))?;
        must_contain(row, &["broker", "127.0.0.1"])?;
    }
    Ok(Verdict::Pass)
}

/// No subscriptions to clients' metrics.
pub fn client_metrics(context: &Context<'_>) -> Result<Verdict> {
    for what in ["--list", "--describe"] {
        must_be_silent(context, "kafka-client-metrics", &[what])?;
    }
    Ok(Verdict::Pass)
}
