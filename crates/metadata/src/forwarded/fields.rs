//! What forwarded messages are made of: numbers, texts, lists, and the two tables by which structs and
//! choices are written and read, so that both directions have one source.

use super::ForwardedError;
use model::{
    BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, ProducerId, Uuid,
};
use std::sync::Arc;

/// Bytes of memory that one byte of a message makes at most, what the allocator adds not counted.
pub const MEMORY_PER_BYTE_MAX: usize = 32;

/// Reads values off the front of a message.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    fn short(&self, needed: u64) -> ForwardedError {
        ForwardedError::Short { needed, left: self.rest.len() }
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], ForwardedError> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or_else(|| self.short(count as u64))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ForwardedError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| self.short(N as u64))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// How many elements follow, of at least so many bytes each: no more than there is room for.
    fn count(&mut self, element_bytes_min: usize) -> Result<usize, ForwardedError> {
        let count = self.array().map(u32::from_be_bytes)?;
        let needed = u64::from(count) * element_bytes_min as u64;
        if needed > self.rest.len() as u64 {
            return Err(self.short(needed));
        }
        Ok(count as usize)
    }

    fn text(&mut self) -> Result<&'a str, ForwardedError> {
        let length = self.count(1)?;
        std::str::from_utf8(self.bytes(length)?).map_err(|_| ForwardedError::Text)
    }

    /// Fails unless everything was read.
    pub(super) fn end(self) -> Result<(), ForwardedError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(ForwardedError::Behind(left)),
        }
    }
}

/// The error for a number that stands for nothing.
pub(super) fn invalid(what: &'static str, number: impl Into<i128>) -> ForwardedError {
    ForwardedError::Value { what, number: number.into() }
}

/// A value that stands in forwarded messages.
pub(super) trait Field: Sized {
    /// Bytes that the shortest value has.
    const BYTES_MIN: usize;

    /// Writes the value behind `out`.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads what was written.
    fn read(from: &mut Reader<'_>) -> Result<Self, ForwardedError>;
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Field for $number {
            const BYTES_MIN: usize = size_of::<$number>();

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn read(from: &mut Reader<'_>) -> Result<$number, ForwardedError> {
                from.array().map($number::from_be_bytes)
            }
        }
    )*};
}

numbers!(u8 i8 u16 i16 i32 i64 u64);

macro_rules! newtypes {
    ($($id:ident($number:ty))*) => {$(
        impl Field for $id {
            const BYTES_MIN: usize = <$number>::BYTES_MIN;

            fn write(&self, out: &mut Vec<u8>) {
                self.0.write(out);
            }

            fn read(from: &mut Reader<'_>) -> Result<$id, ForwardedError> {
                <$number>::read(from).map($id)
            }
        }
    )*};
}

newtypes! {
    BrokerEpoch(i64) BrokerId(i32) LeaderEpoch(i32) Offset(i64) PartitionIndex(i32) ProducerId(i64)
}

impl Field for usize {
    const BYTES_MIN: usize = u64::BYTES_MIN;

    fn write(&self, out: &mut Vec<u8>) {
        u64::try_from(*self).expect("memory has at most 64 bits").write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<usize, ForwardedError> {
        let number = u64::read(from)?;
        usize::try_from(number).map_err(|_| invalid("count", number))
    }
}

impl Field for bool {
    const BYTES_MIN: usize = 1;

    fn write(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }

    fn read(from: &mut Reader<'_>) -> Result<bool, ForwardedError> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(invalid("flag", other)),
        }
    }
}

impl Field for Uuid {
    const BYTES_MIN: usize = 16;

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn read(from: &mut Reader<'_>) -> Result<Uuid, ForwardedError> {
        from.array().map(Uuid)
    }
}

impl Field for ErrorCode {
    const BYTES_MIN: usize = i16::BYTES_MIN;

