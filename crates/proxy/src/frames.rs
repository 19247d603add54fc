//! What the proxy must know of a frame to carry it: the first bytes of requests and of answers. The
//! rest of the message is of no interest here.

use wire::frame::LENGTH_BYTES;
use wire::reader::DecodeError;
use wire::{ApiKey, Reader};

/// Numbers of APIs that `wire` has no messages for, but whose answers bear addresses.
pub const SHARE_FETCH: i16 = 78;
/// As [`SHARE_FETCH`].
pub const SHARE_ACKNOWLEDGE: i16 = 79;
/// The last version of both that is known here.
pub const SHARE_VERSION_MAX: i16 = 2;

/// Why a connection cannot be carried on. It costs this connection and no other.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// A socket failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Bytes are not the message that they should be.
    #[error("{0}")]
    Decode(#[from] DecodeError),
    /// A message could not be written again.
    #[error("{0}")]
    Encode(#[from] wire::EncodeError),
    /// A length that no frame has.
    #[error("invalid length {0} of a frame")]
    Length(i32),
    /// A frame that must be held as a whole, and is too large for it.
    #[error("a frame of {0} bytes is too large to be looked at")]
    TooLarge(usize),
    /// A request in a version that the proxy did not offer and could not rewrite the answer of.
    #[error("api {api_key} has no version {version} here")]
    Version {
        /// The API's number.
        api_key: i16,
        /// The version asked for.
        version: i16,
    },
    /// An answer without a request.
    #[error("an answer to request {0} that was not asked, or not yet")]
    Unasked(i32),
    /// A request did not become complete in time.
    #[error("a request is incomplete, and its client sent nothing for {0:?}")]
    Silent(std::time::Duration),
    /// What was in a large answer where its endpoints should be cannot be hidden.
    #[error("endpoints of another form than known")]
    Endpoints,
}

/// The front of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFront {
    /// Bytes of the frame, its length included.
    pub size_bytes: usize,
    /// The API's number, known or not.
    pub api_key: i16,
    /// Its version.
    pub version: i16,
    /// What the answer will bear.
    pub correlation_id: i32,
    /// Whether there will be an answer at all: not to a produce request with `acks=0`.
    pub answered: bool,
}

/// Bytes in front of a produce request's `acks` at most, or there is something wrong with it.
const FRONT_BYTES_MAX: usize = 256 * 1024;
/// The least that a header takes: API, version, correlation id.
const HEADER_BYTES_MIN: i32 = 8;

/// Whether a decoder only wants more bytes.
pub fn is_cut(error: &DecodeError) -> bool {
    use model::varint::VarintError;
    matches!(error, DecodeError::Truncated { .. } | DecodeError::Varint(VarintError::Truncated))
}

/// The size of the frame at the front of `bytes`, its length included; `None` if four bytes are not
/// there yet. `least` is what must follow the length.
pub fn frame_size(bytes: &[u8], least: i32) -> Result<Option<usize>, Broken> {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    if length < least {
        return Err(Broken::Length(length));
    }
    Ok(Some(LENGTH_BYTES + length as usize))
}

/// Reads the front of the request that `bytes` begin with; `None` if more bytes are needed.
pub fn request_front(bytes: &[u8]) -> Result<Option<RequestFront>, Broken> {
    let Some(size_bytes) = frame_size(bytes, HEADER_BYTES_MIN)? else { return Ok(None) };
    let frame = &bytes[LENGTH_BYTES..bytes.len().min(size_bytes)];
    let whole = bytes.len() >= size_bytes;
    match read_front(frame, size_bytes) {
        Ok(front) => Ok(Some(front)),
        Err(error) if is_cut(&error) && !whole && frame.len() < FRONT_BYTES_MAX => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read_front(frame: &[u8], size_bytes: usize) -> Result<RequestFront, DecodeError> {
    let mut reader = Reader::new(frame);
    let api_key = reader.i16()?;
    let version = reader.i16()?;
    let correlation_id = reader.i32()?;
    let is_produce = api_key == ApiKey::Produce.code();
    let answered = !is_produce || read_acks(&mut reader, version)? != 0;
    Ok(RequestFront { size_bytes, api_key, version, correlation_id, answered })
}

/// Reads on from a produce request's client id to its `acks`.
fn read_acks(reader: &mut Reader<'_>, version: i16) -> Result<i16, DecodeError> {
    let flexible = ApiKey::Produce.is_flexible(version);
    reader.nullable_str(false)?;
    if flexible {
        reader.skip_tagged_fields()?;
    }
    if version >= 3 {
        reader.nullable_str(flexible)?;
    }
    reader.i16()
}

/// The last version whose answer can be rewritten; `None` if the API's answers need no rewriting.
pub fn version_max(api_key: i16) -> Option<i16> {
    const REWRITTEN: [ApiKey; 6] = [
        ApiKey::Produce,
        ApiKey::Fetch,
        ApiKey::Metadata,
        ApiKey::FindCoordinator,
        ApiKey::ApiVersions,
        ApiKey::DescribeCluster,
    ];
    match api_key {
        SHARE_FETCH | SHARE_ACKNOWLEDGE => Some(SHARE_VERSION_MAX),
        code => REWRITTEN.iter().find(|api| api.code() == code).map(|api| api.max_version()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{MetadataRequest, ProduceRequest, Request, Writer};

    fn request<R: Request>(request: &R, version: i16) -> Vec<u8> {
        let mut writer = Writer::new();
        wire::frame::write_request(&mut writer, request, version, 7, Some("me")).unwrap();
        writer.into_bytes()
    }

    #[test]
    fn acks_decide_whether_there_will_be_an_answer() {
        for version in 3..=13 {
            for acks in [-1, 0, 1] {
                let message = ProduceRequest { acks, ..ProduceRequest::default() };
                let frame = request(&message, version);
                let front = request_front(&frame).unwrap().unwrap();
                assert_eq!((front.size_bytes, front.correlation_id), (frame.len(), 7));
                assert_eq!(front.answered, acks != 0, "version {version}");
            }
        }
    }

    #[test]
    fn a_front_that_is_not_there_yet_is_waited_for() {
        let frame = request(&ProduceRequest::default(), 9);
        let complete = (0..=frame.len()).find(|n| request_front(&frame[..*n]).unwrap().is_some());
        // Length, api, version, id, client id, its tags, transactional id, acks.
        assert_eq!(complete, Some(4 + 8 + 4 + 1 + 1 + 2));
        let frame = request(&MetadataRequest::default(), 12);
        assert_eq!(request_front(&frame[..11]).unwrap(), None);
        assert!(request_front(&frame[..12]).unwrap().is_some());
    }

    #[test]
    fn frames_that_are_none_are_refused() {
        for length in [-1i32, 0, 7] {
            assert!(matches!(request_front(&length.to_be_bytes()), Err(Broken::Length(_))));
        }
        // A produce request that ends before its acks.
        let mut frame = request(&ProduceRequest::default(), 9);
        frame.truncate(14);
        frame[..4].copy_from_slice(&10i32.to_be_bytes());
        assert!(matches!(request_front(&frame), Err(Broken::Decode(_))));
    }
}
