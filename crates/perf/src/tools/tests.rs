//! What can be typed, and what is answered without a broker.

use super::testing::Recorded;
use super::*;

fn typed(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn task(tool: Tool, line: &str) -> Task {
    tool.parse(&typed(line)).unwrap_or_else(|e| panic!("{line}: {e}"))
}

fn produce_plan(line: &str) -> (produce::arguments::Plan, Recorded) {
    let recorded = Recorded::default();
    let Task::Produce(arguments) = task(Tool::Produce, line) else { panic!("{line}") };
    let plan = arguments.plan(&recorded.console());
    (plan.unwrap_or_else(|e| panic!("{line}: {e}")), recorded)
}

fn consume_plan(line: &str) -> (consume::arguments::Plan, Recorded) {
    let recorded = Recorded::default();
    let Task::Consume(arguments) = task(Tool::Consume, line) else { panic!("{line}") };
    let plan = arguments.plan(&recorded.console());
    (plan.unwrap_or_else(|e| panic!("{line}: {e}")), recorded)
}

/// Runs a tool to its end; it must not reach a broker.
fn failed(tool: Tool, line: &str) -> Recorded {
    let recorded = Recorded::default();
    let code = main(tool, &typed(line), &Arc::new(recorded.console()));
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE), "{line}");
    recorded
}

#[test]
fn the_definitions_of_all_arguments_are_sound() {
    Tool::ALL.into_iter().for_each(|tool| tool.command().debug_assert());
}

#[test]
fn tools_are_known_by_their_names() {
    assert_eq!(Tool::of_name("kafka-producer-perf-test.sh"), Some(Tool::Produce));
    assert_eq!(Tool::of_name("kafka-consumer-perf-test"), Some(Tool::Consume));
    assert_eq!(Tool::of_name("kafka-e2e-latency.sh"), Some(Tool::EndToEnd));
    assert_eq!(Tool::of_name("kafka-topics.sh"), None);
    assert_eq!(Tool::of_name("highwater"), None);
}

#[test]
fn the_command_lines_of_the_2018_benchmark_mean_what_they_meant() {
    for (size, throughput) in [(100, 100), (1000, 250), (5000, 4000), (10_000, 500), (30_000, 8000)]
    {
        let (plan, recorded) = produce_plan(&format!(
            "--topic test --num-records 100000 --record-size {size} --throughput {throughput} \
             --producer-props bootstrap.servers=B:9092"
        ));
        assert_eq!((plan.topic.as_str(), plan.records), ("test", 100_000));
        assert_eq!(plan.throughput, f64::from(throughput));
        let mode = produce::arguments::PayloadMode::Fresh;
        let expected = produce::arguments::Source::Letters { size_bytes: size, mode };
        assert_eq!(plan.source, expected);
        assert_eq!(plan.properties["bootstrap.servers"], "B:9092");
        assert_eq!(plan.properties["client.id"], "perf-producer-client");
        assert_eq!(
            recorded.lines(),
            "Option --producer-props has been deprecated and will be removed in a future version. \
             Use --command-property instead.\n"
        );
    }
    for size in [100, 1000, 5000, 10_000, 30_000] {
        let (plan, recorded) = consume_plan(&format!(
            "--topic test --messages 100000 --fetch-size {size} --broker-list B:9092 --threads 4"
        ));
        assert_eq!((plan.records, plan.detailed, plan.timeout_ms), (100_000, false, 10_000));
        assert_eq!(plan.properties["max.partition.fetch.bytes"], size.to_string());
        assert_eq!(plan.properties["bootstrap.servers"], "B:9092");
        assert!(!plan.properties.contains_key("fetch.max.bytes"));
        let expected = "Warning: --messages is deprecated. Use --num-records instead.\n";
        assert_eq!(recorded.lines(), expected);
        let notices = recorded.notices();
        assert_eq!(notices.lines().count(), 2, "a line for each: {notices}");
        assert!(notices.contains("--broker-list") && notices.contains("--threads"), "{notices}");
    }
}

