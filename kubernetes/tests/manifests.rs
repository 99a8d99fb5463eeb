//! The manifests of `packaging/kubernetes`, checked as far as that goes without a cluster.

use std::collections::BTreeSet;
use std::process::Command;

use rgpu_kubernetes::names::{DRIVER, RESOURCE};
use rgpu_kubernetes::parameters::Parameters;
use rgpu_kubernetes_testing::{manifests, schema};
use serde_json::Value;

fn all() -> Vec<(String, Value)> {
    let files = std::fs::read_dir(manifests::folder()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let named = names.filter(|name| name.ends_with(".yaml") && name != "kustomization.yaml");
    let all: Vec<_> = named
        .flat_map(|name| {
            manifests::read(&name).unwrap().into_iter().map(move |object| (name.clone(), object))
        })
        .collect();
    assert!(all.len() >= 12, "{} objects", all.len());
    all
}

#[test]
fn every_object_is_as_the_published_schemas_say() {
    for (file, object) in all() {
        schema::check(&object).unwrap_or_else(|e| panic!("{file}: {e}"));
        let kind = object["kind"].as_str().unwrap();
        let example = file == "example.yaml";
        let everywhere =
            kind.starts_with("Cluster") || kind == "Namespace" || kind == "DeviceClass" || example;
        assert!(everywhere || object["metadata"]["namespace"] == "rgpu", "{file}: {kind} has no namespace");
    }
}

#[test]
fn kustomize_finds_what_it_names() {
    let [kustomization] = &manifests::read("kustomization.yaml").unwrap()[..] else { panic!("one document") };
    for file in kustomization["resources"].as_array().unwrap() {
        assert!(manifests::folder().join(file.as_str().unwrap()).exists(), "{file}");
    }
    let (name, made) = (&kustomization["images"][0]["name"], &kustomization["configMapGenerator"][0]["name"]);
    for container in containers() {
        assert_eq!(&container["image"], name);
        for variable in container["env"].as_array().into_iter().flatten() {
            let from = &variable["valueFrom"]["configMapKeyRef"];
            assert!(from.is_null() || (&from["name"] == made && from["key"] == "broker"), "{variable}");
        }
    }
}

fn containers() -> Vec<Value> {
    let of = |object: &Value| {
        object["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default()
    };
    let all: Vec<Value> = all().iter().flat_map(|(_, object)| of(object)).collect();
    assert_eq!(all.len(), 4, "controller, node, server, device plugin");
    all
}

#[test]
fn commands_and_options_exist() {
    for container in containers() {
        let command: Vec<&str> =
            container["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let [program, subcommand] = command[..] else { panic!("{command:?}") };
        if program != "rgpu-kubernetes" {
            assert_eq!((program, subcommand), ("rgpu", "serve")); // whose options its own tests know
            continue;
        }
        let help = Command::new(env!("CARGO_BIN_EXE_rgpu-kubernetes"))
            .args([subcommand, "--help"])
            .output()
            .unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        let options = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for option in options.filter_map(|option| option.split_once('=')).map(|(name, _)| name) {
            assert!(help.contains(option), "{subcommand} has no {option}:\n{help}");
        }
        for variable in container["env"].as_array().unwrap() {
            let name = variable["name"].as_str().unwrap();
            assert!(help.contains(name), "{subcommand} does not read {name}:\n{help}");
        }
    }
}

#[test]
fn what_is_mounted_is_there_and_folders_of_the_node_are_those_that_the_plugins_use() {
    for (file, object) in all() {
        let pod = &object["spec"]["template"]["spec"];
        let volumes: BTreeSet<&str> = pod["volumes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|volume| volume["name"].as_str())
            .collect();
        for container in pod["containers"].as_array().into_iter().flatten() {
            for mount in container["volumeMounts"].as_array().into_iter().flatten() {
                assert!(volumes.contains(mount["name"].as_str().unwrap()), "{file}: {mount}");
                let volume = pod["volumes"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|one| one["name"] == mount["name"])
                    .unwrap();
                // A path of the node is the same inside: container runtimes and the kubelet are told paths.
                let host = &volume["hostPath"]["path"];
                assert!(host.is_null() || *host == mount["mountPath"], "{file}: {mount}");
            }
        }
    }
}

#[test]
fn classes_name_this_driver_and_their_parameters_are_read() {
    let classes = manifests::read("classes.yaml").unwrap();
    for class in &classes {
        let expression = class["spec"]["selectors"][0]["cel"]["expression"].as_str().unwrap();
        assert!(expression.contains(&format!("device.driver == {DRIVER:?}")), "{expression}");
        for config in class["spec"]["config"].as_array().into_iter().flatten() {
            assert_eq!(config["opaque"]["driver"], DRIVER);
            Parameters::read(&config["opaque"]["parameters"]).unwrap();
        }
    }
    assert_eq!(classes[0]["spec"]["extendedResourceName"], RESOURCE);
}

#[test]
fn rights_are_the_least() {
    for (name, resources) in [
        (
            "rgpu-controller",
            &["resourceclaims", "resourceclaims/status", "resourceclaims/driver", "resourceslices"][..],
        ),
        ("rgpu-node", &["resourceclaims"][..]),
    ] {
        let role = manifests::role(name).unwrap();
        for rule in role["rules"].as_array().unwrap() {
            assert_eq!(rule["apiGroups"], serde_json::json!(["resource.k8s.io"]), "{name}: {rule}");
            for resource in rule["resources"].as_array().unwrap() {
                assert!(resources.contains(&resource.as_str().unwrap()), "{name}: {resource}");
            }
            assert!(!rule["verbs"].to_string().contains('*'), "{name}: {rule}");
        }
    }
}
