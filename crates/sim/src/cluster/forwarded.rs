//! Between what brokers and the active controller say and bytes, as the product's brokers forward it
//! (`metadata::Request::to_bytes`): a field that is dropped, cut off or defaulted there is missing here too.

use metadata::decide::BrokerRef;
use metadata::{Request, Response};

use super::controller::Ask;

/// What is on its way to the controller.
#[derive(Clone, Debug)]
pub(super) enum Forwarded {
    /// Encoded in the room `broker`, with less in it: the product's heartbeats do not say who is ready.
    Heartbeat { who: BrokerRef, is_ready: bool },
    /// A request as bytes.
    Request(Vec<u8>),
}

impl Forwarded {
    /// What a broker sends.
    pub(super) fn write(ask: Ask) -> Forwarded {
        let request = match ask {
            Ask::Heartbeat { who, is_ready } => return Forwarded::Heartbeat { who, is_ready },
            Ask::Register(request) => Request::RegisterBroker2(request),
            Ask::BeginShutdown(who) => Request::BeginShutdown(who),
            Ask::ReportEmpty(report) => Request::ReportEmptyReplicas2(report),
            Ask::GiveUp(report) => Request::GiveUpReplicas(report),
            Ask::AlterIsr(request) => Request::AlterPartition(request),
            Ask::Configure(request) => Request::IncrementalAlterConfigs(request),
        };
        Forwarded::Request(request.to_bytes())
    }

    /// What the controller reads. Fails if it cannot.
    pub(super) fn read(self) -> Result<Ask, String> {
        let bytes = match self {
            Forwarded::Heartbeat { who, is_ready } => return Ok(Ask::Heartbeat { who, is_ready }),
            Forwarded::Request(bytes) => bytes,
        };
        Ok(match Request::from_bytes(&bytes).map_err(|error| error.to_string())? {
            Request::RegisterBroker2(request) => Ask::Register(request),
            Request::BeginShutdown(who) => Ask::BeginShutdown(who),
            Request::ReportEmptyReplicas2(report) => Ask::ReportEmpty(report),
            Request::GiveUpReplicas(report) => Ask::GiveUp(report),
            Request::AlterPartition(request) => Ask::AlterIsr(request),
            Request::IncrementalAlterConfigs(request) => Ask::Configure(request),
            other => return Err(format!("no broker asks for {other:?}")),
        })
    }
}

/// The controller's answer as its asker reads it.
pub(super) fn as_read(response: &Response) -> Response {
    Response::from_bytes(&response.to_bytes()).expect("what a controller wrote can be read")
}