#[test]
fn the_command_lines_of_today_are_taken() {
    let (plan, recorded) = produce_plan(
        "--bootstrap-server=a:1,b:2 --topic=t --num-records=9 --record-size=1 --throughput=-1 \
         --command-property acks=1 linger.ms=3 --print-metrics --warmup-records 8 \
         --reporting-interval 100 --command-property=retries=7",
    );
    assert_eq!(plan.properties["bootstrap.servers"], "a:1,b:2");
    assert_eq!(
        (plan.properties["acks"].as_str(), plan.properties["linger.ms"].as_str()),
        ("1", "3")
    );
    assert_eq!(plan.properties["retries"], "7");
    assert_eq!((plan.throughput, plan.warmup_records, plan.print_metrics), (-1.0, 8, true));
    assert_eq!(recorded.lines() + &recorded.notices(), "");
    let (plan, recorded) = consume_plan(
        "--bootstrap-server a:1 --include t.* --num-records 5 --command-property fetch.min.bytes=2 \
         --command-property client.id=mine --from-latest --show-detailed-stats --hide-header",
    );
    assert_eq!(plan.properties["fetch.min.bytes"], "2");
    assert_eq!(plan.properties["client.id"], "mine");
    assert_eq!(plan.properties["auto.offset.reset"], "latest");
    assert!(plan.properties["group.id"].starts_with("perf-consumer-"));
    assert!(plan.detailed && !plan.summary && !plan.header);
    assert_eq!(recorded.lines() + &recorded.notices(), "");
}

#[test]
fn flags_may_be_shortened_and_the_producers_repeated() {
    let (plan, _) = produce_plan(
        "--bootst a:1 --topic t --num-rec 3 --num-rec 4 --record-size 1 --throughp 0.5",
    );
    assert_eq!((plan.records, plan.throughput), (4, 0.5));
    let (plan, _) = produce_plan("--bootst a:1 --topic t --num 3 --record 9 --throughp 1");
    let mode = produce::arguments::PayloadMode::Fresh;
    assert_eq!(plan.source, produce::arguments::Source::Letters { size_bytes: 9, mode });
    let (plan, _) = produce_plan("--bootst a:1 --topic t --n 3 --payload-m --throughp 1");
    assert_eq!((plan.records, plan.source), (3, produce::arguments::Source::Monotonic));
    let (plan, _) = consume_plan("--b a:1 --topic t --num 3 --p");
    assert_eq!((plan.records, plan.print_metrics), (3, true));
    let (plan, _) = consume_plan("-bootstrap-server a:1 -topic t -messages 3 -timeout");
    assert_eq!((plan.records, plan.timeout_ms), (3, 10_000));
}

#[test]
fn the_bootstrap_server_stands_above_properties_and_these_above_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client.properties");
    std::fs::write(&file, "bootstrap.servers=file:1\nacks=1\nlinger.ms=7\n").unwrap();
    for flag in ["--command-config", "--producer.config"] {
        let (plan, _) = produce_plan(&format!(
            "--topic t --num-records 1 --record-size 1 --throughput -1 {flag} {} \
             --command-property acks=0 bootstrap.servers=pair:1 --bootstrap-server flag:1",
            file.display()
        ));
        let of = |key: &str| plan.properties[key].as_str();
        assert_eq!((of("bootstrap.servers"), of("acks"), of("linger.ms")), ("flag:1", "0", "7"));
    }
}

