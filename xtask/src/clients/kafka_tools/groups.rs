//! kafka-consumer-groups (and kafka-groups).

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::clients::scenario::{
    Context, TOOL_LIMIT, Verdict, must_contain, must_have_row, must_lack,
};
use peer::apache_kafka;
use peer::process::Guarded;

const TOOL: &str = "kafka-consumer-groups";

/// A topic with ten records in one partition, and a group that has committed offset 6.
fn topic_and_group(context: &Context<'_>) -> Result<(String, String)> {
    let topic = context.make_topic("read", 1)?;
    let group = context.name("group");
    let lines: String = (0..10).map(|i| format!("{i}\n")).collect();
    context.produce_lines(&topic, &lines)?;
    context.tool(
        "kafka-console-consumer",
        &[
            "--topic",
            &topic,
            "--group",
            &group,
            "--from-beginning",
            "--max-messages",
            "6",
            "--timeout-ms",
            "60000",
        ],
    )?;
    Ok((topic, group))
}

/// Offsets, lag, state and members of a group at rest.
pub fn list_and_describe(context: &Context<'_>) -> Result<Verdict> {
    let (topic, group) = topic_and_group(context)?;
    must_contain(&context.tool(TOOL, &["--list"])?, &[&group])?;
    let described = context.tool(TOOL, &["--describe", "--group", &group])?;
    must_have_row(&described, &format!("{group} {topic} 0 6 10 4 - - -"))?;
    let state = context.tool(TOOL, &["--describe", "--group", &group, "--state"])?;
    must_contain(&state, &["Empty"])?;
    let listed = context.tool(TOOL, &["--list", "--state", "Empty"])?;
    must_have_row(&listed, &format!("{group} Consumer Classic Empty"))
        .or_else(|_| must_have_row(&listed, &format!("{group} Classic Empty")))
        .or_else(|_| must_have_row(&listed, &format!("{group} Empty")))?;
    let listed = context.tool(TOOL, &["--list", "--state", "Stable"])?;
    must_lack(&listed, &group)?;
    must_have_row(
        &context.tool("kafka-groups", &["--list"])?,
        &format!("{group} Classic consumer"),
    )?;
    Ok(Verdict::Pass)
}

/// A group with a member that runs: assignment, state, and what may not be done to it.
pub fn active_members(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("active", 2)?;
    let group = context.name("group");
    context.produce_lines(&topic, "1\n2\n")?;
    let arguments = [
        "--bootstrap-server",
        context.bootstrap(),
        "--topic",
        &topic,
        "--group",
        &group,
        "--from-beginning",
        "--command-property",
        "client.id=reader",
    ];
    let mut consumer = apache_kafka::brief_tool("kafka-console-consumer", &arguments)?;
    consumer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut consumer = Guarded::spawn(&mut consumer)?;
    let state = wait_for_stable(context, &group)?;
    must_contain(&state, &["range", "Stable"])?;
    let members =
        context.tool(TOOL, &["--describe", "--group", &group, "--members", "--verbose"])?;
    must_contain(&members, &["reader", &format!("{topic}:0,1")])
        .or_else(|_| must_contain(&members, &["reader", &format!("{topic}(0,1)")]))?;
    for refused in [
        &["--delete", "--group", &group][..],
        &["--reset-offsets", "--to-earliest", "--group", &group, "--topic", &topic, "--execute"],
        &["--delete-offsets", "--group", &group, "--topic", &topic],
    ] {
        let outcome = context.try_tool(TOOL, refused, b"")?;
        let said = outcome.text() + &outcome.errors();
        let ok = ["not empty", "non-empty", "NonEmpty", "inactive", "not allowed", "subscribed"];
        ensure!(ok.iter().any(|word| said.contains(word)), "{refused:?} was not refused:\n{said}");
    }
    // It leaves the group before it ends, unless it is killed.
    consumer.stop(TOOL_LIMIT)?;
    let state = context.tool(TOOL, &["--describe", "--group", &group, "--state"])?;
    must_contain(&state, &["Empty"])?;
    Ok(Verdict::Pass)
}

fn wait_for_stable(context: &Context<'_>, group: &str) -> Result<String> {
    let deadline = Instant::now() + TOOL_LIMIT;
    loop {
        let arguments = ["--describe", "--group", group, "--state"];
        let outcome = context.try_tool(TOOL, &arguments, b"")?;
        if outcome.text().contains("Stable") {
            return Ok(outcome.text());
        }
        ensure!(Instant::now() < deadline, "the group never became stable: {}", outcome.story());
    }
}

/// Every way of moving a group's offsets.
pub fn reset_offsets(context: &Context<'_>) -> Result<Verdict> {
    let (topic, group) = topic_and_group(context)?;
    let cases: [(&[&str], u32); 7] = [
        (&["--to-earliest"], 0),
        (&["--to-latest"], 10),
        (&["--shift-by", "-3"], 7),
        (&["--to-offset", "5"], 5),
        (&["--to-datetime", "2020-01-01T00:00:00.000"], 0),
        (&["--to-datetime", "2090-01-01T00:00:00.000"], 10),
        (&["--by-duration", "P1D"], 0),
    ];
    for (how, offset) in cases {
        let common = ["--reset-offsets", "--group", &group, "--topic", &topic, "--execute"];
        let said = context.tool(TOOL, &[&common[..], how].concat())?;
        must_have_row(&said, &format!("{group} {topic} 0 {offset}"))?;
        let described = context.tool(TOOL, &["--describe", "--group", &group])?;
        must_have_row(&described, &format!("{group} {topic} 0 {offset} 10 {}", 10 - offset))?;
    }
    Ok(Verdict::Pass)
}

/// A deleted group is gone.
pub fn delete(context: &Context<'_>) -> Result<Verdict> {
    let (_, group) = topic_and_group(context)?;
    let said = context.tool(TOOL, &["--delete", "--group", &group])?;
    must_contain(&said, &["was successful"])?;
    must_lack(&context.tool(TOOL, &["--list"])?, &group)?;
    let outcome = context.try_tool(TOOL, &["--delete", "--group", &group], b"")?;
    must_contain(&(outcome.text() + &outcome.errors()), &["GroupIdNotFoundException"])?;
    Ok(Verdict::Pass)
}

/// The offsets of one topic are forgotten.
pub fn delete_offsets(context: &Context<'_>) -> Result<Verdict> {
    let (topic, group) = topic_and_group(context)?;
    let said = context.tool(TOOL, &["--delete-offsets", "--group", &group, "--topic", &topic])?;
    must_have_row(&said, &format!("{topic} 0 Successful"))?;
    let outcome = context.try_tool(TOOL, &["--describe", "--group", &group], b"")?;
    must_lack(&outcome.text(), &topic)?;
    Ok(Verdict::Pass)
}
