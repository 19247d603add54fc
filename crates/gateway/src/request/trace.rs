//! Where a request belongs in a trace of several programs: the W3C's `traceparent` and `tracestate`, which become headers of its
//! records, so that whoever reads them goes on with the trace.
//!
//! What is not of the form of version 00 or a later one is left out, as the recommendation says: a trace that is damaged is none.

use std::borrow::Cow;

use hyper::HeaderMap;

use super::draft::{Draft, Header};

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";
/// Bytes of `traceparent` in version 00; later ones may have more behind a dash.
const PARENT_BYTES: usize = 55;
/// Bytes of either at most; longer ones are left out.
const BYTES_MAX: usize = 512;

/// The headers that a request's records have besides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace<'a> {
    headers: Vec<(&'static str, Cow<'a, [u8]>)>,
}

impl<'a> Trace<'a> {
    /// Of the head of a request; of none, if that names no trace.
    pub fn of(headers: &'a HeaderMap) -> Trace<'a> {
        let mut parents = headers.get_all(PARENT).iter();
        let parent = match (parents.next(), parents.next()) {
            (Some(parent), None) if is_parent(parent.as_bytes()) => parent.as_bytes(),
            _ => return Trace::default(),
        };
        let mut found = vec![(PARENT, Cow::Borrowed(parent))];
        let states = || headers.get_all(STATE).iter().map(|state| state.as_bytes());
        if states().map(<[u8]>::len).sum::<usize>() <= BYTES_MAX {
            let states = states().filter(|state| !state.is_empty());
            found.extend(states.map(|state| (STATE, Cow::Borrowed(state))));
        }
        Trace { headers: found }
    }

    /// The same, for a stream that outlives the head of its request.
    pub fn into_owned(self) -> Trace<'static> {
        let headers = self.headers.into_iter();
        let headers = headers.map(|(name, value)| (name, Cow::Owned(value.into_owned())));
        Trace { headers: headers.collect() }
    }

    /// Gives it to a record, unless that has a trace of its own.
    pub fn add_to<'d>(&'d self, draft: &mut Draft<'d>) {
        if !draft.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(PARENT)) {
            let header = |(name, value): &'d (&'static str, Cow<'a, [u8]>)| -> Header<'d> {
                (Cow::Borrowed(*name), Some(Cow::Borrowed(&**value)))
            };
            draft.headers.extend(self.headers.iter().map(header));
        }
    }
}

/// `version-trace-parent-flags` in lower-case hexadecimal digits, of which trace and parent are not zero.
fn is_parent(text: &[u8]) -> bool {
    let Some((known, more)) = text.split_at_checked(PARENT_BYTES) else { return false };
    let parts: Vec<&[u8]> = known.split(|byte| *byte == b'-').collect();
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_of = |part: &[u8], len: usize| part.len() == len && part.iter().all(is_hex);
    let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
    let [version, trace, parent, flags] = parts[..] else { return false };
    let has_form = is_of(version, 2) && is_of(trace, 32) && is_of(parent, 16) && is_of(flags, 2);
    let ends = match version {
        b"ff" => false,
        b"00" => more.is_empty(),
        _ => more.is_empty() || (more[0] == b'-' && text.len() <= BYTES_MAX),
    };
    has_form && ends && !is_zero(trace) && !is_zero(parent)
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn names(pairs: &[(&'static str, &str)], own: &[&'static str]) -> Vec<String> {
        let headers = headers(pairs);
        let own = own.iter().map(|name| (Cow::Borrowed(*name), None));
        let trace = Trace::of(&headers).into_owned();
        let mut draft = Draft { headers: own.collect(), ..Draft::default() };
        trace.add_to(&mut draft);
        draft.headers.iter().map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn a_trace_becomes_headers_of_a_record_that_has_none() {
        let (parent, state) = ((PARENT, GOOD), (STATE, "a=1"));
        assert_eq!(names(&[parent], &[]), [PARENT]);
        assert_eq!(names(&[state, parent, (STATE, "b=2")], &["x"]), ["x", PARENT, STATE, STATE]);
        assert_eq!(names(&[parent, state], &["TraceParent"]), ["TraceParent"]);
        assert!(names(&[state], &[]).is_empty());
        assert!(names(&[parent, parent], &[]).is_empty(), "two parents are ambiguous");
        let long = "a".repeat(BYTES_MAX + 1);
        assert_eq!(names(&[parent, (STATE, &long)], &[]), [PARENT]);
    }

    #[test]
    fn what_is_no_parent_is_left_out() {
        let later = GOOD.replacen("00", "01", 1);
        for good in [GOOD, &later, &format!("{later}-more")] {
            assert!(is_parent(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            &GOOD[1..],
            &GOOD.to_uppercase(),
            &GOOD.replacen("00", "ff", 1),
            &format!("{GOOD}-more"),
            &format!("{GOOD}0"),
            &format!("{later}more"),
            &GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
            &GOOD.replace("0af7", "0a-7"),
            &format!("{later}-{}", "x".repeat(BYTES_MAX)),
        ] {
            assert!(!is_parent(bad.as_bytes()), "{bad}");
        }
    }
}
