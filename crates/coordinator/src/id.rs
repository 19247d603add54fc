//! The ids of this room: groups, members, instances, replies and writes. Not the numbers of the
//! protocol at large; those are in `model`.

use std::fmt;
use std::sync::Arc;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub Arc<str>);

        impl $name {
            /// The text on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether it is the empty string, the protocol's "none".
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $name(Arc::from(text))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> $name {
                $name(Arc::from(text))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name! {
    /// A consumer group, `group.id`. May be empty only where the protocol lets a simple consumer
    /// commit and fetch offsets without a name.
    GroupId
}
name! {
    /// A member's name, made by the coordinator at its first join. Empty: not known yet.
    MemberId
}
name! {
    /// A static member's name across restarts, `group.instance.id` (KIP-345).
    GroupInstanceId
}

/// Where an answer goes. The host makes one for every request and never uses it twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplyTo(pub u64);

/// One append to the shard's partition. Numbered from 1 in the order of the log, never twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriteId(pub u64);
