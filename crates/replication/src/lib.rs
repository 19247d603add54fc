//! One replica's machine: leader epochs, in-sync replicas, high watermark
