//! What the console asks of the gateway that it stands on. The program joins both: neither knows the other.

use std::pin::Pin;

use serde_json::Value;
use serving::choice::{Pair, Row};
use serving::error::ApiError;
use serving::operation::{NewRecord, Sent};

/// What became of records that were sent, in their order; an error if none was.
pub type Sending<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Result<Sent, ApiError>>, ApiError>> + Send + 'a>>;

/// A gateway, as far as a console needs it.
pub trait Front: Send + Sync {
    /// Sends records to a topic, to `partition` or as `pair` chooses, and waits for their acknowledgements.
    fn send<'a>(
        &'a self,
        topic: &'a str,
        records: &'a [NewRecord],
        pair: Pair,
        partition: Option<i32>,
    ) -> Sending<'a>;

    /// How many records of a topic it has sent where, by which rule.
    fn distribution(&self, topic: &str) -> Vec<Row>;

    /// The topics that it has sent records to.
    fn topics(&self) -> Vec<String>;

    /// What it counts, as JSON.
    fn counts(&self) -> Value;

    /// The URL of its listener, as this machine reaches it.
    fn url(&self) -> String;
}
