//! The proxy in front of servers that the tests play, and in front of a cluster.
