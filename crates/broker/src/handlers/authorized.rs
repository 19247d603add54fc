//! What a client may do, as a bit a kind of operation (KIP-430). There are no access rules here
//! yet, so a client that asks may do everything.

/// "Not asked for", as the protocol writes it.
const NOT_ASKED: i32 = i32::MIN;

const READ: i32 = 1 << 3;
const WRITE: i32 = 1 << 4;
const CREATE: i32 = 1 << 5;
const DELETE: i32 = 1 << 6;
const ALTER: i32 = 1 << 7;
const DESCRIBE: i32 = 1 << 8;
const CLUSTER_ACTION: i32 = 1 << 9;
const DESCRIBE_CONFIGS: i32 = 1 << 10;
const ALTER_CONFIGS: i32 = 1 << 11;
const IDEMPOTENT_WRITE: i32 = 1 << 12;

fn asked(included: bool, operations: i32) -> i32 {
    if included { operations } else { NOT_ASKED }
}

/// On a topic.
pub fn topic(included: bool) -> i32 {
    let all = READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;
    asked(included, all)
}

/// On the cluster.
pub fn cluster(included: bool) -> i32 {
    let all = CREATE
        | ALTER
        | DESCRIBE
        | CLUSTER_ACTION
        | DESCRIBE_CONFIGS
        | ALTER_CONFIGS
        | IDEMPOTENT_WRITE;
    asked(included, all)
}

/// On a group.
pub fn group(included: bool) -> i32 {
    asked(included, READ | DELETE | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS)
}