    fn write(&self, out: &mut Vec<u8>) {
        self.code().write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<ErrorCode, ForwardedError> {
        let number = i16::read(from)?;
        ErrorCode::from_code(number).ok_or_else(|| invalid("error code", number))
    }
}

fn write_count(count: usize, out: &mut Vec<u8>) {
    let count = u32::try_from(count).expect("no message has 4 Gi of anything");
    out.extend_from_slice(&count.to_be_bytes());
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    write_count(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

impl Field for String {
    const BYTES_MIN: usize = 4;

    fn write(&self, out: &mut Vec<u8>) {
        write_text(self, out);
    }

    fn read(from: &mut Reader<'_>) -> Result<String, ForwardedError> {
        from.text().map(str::to_owned)
    }
}

impl Field for Arc<str> {
    const BYTES_MIN: usize = 4;

    fn write(&self, out: &mut Vec<u8>) {
        write_text(self, out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Arc<str>, ForwardedError> {
        from.text().map(Arc::from)
    }
}

impl<T: Field> Field for Vec<T> {
    const BYTES_MIN: usize = 4;

    fn write(&self, out: &mut Vec<u8>) {
        write_count(self.len(), out);
        self.iter().for_each(|element| element.write(out));
    }

    fn read(from: &mut Reader<'_>) -> Result<Vec<T>, ForwardedError> {
        // An element without bytes fails here too: it could be announced any number of times.
        const { assert!(size_of::<T>() <= MEMORY_PER_BYTE_MAX * T::BYTES_MIN) };
        let count = from.count(T::BYTES_MIN)?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::read(from)?);
        }
        Ok(elements)
    }
}

impl<T: Field> Field for Option<T> {
    const BYTES_MIN: usize = 1;

    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Option<T>, ForwardedError> {
        match bool::read(from)? {
            true => T::read(from).map(Some),
            false => Ok(None),
        }
    }
}

impl Field for () {
    const BYTES_MIN: usize = 0;

    fn write(&self, _: &mut Vec<u8>) {}

    fn read(_: &mut Reader<'_>) -> Result<(), ForwardedError> {
        Ok(())
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    const BYTES_MIN: usize = A::BYTES_MIN + B::BYTES_MIN;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<(A, B), ForwardedError> {
        Ok((A::read(from)?, B::read(from)?))
    }
}

impl<A: Field, B: Field, C: Field> Field for (A, B, C) {
    const BYTES_MIN: usize = A::BYTES_MIN + B::BYTES_MIN + C::BYTES_MIN;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
        self.2.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<(A, B, C), ForwardedError> {
        Ok((A::read(from)?, B::read(from)?, C::read(from)?))
    }
}

/// The smallest of some numbers of bytes.
pub(super) const fn least(numbers: &[usize]) -> usize {
    let (mut least, mut at) = (usize::MAX, 0);
    while at < numbers.len() {
        if numbers[at] < least {
            least = numbers[at];
        }
        at += 1;
    }
    least
}

/// Structs: their fields one after the other, as listed. A field that is not listed does not compile.
macro_rules! structs {
    ($($name:ident { $($field:ident: $of:ty),* $(,)? })*) => {$(
        impl Field for $name {
            const BYTES_MIN: usize = 0 $(+ <$of>::BYTES_MIN)*;

            fn write(&self, out: &mut Vec<u8>) {
                let $name { $($field),* } = self;
                $(<$of as Field>::write($field, out);)*
            }

            fn read(from: &mut Reader<'_>) -> Result<$name, ForwardedError> {
                Ok($name { $($field: <$of>::read(from)?),* })
            }
        }
    )*};
}

/// Choices: the number of the variant, then what it has. A variant that is not listed does not compile.
macro_rules! choices {
    ($($name:ident, $what:literal { $($number:literal $variant:ident $(($value:ident: $of:ty))?,)* })*) => {$(
        impl Field for $name {
            const BYTES_MIN: usize = 1 + least(&[$(0 $(+ <$of>::BYTES_MIN)?),*]);

            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant $(($value))? => {
                        out.push($number);
                        $(<$of as Field>::write($value, out);)?
                    })*
                }
            }

            fn read(from: &mut Reader<'_>) -> Result<$name, ForwardedError> {
                Ok(match u8::read(from)? {
                    $($number => $name::$variant $((<$of>::read(from)?))?,)*
                    other => return Err(invalid($what, other)),
                })
            }
        }
    )*};
}

pub(super) use {choices, structs};
