//! Rust source that reads and writes the fields of one structure.

use super::emit::{Context, default_is_null, default_value, is_option};
use super::names::{condition, field_name};
use super::schema::{Field, Fixed, Message, Struct, Type, Versions};

/// The function `decode` of a structure; that of a message checks the version first.
pub fn decode(context: &Context<'_>, part: &Struct, top: bool) -> String {
    let message = context.message;
    let mut body = String::new();
    if top {
        body += &version_check(message, "DecodeError");
    }
    body += &flexible_binding(message, part);
    body += "let mut out = Self::default();\n";
    let mut guards = Guards::default();
    for field in &part.fields {
        let Some(present) = untagged(field, message) else { continue };
        let name = field_name(&field.name);
        let read = format!("out.{name} = {};\n", read_field(context, field));
        guards.add(condition(present, message), &read);
    }
    guards.add(flexible(message), &decode_tags(context, part));
    body += &guards.finish();
    let version = parameter(&body, "version");
    let reader = parameter(&body, "r");
    format!(
        "/// Reads it in this version.
        pub fn decode({reader}: &mut Reader<'_>, {version}: i16) -> Result<Self, DecodeError> {{
            {body} Ok(out)
        }}\n"
    )
}

/// The function `encode` of a structure.
pub fn encode(context: &Context<'_>, part: &Struct, top: bool) -> String {
    let message = context.message;
    let mut body = String::new();
    if top {
        body += &version_check(message, "EncodeError");
    }
    body += &flexible_binding(message, part);
    for field in &part.fields {
        body += &missing_check(context, part, field);
    }
    let mut guards = Guards::default();
    for field in &part.fields {
        let Some(present) = untagged(field, message) else { continue };
        guards.add(condition(present, message), &(write_field(context, field) + "\n"));
    }
    guards.add(flexible(message), &encode_tags(context, part));
    body += &guards.finish();
    let version = parameter(&body, "version");
    let writer = parameter(&body, "w");
    format!(
        "/// Writes it in this version.
        pub fn encode(&self, {writer}: &mut Writer, {version}: i16) -> Result<(), EncodeError> {{
            {body} Ok(())
        }}\n"
    )
}

/// A parameter's name, with an underscore in front when the body does not use it.
fn parameter(body: &str, name: &str) -> String {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let used = body.split(|c| !word(c)).any(|w| w == name);
    if used { name.to_owned() } else { format!("_{name}") }
}

fn version_check(message: &Message, error: &str) -> String {
    let (low, high) = (message.versions.low, message.versions.high);
    let name = &message.name;
    format!(
        "if !({low}..={high}).contains(&version) {{
            return Err({error}::Version {{ message: \"{name}\", version }});
        }}\n"
    )
}

/// The condition under which the message is flexible; `None` for always.
fn flexible(message: &Message) -> Option<String> {
    condition(message.flexible, message)
}

/// Binds `flexible`, if a field's encoding depends on it.
fn flexible_binding(message: &Message, part: &Struct) -> String {
    let varies = flexible(message).is_some_and(|c| c != "false");
    let lengths = |kind: &Type| !matches!(kind, Type::Fixed(_) | Type::Struct(_));
    let used = part.fields.iter().any(|f| {
        lengths(&f.kind) && f.flexible.is_none() && !f.versions.and(message.versions).is_empty()
    });
    match flexible(message) {
        Some(condition) if varies && used => format!("let flexible = {condition};\n"),
        _ => String::new(),
    }
}

/// Whether a field's lengths are compact, as an expression.
fn compact(message: &Message, field: &Field) -> &'static str {
    match flexible(message).as_deref() {
        _ if field.flexible.is_some_and(Versions::is_empty) => "false",
        Some("false") => "false",
        None => "true",
        Some(_) => "flexible",
    }
}

/// Statements under conditions; neighbours under the same one share it.
#[derive(Default)]
struct Guards {
    done: String,
    open: Option<(Option<String>, String)>,
}

impl Guards {
    /// Adds statements that run under `condition` (`None` for always, "false" for never).
    fn add(&mut self, condition: Option<String>, statements: &str) {
        if condition.as_deref() == Some("false") {
            return;
        }
        match &mut self.open {
            Some((open, body)) if *open == condition => body.push_str(statements),
            _ => {
                self.close();
                self.open = Some((condition, statements.to_owned()));
            }
        }
    }

    fn close(&mut self) {
        match self.open.take() {
            Some((Some(condition), body)) => self.done += &format!("if {condition} {{\n{body}}}\n"),
            Some((None, body)) => self.done += &body,
            None => {}
        }
    }

    fn finish(mut self) -> String {
        self.close();
        self.done
    }
}

/// The versions in which the field stands in the structure itself, not among the tagged fields.
fn untagged(field: &Field, message: &Message) -> Option<Versions> {
    let mut present = field.versions.and(message.versions);
    if !field.tagged.is_empty() {
        // A field may become tagged in a later version, never the other way round.
        present.high = present.high.min(field.tagged.low - 1);
    }
    (!present.is_empty()).then_some(present)
}

