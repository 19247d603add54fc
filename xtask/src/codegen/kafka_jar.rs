//! Where the official jar comes from: Maven resolves it, the message schemas are read out of it.
//! Facts are taken from it, never text.

use anyhow::{Context, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release of Kafka that the wire code follows.
pub const VERSION: &str = "4.4.0";

/// The root of the checkout.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root")
}

/// The client jar, fetched by Maven into the build directory if it is not there yet.
pub fn fetch() -> anyhow::Result<PathBuf> {
    let folder = root().join("target/kafka-clients");
    let jar = folder.join(format!("kafka-clients-{VERSION}.jar"));
    if !jar.exists() {
        maven_copy(&format!("org.apache.kafka:kafka-clients:{VERSION}"), &folder)?;
        ensure!(jar.exists(), "Maven did not write {}", jar.display());
    }
    Ok(jar)
}

/// Copies one artifact (`group:artifact:version`) into `folder`.
pub fn maven_copy(artifact: &str, folder: &Path) -> anyhow::Result<()> {
    let status = Command::new("mvn")
        .args(["-q", "-B", "dependency:copy"])
        .arg(format!("-Dartifact={artifact}"))
        .arg(format!("-DoutputDirectory={}", folder.display()))
        .status()
        .context("mvn is needed")?;
    ensure!(status.success(), "Maven cannot fetch {artifact}");
    Ok(())
}

/// The JSON text of one schema of the jar, without its comments.
pub fn schema(jar: &Path, name: &str) -> anyhow::Result<String> {
    let output = Command::new("unzip")
        .arg("-p")
        .arg(jar)
        .arg(format!("common/message/{name}.json"))
        .output()
        .context("unzip is needed")?;
    if !output.status.success() {
        bail!("{} holds no schema {name}", jar.display());
    }
    Ok(without_comments(&String::from_utf8(output.stdout)?))
}

/// Drops `//` to the end of the line, but not within strings.
fn without_comments(text: &str) -> String {
    text.lines().map(without_comment).collect::<Vec<_>>().join("\n")
}

fn without_comment(line: &str) -> &str {
    let (mut in_string, mut escaped, mut slash) = (false, false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'/' if !in_string && slash => return &line[..at - 1],
            _ => {}
        }
        slash = byte == b'/' && !in_string;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::without_comments;

    #[test]
    fn comments_go_and_strings_stay() {
        let text = "// all\n{ \"a\": \"b//c\\\"//\" } // d\n/";
        assert_eq!(without_comments(text), "\n{ \"a\": \"b//c\\\"//\" } \n/");
    }
}
