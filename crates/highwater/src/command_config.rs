//! `--command-config`: how a cluster is reached, in a file of properties as Kafka's own tools take.

use std::collections::BTreeMap;
use std::path::Path;

use client::Security;
use client::security::{KEYS, KEYS_WITHOUT_EFFECT};
use configuration::properties;

use crate::failure::Failure;

/// What the file says of security; without a file nothing is protected.
pub fn security(file: Option<&Path>) -> Result<Security, Failure> {
    let Some(path) = file else { return Ok(Security::default()) };
    let name = path.display();
    let unreadable = || Failure::new(format!("cannot read the file of properties {name}"));
    let bytes = std::fs::read(path).map_err(|error| unreadable().detail(error))?;
    let (read, broken) = properties::parse(&bytes);
    if let Some(broken) = broken.first() {
        let (line, key, reason) = (broken.line, &broken.key, broken.reason);
        return Err(unreadable().detail(format!("line {line}, {key}: {reason}")));
    }
    // The last one counts, as in Java.
    let values: BTreeMap<String, String> = read.into_iter().map(|p| (p.key, p.value)).collect();
    let security = Security::read(|key| values.get(key).map(String::as_str));
    let security = security.map_err(|error| {
        Failure::new(format!("the properties in {name} cannot be used")).detail(error)
    })?;
    if let Some(notice) = unused(&values) {
        anstream::eprintln!("{name}: {notice}");
    }
    Ok(security)
}

/// What is said of keys that nothing reads here.
fn unused(values: &BTreeMap<String, String>) -> Option<String> {
    let is_read = |key: &str| KEYS.contains(&key) || KEYS_WITHOUT_EFFECT.contains(&key);
    let keys: Vec<&str> = values.keys().map(String::as_str).filter(|key| !is_read(key)).collect();
    (!keys.is_empty()).then(|| format!("not read here: {}", keys.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Security, Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        security(Some(file.path()))
    }

    #[test]
    fn a_file_of_kafkas_tools_is_understood() {
        let login = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n\
                     sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n  \
                     username=\"alice\" \\\n  password=\"opensesame\";\n";
        assert_eq!(read(login).unwrap().protocol(), "SASL_PLAINTEXT");
        assert_eq!(read("# nothing\n").unwrap().protocol(), "PLAINTEXT");
        assert_eq!(security(None).unwrap().protocol(), "PLAINTEXT");
        let lost = login.replace(';', "");
        let error = read(&lost).unwrap_err().to_string();
        assert!(error.contains("sasl.jaas.config: the semicolon"), "{error}");
        assert!(!error.contains("opensesame"), "{error}");
    }

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let error = security(Some(Path::new("/there/is/none"))).unwrap_err().to_string();
        assert!(error.contains("/there/is/none"), "{error}");
        let error = read("a=1\nsasl.mechanism=\\u12\n").unwrap_err().to_string();
        assert!(error.contains("line 2, sasl.mechanism"), "{error}");
    }

    #[test]
    fn keys_without_an_effect_are_told() {
        let values =
            |keys: &[&str]| keys.iter().map(|k| ((*k).to_owned(), String::new())).collect();
        assert_eq!(unused(&values(&["ssl.protocol", "security.protocol"])), None);
        let told = unused(&values(&["acks", "sasl.mechanism", "ssl.trustore.location"])).unwrap();
        assert!(told.ends_with("here: acks, ssl.trustore.location"), "{told}");
    }
}