#[test]
fn what_the_producers_tool_refuses_is_said_behind_its_usage() {
    let whole = "--topic t --num-records 5 --throughput -1 --record-size 10";
    let cases = [
        ("--topic t".to_owned(), "argument --num-records is required"),
        (whole.to_owned(), "At least one of --bootstrap-server,"),
        (whole.replace("10", "0"), "--record-size should be greater than zero."),
        (
            whole.replace(" --record-size 10", ""),
            "one of the arguments --record-size --payload-file --payload-monotonic is required",
        ),
        (format!("{whole} --payload-monotonic"), "--payload-monotonic"),
        (
            whole.replace(" 5 ", " 0 ") + " --bootstrap-server x:1",
            "--num-records should be greater",
        ),
        (format!("{whole} --bootstrap-server x:1 --warmup-records 5"), "--warmup-records"),
        (format!("{whole} --bootstrap-server x:1 --reporting-interval 0"), "--reporting-interval"),
        (
            format!("{whole} --bootstrap-server x:1 --transaction-duration-ms 0"),
            "--transaction-duration-ms should be greater than zero.",
        ),
        (
            format!("{whole} --producer-props a=b --command-property acks=1"),
            "--command-property and --producer-props cannot be specified together.",
        ),
        (format!("{whole} --bogus 3"), "--bogus"),
        (whole.replace("size 10", "size 3000000000"), "3000000000"),
        (format!("{whole} --bootstrap-server x:1 --producers 0"), "--producers"),
        (
            format!("{whole} --bootstrap-server x:1 --record-key-size 8 --key-distribution zipf:1"),
            "--key-distribution zipf needs --key-cardinality",
        ),
        (whole.replace("-1", "x"), "--throughput"),
    ];
    for (line, text) in cases {
        let recorded = failed(Tool::Produce, &line);
        let notices = recorded.notices();
        assert!(notices.starts_with("usage: kafka-producer-perf-test "), "{line}: {notices}");
        let last = notices.lines().last().unwrap();
        assert!(last.starts_with("kafka-producer-perf-test: error: "), "{line}: {notices}");
        assert!(last.contains(text), "{line}: {notices}");
        assert_eq!(recorded.lines(), "", "{line}");
    }
}

#[test]
fn wrong_properties_name_key_and_value() {
    let line = "--topic t --num-records 5 --throughput -1 --record-size 10 --command-property \
                bootstrap.servers=localhost:9";
    for (property, text) in [
        ("acks=2", "invalid value 2 for configuration acks"),
        ("batch.size=x", "invalid value x for configuration batch.size"),
        ("a=b=c", "invalid property \"a=b=c\""),
        ("transactional.id=", "transactional.id"),
        ("transaction.timeout.ms=0", "invalid value 0 for configuration transaction.timeout.ms"),
        ("security.protocol=TLS", "security.protocol"),
    ] {
        let notices = failed(Tool::Produce, &format!("{line} {property}")).notices();
        assert!(notices.contains(text), "{property}: {notices}");
        assert!(!notices.contains("usage:"), "{property}: {notices}");
    }
    let notices = failed(Tool::Produce, &format!("{line} acks=1 --transactional-id t")).notices();
    assert!(notices.contains("transactions need idempotence"), "{notices}");
}

#[test]
fn an_id_or_a_duration_asks_for_transactions() {
    let whole = "--topic t --num-records 5 --throughput -1 --record-size 10 --bootstrap-server x:1";
    let asked = |more: &str| {
        let (plan, _) = produce_plan(&format!("{whole} {more}"));
        (plan.properties.get("transactional.id").cloned(), plan.transaction_duration_ms)
    };
    let id = |id: &str| Some(id.to_owned());
    assert_eq!(asked(""), (None, None));
    assert_eq!(asked("--transactional-id a"), (id("a"), Some(3000)));
    assert_eq!(asked("--command-property transactional.id=b"), (id("b"), Some(3000)));
    let both = "--transaction-duration-ms 7 --command-property transactional.id=b";
    assert_eq!(asked(both), (id("b"), Some(7)));
    assert_eq!(asked(&format!("{both} --transactional-id a")), (id("a"), Some(7)));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client.properties");
    std::fs::write(&file, "transactional.id=c\n").unwrap();
    let by_file = format!("--command-config {}", file.display());
    assert_eq!(asked(&by_file), (id("c"), Some(3000)));
    let (first, duration_ms) = asked("--transaction-duration-ms 1");
    let (second, _) = asked("--transaction-duration-ms 1");
    assert_eq!(duration_ms, Some(1));
    assert_ne!(first, second, "random");
    let uuid = first.as_deref().and_then(|id| id.strip_prefix("performance-producer-")).unwrap();
    assert_eq!(uuid.len(), 22, "{uuid}");
}

