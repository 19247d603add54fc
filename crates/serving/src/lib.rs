//! What a gateway in front of Kafka decides, without a socket, a clock or a thread: the partition of a record, and
//! the broker before that ([`choice`]), whether a request with an idempotency key was seen before ([`idempotency`]),
//! whether a request comes from a page that may send one ([`visitors`]), the address of a client behind proxies
//! ([`forwarded`]), who there is ([`users`], [`claims`])
//! and what each may do ([`rights`]), how records become server-sent events and
//! where their readers go on ([`events`]), what WebSockets carry and who has acknowledged
//! what ([`push`]), what a failure is called ([`error`]), and what an operator is shown of a
//! cluster ([`overview`]) and of consumers that are behind ([`lag`]), and may have done ([`operation`]). The health of
//! brokers and clusters is decided in [`health`].
//!
//! The load generator and the laboratory choose partitions by the same code. Read [`choice`] first.
//!
//! Not here: HTTP, connections, and the protocol of Kafka.

pub mod choice;
pub mod claims;
pub mod error;
pub mod events;
pub mod forwarded;
pub mod health;
pub mod idempotency;
pub mod lag;
pub mod operation;
pub mod overview;
pub mod push;
pub mod rights;
pub mod sign_outs;
pub mod users;
pub mod visitors;
