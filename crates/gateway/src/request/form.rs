//! The form of a body, by its `Content-Type`.

/// How keys and values stand in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Embedded {
    /// As JSON themselves: a record's bytes are the text of the JSON value, without blanks around its parts.
    #[default]
    Json,
    /// As base64.
    Binary,
    /// As text: a record's bytes are the text's.
    Text,
}

impl Embedded {
    /// The format of this name.
    pub fn from_name(name: &str) -> Option<Embedded> {
        match name {
            "json" => Some(Embedded::Json),
            "binary" => Some(Embedded::Binary),
            "text" => Some(Embedded::Text),
            _ => None,
        }
    }
}

/// The form of a body with records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One JSON object with all records, as REST proxies have it.
    Records(Embedded),
    /// A line for each record.
    Lines,
    /// One event in JSON.
    Event,
    /// A list of events in JSON.
    Events,
}

impl Form {
    /// What may be sent, for the answer to what may not.
    pub const ACCEPTED: &'static str = "application/vnd.kafka.json.v2+json, application/vnd.kafka.binary.v2+json, \
                                        application/vnd.kafka.text.v2+json, application/json, application/x-ndjson, \
                                        application/cloudevents+json or application/cloudevents-batch+json";

    /// The form of a body of this `Content-Type`; `None` if it is not known.
    pub fn of(content_type: &str) -> Option<Form> {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        match essence.to_ascii_lowercase().as_str() {
            "application/vnd.kafka.json.v2+json" | "application/json" => {
                Some(Form::Records(Embedded::Json))
            }
            "application/vnd.kafka.binary.v2+json" => Some(Form::Records(Embedded::Binary)),
            "application/vnd.kafka.text.v2+json" => Some(Form::Records(Embedded::Text)),
            "application/cloudevents+json" => Some(Form::Event),
            "application/cloudevents-batch+json" => Some(Form::Events),
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
                Some(Form::Lines)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_known_by_their_type_whatever_its_case_and_parameters() {
        for (content_type, form) in [
            ("application/vnd.kafka.json.v2+json", Some(Form::Records(Embedded::Json))),
            ("Application/VND.kafka.Binary.v2+json", Some(Form::Records(Embedded::Binary))),
            (
                "application/vnd.kafka.text.v2+json; charset=utf-8",
                Some(Form::Records(Embedded::Text)),
            ),
            ("application/json", Some(Form::Records(Embedded::Json))),
            (" application/x-ndjson ;x", Some(Form::Lines)),
            ("application/vnd.kafka.avro.v2+json", None),
            ("application/x-www-form-urlencoded", None),
            ("text/plain", None),
            ("", None),
        ] {
            assert_eq!(Form::of(content_type), form, "{content_type}");
        }
    }
}
