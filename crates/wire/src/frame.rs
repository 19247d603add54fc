//! Frames: the headers in front of messages, read without allocating, and the length in front of
//! all. What is in a frame is [`crate::message`]'s.

use crate::api::ApiKey;
use crate::message::{Message, Request};
use crate::reader::{DecodeError, Reader};
use crate::writer::{EncodeError, Writer};

/// Bytes of the length in front of a frame. The length does not count them.
pub const LENGTH_BYTES: usize = 4;

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// The API.
    pub api_key: ApiKey,
    /// The version asked for. It may be one that is not served: [`ApiKey::has_version`].
    pub version: i16,
    /// What the response must carry.
    pub correlation_id: i32,
    /// The name that the client gave itself.
    pub client_id: Option<&'a str>,
    /// Where the message begins, in bytes from the front of the frame.
    pub body_from: usize,
}

/// Why a frame has no header that can be answered. The connection is of no more use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// An API that this code does not know.
    #[error("no api has number {0}")]
    UnknownApi(i16),
    /// The bytes are no header.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl<'a> RequestHead<'a> {
    /// Reads the header at the front of a frame (the length before it is already taken off).
    ///
    /// A version beyond the last known one is read as the last known one would be: KIP-511 makes
    /// ApiVersions answer those.
    pub fn parse(frame: &'a [u8]) -> Result<RequestHead<'a>, HeadError> {
        let mut reader = Reader::new(frame);
        let code = reader.i16()?;
        let api_key = ApiKey::from_code(code).ok_or(HeadError::UnknownApi(code))?;
        let version = reader.i16()?;
        let correlation_id = reader.i32()?;
        // The client id stays in the plain form even in flexible headers.
        let client_id = reader.nullable_str(false)?;
        if api_key.is_flexible(version) {
            reader.skip_tagged_fields()?;
        }
        let body_from = reader.position();
        Ok(RequestHead { api_key, version, correlation_id, client_id, body_from })
    }
}

/// Reads the header of a response and returns the correlation id; the reader then stands at the
/// message.
pub fn read_response_head(
    reader: &mut Reader<'_>,
    api_key: ApiKey,
    version: i16,
) -> Result<i32, DecodeError> {
    let correlation_id = reader.i32()?;
    if api_key.response_header_version(version) >= 1 {
        reader.skip_tagged_fields()?;
    }
    Ok(correlation_id)
}

/// Begins a frame: leaves room for its length. Returns where the frame begins.
pub fn begin(writer: &mut Writer) -> usize {
    let start = writer.bytes().len();
    writer.i32(0);
    start
}

/// Ends the frame that began at `start`: fills its length in.
pub fn end(writer: &mut Writer, start: usize) -> Result<(), EncodeError> {
    let size = writer.bytes().len() - start - LENGTH_BYTES;
    let length = i32::try_from(size).map_err(|_| EncodeError::TooLong(size))?;
    writer.buffer()[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Appends the header of a request.
pub fn write_request_head(
    writer: &mut Writer,
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> Result<(), EncodeError> {
    writer.i16(api_key.code());
    writer.i16(version);
    writer.i32(correlation_id);
    writer.nullable_string(client_id, false)?;
    if api_key.is_flexible(version) {
        writer.uvarint(0);
    }
    Ok(())
}

/// Appends the header of a response.
pub fn write_response_head(
    writer: &mut Writer,
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
) {
    writer.i32(correlation_id);
    if api_key.response_header_version(version) >= 1 {
        writer.uvarint(0);
    }
}

/// Appends a whole frame with a request. On an error the writer is as it was before.
pub fn write_request<R: Request>(
    writer: &mut Writer,
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> Result<(), EncodeError> {
    let start = begin(writer);
    let written = write_request_head(writer, R::API_KEY, version, correlation_id, client_id)
        .and_then(|()| request.encode(writer, version))
        .and_then(|()| end(writer, start));
    written.inspect_err(|_| writer.buffer().truncate(start))
}

/// Appends a whole frame with a response. On an error the writer is as it was before.
pub fn write_response<M: Message>(
    writer: &mut Writer,
    response: &M,
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
) -> Result<(), EncodeError> {
    let start = begin(writer);
    write_response_head(writer, api_key, version, correlation_id);
    let written = response.encode(writer, version).and_then(|()| end(writer, start));
    written.inspect_err(|_| writer.buffer().truncate(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiVersionsRequest, MetadataRequest, RequestHeader};

    fn frame_of<R: Request>(request: &R, version: i16, client_id: Option<&str>) -> Vec<u8> {
        let mut writer = Writer::new();
        write_request(&mut writer, request, version, 7, client_id).unwrap();
        writer.into_bytes()
    }

    #[test]
    fn the_header_is_the_generated_one() {
        for version in ApiKey::Metadata.min_version()..=ApiKey::Metadata.max_version() {
            let request = MetadataRequest { allow_auto_topic_creation: true, ..Default::default() };
            let frame = frame_of(&request, version, Some("me"));
            assert_eq!(
                i32::from_be_bytes(frame[..4].try_into().unwrap()) as usize,
                frame.len() - 4
            );
            let head = RequestHead::parse(&frame[4..]).unwrap();
            assert_eq!(
                (head.version, head.correlation_id, head.client_id),
                (version, 7, Some("me"))
            );
            let mut reader = Reader::new(&frame[4..]);
            let header_version = ApiKey::Metadata.request_header_version(version);
            let header = RequestHeader::decode(&mut reader, header_version).unwrap();
            assert_eq!(header.client_id.as_deref(), Some("me"));
            assert_eq!(reader.position(), head.body_from);
        }
    }

    #[test]
    fn a_version_from_the_future_has_a_header() {
        let mut frame = frame_of(&ApiVersionsRequest::default(), 4, None);
        frame[6..8].copy_from_slice(&99i16.to_be_bytes());
        let head = RequestHead::parse(&frame[4..]).unwrap();
        assert_eq!((head.version, head.client_id), (99, None));
        assert!(!head.api_key.has_version(head.version));
    }

    #[test]
    fn cut_headers_and_unknown_apis_are_errors() {
        let frame = frame_of(&ApiVersionsRequest::default(), 4, Some("client"));
        let head = RequestHead::parse(&frame[4..]).unwrap();
        for cut in 0..head.body_from {
            assert!(RequestHead::parse(&frame[4..4 + cut]).is_err(), "{cut} bytes");
        }
        assert_eq!(RequestHead::parse(&[0x7f, 0xff]), Err(HeadError::UnknownApi(0x7fff)));
    }
}
