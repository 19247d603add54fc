//! What `cluster up` says on standard output when the cluster serves: where it is, and one line for each broker.

use super::plan::Plan;

/// A running broker as it is shown.
#[derive(Debug)]
pub struct Shown {
    /// The process; `None` if it has ended meanwhile.
    pub pid: Option<u32>,
    /// Its folder.
    pub data: String,
    /// What starts it again.
    pub again: String,
}

/// All lines, for brokers in the order of the plan, with the addresses of their gateways. Programs read the addresses off
/// the line that begins with `bootstrap.servers=`.
pub fn announcement(
    plan: &Plan,
    folder: &str,
    brokers: &[Shown],
    http: bool,
    gateways: &[String],
) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let count = match plan.brokers.len() {
        1 => "1 broker".to_owned(),
        count => format!("{count} brokers"),
    };
    let bootstrap = plan.bootstrap();
    let mut lines = vec![
        format!("highwater {version}: cluster {} of {count}", plan.cluster_id),
        format!("data: {folder}"),
        format!("bootstrap.servers={bootstrap}"),
    ];
    let rows: Vec<[String; 4]> =
        plan.brokers.iter().zip(brokers).map(|(node, shown)| row(node.address(), shown)).collect();
    let width = |column: usize| {
        rows.iter().map(|row: &[String; 4]| row[column].chars().count()).max().unwrap_or(0)
    };
    let [address, pid, data] = [width(0), width(1), width(2)];
    lines.extend(plan.brokers.iter().zip(&rows).map(|(node, row)| {
        format!(
            "broker {}: {:address$}  {:pid$}  {:data$}  again: {}",
            node.id, row[0], row[1], row[2], row[3]
        )
    }));
    if http {
        let all =
            plan.brokers.iter().map(|node| format!(" http://{}/metrics", node.http_address()));
        lines.push(format!("http:{}", all.collect::<String>()));
    }
    if let Some(first) = gateways.first() {
        let more = if gateways.len() > 1 { "  (each gateway has it, for all brokers)" } else { "" };
        lines.push(format!("gateway: {}", gateways.join(" ")));
        lines.push(format!("console: {first}/console{more}"));
    }
    lines.push(format!("try: highwater cluster info -b {bootstrap}"));
    lines.join("\n") + "\n"
}

fn row(address: String, shown: &Shown) -> [String; 4] {
    let pid = shown.pid.map_or("ended".to_owned(), |pid| format!("pid {pid}"));
    [address, pid, shown.data.clone(), shown.again.clone()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_broker_has_a_line_with_the_command_that_starts_it_again() {
        let plan = Plan::new(
            "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
            2,
            &[9998, 9999, 10_000, 8082, 10_001, 10_002, 10_003, 8083],
        );
        let shown = |id: u32, pid| Shown {
            pid,
            data: format!("/c/broker-{id}"),
            again: format!("highwater start /c/broker-{id}/server.properties"),
        };
        let brokers = [shown(1, Some(4711)), shown(2, Some(81_234))];
        let version = env!("CARGO_PKG_VERSION");
        let gateways = [8082, 8083].map(|port| format!("http://127.0.0.1:{port}"));
        assert_eq!(
            announcement(&plan, "/c", &brokers, true, &gateways),
            format!(
                "highwater {version}: cluster AAAAAAAAAAAAAAAAAAAAAA of 2 brokers\n\
                 data: /c\n\
                 bootstrap.servers=127.0.0.1:9998,127.0.0.1:10001\n\
                 broker 1: 127.0.0.1:9998   pid 4711   /c/broker-1  again: highwater start /c/broker-1/server.properties\n\
                 broker 2: 127.0.0.1:10001  pid 81234  /c/broker-2  again: highwater start /c/broker-2/server.properties\n\
                 http: http://127.0.0.1:10000/metrics http://127.0.0.1:10003/metrics\n\
                 gateway: http://127.0.0.1:8082 http://127.0.0.1:8083\n\
                 console: http://127.0.0.1:8082/console  (each gateway has it, for all brokers)\n\
                 try: highwater cluster info -b 127.0.0.1:9998,127.0.0.1:10001\n"
            )
        );
        let text = announcement(&plan, "/c", &[shown(1, None), shown(2, None)], false, &[]);
        assert!(!text.contains("http:") && text.contains("ended"), "{text}");
        assert!(!text.contains("gateway") && !text.contains("console"), "{text}");
        let one = announcement(&plan, "/c", &brokers, false, &gateways[..1]);
        assert!(one.contains("\nconsole: http://127.0.0.1:8082/console\n"), "{one}");
    }
}