fn fixed_method(fixed: Fixed) -> &'static str {
    match fixed {
        Fixed::Bool => "bool",
        Fixed::I8 => "i8",
        Fixed::I16 => "i16",
        Fixed::U16 => "u16",
        Fixed::I32 => "i32",
        Fixed::U32 => "u32",
        Fixed::I64 => "i64",
        Fixed::F64 => "f64",
        Fixed::Uuid => "uuid",
    }
}

fn read_field(context: &Context<'_>, field: &Field) -> String {
    let message = context.message;
    let compact = compact(message, field);
    if !is_option(field) {
        return read_value(context, &field.kind, compact, "");
    }
    let nullable = match &field.kind {
        Type::Struct(name) => {
            let name = context.rust_name(name);
            format!("if r.presence()? {{ Some({name}::decode(r, version)?) }} else {{ None }}")
        }
        kind => read_value(context, kind, compact, "nullable_"),
    };
    let present = field.versions.and(message.versions);
    if field.nullable.and(present) == present {
        return nullable;
    }
    let Some(condition) = condition(field.nullable, message) else { return nullable };
    let plain = read_value(context, &field.kind, compact, "");
    format!("if {condition} {{ {nullable} }} else {{ Some({plain}) }}")
}

fn read_value(context: &Context<'_>, kind: &Type, compact: &str, prefix: &str) -> String {
    match kind {
        Type::Fixed(fixed) => format!("r.{}()?", fixed_method(*fixed)),
        Type::String => format!("r.{prefix}string({compact})?"),
        Type::Bytes { .. } => format!("r.{prefix}bytes({compact})?"),
        Type::Struct(name) => format!("{}::decode(r, version)?", context.rust_name(name)),
        Type::Array(element) => {
            let (min, read) = read_element(context, element, compact);
            format!("r.{prefix}array({compact}, {min}, |r| {read})?")
        }
    }
}

/// The least size of an element, and how it is read.
fn read_element(context: &Context<'_>, element: &Type, compact: &str) -> (String, String) {
    match element {
        Type::Fixed(fixed) => {
            (fixed.size_bytes().to_string(), format!("r.{}()", fixed_method(*fixed)))
        }
        Type::Struct(name) => {
            let name = context.rust_name(name);
            (format!("{name}::min_bytes(version)"), format!("{name}::decode(r, version)"))
        }
        Type::String => ("1".to_owned(), format!("r.string({compact})")),
        Type::Bytes { .. } => ("1".to_owned(), format!("r.bytes({compact})")),
        Type::Array(_) => panic!("arrays of arrays are not in use"),
    }
}

fn decode_tags(context: &Context<'_>, part: &Struct) -> String {
    let mut arms = String::new();
    for field in tagged(context.message, part) {
        let tag = field.tag.expect("a tagged field has a tag");
        let when = condition(field.tagged, context.message);
        let when = relative_to_flexible(when, field.tagged, context.message);
        let name = field_name(&field.name);
        let read = read_field(context, field);
        arms += &format!("{tag}{when} => out.{name} = {read},\n");
    }
    if arms.is_empty() {
        return "r.skip_tagged_fields()?;\n".to_owned();
    }
    format!(
        "r.tagged_fields(|tag, r| {{
            match tag {{ {arms} _ => return Ok(false), }}
            Ok(true)
        }})?;\n"
    )
}

/// A guard ` if …`, unless every flexible version has the tagged field.
fn relative_to_flexible(when: Option<String>, tagged: Versions, message: &Message) -> String {
    let flexible = message.flexible.and(message.versions);
    match when {
        Some(when) if tagged.and(flexible) != flexible => format!(" if {when}"),
        _ => String::new(),
    }
}

fn tagged<'a>(message: &Message, part: &'a Struct) -> Vec<&'a Field> {
    let fields = part.fields.iter();
    let mut found: Vec<_> = fields.filter(|f| !f.tagged.and(message.versions).is_empty()).collect();
    found.sort_by_key(|f| f.tag);
    found
}

