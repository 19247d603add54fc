//! Rust source for one message: its structures, their defaults, their least sizes on the wire.
//! How fields are read and written is in [`super::codec`].

use super::codec;
use super::names::{field_name, prose};
use super::schema::{Field, Fixed, Message, Struct, Type, Versions};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The Rust names of a message's structures, by their schema names.
pub type Renames = BTreeMap<String, String>;

/// A message together with what its structures are called.
pub struct Context<'a> {
    /// The message.
    pub message: &'a Message,
    /// The names of its structures, where they are not the schema's.
    pub renames: &'a Renames,
}

impl Context<'_> {
    /// What a structure is called in Rust.
    pub fn rust_name<'b>(&'b self, name: &'b str) -> &'b str {
        self.renames.get(name).map_or(name, String::as_str)
    }
}

/// All structures of a message.
pub fn message(context: &Context<'_>) -> String {
    let mut out = String::new();
    for part in &context.message.structs {
        out += &structure(context, part);
    }
    out += &message_trait(context.message);
    out
}

fn message_trait(message: &Message) -> String {
    let (name, versions) = (&message.name, message.versions);
    let (low, high) = (versions.low, versions.high);
    format!(
        "impl Message for {name} {{
            const NAME: &'static str = \"{name}\";
            const MIN_VERSION: i16 = {low};
            const MAX_VERSION: i16 = {high};
            fn decode(r: &mut Reader<'_>, version: i16) -> Result<Self, DecodeError> {{
                {name}::decode(r, version)
            }}
            fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError> {{
                self.encode(w, version)
            }}
        }}\n"
    )
}

fn structure(context: &Context<'_>, part: &Struct) -> String {
    let name = context.rust_name(&part.name);
    let derived = part.fields.iter().all(default_is_rusts);
    let mut out = String::new();
    let top = part.name == context.message.name;
    let doc = match top {
        true => format!("The message `{name}`. {}.", prose(context.message.versions)),
        false => format!("A part of [`{}`].", context.message.name),
    };
    let derive = if derived { ", Default" } else { "" };
    writeln!(out, "/// {doc}\n#[derive(Debug, Clone, PartialEq{derive})]").expect("a string");
    writeln!(out, "pub struct {name} {{").expect("a string");
    for field in &part.fields {
        let (doc, rust) = (field_doc(context, field), field_type(context, field));
        writeln!(out, "/// {doc}\npub {}: {rust},", field_name(&field.name)).expect("a string");
    }
    out += "}\n\n";
    if !derived {
        out += &default(name, part);
    }
    let methods = [
        codec::decode(context, part, top),
        codec::encode(context, part, top),
        error_method(part),
        min_bytes_method(context, part, top),
    ];
    writeln!(out, "impl {name} {{\n{}}}\n", methods.join("\n")).expect("a string");
    out
}

fn field_doc(context: &Context<'_>, field: &Field) -> String {
    let message = context.message;
    let mut doc = prose(versions_of(field, message));
    if field.versions.and(message.versions) == message.versions {
        doc = "All versions".to_owned();
    }
    if let Some(tag) = field.tag {
        write!(doc, ", tag {tag}").expect("a string");
    }
    if !field.nullable.is_empty() {
        let same = field.versions.and(field.nullable) == field.versions;
        let when = prose(field.nullable).to_lowercase();
        let when = if same { String::new() } else { format!(" in {when}") };
        write!(doc, "; may be null{when}").expect("a string");
    }
    if !field.default.is_empty() {
        write!(doc, "; default {}", field.default).expect("a string");
    }
    doc + "."
}

/// The versions of the message that have the field; open-ended ones stay so.
fn versions_of(field: &Field, message: &Message) -> Versions {
    let low = field.versions.low.max(message.versions.low);
    Versions { low, high: field.versions.high }
}

fn fixed_type(fixed: Fixed) -> &'static str {
    match fixed {
        Fixed::Bool => "bool",
        Fixed::I8 => "i8",
        Fixed::I16 => "i16",
        Fixed::U16 => "u16",
        Fixed::I32 => "i32",
        Fixed::U32 => "u32",
        Fixed::I64 => "i64",
        Fixed::F64 => "f64",
        Fixed::Uuid => "Uuid",
    }
}

fn plain_type(context: &Context<'_>, kind: &Type) -> String {
    match kind {
        Type::Fixed(fixed) => fixed_type(*fixed).to_owned(),
        Type::String => "String".to_owned(),
        Type::Bytes { .. } => "Bytes".to_owned(),
        Type::Struct(name) => context.rust_name(name).to_owned(),
        Type::Array(element) => format!("Vec<{}>", plain_type(context, element)),
    }
}

