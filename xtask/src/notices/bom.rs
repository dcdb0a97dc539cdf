//! The list for machines: CycloneDX 1.5 in JSON, the same for the same lock file.

use serde_json::{Value, json};

use super::components::Component;

/// The document, with the program as its subject.
pub fn of(components: &[Component]) -> String {
    let subject = components.first().map(|program| {
        let mut subject = entry(program);
        subject["type"] = "application".into();
        subject["name"] = "cryptline".into();
        subject
    });
    let parts: Vec<_> = components.iter().skip(1).map(entry).collect();
    let needs = |one: &Component| {
        let needed: Vec<_> = one.needs.iter().map(|&place| url(&components[place])).collect();
        json!({ "ref": url(one), "dependsOn": needed })
    };
    let graph: Vec<_> = components.iter().map(needs).collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": subject },
        "components": parts,
        "dependencies": graph,
    });
    format!("{document:#}\n")
}

fn entry(one: &Component) -> Value {
    let mut entry = json!({
        "type": "library",
        "bom-ref": url(one),
        "name": one.name,
        "version": one.version,
        "purl": url(one),
        "licenses": [{ "expression": one.licence }],
    });
    if let Some(checksum) = &one.checksum {
        entry["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if let Some(repository) = &one.repository {
        entry["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    entry
}

/// A package URL: what databases of vulnerabilities know packages by.
fn url(one: &Component) -> String {
    // A plus sign, of a version's build, has another meaning there.
    format!("pkg:cargo/{}@{}", one.name, one.version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::notices::components::of_the_program;
    use crate::portable::USUAL;

    #[test]
    fn every_reference_leads_to_one_component_and_everything_downloaded_has_its_sum() {
        let components = of_the_program(&USUAL).unwrap();
        let bom: Value = serde_json::from_str(&of(&components)).unwrap();
        assert_eq!(bom["metadata"]["component"]["name"], "cryptline");
        let listed = bom["components"].as_array().unwrap();
        let mut names: BTreeSet<_> = listed.iter().map(|one| one["bom-ref"].clone().to_string()).collect();
        assert_eq!(names.len(), listed.len());
        names.insert(bom["metadata"]["component"]["bom-ref"].to_string());
        let graph = bom["dependencies"].as_array().unwrap();
        assert_eq!(graph.len(), names.len());
        for node in graph {
            assert!(names.contains(&node["ref"].to_string()));
            let needed = node["dependsOn"].as_array().unwrap();
            assert!(needed.iter().all(|one| names.contains(&one.to_string())), "{node}");
        }
        for (one, entry) in components.iter().skip(1).zip(listed) {
            let sum = entry["hashes"][0]["content"].as_str().map_or(0, str::len);
            assert_eq!(sum, if one.is_ours { 0 } else { 64 }, "{}", one.name);
        }
    }
}
