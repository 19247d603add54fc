//! Cluster records, image and delta; the controller's decisions