fn missing_check(context: &Context<'_>, part: &Struct, field: &Field) -> String {
    let message = context.message;
    let present = field.versions.and(message.versions);
    if field.ignorable || present == message.versions {
        return String::new();
    }
    let part = context.rust_name(&part.name);
    let set = is_set(context, field);
    let name = field_name(&field.name);
    let absent = match condition(field.versions, message) {
        Some(c) if c == "false" => set,
        Some(c) => format!("!({c}) && {set}"),
        None => return String::new(),
    };
    let absent = simplify(&absent);
    format!(
        "if {absent} {{
            return Err(EncodeError::FieldNotInVersion {{ field: \"{part}.{name}\", version }});
        }}\n"
    )
}

/// Turns a negated comparison round.
fn simplify(condition: &str) -> String {
    for (from, to) in [("!(version >= ", "version < "), ("!(version <= ", "version > ")] {
        if let Some(rest) = condition.strip_prefix(from) {
            return to.to_owned() + &rest.replacen(')', "", 1);
        }
    }
    condition.replacen("!(version == ", "(version != ", 1).replacen("!((", "!(", 1).replacen(
        "(&version))",
        "(&version)",
        1,
    )
}

/// An expression that says whether a field differs from its default.
fn is_set(context: &Context<'_>, field: &Field) -> String {
    let name = format!("self.{}", field_name(&field.name));
    if is_option(field) {
        return match &field.kind {
            _ if default_is_null(field) => format!("{name}.is_some()"),
            Type::String => format!("{name}.as_deref() != Some({:?})", field.default),
            _ => format!("{name}.as_ref().is_none_or(|v| !v.is_empty())"),
        };
    }
    match &field.kind {
        Type::Fixed(Fixed::Bool) if field.default == "true" => format!("!{name}"),
        Type::Fixed(Fixed::Bool) => name,
        Type::Fixed(Fixed::Uuid) => format!("!{name}.is_zero()"),
        Type::Fixed(_) => format!("{name} != {}", default_value(field)),
        Type::String if !field.default.is_empty() => format!("{name} != {:?}", field.default),
        Type::Struct(part) => format!("{name} != {}::default()", context.rust_name(part)),
        _ => format!("!{name}.is_empty()"),
    }
}

fn write_field(context: &Context<'_>, field: &Field) -> String {
    let compact = compact(context.message, field);
    let name = format!("self.{}", field_name(&field.name));
    if !is_option(field) {
        return write_plain(&field.kind, &name, compact);
    }
    let write = match &field.kind {
        Type::String => format!("w.nullable_string({name}.as_deref(), {compact})?;"),
        Type::Bytes { .. } => format!("w.nullable_bytes({name}.as_ref(), {compact})?;"),
        Type::Array(element) => {
            let element = write_element(element, compact);
            format!("w.nullable_array({name}.as_deref(), {compact}, |w, v| {element})?;")
        }
        Type::Struct(_) => format!(
            "match &{name} {{
                Some(v) => {{ w.i8(1); v.encode(w, version)?; }}
                None => w.i8(-1),
            }}"
        ),
        Type::Fixed(_) => panic!("{}: a fixed type cannot be null", field.name),
    };
    null_check(context.message, field, &name) + &write
}

/// Refuses null in the versions that have the field but do not allow null.
fn null_check(message: &Message, field: &Field, name: &str) -> String {
    let present = field.versions.and(message.versions);
    if field.nullable.and(present) == present {
        return String::new();
    }
    let allowed = match condition(field.nullable, message) {
        Some(c) if c == "false" => String::new(),
        Some(c) => simplify(&format!("!({c}) && ")),
        None => return String::new(),
    };
    format!("if {allowed}{name}.is_none() {{ return Err(EncodeError::Null(version)); }}\n")
}

fn write_plain(kind: &Type, name: &str, compact: &str) -> String {
    match kind {
        Type::Fixed(fixed) => format!("w.{}({name});", fixed_method(*fixed)),
        Type::String => format!("w.string(&{name}, {compact})?;"),
        Type::Bytes { .. } => format!("w.byte_slice(&{name}, {compact})?;"),
        Type::Struct(_) => format!("{name}.encode(w, version)?;"),
        Type::Array(element) => {
            let element = write_element(element, compact);
            format!("w.array(&{name}, {compact}, |w, v| {element})?;")
        }
    }
}

fn write_element(element: &Type, compact: &str) -> String {
    match element {
        Type::Fixed(fixed) => format!("{{ w.{}(*v); Ok(()) }}", fixed_method(*fixed)),
        Type::String => format!("w.string(v, {compact})"),
        Type::Bytes { .. } => format!("w.byte_slice(v, {compact})"),
        Type::Struct(_) => "v.encode(w, version)".to_owned(),
        Type::Array(_) => panic!("arrays of arrays are not in use"),
    }
}

fn encode_tags(context: &Context<'_>, part: &Struct) -> String {
    let fields = tagged(context.message, part);
    if fields.is_empty() {
        return "w.uvarint(0);\n".to_owned();
    }
    let (mut count, mut writes) = (Vec::new(), String::new());
    for field in fields {
        let when = condition(field.tagged, context.message);
        let flexible = context.message.flexible.and(context.message.versions);
        let when = when.filter(|_| field.tagged.and(flexible) != flexible);
        let set = is_set(context, field);
        let set = when.map_or(set.clone(), |when| format!("{when} && {set}"));
        let tag = field.tag.expect("a tagged field has a tag");
        let write = write_field(context, field);
        count.push(format!("u32::from({set})"));
        writes += &format!("if {set} {{ w.tagged_field({tag}, |w| {{ {write} Ok(()) }})?; }}\n");
    }
    format!("w.uvarint({});\n{writes}", count.join(" + "))
}
