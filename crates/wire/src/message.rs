//! What every message can do, for code that is generic over messages.

use crate::api::ApiKey;
use crate::reader::{DecodeError, Reader};
use crate::writer::{EncodeError, Writer};
use model::ErrorCode;

/// A request, a response, a header, or what clients put into opaque bytes.
pub trait Message: Sized {
    /// The name in Kafka's protocol guide.
    const NAME: &'static str;
    /// The first version.
    const MIN_VERSION: i16;
    /// The last stable version.
    const MAX_VERSION: i16;

    /// Reads the message in this version. Bytes behind it are left: see [`decode`].
    fn decode(reader: &mut Reader<'_>, version: i16) -> Result<Self, DecodeError>;

    /// Writes the message in this version.
    fn encode(&self, writer: &mut Writer, version: i16) -> Result<(), EncodeError>;
}

/// A message that asks.
pub trait Request: Message {
    /// Its API.
    const API_KEY: ApiKey;
    /// What answers it.
    type Response: Message;
}

/// Reads a message that takes up all of `bytes`.
pub fn decode<M: Message>(bytes: &[u8], version: i16) -> Result<M, DecodeError> {
    let mut reader = Reader::new(bytes);
    let message = M::decode(&mut reader, version)?;
    reader.finish()?;
    Ok(message)
}

/// Writes a message into a new buffer.
pub fn encode<M: Message>(message: &M, version: i16) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::new();
    message.encode(&mut writer, version)?;
    Ok(writer.into_bytes())
}

/// The error of a number on the wire. A number that this code does not know is
/// [`ErrorCode::UnknownServerError`], as in Kafka's clients.
pub fn error_of(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError)
}
