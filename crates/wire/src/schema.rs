//! Fields of requests as data, for tests that build requests of every API and version.

/// A range of versions, both ends included; empty if the last is below the first.
pub type VersionRange = (i16, i16);

/// Type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the types of the protocol")]
pub enum FieldKind {
    Bool,
    I8,
    I16,
    U16,
    I32,
    U32,
    I64,
    F64,
    Uuid,
    String,
    Bytes,
    /// A structure with these fields.
    Struct(&'static [FieldSchema]),
    /// A list of elements.
    Array(&'static FieldKind),
}

/// A field of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSchema {
    /// Kafka's name.
    pub name: &'static str,
    /// The type.
    pub kind: FieldKind,
    /// Versions of the message with the field.
    pub versions: VersionRange,
    /// Versions in which the field may be null.
    pub nullable: VersionRange,
    /// Versions in which the field is among the tagged ones.
    pub tagged: VersionRange,
    /// The default as the schema writes it; empty for that of the type.
    pub default: &'static str,
}

/// Whether a version is in a range.
pub const fn has_version(range: VersionRange, version: i16) -> bool {
    range.0 <= version && version <= range.1
}
