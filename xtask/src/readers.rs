//! Every configuration that is called honoured must be read by some code: the fields that the room
//! `configuration` makes of keys are `pub`, so no compiler says which of them are dead.
//!
//! A field counts as read where its section is written before it, as in `config.groups.size_max` or,
//! with the section bound to a name, `groups.size_max`; so two sections may have fields of one name.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// A struct of settings: the file that defines it, its name, what stands before its fields where
/// they are read, and the folders in which that must happen.
struct Section {
    file: &'static str,
    name: &'static str,
    bound_to: &'static [&'static str],
    read_in: &'static [&'static str],
}

const SHELLS: &[&str] = &["crates/broker/src", "crates/highwater/src"];

const fn section(
    file: &'static str,
    name: &'static str,
    bound_to: &'static [&'static str],
    read_in: &'static [&'static str],
) -> Section {
    Section { file, name, bound_to, read_in }
}

const PLAIN: &str = "crates/configuration/src/sections.rs";
const JOINED: &str = "crates/configuration/src/broker_config.rs";
const SECTIONS: &[Section] = &[
    section(PLAIN, "Network", &["network"], SHELLS),
    section(PLAIN, "FetchLimits", &["fetch"], SHELLS),
    section(PLAIN, "TopicDefaults", &["topics"], SHELLS),
    section(PLAIN, "Groups", &["groups"], SHELLS),
    section(PLAIN, "Offsets", &["offsets"], SHELLS),
    section(PLAIN, "TransactionTopic", &["transaction_topic"], SHELLS),
    section(PLAIN, "ShareTopic", &["share_topic"], SHELLS),
    section(PLAIN, "Producers", &["producers"], SHELLS),
    section(PLAIN, "Cleaner", &["cleaner", "settings"], SHELLS),
    section("crates/configuration/src/gateway.rs", "Gateway", &["gateway"], SHELLS),
    section(JOINED, "LogDefaults", &["log"], SHELLS),
    section(JOINED, "Threads", &["threads"], SHELLS),
    section(JOINED, "Http", &["http"], SHELLS),
    section(JOINED, "BrokerConfig", &["config", "config()"], SHELLS),
    section(
        "crates/configuration/src/topic_settings.rs",
        "TopicSettings",
        &["wanted", "settings(topic)"],
        &["crates/broker/src", "crates/metadata/src"],
    ),
    section(
        "crates/partition/src/settings.rs",
        "Settings",
        &["settings", "settings()"],
        &["crates/partition/src", "crates/broker/src/logs"],
    ),
    section(
        "crates/storage/src/config.rs",
        "LogConfig",
        &["config", "log"],
        &["crates/storage/src", "crates/partition/src", "crates/broker/src/logs"],
    ),
];

/// A line for each field that no code reads.
pub fn unread(root: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for section in SECTIONS {
        let path = root.join(section.file);
        let text = fs::read_to_string(&path).with_context(|| section.file.to_owned())?;
        let fields = fields(&text, section.name);
        if fields.is_empty() {
            findings.push(format!("{}: there is no struct {}", section.file, section.name));
        }
        let mut code = String::new();
        for folder in section.read_in {
            read_code(&root.join(folder), &path, &mut code)?;
        }
        for field in fields.iter().filter(|field| !is_read(&code, section.bound_to, field)) {
            findings.push(format!(
                "{}: no code reads {}.{field}: read it, or call its key ignored and remove it",
                section.file, section.name
            ));
        }
    }
    Ok(findings)
}

/// The names of a struct's fields.
fn fields(text: &str, name: &str) -> Vec<String> {
    let Some(from) = text.find(&format!("pub struct {name} {{")) else { return Vec::new() };
    let body = text[from..].split("\n    }\n").next().unwrap_or_default();
    let body = body.split("\n}\n").next().unwrap_or_default();
    body.lines()
        .skip(1)
        .map(str::trim)
        .filter(|line| !line.starts_with("//") && !line.starts_with('#'))
        .filter_map(|line| line.trim_start_matches("pub ").split_once(": "))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Adds the code of a folder, without tests and comments; `but` is left out.
fn read_code(folder: &Path, but: &Path, code: &mut String) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let is_test = path.ends_with("tests.rs") || path.ends_with("tests");
        if path.is_dir() && !is_test {
            read_code(&path, but, code)?;
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && path != but
            && !is_test
        {
            let text = fs::read_to_string(&path)?;
            let program = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
            for line in program.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
                // A chain of calls over several lines is one expression.
                if !line.starts_with('.') {
                    code.push(' ');
                }
                code.push_str(line);
            }
        }
    }
    Ok(())
}

fn is_read(code: &str, bound_to: &[&str], field: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    bound_to.iter().any(|section| {
        let access = format!("{section}.{field}");
        code.match_indices(&access).any(|(at, _)| {
            let before = code[..at].chars().next_back().is_some_and(is_word);
            let after = code[at + access.len()..].chars().next().is_some_and(is_word);
            !before && !after
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_struct_are_found_and_those_of_the_next_are_not() {
        let text = "settings! {\n    pub struct A {\n        /// X.\n        one: u8 = \"o\",\n    }\n}\n\
                    pub struct B {\n    /// Y.\n    pub two: Vec<u8>,\n}\npub struct C {\n    pub three: u8,\n}\n";
        assert_eq!(fields(text, "A"), ["one"]);
        assert_eq!(fields(text, "B"), ["two"]);
        assert!(fields(text, "D").is_empty());
    }

    #[test]
    fn a_field_is_read_where_its_section_stands_before_it() {
        let read = |code| is_read(code, &["groups", "settings()"], "size");
        assert!(read("config.groups.size.max(1)") && read("x.settings().size;"));
        assert!(!read("groups.size_max") && !read("my_groups.size") && !read("offsets.size"));
    }

    #[test]
    fn every_setting_of_the_tree_is_read() {
        let findings = unread(&crate::tidy::root().unwrap()).unwrap();
        assert_eq!(findings, Vec::<String>::new());
    }
}
