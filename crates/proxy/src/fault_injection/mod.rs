//! Fault injection: delays, errors, lost answers and ended connections by rule, at the frame of a request.
//!
//! Read `rule` (the fields of a rule), `engine` (the decision about a request), then `requests` and `answers` of the crate,
//! which carry a fault out on one connection. `facts` reads what rules match, `answer` makes
//! error answers, `journal` is the record of a run, `injector` joins all of it for one proxy. Nothing but `injector` and `topics` holds a lock;
//! `rule`, `file`, `engine`, `facts`, `answer` and `journal` are pure.

pub(crate) mod answer;
mod engine;
pub(crate) mod facts;
pub(crate) mod fetch_answer;
pub(crate) mod fetch_session;
mod file;
mod injector;
mod journal;
pub(crate) mod record_damage;
mod rule;
#[cfg(test)]
pub(crate) mod testing;
mod topics;

pub use engine::{FaultDecision, FaultEngine, RuleStatus};
pub use file::{FORMS, FaultFileError, parse_plan, parse_plan_and_seed, parse_rule};
pub use injector::{BrokerControl, FaultInjector, FaultedRecords, RefusedRule};
pub use journal::{FaultEvent, JournalError, JournalLine, parse_journal};
pub use rule::{
    AnswerCode, CountBy, DELAY_MS_MAX, FaultAction, FaultPlan, FaultRule, InvalidRule, Occurrence,
};
