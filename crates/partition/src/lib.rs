//! Storage and replication together: append, read, who waits for what
