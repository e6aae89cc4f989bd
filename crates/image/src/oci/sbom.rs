//! The bill of materials: every Debian package of a tree with its exact version and source, as SPDX 2.3 in JSON, from
//! dpkg's own list.

use serde_json::{Value, json};

/// Where it is inside the image. The label `hotdesk.sbom` names it.
pub(super) const PLACE: &str = "usr/share/hotdesk/sbom.spdx.json";

/// `digest` names the tree; `moment` stands for the time of making, which must not depend on the clock.
pub(super) fn of_status(status: &str, template: &str, digest: &str, distribution: &str, moment: &str) -> Vec<u8> {
    let mut packages: Vec<Package> = status.split("\n\n").filter_map(Package::read).collect();
    packages.sort_by(|a, b| (a.name, a.architecture).cmp(&(b.name, b.architecture)));
    let listed: Vec<Value> = packages.iter().map(|package| package.spdx(distribution)).collect();
    let mut relations = vec![relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image")];
    relations.extend(packages.iter().map(|package| relation("SPDXRef-Image", "CONTAINS", &package.id())));
    let image = json!({
        "SPDXID": "SPDXRef-Image",
        "name": template,
        "versionInfo": digest,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "primaryPackagePurpose": "CONTAINER",
    });
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": format!("hotdesk-{template}"),
        "documentNamespace": format!("urn:hotdesk:template:{template}:{digest}"),
        "creationInfo": {"created": moment, "creators": [format!("Tool: hotdesk-{}", env!("CARGO_PKG_VERSION"))]},
        "packages": std::iter::once(image).chain(listed).collect::<Vec<_>>(),
        "relationships": relations,
    });
    serde_json::to_vec_pretty(&document).unwrap_or_default()
}

struct Package<'a> {
    name: &'a str,
    version: &'a str,
    architecture: &'a str,
    /// The source package, with its version where that is another.
    source: Option<&'a str>,
    maintainer: Option<&'a str>,
    homepage: Option<&'a str>,
}

impl<'a> Package<'a> {
    fn read(stanza: &'a str) -> Option<Self> {
        let field = |name: &str| stanza.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(": ")?.trim()));
        if field("Status")? != "install ok installed" {
            return None;
        }
        Some(Self {
            name: field("Package")?,
            version: field("Version")?,
            architecture: field("Architecture")?,
            source: field("Source"),
            maintainer: field("Maintainer"),
            homepage: field("Homepage"),
        })
    }

    /// SPDX allows letters, digits, `.` and `-` in an id.
    fn id(&self) -> String {
        let plain = |text: &str| text.replace('+', "-plus-").replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', ".");
        format!("SPDXRef-{}-{}", plain(self.name), plain(self.architecture))
    }

    fn spdx(&self, distribution: &str) -> Value {
        let version = self.version.replace('~', "%7E").replace('+', "%2B").replace(':', "%3A");
        let mut package = json!({
            "SPDXID": self.id(),
            "name": self.name,
            "versionInfo": self.version,
            "supplier": self.maintainer.map_or("NOASSERTION".into(), |who| format!("Organization: {who}")),
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": false,
            // What the package says itself is in the image.
            "licenseComments": format!("/usr/share/doc/{}/copyright", self.name),
            "externalRefs": [{
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": format!(
                    "pkg:deb/{distribution}/{}@{version}?arch={}", self.name.replace('+', "%2B"), self.architecture
                ),
            }],
        });
        if let Some(source) = self.source {
            package["sourceInfo"] = format!("built from {source}").into();
        }
        if let Some(homepage) = self.homepage {
            package["homepage"] = homepage.into();
        }
        package
    }
}

fn relation(from: &str, kind: &str, to: &str) -> Value {
    json!({"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_listed_once_and_in_order() {
        let status = "Package: libstdc++6\nStatus: install ok installed\nArchitecture: amd64\nSource: gcc-12\nVersion: 12.2~a+b\n\
                      Maintainer: Somebody <a@b>\nDescription: x\n Version: 9\n\n\
                      Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n\n\
                      Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:5-1\nHomepage: http://c\n";
        let text = of_status(status, "bare", "abc", "debian", "2026-01-01T00:00:00Z");
        let document: Value = serde_json::from_slice(&text).unwrap();
        let names: Vec<_> = document["packages"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["bare", "bash", "libstdc++6"]);
        let last = &document["packages"][2];
        assert_eq!(last["SPDXID"], "SPDXRef-libstdc-plus--plus-6-amd64");
        assert_eq!(last["sourceInfo"], "built from gcc-12");
        assert_eq!(last["externalRefs"][0]["referenceLocator"], "pkg:deb/debian/libstdc%2B%2B6@12.2%7Ea%2Bb?arch=amd64");
        assert_eq!(document["packages"][1]["homepage"], "http://c");
        assert_eq!(document["relationships"].as_array().unwrap().len(), 3);
        assert_eq!(text, of_status(status, "bare", "abc", "debian", "2026-01-01T00:00:00Z"));
    }
}