fn field_type(context: &Context<'_>, field: &Field) -> String {
    let plain = plain_type(context, &field.kind);
    if is_option(field) { format!("Option<{plain}>") } else { plain }
}

/// Whether the field is an `Option` in Rust.
pub fn is_option(field: &Field) -> bool {
    !field.nullable.is_empty()
}

/// Whether the field's default is null.
pub fn default_is_null(field: &Field) -> bool {
    field.default == "null" || matches!(field.kind, Type::Bytes { records: true })
}

fn default_is_rusts(field: &Field) -> bool {
    if is_option(field) {
        return default_is_null(field);
    }
    match &field.kind {
        Type::Fixed(Fixed::Bool) => field.default != "true",
        Type::Fixed(_) => matches!(field.default.as_str(), "" | "0"),
        _ => field.default.is_empty(),
    }
}

/// The field's default, as an expression.
pub fn default_value(field: &Field) -> String {
    if is_option(field) && default_is_null(field) {
        return "None".to_owned();
    }
    let value = match &field.kind {
        Type::Fixed(Fixed::Bool) if field.default.is_empty() => "false".to_owned(),
        Type::Fixed(Fixed::Uuid) => "Uuid::ZERO".to_owned(),
        Type::Fixed(Fixed::F64) if field.default.is_empty() => "0.0".to_owned(),
        Type::Fixed(_) => number(&field.default),
        Type::String if field.default.is_empty() => "String::new()".to_owned(),
        Type::String => format!("String::from({:?})", field.default),
        _ => "Default::default()".to_owned(),
    };
    if is_option(field) { format!("Some({value})") } else { value }
}

fn number(default: &str) -> String {
    match default {
        "" => "0".to_owned(),
        "9223372036854775807" => "i64::MAX".to_owned(),
        "-2147483648" => "i32::MIN".to_owned(),
        "0x7fffffff" => "i32::MAX".to_owned(),
        other => other.to_owned(),
    }
}

fn default(name: &str, part: &Struct) -> String {
    let mut fields = String::new();
    for field in &part.fields {
        let value = default_value(field);
        writeln!(fields, "{}: {value},", field_name(&field.name)).expect("a string");
    }
    format!("impl Default for {name} {{ fn default() -> Self {{ {name} {{ {fields} }} }} }}\n\n")
}

fn error_method(part: &Struct) -> String {
    if part.fields.iter().all(|f| f.name != "ErrorCode") {
        return String::new();
    }
    "/// What went wrong, if anything.
    pub fn error(&self) -> ErrorCode { error_of(self.error_code) }\n"
        .to_owned()
}

/// Bytes that a structure takes at least on the wire in a version.
fn min_bytes(context: &Context<'_>, part: &Struct, version: i16) -> usize {
    let message = context.message;
    let flexible = message.flexible.contains(version);
    let fields = part.fields.iter();
    let there = fields.filter(|f| f.versions.contains(version) && !f.tagged.contains(version));
    let size = |field: &Field| match &field.kind {
        Type::Fixed(fixed) => fixed.size_bytes(),
        Type::Struct(_) if field.nullable.contains(version) => 1,
        Type::Struct(name) => min_bytes(context, message.part(name), version),
        _ if flexible && field.flexible.is_none() => 1,
        Type::String => 2,
        Type::Bytes { .. } | Type::Array(_) => 4,
    };
    there.map(size).sum::<usize>() + flexible as usize
}

fn min_bytes_method(context: &Context<'_>, part: &Struct, top: bool) -> String {
    if top || !is_element(context.message, &part.name) {
        return String::new();
    }
    let versions = context.message.versions;
    let mut arms: Vec<(i16, i16, usize)> = Vec::new();
    for version in versions.low..=versions.high {
        let size = min_bytes(context, part, version);
        match arms.last_mut() {
            Some((_, last, same)) if *same == size => *last = version,
            _ => arms.push((version, version, size)),
        }
    }
    let (_, _, last) = arms.pop().expect("a message has versions");
    let arm = |(from, to, size): &(i16, i16, usize)| match from == to {
        true => format!("{from} => {size},"),
        false => format!("{from}..={to} => {size},"),
    };
    let arms: String = arms.iter().map(arm).collect();
    let (body, parameter) = match arms.is_empty() {
        true => (last.to_string(), "_version"),
        false => (format!("match version {{ {arms} _ => {last} }}"), "version"),
    };
    format!("const fn min_bytes({parameter}: i16) -> usize {{ {body} }}\n")
}

fn is_element(message: &Message, name: &str) -> bool {
    let fields = message.structs.iter().flat_map(|s| &s.fields);
    fields.into_iter().any(|f| f.kind == Type::Array(Box::new(Type::Struct(name.to_owned()))))
}
