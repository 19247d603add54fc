//! kafka-configs.

use anyhow::{Result, ensure};

use crate::clients::scenario::{Context, Verdict, must_contain, must_lack};

const TOOL: &str = "kafka-configs";

fn alter(context: &Context<'_>, entity: &[&str], what: &str, pairs: &str) -> Result<()> {
    context.tool(TOOL, &[entity, &["--alter", what, pairs]].concat())?;
    Ok(())
}

fn describe(context: &Context<'_>, entity: &[&str]) -> Result<String> {
    context.tool(TOOL, &[entity, &["--describe"]].concat())
}

/// Set, described with its source, removed again; `--all` names the defaults too.
pub fn topics(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("configured", 1)?;
    let entity = ["--entity-type", "topics", "--entity-name", &topic];
    must_lack(&describe(context, &entity)?, "DYNAMIC_TOPIC_CONFIG")?;
    alter(context, &entity, "--add-config", "retention.ms=60000,cleanup.policy=compact")?;
    let text = describe(context, &entity)?;
    must_contain(
        &text,
        &[
            "retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=60000",
            "cleanup.policy=compact",
        ],
    )?;
    alter(context, &entity, "--delete-config", "cleanup.policy")?;
    must_lack(&describe(context, &entity)?, "cleanup.policy")?;
    let all = context.tool(TOOL, &[&entity[..], &["--describe", "--all"]].concat())?;
    must_contain(
        &all,
        &[
            "  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}",
            "  segment.bytes=1073741824 ",
            "  max.message.bytes=1048588 ",
            &format!("  min.insync.replicas={} ", context.target().replicas().max(2) - 1),
            "  retention.ms=60000 ",
            "  compression.type=producer ",
        ],
    )?;
    Ok(Verdict::Pass)
}

/// A list in brackets is one value.
pub fn lists(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("lists", 1)?;
    let entity = ["--entity-type", "topics", "--entity-name", &topic];
    alter(context, &entity, "--add-config", "cleanup.policy=[compact,delete]")?;
    must_contain(&describe(context, &entity)?, &["cleanup.policy=compact,delete "])?;
    Ok(Verdict::Pass)
}

/// Unknown keys, values that are none, and topics that are not there.
pub fn refused(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("refused", 1)?;
    let absent = context.name("absent");
    let cases = [
        (&topic, "no.such.key=1", "InvalidConfigurationException"),
        (&topic, "retention.ms=soon", "InvalidConfigurationException"),
        (&topic, "min.insync.replicas=0", "InvalidConfigurationException"),
        (&absent, "retention.ms=1", "UnknownTopicOrPartitionException"),
    ];
    for (name, pair, wanted) in cases {
        let arguments =
            ["--entity-type", "topics", "--entity-name", name, "--alter", "--add-config", pair];
        let outcome = context.try_tool(TOOL, &arguments, b"")?;
        ensure!(!outcome.success(), "{pair} for {name} was accepted");
        must_contain(&(outcome.text() + &outcome.errors()), &[wanted])?;
    }
    Ok(Verdict::Pass)
}

/// One broker and all brokers: static values described, dynamic ones set and removed.
pub fn brokers(context: &Context<'_>) -> Result<Verdict> {
    let one = ["--entity-type", "brokers", "--entity-name", "1"];
    let every = ["--entity-type", "brokers", "--entity-default"];
    let all = context.tool(TOOL, &[&one[..], &["--describe", "--all"]].concat())?;
    must_contain(&all, &["  log.dirs=", "  message.max.bytes=1048588 ", "STATIC_BROKER_CONFIG:"])?;
    alter(context, &every, "--add-config", "log.retention.ms=86400000")?;
    must_contain(&describe(context, &every)?, &["log.retention.ms=86400000"])?;
    // Of a topic's configuration each broker tells what holds there.
    let ids: Vec<String> = (1..=context.target().brokers).map(|id| id.to_string()).collect();
    let each = |what: &str, pair: &str| {
        let entity = |id| ["--entity-type", "brokers", "--entity-name", id];
        ids.iter().try_for_each(|id| alter(context, &entity(id.as_str()), what, pair))
    };
    each("--add-config", "log.retention.ms=43200000")?;
    let text = describe(context, &one)?;
    must_contain(
        &text,
        &[
            "DYNAMIC_BROKER_CONFIG:log.retention.ms=43200000",
            "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=86400000",
        ],
    )?;
    let topic = context.make_topic("inherits", 1)?;
    let entity = ["--entity-type", "topics", "--entity-name", &topic, "--describe", "--all"];
    must_contain(&context.tool(TOOL, &entity)?, &["  retention.ms=43200000 "])?;
    each("--delete-config", "log.retention.ms")?;
    alter(context, &every, "--delete-config", "log.retention.ms")?;
    must_lack(&describe(context, &one)?, "log.retention.ms")?;
    Ok(Verdict::Pass)
}
