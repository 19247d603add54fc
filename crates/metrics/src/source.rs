//! Who has metrics to show, and the text of all of them.

use std::fmt;
use std::sync::{Arc, Mutex};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text as open_metrics};
use prometheus_client::registry::Registry;

use crate::families::Families;

/// The type of the text, as in the header `Content-Type`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Something that has metrics. They are asked for when somebody looks, on a thread that may be kept for a moment.
pub trait Source: Send + Sync {
    /// Writes them, each family once.
    ///
    /// # Errors
    /// The text takes no more.
    fn write(&self, families: &mut Families<'_>) -> fmt::Result;
}

/// Sources that are shown together. Cheap to clone.
#[derive(Clone, Default)]
pub struct Sources(Arc<Mutex<Vec<Arc<dyn Source>>>>);

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sources")
    }
}

impl Sources {
    /// Shows one more.
    pub fn add(&self, source: Arc<dyn Source>) {
        self.all().push(source);
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Arc<dyn Source>>> {
        self.0.lock().expect("no code under it panics")
    }
}

impl Source for Sources {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let all = self.all().clone();
        all.iter().try_for_each(|source| source.write(families))
    }
}

/// The text of a source's metrics. May take a while where the source does.
pub fn text(source: &Arc<dyn Source>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Shown(Arc::clone(source))));
    let mut text = String::new();
    open_metrics::encode(&mut text, &registry).expect("a String takes every write");
    text
}

struct Shown(Arc<dyn Source>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

impl Collector for Shown {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.write(&mut Families::new(encoder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(&'static str);

    impl Source for One {
        fn write(&self, families: &mut Families<'_>) -> fmt::Result {
            families.counter(self.0, "Things", 3)
        }
    }

    #[test]
    fn sources_stand_one_behind_the_other() {
        let sources = Sources::default();
        sources.add(Arc::new(One("apples")));
        sources.add(Arc::new(One("pears")));
        let source: Arc<dyn Source> = Arc::new(sources);
        let expected = "# HELP apples Things\n# TYPE apples counter\napples_total 3\n\
                        # HELP pears Things\n# TYPE pears counter\npears_total 3\n# EOF\n";
        assert_eq!(text(&source), expected);
    }
}
