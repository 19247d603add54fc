//! Event streaming in one binary: the program's arguments and wiring.

fn main() {}
