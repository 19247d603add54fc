//! The performance laboratory: targets, rounds, what they cost, reports.
