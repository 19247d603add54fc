//! The broker's shell: network, handlers, flushers, coordinators' hosting, configuration

pub mod configuration;
