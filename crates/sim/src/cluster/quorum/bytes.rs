//! What the nodes of the quorum say to each other as the bytes that the product's members send: written and read by the room
//! `ledger`.
//!
//! An answer to an append does not repeat what was asked: in the product it comes back to the call. Here it has [`Call`] with it.

use ledger::message::{Append, Appended, Election, Head, Reply, Request, Voted};
use ledger::{Entry, Payload, Place, Proposal, Vote, broker_id, node_id};

use super::{End, Logged, Message};
use crate::cluster::{id_of, number_of};
use crate::controller::CLUSTER_ID;

/// A message on its way.
#[derive(Clone, Debug)]
pub(in crate::cluster) enum Sent {
    Request(Vec<u8>),
    /// To the append that was sent in this call, if it was one.
    Reply(Call, Vec<u8>),
}

/// What the sender of an append knows of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Call {
    /// In which term it leads.
    term: u64,
    /// Up to where the entries went.
    count: usize,
}

/// What one node sends to another.
pub(in crate::cluster) fn write(from: usize, to: usize, message: &Message) -> Sent {
    let (from, to) = (node(from), node(to));
    let head = Head { cluster_id: CLUSTER_ID, from, to };
    let vote = |term, node, committed| Vote { term, node, committed };
    let (term, count, reply) = match message {
        Message::AskVote { term, end } => {
            let (vote, last) = (vote(*term, from, false), place(*end));
            let election = Election { vote, last, is_handed_over: false };
            return Sent::Request(Request::Vote(election).encode(head));
        }
        Message::Append { term, before, entries, committed } => {
            let append = Append {
                vote: vote(*term, from, true),
                before: place(*before),
                committed: place(*committed),
                entries: (before.count..).zip(entries).map(entry).collect(),
            };
            return Sent::Request(Request::Append(append).encode(head));
        }
        Message::Vote { term, granted } => {
            let vote = vote(*term, if *granted { to } else { from }, false);
            (*term, 0, Reply::Vote(Voted { vote, is_granted: *granted, last: None }))
        }
        Message::Appended { term, has } => (*term, *has, Reply::Append(Appended::All)),
        Message::Conflict { term } => (*term, 0, Reply::Append(Appended::Conflict)),
        Message::Deposed { term } => {
            (*term, 0, Reply::Append(Appended::HigherVote(vote(*term, from, false))))
        }
    };
    Sent::Reply(Call { term, count }, reply.encode(head))
}

/// What a node reads. Fails if that is not a message of the sender to it.
pub(in crate::cluster) fn read(from: usize, to: usize, sent: &Sent) -> Result<Message, String> {
    let head = Head { cluster_id: CLUSTER_ID, from: node(from), to: node(to) };
    let (found, message) = match sent {
        Sent::Request(bytes) => {
            let (found, request) = Request::decode(bytes).map_err(|error| error.to_string())?;
            (found, read_request(head.from, request)?)
        }
        Sent::Reply(call, bytes) => {
            let (found, reply) = Reply::decode(bytes).map_err(|error| error.to_string())?;
            (found, read_reply(*call, reply)?)
        }
    };
    match found == head {
        true => Ok(message),
        false => Err(format!("{found:?} in the place of {head:?}")),
    }
}

fn read_request(from: u64, request: Request) -> Result<Message, String> {
    match request {
        Request::Vote(Election { vote, last, .. }) if vote.node == from && !vote.committed => {
            Ok(Message::AskVote { term: vote.term, end: end(last)? })
        }
        Request::Append(Append { vote, before, committed, entries })
            if vote.node == from && vote.committed =>
        {
            let (before, committed) = (end(before)?, end(committed)?);
            let numbered = (before.count..).zip(entries);
            let entries =
                numbered.map(|(at, entry)| logged(at, entry)).collect::<Result<_, _>>()?;
            Ok(Message::Append { term: vote.term, before, entries, committed })
        }
        other => Err(format!("no node asks {other:?}")),
    }
}

fn read_reply(call: Call, reply: Reply) -> Result<Message, String> {
    let Call { term, count } = call;
    match reply {
        Reply::Vote(Voted { vote, is_granted, .. }) => {
            Ok(Message::Vote { term: vote.term, granted: is_granted })
        }
        Reply::Append(Appended::All) => Ok(Message::Appended { term, has: count }),
        Reply::Append(Appended::Conflict) => Ok(Message::Conflict { term }),
        Reply::Append(Appended::HigherVote(vote)) => Ok(Message::Deposed { term: vote.term }),
        other => Err(format!("no node answers {other:?}")),
    }
}

fn node(number: usize) -> u64 {
    node_id(id_of(number), 0)
}

fn number(node: u64) -> Result<usize, String> {
    let broker = broker_id(node);
    if broker.0 < 1 { Err(format!("there is no broker {broker}")) } else { Ok(number_of(broker)) }
}

/// The last entry of so many.
fn place(end: End) -> Option<Place> {
    let index = end.count.checked_sub(1)? as u64;
    Some(Place { term: end.term, leader: node(end.leader), index })
}

fn end(last: Option<Place>) -> Result<End, String> {
    let Some(Place { term, leader, index }) = last else { return Ok(End::default()) };
    Ok(End { term, leader: number(leader)?, count: index as usize + 1 })
}

fn entry((at, logged): (usize, &Logged)) -> Entry {
    let place = Place { term: logged.term, leader: node(logged.leader), index: at as u64 };
    // The model has no drafts: each decision is made on the whole log.
    let (decided_at, applied, records) = (None, None, logged.records.clone());
    Entry {
        place,
        payload: Payload::Proposal(Proposal { decided_at, applied, records, part: None }),
    }
}

fn logged(at: usize, entry: Entry) -> Result<Logged, String> {
    let Place { term, leader, index } = entry.place;
    match entry.payload {
        _ if index != at as u64 => Err(format!("entry {index} in the place of entry {at}")),
        Payload::Proposal(Proposal { records, part: None, .. }) => {
            Ok(Logged { term, leader: number(leader)?, records })
        }
        other => Err(format!("no node writes {other:?}")),
    }
}
