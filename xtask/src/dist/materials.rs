//! The bill of materials: all linked crates in CycloneDX 1.5 (JSON), as vulnerability scanners read it.

use anyhow::Result;
use serde_json::{Value, json};

use super::Release;
use super::crates::LinkedCrate;

/// The document, with a line feed at its end.
pub(super) fn bill(release: &Release, crates: &[LinkedCrate]) -> Result<String> {
    let program = json!({
        "type": "application",
        "bom-ref": format!("highwater@{}", release.version),
        "name": "highwater",
        "version": release.version,
        "licenses": [{ "expression": "Apache-2.0" }],
        "properties": [{ "name": "commit", "value": release.commit }],
    });
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": program },
        "components": crates.iter().map(component).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn component(it: &LinkedCrate) -> Value {
    let reference = format!("pkg:cargo/{}@{}", it.name, it.version);
    let mut component = json!({
        "type": "library",
        "bom-ref": reference,
        "purl": reference,
        "name": it.name,
        "version": it.version,
    });
    if let Some(licence) = &it.licence {
        // The older notation of cargo for a choice between licences is not SPDX.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(repository) = &it.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_linked_crate_is_a_component_with_its_package_url() {
        let release =
            Release { version: "1.0.0".to_owned(), commit: "abc".to_owned(), epoch: 1_700_000_000 };
        let linked = LinkedCrate {
            name: "memchr".to_owned(),
            version: "2.8.3".to_owned(),
            licence: Some("Unlicense/MIT".to_owned()),
            repository: None,
            folder: "/src".into(),
        };
        let document: Value = serde_json::from_str(&bill(&release, &[linked]).unwrap()).unwrap();
        assert_eq!(document["components"][0]["purl"], "pkg:cargo/memchr@2.8.3");
        assert_eq!(document["components"][0]["licenses"][0]["expression"], "Unlicense OR MIT");
        assert_eq!(document["metadata"]["component"]["version"], "1.0.0");
    }
}
