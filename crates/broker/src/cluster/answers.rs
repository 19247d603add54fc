//! What the active controller answers to a forwarded request, as bytes.
//!
//! ```text
//! 1 kind   0 decided      8 index of the newest entry that the answer rests on, the response
//!          1 elsewhere    4 the active controller, or -1: nothing has happened
//!          2 unknown      it may have happened
//!          3 refused      2+ words: nothing has happened
//! ```

use link::codec::CodecError;
use link::codec::fields::{Reader, Writer};
use metadata::Response;
use model::BrokerId;

/// What became of a forwarded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Forwarded {
    /// The controller answers. Who acts upon the answer first goes by the metadata up to this entry.
    Decided(u64, Response),
    /// Another node decides.
    Elsewhere(Option<BrokerId>),
    /// The controller was deposed on the way.
    Unknown,
    /// The node cannot say.
    Refused(String),
}

impl Forwarded {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Forwarded::Decided(index, response) => {
                out.u8(0);
                out.u64(*index);
                out.bytes(&response.to_bytes());
            }
            Forwarded::Elsewhere(leader) => {
                out.u8(1);
                out.i32(leader.map_or(-1, |leader| leader.0));
            }
            Forwarded::Unknown => out.u8(2),
            Forwarded::Refused(words) => {
                out.u8(3);
                out.text(words);
            }
        }
        out.into_bytes()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Forwarded, CodecError> {
        let mut fields = Reader::new(bytes);
        let answer = match fields.u8()? {
            0 => {
                let index = fields.u64()?;
                let response = Response::from_bytes(fields.rest());
                let response = response.map_err(|_| CodecError::Value("an unknown response"))?;
                return Ok(Forwarded::Decided(index, response));
            }
            1 => Forwarded::Elsewhere(Some(BrokerId(fields.i32()?)).filter(|id| id.0 >= 0)),
            2 => Forwarded::Unknown,
            3 => Forwarded::Refused(fields.text()?.to_owned()),
            _ => return Err(CodecError::Value("an unknown kind of answer")),
        };
        fields.end()?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use metadata::decide::Swept;

    use super::*;

    #[test]
    fn answers_and_back() {
        for answer in [
            Forwarded::Decided(7, Response::Sweep(Swept { changed: 3, more: true })),
            Forwarded::Elsewhere(Some(BrokerId(0))),
            Forwarded::Elsewhere(None),
            Forwarded::Unknown,
            Forwarded::Refused("it stops".into()),
        ] {
            let bytes = answer.to_bytes();
            assert_eq!(Forwarded::from_bytes(&bytes), Ok(answer));
            for cut in 0..bytes.len() {
                assert!(Forwarded::from_bytes(&bytes[..cut]).is_err());
            }
        }
    }

    /// A newer kind of answer, or a field behind the last one, is refused: a controller of a newer release may send either only
    /// above a level that every broker has.
    #[test]
    fn newer_kinds_and_fields_of_every_answer_are_refused() {
        let answers = [
            Forwarded::Decided(7, Response::Sweep(Swept { changed: 3, more: true })),
            Forwarded::Elsewhere(Some(BrokerId(0))),
            Forwarded::Unknown,
            Forwarded::Refused("it stops".into()),
        ];
        let kind_of = |answer: &Forwarded| match answer {
            Forwarded::Decided(..) => 0,
            Forwarded::Elsewhere(_) => 1,
            Forwarded::Unknown => 2,
            Forwarded::Refused(_) => 3,
        };
        let known: Vec<u8> = answers.iter().map(kind_of).collect();
        assert_eq!(known, [0, 1, 2, 3], "each kind");
        for answer in answers {
            let mut bytes = answer.to_bytes();
            assert_eq!(Forwarded::from_bytes(&bytes).as_ref(), Ok(&answer));
            bytes.push(0);
            assert!(Forwarded::from_bytes(&bytes).is_err(), "{answer:?} and a newer field");
            for kind in (0..=u8::MAX).filter(|kind| !known.contains(kind)) {
                bytes[0] = kind;
                let read = Forwarded::from_bytes(&bytes);
                assert_eq!(read, Err(CodecError::Value("an unknown kind of answer")), "{kind}");
            }
        }
    }
}