#[test]
fn what_the_other_tools_refuse_is_said_before_their_options() {
    for (tool, line, text) in [
        (Tool::Consume, "--topic t", "Missing required argument \"[bootstrap-server]\""),
        (
            Tool::Consume,
            "--topic t --bootstrap-server x:1",
            "Exactly one of the following arguments is required: [messages], [num-records]",
        ),
        (
            Tool::Consume,
            "--bootstrap-server x:1 --messages 1",
            "Exactly one of the following arguments is required: [topic], [include]",
        ),
        (
            Tool::EndToEnd,
            "--bootstrap-server x:1 --topic t --num-records 1 --record-size 1 --producer-acks 0",
            "Invalid value for --producer-acks.",
        ),
        (Tool::EndToEnd, "--topic t", "Missing required argument \"[bootstrap-server]\""),
        (
            Tool::EndToEnd,
            "--bootstrap-server x:1 --topic t --num-records 0 --record-size 1 --producer-acks 1",
            "Value for --num-records must be a positive integer.",
        ),
        (
            Tool::EndToEnd,
            "--bootstrap-server x:1 --topic t --num-records 1 --record-size -1 --producer-acks 1",
            "Value for --record-size must be a non-negative integer.",
        ),
        (
            Tool::EndToEnd,
            "--bootstrap-server x:1 --topic t --num-records 1 --record-size 1 --producer-acks 1 \
             --record-header-size -2",
            "Value for --record-header-size must be a non-negative integer or -1 for null",
        ),
    ] {
        let notices = failed(tool, line).notices();
        assert!(notices.starts_with(text), "{line}: {notices}");
        assert!(notices.contains("--bootstrap-server <"), "{line}: {notices}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/run.json");
    let path = path.display();
    let whole = "--bootstrap-server x:1 --topic t --num-records 5";
    for (tool, line) in [
        (Tool::Produce, format!("{whole} --throughput -1 --record-size 1 --output-path {path}")),
        (Tool::Produce, format!("{whole} --throughput -1 --record-size 1 --histogram {path}")),
        (Tool::Consume, format!("{whole} --output-path {path}")),
        (Tool::EndToEnd, format!("{whole} --record-size 1 --producer-acks 1 --histogram {path}")),
    ] {
        let recorded = failed(tool, &line);
        let notices = recorded.notices();
        assert!(notices.contains(&format!("cannot write {path}")), "{line}: {notices}");
        assert_eq!(recorded.lines(), "", "{line}");
    }
}

#[test]
fn an_interval_of_nothing_is_refused() {
    for interval in ["0", "-4"] {
        let line = "--bootstrap-server x:1 --topic t --num-records 1 --reporting-interval";
        let recorded = failed(Tool::Consume, &format!("{line} {interval}"));
        let notices = recorded.notices();
        assert!(notices.contains("Reporting interval must be greater than 0."), "{notices}");
        assert_eq!(recorded.lines(), "");
    }
}

#[test]
fn what_a_tool_cannot_do_is_said_by_its_help() {
    for tool in Tool::ALL {
        let recorded = Recorded::default();
        main(tool, &typed("--help"), &Arc::new(recorded.console()));
        let help = recorded.lines() + &recorded.notices();
        assert!(help.contains("no GSSAPI") && help.contains("Required: "), "{help}");
    }
}

#[test]
fn records_that_are_sent_one_by_one_take_no_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client.properties");
    std::fs::write(&file, "transactional.id=c\n").unwrap();
    let line = format!(
        "--bootstrap-server 127.0.0.1:1 --topic t --num-records 1 --record-size 1 \
         --producer-acks all --command-config {}",
        file.display()
    );
    let notices = failed(Tool::EndToEnd, &line).notices();
    assert!(notices.contains("transactional.id") && notices.contains("transaction"), "{notices}");
}

