//! Pods as files that are looked at when they change, and the rules of the restricted Pod Security Standard in code.

use super::*;
use crate::VolumePlace;
use crate::kubernetes::{Config, Toleration};
use hotdesk_api::action::Size;
use hotdesk_api::desk::Resources;
use std::path::Path;

fn spec() -> DeskSpec {
    DeskSpec {
        id: "d-abcdefghijkl".into(),
        template: "bare".into(),
        snapshot: None,
        resources: Resources { cpus: 1.5, memory_mib: 2048, disk_mib: 4096 },
        screen: Size { width: 1280, height: 800 },
        env: BTreeMap::from([("A".into(), "in the secret".into())]),
        labels: BTreeMap::from([("project".into(), "p1".into()), ("note".into(), "not a label: too many words".into())]),
        network: true,
        vnc_password: Some("vnc-word".into()),
        secret: "the-desk's-token".into(),
        volumes: Vec::new(),
    }
}

fn rich() -> (Config, DeskSpec) {
    let config = Config {
        registry: "registry.test/desks/".into(),
        tag: "7".into(),
        runtime_class: Some("gvisor".into()),
        priority_class: Some("desks".into()),
        storage_class: Some("fast".into()),
        pull_secrets: vec!["pull".into()],
        node_selector: BTreeMap::from([("pool".into(), "desks".into())]),
        tolerations: vec![Toleration {
            key: "desks".into(),
            operator: "Exists".into(),
            effect: "NoSchedule".into(),
            ..Toleration::default()
        }],
        ..Config::default()
    };
    let volume = VolumePlace {
        volume: "v-abcdefghijkl".into(),
        name: "models".into(),
        directory: "/nowhere".into(),
        at: "/models".into(),
        read_only: true,
        subpath: Some("a".into()),
        source: None,
    };
    (config, DeskSpec { template: "base".into(), network: false, volumes: vec![volume], ..spec() })
}

fn recipe<'a>(config: &'a Config, spec: &'a DeskSpec) -> Recipe<'a> {
    let folder = tempfile::tempdir().unwrap();
    let images = Library::open(folder.path()).unwrap();
    Recipe {
        fleet: "fleet123",
        name: "hotdesk-fleet123-d-abcdefghijkl".into(),
        secret: "hotdesk-fleet123-d-abcdefghijkl-s1".into(),
        config,
        spec,
        template: template(&images, &spec.template).unwrap(),
    }
}

/// Compares with the file, or writes it with `UPDATE_GOLDEN=1`.
fn golden(name: &str, value: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kubernetes/pod/golden").join(name);
    let text = format!("{}\n", serde_json::to_string_pretty(value).unwrap());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, text, "{} differs; UPDATE_GOLDEN=1 writes it anew", path.display());
}

#[test]
fn pods_are_as_they_were() {
    let (plain, desk) = (Config::default(), spec());
    golden("plain.json", &recipe(&plain, &desk).pod_value());
    let (config, desk) = rich();
    golden("rich.json", &recipe(&config, &desk).pod_value());
}

#[test]
fn every_word_is_one_of_kubernetes() {
    let (plain, desk) = (Config::default(), spec());
    let (config, other) = rich();
    for recipe in [recipe(&plain, &desk), recipe(&config, &other)] {
        let value = recipe.pod_value();
        let typed = recipe.pod().unwrap();
        assert_eq!(serde_json::to_value(typed).unwrap(), value);
    }
}

#[test]
fn pods_keep_to_the_restricted_standard() {
    let (plain, desk) = (Config::default(), spec());
    let (config, other) = rich();
    for recipe in [recipe(&plain, &desk), recipe(&config, &other)] {
        let broken = broken_rules(&recipe.pod_value()["spec"]);
        assert!(broken.is_empty(), "{broken:?}");
    }
    let mut open = recipe(&plain, &desk).pod_value();
    open["spec"]["hostNetwork"] = json!(true);
    open["spec"]["containers"][0]["securityContext"]["capabilities"] = json!({"drop": ["ALL"], "add": ["SYS_ADMIN"]});
    open["spec"]["volumes"][1] = json!({"name": "home", "hostPath": {"path": "/"}});
    assert_eq!(broken_rules(&open["spec"]).len(), 3, "the rules find what is wrong");
}

