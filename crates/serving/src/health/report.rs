//! A broker's health as JSON. The same object is the body of the endpoints and the value of the
//! read-only configuration [`CONFIG_NAME`], which clients read over the Kafka port (DescribeConfigs).
//!
//! ```text
//! {"status": "ok"}
//! {"status": "degraded", "reasons": [{"reason": CODE, "detail": SENTENCE, "scope": "cluster"}, …]}
//! ```
//!
//! `scope` is absent for conditions of the broker itself. The configuration has the field `slowest_acknowledger` besides,
//! `{"broker": ID, "ms": LONGEST}`, if followers acknowledged records of this broker within a minute.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::broker::BrokerHealth;
use super::condition::{Condition, HealthReason, HealthScope};

/// Name of the broker configuration whose value is the report. A broker returns it only to a
/// DescribeConfigs request that names it.
pub const CONFIG_NAME: &str = "highwater.health";
/// Field of the slowest acknowledger. Endpoints do not have it: it is not a reason.
const SLOWEST: &str = "slowest_acknowledger";

/// A status word and its reasons as JSON. `reasons` is absent if there is none.
pub fn to_json(status: &str, reasons: &[HealthReason]) -> Value {
    let mut body = Map::new();
    body.insert("status".to_owned(), json!(status));
    if !reasons.is_empty() {
        body.insert("reasons".to_owned(), reasons.iter().map(reason_to_json).collect());
    }
    Value::Object(body)
}

fn reason_to_json(reason: &HealthReason) -> Value {
    let mut fields = Map::new();
    fields.insert("reason".to_owned(), json!(reason.condition.code()));
    fields.insert("detail".to_owned(), json!(reason.detail));
    if reason.condition.scope() == HealthScope::Cluster {
        fields.insert("scope".to_owned(), json!("cluster"));
    }
    Value::Object(fields)
}

/// A broker's whole report, as one line.
pub fn encode(health: &BrokerHealth) -> String {
    let mut body = to_json(health.status(), health.reasons());
    if let Some(slowest) = health.slowest_acknowledger() {
        let ms = slowest.longest.as_millis() as u64;
        body[SLOWEST] = json!({"broker": slowest.broker, "ms": ms});
    }
    body.to_string()
}

/// The slowest acknowledger in a report: the broker, and its longest acknowledgement within a minute. `None` if the report
/// has none.
pub fn decode_slowest(text: &str) -> Option<(i32, Duration)> {
    let body: Value = serde_json::from_str(text).ok()?;
    let slowest = body.get(SLOWEST)?;
    let broker = i32::try_from(slowest["broker"].as_i64()?).ok()?;
    Some((broker, Duration::from_millis(slowest["ms"].as_u64()?)))
}

/// A reason that another broker reported, perhaps of a later release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportedReason {
    /// A condition that this release has.
    Known(HealthReason),
    /// A condition of another release: its code and its sentence. It counts as not well.
    Unknown {
        /// The code.
        code: String,
        /// The sentence.
        detail: String,
    },
}

/// The reasons in a report. Error: the text is not a report; the message names the first fault.
pub fn decode(text: &str) -> Result<Vec<ReportedReason>, String> {
    let body: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if body["status"].as_str().is_none() {
        return Err("the report has no status".to_owned());
    }
    let Some(reasons) = body.get("reasons") else { return Ok(Vec::new()) };
    let reasons = reasons.as_array().ok_or("the reasons of the report are not an array")?;
    reasons.iter().map(decode_reason).collect()
}

fn decode_reason(reason: &Value) -> Result<ReportedReason, String> {
    let field = |name: &str| {
        let found = reason[name].as_str().map(str::to_owned);
        found.ok_or_else(|| format!("a reason of the report has no {name}"))
    };
    let (code, detail) = (field("reason")?, field("detail")?);
    Ok(match Condition::from_code(&code) {
        Some(condition) => ReportedReason::Known(HealthReason { condition, detail }),
        None => ReportedReason::Unknown { code, detail },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::broker::BrokerFacts;

    #[test]
    fn a_well_broker_reports_a_status_alone() {
        let health = BrokerHealth::of(&BrokerFacts::well());
        assert_eq!(encode(&health), r#"{"status":"ok"}"#);
        assert_eq!(decode(&encode(&health)), Ok(Vec::new()));
    }

    #[test]
    fn the_slowest_acknowledger_is_not_a_reason() {
        use crate::health::broker::AcknowledgerFacts;
        let longest = Duration::from_millis(12);
        let slowest = AcknowledgerFacts { broker: 3, longest, is_slow: false };
        let facts = BrokerFacts { slowest_acknowledger: Some(slowest), ..BrokerFacts::well() };
        let text = encode(&BrokerHealth::of(&facts));
        assert_eq!(decode(&text), Ok(Vec::new()));
        assert_eq!(decode_slowest(&text), Some((3, longest)));
        assert_eq!(decode_slowest(r#"{"status":"ok"}"#), None);
        let slowest = AcknowledgerFacts { is_slow: true, ..slowest };
        let facts = BrokerFacts { slowest_acknowledger: Some(slowest), ..facts };
        let health = BrokerHealth::of(&facts);
        let [reason] = health.reasons() else { panic!("one reason: {health:?}") };
        assert_eq!(reason.condition, Condition::AcknowledgerSlow);
        assert!(reason.detail.starts_with("broker 3 acknowledges last, up to 12 ms"));
        assert!(health.is_available() && !reason.condition.fails_cluster());
    }

    #[test]
    fn every_condition_survives_the_way_to_another_broker() {
        let reasons: Vec<HealthReason> =
            Condition::all().map(|condition| HealthReason::new(condition, "a \"b\"\n")).collect();
        let decoded = decode(&to_json("degraded", &reasons).to_string()).unwrap();
        assert_eq!(decoded, reasons.into_iter().map(ReportedReason::Known).collect::<Vec<_>>());
    }

    #[test]
    fn a_condition_of_a_later_release_keeps_its_words() {
        let report =
            r#"{"status":"degraded","more":1,"reasons":[{"reason":"x","detail":"y","z":2}]}"#;
        let expected = ReportedReason::Unknown { code: "x".to_owned(), detail: "y".to_owned() };
        assert_eq!(decode(report), Ok(vec![expected]));
        for broken in
            ["", "[]", "{}", r#"{"status":"ok","reasons":1}"#, r#"{"status":"ok","reasons":[{}]}"#]
        {
            assert!(decode(broken).is_err(), "{broken}");
        }
    }
}
