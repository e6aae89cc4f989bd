//! Images of a small tree that was made up: the same way as those of templates, without a build.

use super::*;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn making(folder: &Path) -> Making {
    let tree = folder.join("rootfs/0123456789abcdef");
    for directory in ["var/lib/dpkg", "home/user", "usr/bin"] {
        std::fs::create_dir_all(tree.join(directory)).unwrap();
    }
    let put = |path: &str, text: &str| std::fs::write(tree.join(path), text).unwrap();
    put("var/lib/dpkg/status", "Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n");
    put("usr/bin/tool", "#!/bin/sh\n");
    put("binary", "the binary");
    std::fs::set_permissions(tree.join("usr/bin/tool"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    let text = "description = 'words'\nports = [9222]\n[env]\nLANG = 'C.UTF-8'";
    Making {
        images: folder.to_owned(),
        template: Template::parse("small", text, None).unwrap(),
        rootfs: Rootfs { template: "small".into(), path: tree.clone(), digest: "0123456789abcdef".into() },
        binary: tree.join("binary"),
        options: Options::default(),
    }
}

fn image(making: &Making) -> Image {
    making.image(Vec::new(), Own::default(), making.run_desk(), &Teller::silent()).unwrap()
}

fn json(blob: &Blob) -> serde_json::Value {
    serde_json::from_reader(blob.source.read_from(0).unwrap()).unwrap()
}

#[test]
fn an_image_says_what_it_is_and_how_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(&making(folder.path()));
    archive::verify(&image);
    let config = json(&image.config);
    let run = &config["config"];
    assert_eq!(run["User"], "1000:1000");
    assert_eq!(
        run["Entrypoint"],
        serde_json::json!(["/usr/local/bin/hotdesk", "desk", "--config", "/etc/hotdesk/desk.toml", "--listen", "0.0.0.0:5000"])
    );
    assert_eq!(run["ExposedPorts"], serde_json::json!({"5000/tcp": {}, "9222/tcp": {}}));
    assert_eq!(run["Labels"]["hotdesk.template"], "small");
    assert_eq!(run["Labels"]["hotdesk.digest"], "0123456789abcdef");
    assert_eq!(run["Labels"]["hotdesk.sbom"], "/usr/share/hotdesk/sbom.spdx.json");
    assert!(run["Env"].as_array().unwrap().contains(&"LANG=C.UTF-8".into()));
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 2);
    let manifest = json(&image.manifest);
    assert_eq!(manifest["layers"][1]["digest"], image.layers[1].digest);
    let own = flate2::read::GzDecoder::new(image.layers[1].source.read_from(0).unwrap());
    let mut found = Vec::new();
    for entry in tar::Archive::new(own).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        found.push((entry.path().unwrap().to_str().unwrap().to_owned(), entry.header().mode().unwrap(), text));
    }
    let of = |path: &str| found.iter().find(|entry| entry.0 == path).unwrap();
    assert_eq!((of(BINARY).1, of(BINARY).2.as_str()), (0o755, "the binary"));
    assert!(of(sbom::PLACE).2.contains("pkg:deb/"));
    assert_eq!(of("home/user").1, 0o1777, "memory that is mounted on it can be written");
}

#[test]
fn the_same_inputs_have_the_same_digest_and_others_another() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut first, second) = (making(one.path()), making(two.path()));
    // Times of the two trees differ as the machine made them; a build settles them.
    let settle = |making: &Making| {
        let touched = std::process::Command::new("find")
            .arg(&making.rootfs.path)
            .args(["-exec", "touch", "-h", "-d", "@1700000000", "{}", "+"])
            .status();
        assert!(touched.unwrap().success());
    };
    settle(&first);
    settle(&second);
    assert_eq!(image(&first).digest(), image(&second).digest());
    first.options.compression = Compression::Zstd;
    assert_ne!(image(&first).digest(), image(&second).digest());
}