#[test]
fn secrets_are_in_the_secret_alone() {
    let (config, desk) = (Config::default(), spec());
    let recipe = recipe(&config, &desk);
    let pod = recipe.pod_value().to_string();
    for word in ["the-desk's-token", "vnc-word", "in the secret"] {
        assert!(!pod.contains(word), "{word} is in the pod");
    }
    let secret = recipe.secret("name", "uid-1").unwrap();
    assert_eq!(secret.metadata.owner_references.as_ref().unwrap()[0].uid, "uid-1");
    let text = &secret.string_data.unwrap()["own.toml"];
    for word in ["the-desk's-token", "vnc-word", "in the secret", "0.0.0.0:5000", "1280x800"] {
        assert!(text.contains(word), "{word} is missing: {text}");
    }
}

#[test]
fn labels_that_kubernetes_takes() {
    for (value, good) in [("", true), ("a", true), ("a.b_c-d", true), ("-a", false), ("a b", false), ("ä", false)] {
        assert_eq!(is_label_value(value), good, "{value}");
    }
    assert!(!is_label_value(&"a".repeat(64)) && is_label_value(&"a".repeat(63)));
}

#[test]
fn templates_that_no_pod_can_be_made_from() {
    let folder = tempfile::tempdir().unwrap();
    let templates = folder.path().join("templates");
    std::fs::create_dir(&templates).unwrap();
    std::fs::write(templates.join("rooted.toml"), "root = true\n").unwrap();
    std::fs::write(templates.join("foreign.toml"), "image = 'a/b:c'\n").unwrap();
    let images = Library::open(folder.path()).unwrap().with_templates(&templates);
    for name in ["rooted", "foreign"] {
        assert!(matches!(template(&images, name), Err(Error::Unsupported { .. })), "{name}");
    }
    assert!(matches!(template(&images, "no-such"), Err(Error::NotFound(_))));
}

/// What of the restricted Pod Security Standard (which includes the baseline one) a Pod breaks.
fn broken_rules(pod: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    let mut rule = |good: bool, what: &str| {
        if !good {
            broken.push(what.to_owned());
        }
    };
    for host in ["hostNetwork", "hostPID", "hostIPC"] {
        rule(pod[host] != json!(true), host);
    }
    let allowed =
        ["name", "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"];
    for volume in pod["volumes"].as_array().unwrap() {
        rule(volume.as_object().unwrap().keys().all(|kind| allowed.contains(&kind.as_str())), "kinds of volumes");
    }
    let shared = &pod["securityContext"];
    rule(shared["sysctls"].is_null(), "sysctls");
    let containers = ["containers", "initContainers"].into_iter().flat_map(|kind| pod[kind].as_array().into_iter().flatten());
    for container in containers {
        let own = &container["securityContext"];
        let either = |name: &str| if own[name].is_null() { shared[name].clone() } else { own[name].clone() };
        rule(own["privileged"] != json!(true), "privileged");
        rule(own["allowPrivilegeEscalation"] == json!(false), "allowPrivilegeEscalation");
        rule(own["capabilities"] == json!({"drop": ["ALL"]}), "capabilities");
        rule(either("runAsNonRoot") == json!(true), "runAsNonRoot");
        rule(either("runAsUser").as_u64().is_some_and(|uid| uid != 0), "runAsUser");
        rule(
            ["RuntimeDefault", "Localhost"].contains(&either("seccompProfile")["type"].as_str().unwrap_or("")),
            "seccompProfile",
        );
        rule(own["procMount"].is_null(), "procMount");
        rule(container["ports"].as_array().into_iter().flatten().all(|port| port["hostPort"].is_null()), "hostPort");
        // Beyond the standard.
        rule(own["readOnlyRootFilesystem"] == json!(true), "readOnlyRootFilesystem");
        rule(!container["resources"]["limits"]["memory"].is_null(), "a memory limit");
    }
    rule(pod["automountServiceAccountToken"] == json!(false), "a token of the API server");
    broken
}
