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

    /// What the controller reads.
    pub(super) fn read(self) -> Ask {
        let bytes = match self {
            Forwarded::Heartbeat { who, is_ready } => return Ask::Heartbeat { who, is_ready },
            Forwarded::Request(bytes) => bytes,
        };
        match Request::from_bytes(&bytes).expect("what a broker wrote can be read") {
            Request::RegisterBroker2(request) => Ask::Register(request),
            Request::BeginShutdown(who) => Ask::BeginShutdown(who),
            Request::ReportEmptyReplicas2(report) => Ask::ReportEmpty(report),
            Request::GiveUpReplicas(report) => Ask::GiveUp(report),
            Request::AlterPartition(request) => Ask::AlterIsr(request),
            Request::IncrementalAlterConfigs(request) => Ask::Configure(request),
            other => panic!("no broker asks for {other:?}"),
        }
    }
}

/// The controller's answer as its asker reads it.
pub(super) fn as_read(response: &Response) -> Response {
    Response::from_bytes(&response.to_bytes()).expect("what a controller wrote can be read")
}
