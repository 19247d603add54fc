//! Kafka's message schemas, as facts: which fields, of which types, in which versions.

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// A range of versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The first version.
    pub low: i16,
    /// The last version; less than `low` when there is none.
    pub high: i16,
}

impl Versions {
    /// No version.
    pub const NONE: Versions = Versions { low: 0, high: -1 };

    /// Reads `none`, `3`, `3+` or `3-5`.
    pub fn parse(text: &str) -> anyhow::Result<Versions> {
        if text == "none" {
            return Ok(Versions::NONE);
        }
        if let Some(low) = text.strip_suffix('+') {
            return Ok(Versions { low: low.parse()?, high: i16::MAX });
        }
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        Ok(Versions { low: low.parse()?, high: high.parse()? })
    }

    /// Whether `version` is one of them.
    pub fn contains(self, version: i16) -> bool {
        self.low <= version && version <= self.high
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.high < self.low
    }

    /// The versions that are in both.
    pub fn and(self, other: Versions) -> Versions {
        Versions { low: self.low.max(other.low), high: self.high.min(other.high) }
    }
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A type with a fixed size.
    Fixed(Fixed),
    /// UTF-8.
    String,
    /// Bytes, or record batches.
    Bytes {
        /// Record batches, whose default is null.
        records: bool,
    },
    /// A structure, by name.
    Struct(String),
    /// An array.
    Array(Box<Type>),
}

/// Types with a fixed size on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Fixed {
    Bool,
    I8,
    I16,
    U16,
    I32,
    U32,
    I64,
    F64,
    Uuid,
}

impl Fixed {
    /// Bytes on the wire.
    pub fn size_bytes(self) -> usize {
        match self {
            Fixed::Bool | Fixed::I8 => 1,
            Fixed::I16 | Fixed::U16 => 2,
            Fixed::I32 | Fixed::U32 => 4,
            Fixed::I64 | Fixed::F64 => 8,
            Fixed::Uuid => 16,
        }
    }
}

impl Type {
    fn parse(text: &str) -> Type {
        if let Some(element) = text.strip_prefix("[]") {
            return Type::Array(Box::new(Type::parse(element)));
        }
        match text {
            "bool" => Type::Fixed(Fixed::Bool),
            "int8" => Type::Fixed(Fixed::I8),
            "int16" => Type::Fixed(Fixed::I16),
            "uint16" => Type::Fixed(Fixed::U16),
            "int32" => Type::Fixed(Fixed::I32),
            "uint32" => Type::Fixed(Fixed::U32),
            "int64" => Type::Fixed(Fixed::I64),
            "float64" => Type::Fixed(Fixed::F64),
            "uuid" => Type::Fixed(Fixed::Uuid),
            "string" => Type::String,
            "bytes" => Type::Bytes { records: false },
            "records" => Type::Bytes { records: true },
            name => Type::Struct(name.to_owned()),
        }
    }
}

/// A field of a structure.
#[derive(Clone, Debug)]
pub struct Field {
    /// The schema's name, in camel case.
    pub name: String,
    /// What it holds.
    pub kind: Type,
    /// The versions that have it.
    pub versions: Versions,
    /// The versions in which it may be null.
    pub nullable: Versions,
    /// The versions in which it is a tagged field.
    pub tagged: Versions,
    /// Its tag there.
    pub tag: Option<u32>,
    /// Whether it is dropped silently in versions that lack it.
    pub ignorable: bool,
    /// The default as the schema writes it; empty for that of the type.
    pub default: String,
    /// Versions with compact lengths, where they are not those of the message.
    pub flexible: Option<Versions>,
}

/// A structure: a message, or a part of one.
#[derive(Clone, Debug)]
pub struct Struct {
    /// Its name, in camel case.
    pub name: String,
    /// Its fields, in the order of the wire.
    pub fields: Vec<Field>,
}

/// A message: its first structure is the message itself, the others are its parts.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its name, in camel case.
    pub name: String,
    /// The number of its API; requests and responses have one.
    pub api_key: Option<i16>,
    /// The stable versions.
    pub versions: Versions,
    /// The versions with compact lengths and tagged fields.
    pub flexible: Versions,
    /// All structures, the message first.
    pub structs: Vec<Struct>,
}

impl Message {
    /// Reads a schema.
    pub fn parse(json: &str) -> anyhow::Result<Message> {
        let root: Value = serde_json::from_str(json)?;
        let name = text(&root, "name")?.to_owned();
        let mut versions = Versions::parse(text(&root, "validVersions")?)?;
        if root["latestVersionUnstable"].as_bool() == Some(true) {
            versions.high -= 1;
        }
        let mut structs = vec![Struct { name: name.clone(), fields: Vec::new() }];
        structs[0].fields = fields(&root, &mut structs)?;
        for common in root["commonStructs"].as_array().into_iter().flatten() {
            add_struct(text(common, "name")?, common, &mut structs)?;
        }
        Ok(Message {
            name,
            api_key: root["apiKey"].as_i64().map(|key| key as i16),
            versions,
            flexible: Versions::parse(text(&root, "flexibleVersions")?)?,
            structs,
        })
    }

    /// A structure of the message.
    pub fn part(&self, name: &str) -> &Struct {
        let found = self.structs.iter().find(|s| s.name == name);
        found.unwrap_or_else(|| panic!("{} has no structure {name}", self.name))
    }
}

fn text<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a str> {
    value[key].as_str().with_context(|| format!("{key} is missing in {value}"))
}

fn add_struct(name: &str, value: &Value, structs: &mut Vec<Struct>) -> anyhow::Result<()> {
    ensure!(structs.iter().all(|s| s.name != name), "two structures are named {name}");
    let at = structs.len();
    structs.push(Struct { name: name.to_owned(), fields: Vec::new() });
    structs[at].fields = fields(value, structs)?;
    Ok(())
}

fn fields(parent: &Value, structs: &mut Vec<Struct>) -> anyhow::Result<Vec<Field>> {
    let list = parent["fields"].as_array().context("a structure without fields")?;
    list.iter().map(|value| field(value, structs)).collect()
}

fn field(value: &Value, structs: &mut Vec<Struct>) -> anyhow::Result<Field> {
    let kind = Type::parse(text(value, "type")?);
    if value["fields"].is_array() {
        add_struct(struct_name(&kind)?, value, structs)?;
    }
    let versions = |key: &str| value[key].as_str().map(Versions::parse).transpose();
    let field = Field {
        name: text(value, "name")?.to_owned(),
        kind,
        versions: Versions::parse(text(value, "versions")?)?,
        nullable: versions("nullableVersions")?.unwrap_or(Versions::NONE),
        tagged: versions("taggedVersions")?.unwrap_or(Versions::NONE),
        tag: value["tag"].as_u64().map(|tag| tag as u32),
        ignorable: value["ignorable"].as_bool().unwrap_or(false),
        default: default(&value["default"]),
        flexible: versions("flexibleVersions")?,
    };
    let nullable_struct = matches!(field.kind, Type::Struct(_)) && !field.nullable.is_empty();
    ensure!(!nullable_struct || field.tagged.is_empty(), "{}: null in a tag", field.name);
    Ok(field)
}

fn struct_name(kind: &Type) -> anyhow::Result<&str> {
    match kind {
        Type::Struct(name) => Ok(name),
        Type::Array(element) => struct_name(element),
        _ => bail!("{kind:?} has fields"),
    }
}

fn default(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
