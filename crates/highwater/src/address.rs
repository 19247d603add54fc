//! Addresses of brokers as people type them: the port may be left out.

/// Kafka's port.
const PORT_DEFAULT: u16 = 9092;

/// `host`, `host:port`, `[v6]` or `[v6]:port`, separated by commas, each with its port.
pub fn bootstrap_servers(text: &str) -> Result<String, String> {
    let servers = text.split(',').map(str::trim).map(with_port);
    Ok(servers.collect::<Result<Vec<_>, _>>()?.join(","))
}

fn with_port(server: &str) -> Result<String, String> {
    let wrong =
        |why: &str| format!("{server:?}: {why}; write host:port, for example localhost:9092");
    if server.contains("://") {
        return Err(wrong("an address of Kafka's protocol has no scheme"));
    }
    let behind_brackets = server.strip_prefix('[').map(|rest| rest.split_once(']'));
    let (host, port) = match behind_brackets {
        Some(None) => return Err(wrong("a bracket is not closed")),
        Some(Some((_, ""))) => (server, None),
        Some(Some((inside, rest))) => (&server[..inside.len() + 2], Some(rest)),
        None if server.matches(':').count() > 1 => {
            return Err(wrong("an IPv6 address stands in brackets"));
        }
        None => match server.find(':') {
            Some(at) => (&server[..at], Some(&server[at..])),
            None => (server, None),
        },
    };
    if host.is_empty() || host == "[]" {
        return Err(wrong("the host is missing"));
    }
    let Some(port) = port else { return Ok(format!("{host}:{PORT_DEFAULT}")) };
    match port.strip_prefix(':').map(str::parse::<u16>) {
        Some(Ok(port)) if port > 0 => Ok(format!("{host}:{port}")),
        _ => Err(wrong("the port is a number from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_be_left_out() {
        for (typed, meant) in [
            ("localhost", "localhost:9092"),
            ("localhost:9093", "localhost:9093"),
            ("[::1]", "[::1]:9092"),
            ("[::1]:9093", "[::1]:9093"),
            ("a, b:1 ,10.0.0.1", "a:9092,b:1,10.0.0.1:9092"),
        ] {
            assert_eq!(bootstrap_servers(typed).as_deref(), Ok(meant));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_before_anybody_is_asked() {
        for typed in [
            "",
            ",",
            "a,",
            ":9092",
            "a:",
            "a:b",
            "a:0",
            "a:65536",
            "::1",
            "[::1",
            "[]:1",
            "[::1]x",
            "http://a:80",
        ] {
            let refusal = bootstrap_servers(typed).expect_err(typed);
            assert!(refusal.contains("write host:port"), "{typed}: {refusal}");
        }
    }
}