#[test]
fn a_layout_is_complete_can_be_opened_and_becomes_another() {
    let folder = tempfile::tempdir().unwrap();
    let making = making(folder.path());
    let out = folder.path().join("layout");
    let tell = Teller::silent();
    let first = image(&making);
    first.write_layout(&out, "hotdesk/small:latest", &tell).unwrap();
    let opened = Image::open(&out).unwrap();
    assert_eq!((opened.digest(), opened.layers()), (first.digest(), first.layers()));
    archive::verify(&opened);
    std::fs::write(&making.binary, "a newer binary").unwrap();
    let second = image(&making);
    second.write_layout(&out, "hotdesk/small:latest", &tell).unwrap();
    assert_eq!(Image::open(&out).unwrap().digest(), second.digest());
    assert_eq!(out.join("blobs/sha256").read_dir().unwrap().count(), 4, "two layers, config, manifest; nothing of the old image");
    let mode = out.join("index.json").metadata().unwrap().mode() & 0o777;
    assert_eq!(mode, 0o644);
    // A directory of somebody else is left alone.
    let error = second.write_layout(folder.path(), "x", &tell).unwrap_err();
    assert!(error.to_string().contains("has other things in it"), "{error}");
    // What is damaged is told.
    let layer = out.join("blobs/sha256").join(second.layers[1].hex());
    std::fs::remove_file(&layer).unwrap();
    assert!(Image::open(&out).unwrap_err().to_string().contains(second.layers[1].hex()));
    std::fs::write(out.join("index.json"), "{}").unwrap();
    assert!(matches!(Image::open(&out), Err(Error::Invalid(_))));
    let index =
        r#"{"schemaVersion":2,"mediaType":"x","manifests":[{"mediaType":"x","digest":"sha256:../../../etc/passwd","size":1}]}"#;
    std::fs::write(out.join("index.json"), index).unwrap();
    assert!(Image::open(&out).unwrap_err().to_string().contains("not a digest"));
}

#[tokio::test]
async fn a_tar_has_everything_and_appears_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let making = making(folder.path());
    let (first, second) = (folder.path().join("one.tar"), folder.path().join("two.tar"));
    image(&making).write(&first, "hotdesk/small:latest", |_| {}).await.unwrap();
    image(&making).write(&second, "hotdesk/small:latest", |_| {}).await.unwrap();
    assert!(std::fs::read(&first).unwrap() == std::fs::read(&second).unwrap(), "the same bytes");
    let image = image(&making);
    let mut texts = std::collections::HashMap::new();
    for entry in tar::Archive::new(std::fs::File::open(&first).unwrap()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        texts.insert(name, bytes);
    }
    for blob in image.blobs() {
        assert_eq!(spec::digest_of(&texts[&format!("blobs/sha256/{}", blob.hex())]), blob.digest);
    }
    let docker: serde_json::Value = serde_json::from_slice(&texts["manifest.json"]).unwrap();
    assert_eq!(docker[0]["RepoTags"], serde_json::json!(["hotdesk/small:latest"]));
    assert_eq!(docker[0]["Layers"][0], format!("blobs/sha256/{}", image.layers[0].hex()));
    assert!(texts.contains_key("oci-layout") && texts.contains_key("index.json"));
    let error = image.write(Path::new("/nonexistent/x.tar"), "x", |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("/nonexistent"), "{error}");
    let left: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "two tars, the tree, the cache: {left:?}");
}

#[test]
fn parts_of_a_disk_are_layers_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut making = making(folder.path());
    making.options.layer_max = 4 << 20;
    let parts = folder.path().join("parts");
    std::fs::create_dir(&parts).unwrap();
    let tell = Teller::silent();
    assert!(vm::read_list(&parts).is_err(), "half a split is none");
    std::fs::write(parts.join("manifest.json"), "{}").unwrap();
    assert!(vm::part_layers(&parts, &making.options, &tell).unwrap_err().to_string().contains("no parts"));
    for number in 0..3 {
        let size = making.options.part_max() as usize;
        std::fs::write(parts.join(format!("part-00{number}.qcow2")), vec![number; size]).unwrap();
    }
    let layers = vm::part_layers(&parts, &making.options, &tell).unwrap();
    assert_eq!(layers.len(), 3);
    assert!(layers.iter().all(|layer| layer.size <= 4 << 20 && layer.diff_id.as_ref() == Some(&layer.digest)));
    let image = making.image(layers, Own::default(), making.run(&["vm"], [5000].into_iter()), &tell).unwrap();
    archive::verify(&image);
    assert_eq!(image.layers().len(), 5);
    std::fs::write(parts.join("part-003.qcow2"), vec![0; making.options.layer_max as usize]).unwrap();
    assert!(vm::part_layers(&parts, &making.options, &tell).unwrap_err().to_string().contains("part-003.qcow2"));
}
