//! Consumer groups: decisions and replay
