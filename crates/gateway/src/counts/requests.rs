//! Requests by route and status: two additions for each, without a lock.

use std::time::Duration;

use metrics::{Counter, Durations, Families};

use crate::request::{TABLE, Verb};

/// Statuses that are counted apart, ascending; others are counted together.
const CODES: [u16; 23] = [
    101, 200, 204, 301, 303, 400, 401, 403, 404, 405, 406, 408, 409, 412, 413, 415, 416, 422, 426,
    429, 500, 503, 504,
];

/// Requests of one route.
#[derive(Debug)]
struct OfRoute {
    /// By [`CODES`]; the last one has all others.
    by_code: [Counter; CODES.len() + 1],
    took: Durations,
}

impl Default for OfRoute {
    fn default() -> OfRoute {
        OfRoute { by_code: std::array::from_fn(|_| Counter::default()), took: Durations::default() }
    }
}

/// What was asked, as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A route, by its place in [`TABLE`].
    Route(usize),
    /// A page of another room.
    Page,
    /// Nothing that there is.
    Nothing,
}

/// All requests.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Those of [`TABLE`], then pages, then what is not there.
    routes: Box<[OfRoute]>,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests { routes: (0..TABLE.len() + 2).map(|_| OfRoute::default()).collect() }
    }
}

impl Requests {
    /// Counts one that was answered with this status; `took`: from its head to its answer, unless it is a stream.
    pub(crate) fn count(&self, asked: Asked, status: u16, took: Option<Duration>) {
        let at = match asked {
            Asked::Route(at) => at,
            Asked::Page => TABLE.len(),
            Asked::Nothing => TABLE.len() + 1,
        };
        let of = &self.routes[at];
        of.by_code[CODES.binary_search(&status).unwrap_or(CODES.len())].add(1);
        if let Some(took) = took {
            of.took.observe(took);
        }
    }

    /// Writes what was asked at least once. A route is its pattern and never a path, of which there is any number.
    pub(super) fn write(&self, families: &mut Families<'_>) -> std::fmt::Result {
        let help = "Requests that were answered, by method, route and status";
        families.counters("highwater_gateway_requests", help, |row| {
            for ((method, route), of) in self.named() {
                for (at, counter) in of.by_code.iter().enumerate().filter(|(_, c)| c.get() > 0) {
                    let code = CODES.get(at).map_or("other".to_owned(), u16::to_string);
                    let labels = [("method", method), ("route", route), ("code", &code)];
                    row(&labels, counter.get())?;
                }
            }
            Ok(())
        })?;
        let used: Vec<_> = self
            .named()
            .filter(|(_, of)| of.took.count() > 0)
            .map(|((method, route), of)| ([("method", method), ("route", route)], &of.took))
            .collect();
        families.histograms(
            "highwater_gateway_request_seconds",
            "From the head of a request to its answer; streams are left out",
            used.iter().map(|(labels, took)| (&labels[..], *took)),
        )
    }

    fn named(&self) -> impl Iterator<Item = ((&'static str, &'static str), &OfRoute)> {
        let of_table = TABLE.iter().map(|entry| (method(entry.verb), entry.pattern));
        of_table.chain([("GET", "pages"), ("", "none")]).zip(&self.routes)
    }
}

fn method(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "GET",
        Verb::Post => "POST",
        Verb::Delete => "DELETE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_an_error_is_counted_apart() {
        assert!(CODES.is_sorted());
        for kind in serving::error::Kind::all() {
            assert!(CODES.contains(&kind.status()), "{kind:?}");
        }
    }

    #[test]
    fn what_is_counted_stands_under_its_pattern() {
        let requests = Requests::default();
        let at = TABLE.iter().position(|entry| entry.pattern == "/topics/{topic}").unwrap();
        for (asked, status) in [
            (Asked::Route(at), 200),
            (Asked::Route(at), 200),
            (Asked::Nothing, 404),
            (Asked::Page, 299),
        ] {
            requests.count(asked, status, None);
        }
        let counted: Vec<_> = requests
            .named()
            .flat_map(|(names, of)| of.by_code.iter().map(move |counter| (names, counter.get())))
            .filter(|(_, count)| *count > 0)
            .collect();
        let expected = [(("GET", "/topics/{topic}"), 2), (("GET", "pages"), 1), (("", "none"), 1)];
        assert_eq!(counted, expected);
    }
}