#[test]
fn nothing_typed_is_help_for_one_and_an_error_for_the_others() {
    let recorded = Recorded::default();
    let code = main(Tool::Produce, &[], &Arc::new(recorded.console()));
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
    assert!(recorded.lines().contains("--payload-monotonic"));
    for tool in [Tool::Consume, Tool::EndToEnd] {
        let recorded = failed(tool, "");
        assert!(recorded.notices().contains("--num-records") && recorded.lines().is_empty());
    }
}

#[test]
fn the_version_is_said_as_kafkas_tools_say_it() {
    for tool in [Tool::Consume, Tool::EndToEnd] {
        let recorded = Recorded::default();
        main(tool, &typed("--topic t --version"), &Arc::new(recorded.console()));
        assert_eq!(recorded.lines(), concat!(env!("CARGO_PKG_VERSION"), "\n"));
    }
    assert!(failed(Tool::Produce, "--version").notices().contains("'--version'"));
}

#[test]
fn the_old_positions_of_the_latency_tool_are_taken_with_a_warning() {
    let recorded = Recorded::default();
    let Task::EndToEnd(arguments) = task(Tool::EndToEnd, "x:1 t 1500 all 100") else { panic!() };
    let plan = arguments.plan(&recorded.console()).unwrap();
    assert_eq!((plan.topic.as_str(), plan.records, plan.acks.as_str()), ("t", 1500, "all"));
    assert_eq!((plan.record_bytes, plan.properties["bootstrap.servers"].as_str()), (100, "x:1"));
    assert!(recorded.lines().starts_with("WARNING: Positional argument usage is deprecated"));
    let notices = failed(Tool::EndToEnd, "x:1 t 5").notices();
    assert!(notices.contains("Expected 5 or 6 positional arguments, but got 3."), "{notices}");
    let notices = failed(Tool::EndToEnd, "x:1 t many 1 100").notices();
    assert!(notices.contains("Cannot parse argument 'many' of option num-records"), "{notices}");
}

#[test]
fn partitions_and_offsets_go_together() {
    let whole = "--bootstrap-server x:1 --topic t --num-records 1 --partitions 0,3";
    let subject = |line: &str| match consume_plan(line).0.subject {
        consume::arguments::Subject::Partitions(_, places) => places,
        other => panic!("{other:?}"),
    };
    use consume::arguments::Place::{Earliest, Latest, Offset};
    assert_eq!(subject(whole), [(0, Earliest), (3, Earliest)]);
    assert_eq!(subject(&format!("{whole} --from-latest")), [(0, Latest), (3, Latest)]);
    assert_eq!(subject(&format!("{whole} --offsets 7")), [(0, Offset(7)), (3, Offset(7))]);
    let each = subject(&format!("{whole} --offsets latest,9"));
    assert_eq!(each, [(0, Latest), (3, Offset(9))]);
    failed(Tool::Consume, &format!("{whole} --offsets 1,2,3"));
    failed(Tool::Consume, "--bootstrap-server x:1 --topic t --num-records 1 --offsets 1");
}

#[test]
fn the_whole_name_of_a_topic_must_match_the_pattern() {
    let (plan, _) = consume_plan("--bootstrap-server x:1 --include a|bc --num-records 1");
    let consume::arguments::Subject::Pattern(pattern) = plan.subject else { panic!() };
    let matching = ["a", "bc", "ab", "abc", "c"].map(|name| pattern.is_match(name));
    assert_eq!(matching, [true, true, false, false, false]);
}
