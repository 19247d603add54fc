//! The resource BROKER_LOGGER of DescribeConfigs and IncrementalAlterConfigs (KIP-412): how much each
//! part of the program reports, changed while it runs and forgotten at the next start.
//!
//! Known difference: the loggers are this program's, and there is no level FATAL.

use ::metadata::decide::{ConfigChange, ConfigOperation};
use model::ErrorCode;
use wire::describe_configs::DescribeConfigsResourceResult;

use super::Call;
use crate::log_levels::{LEVELS, ROOT};

/// The source of a level.
const DYNAMIC_BROKER_LOGGER: i8 = 6;

type Refused = (ErrorCode, String);

fn refuse<T>(code: ErrorCode, message: impl Into<String>) -> Result<T, Refused> {
    Err((code, message.into()))
}

/// Loggers belong to the broker that is asked.
fn check_broker(call: &Call, name: &str) -> Result<(), Refused> {
    let here = call.server.node_id;
    match name.parse::<i32>() {
        Ok(id) if id == here.0 => Ok(()),
        Ok(id) => {
            let message = format!("this is broker {here}, not {id}: ask that one");
            refuse(ErrorCode::InvalidRequest, message)
        }
        Err(_) => {
            let message = format!("Broker id must be an integer, but it is: {name}");
            refuse(ErrorCode::InvalidRequest, message)
        }
    }
}

fn levels(call: &Call) -> Vec<(String, &'static str)> {
    call.server.log_levels.get().map(|loggers| loggers.levels()).unwrap_or_default()
}

/// Every logger of this broker with its level.
pub fn describe(call: &Call, name: &str) -> Result<Vec<DescribeConfigsResourceResult>, Refused> {
    check_broker(call, name)?;
    let config = |(name, level): (String, &str)| DescribeConfigsResourceResult {
        name,
        value: Some(level.to_owned()),
        config_source: DYNAMIC_BROKER_LOGGER,
        ..Default::default()
    };
    Ok(levels(call).into_iter().map(config).collect())
}

/// Sets levels and takes them away: all changes, or none if one of them is refused.
pub fn change(
    call: &Call,
    name: &str,
    changes: &[ConfigChange],
    validate_only: bool,
) -> Result<(), Refused> {
    check_broker(call, name)?;
    let known = levels(call);
    let checked = changes.iter().map(|change| check(&known, change));
    let wanted: Vec<Option<&'static str>> = checked.collect::<Result<_, _>>()?;
    let Some(loggers) = call.server.log_levels.get().filter(|_| !validate_only) else {
        return Ok(());
    };
    for (change, level) in changes.iter().zip(wanted) {
        loggers.set(&change.key, level);
    }
    Ok(())
}

/// The level that the logger shall have, or `None` for that of the root.
fn check(
    known: &[(String, &'static str)],
    change: &ConfigChange,
) -> Result<Option<&'static str>, Refused> {
    let logger = &change.key;
    if !known.iter().any(|(name, _)| name == logger) {
        return refuse(ErrorCode::InvalidConfig, format!("Logger {logger} does not exist!"));
    }
    match (change.operation, change.value.as_deref()) {
        (ConfigOperation::Delete, _) if logger == ROOT => {
            let message = "Removing the log level of the root logger is not allowed";
            refuse(ErrorCode::InvalidRequest, message)
        }
        (ConfigOperation::Delete, _) => Ok(None),
        (ConfigOperation::Append | ConfigOperation::Subtract, _) => {
            let message = "Only SET and DELETE are allowed for the BROKER_LOGGER resource";
            refuse(ErrorCode::InvalidRequest, message)
        }
        (ConfigOperation::Set, None) => {
            refuse(ErrorCode::InvalidRequest, format!("Null value not supported for : {logger}"))
        }
        (ConfigOperation::Set, Some(level)) => {
            match LEVELS.into_iter().find(|known| *known == level) {
                Some(level) => Ok(Some(level)),
                None => {
                    let message = format!(
                        "Cannot set the log level of {logger} to {level} as it is not a supported \
                         log level. Valid log levels are DEBUG, ERROR, INFO, TRACE, WARN"
                    );
                    refuse(ErrorCode::InvalidConfig, message)
                }
            }
        }
    }
}
