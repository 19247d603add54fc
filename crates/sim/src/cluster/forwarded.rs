//! Between what brokers and the active controller say and bytes, as the product's brokers send it (`node::heartbeats`,
//! `metadata::Request::to_bytes`): a field that is dropped, cut off or defaulted there is missing here too.

use metadata::decide::{
    CreateTopics, RegisterBroker2, RegisterBroker3, RegisterBroker4, software_of_this_release,
};
use metadata::{Request, Response};
use model::BrokerId;
use node::heartbeats;

use super::controller::Ask;

/// What is on its way to the controller.
#[derive(Clone, Debug)]
pub(super) enum Forwarded {
    /// A heartbeat, and behind it the request of a broker that is ready to serve, which the product's brokers send when they hear
    /// that they are fenced.
    Heartbeat(Vec<u8>, Option<Vec<u8>>),
    /// Any other request.
    Request(Vec<u8>),
}

impl Forwarded {
    /// What a broker sends.
    pub(super) fn write(ask: Ask) -> Forwarded {
        let request = match ask {
            Ask::Heartbeat { who, is_ready, marks } => {
                let serves = is_ready.then(|| Request::UnfenceBroker(who).to_bytes());
                let heartbeat = match marks.is_empty() {
                    true => heartbeats::encode(who),
                    false => heartbeats::encode_with_marks(who, &marks),
                };
                return Forwarded::Heartbeat(heartbeat, serves);
            }
            Ask::Register(request, marks) => registration(request, marks.as_deref()),
            Ask::BeginShutdown(who) => Request::BeginShutdown(who),
            Ask::ReportEmpty(report) => Request::ReportEmptyReplicas2(report),
            Ask::GiveUp(report) => Request::GiveUpReplicas(report),
            Ask::GiveUpMissing(report) => Request::GiveUpMissing(report),
            Ask::AlterIsr(request) => Request::AlterPartition(request),
            Ask::Configure(request) => Request::IncrementalAlterConfigs(request),
            Ask::Elect(request) => Request::ElectLeaders(request),
            Ask::CreateTopic(topic) => {
                Request::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false })
            }
            Ask::DeleteTopic(topic) => Request::DeleteTopics(vec![topic]),
            Ask::Relieve(request) => Request::RelieveReplicas(request),
        };
        Forwarded::Request(request.to_bytes())
    }

    /// What the controller reads of what `caller` sent. Fails if it cannot.
    pub(super) fn read(self, caller: BrokerId) -> Result<Ask, String> {
        let bytes = match self {
            Forwarded::Heartbeat(heartbeat, serves) => {
                return read_heartbeat(caller, &heartbeat, serves.as_deref());
            }
            Forwarded::Request(bytes) => bytes,
        };
        Ok(match read_request(&bytes)? {
            Request::RegisterBroker3(request) => Ask::Register(request.request, None),
            Request::RegisterBroker4(RegisterBroker4 { request, marks }) => {
                Ask::Register(request.request, Some(marks))
            }
            Request::BeginShutdown(who) => Ask::BeginShutdown(who),
            Request::ReportEmptyReplicas2(report) => Ask::ReportEmpty(report),
            Request::GiveUpReplicas(report) => Ask::GiveUp(report),
            Request::GiveUpMissing(report) => Ask::GiveUpMissing(report),
            Request::AlterPartition(request) => Ask::AlterIsr(request),
            Request::IncrementalAlterConfigs(request) => Ask::Configure(request),
            Request::ElectLeaders(request) => Ask::Elect(request),
            Request::RelieveReplicas(request) => Ask::Relieve(request),
            Request::CreateTopics(CreateTopics { mut topics, .. }) if topics.len() == 1 => {
                Ask::CreateTopic(topics.remove(0))
            }
            Request::DeleteTopics(mut topics) if topics.len() == 1 => {
                Ask::DeleteTopic(topics.remove(0))
            }
            other => return Err(format!("no broker asks for {other:?}")),
        })
    }
}

/// A registration of a process that runs this release.
pub(super) fn registration(request: RegisterBroker2, marks: Option<&[u64]>) -> Request {
    let request = RegisterBroker3 { request, software: software_of_this_release() };
    match marks {
        Some(marks) => Request::RegisterBroker4(RegisterBroker4 { request, marks: marks.to_vec() }),
        None => Request::RegisterBroker3(request),
    }
}

fn read_request(bytes: &[u8]) -> Result<Request, String> {
    Request::from_bytes(bytes).map_err(|error| error.to_string())
}

fn read_heartbeat(caller: BrokerId, bytes: &[u8], serves: Option<&[u8]>) -> Result<Ask, String> {
    let who = heartbeats::decode(bytes).map_err(|error| error.to_string())?;
    let marks = heartbeats::decode_marks(bytes);
    let serves = serves.map(read_request).transpose()?;
    match serves {
        _ if who.broker != caller => Err(format!("it speaks for {}", who.broker)),
        None => Ok(Ask::Heartbeat { who, is_ready: false, marks }),
        Some(Request::UnfenceBroker(asker)) => {
            Ok(Ask::Heartbeat { who, is_ready: asker == who, marks })
        }
        Some(other) => Err(format!("{other:?} behind a heartbeat")),
    }
}

/// The controller's answer as its asker reads it.
pub(super) fn as_read(response: &Response) -> Response {
    Response::from_bytes(&response.to_bytes()).expect("what a controller wrote can be read")
}
