//! What a container runtime makes of CDI devices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    cdi_version: String,
    kind: String,
    devices: Vec<Device>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Device {
    name: String,
    container_edits: Edits,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Edits {
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    mounts: Vec<Mount>,
}

/// A folder that a container gets.
#[derive(Debug, Clone, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    /// Where it is.
    pub host_path: PathBuf,
    /// Where the container sees it.
    pub container_path: PathBuf,
    /// How it is mounted.
    #[serde(default)]
    pub options: Vec<String>,
}

/// What a container gets.
#[derive(Debug, Clone, Default)]
pub struct Container {
    /// Its environment.
    pub environment: BTreeMap<String, String>,
    /// Folders.
    pub mounts: Vec<Mount>,
}

/// What a container gets that has these devices, as the descriptions in a folder say.
///
/// # Errors
/// A device that no description has, or two have; a description that a runtime would refuse.
pub fn inject(folder: &Path, devices: &[String]) -> Result<Container> {
    let mut specs = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "json") {
            let text = std::fs::read(&path)?;
            let spec: Spec = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
            ensure!(
                ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0"].contains(&spec.cdi_version.as_str()),
                "the version {}",
                spec.cdi_version
            );
            specs.push(spec);
        }
    }
    let mut container = Container::default();
    for name in devices {
        let (kind, device) =
            name.split_once('=').with_context(|| format!("{name} is no name of a CDI device"))?;
        let (vendor, class) =
            kind.split_once('/').with_context(|| format!("{name} has no vendor and class"))?;
        ensure!(!vendor.is_empty() && !class.is_empty() && !device.is_empty(), "{name}");
        let of_kind = || specs.iter().filter(|spec| spec.kind == kind);
        let found: Vec<(&Spec, &Device)> = of_kind()
            .flat_map(|spec| spec.devices.iter().map(move |device| (spec, device)))
            .filter(|(_, one)| one.name == device)
            .collect();
        ensure!(found.len() == 1, "{} descriptions have the device {name}", found.len());
        for edits in [&found[0].0.container_edits, &found[0].1.container_edits] {
            for variable in &edits.env {
                let (name, value) =
                    variable.split_once('=').with_context(|| format!("the variable {variable}"))?;
                container.environment.insert(name.to_owned(), value.to_owned());
            }
            for mount in &edits.mounts {
                ensure!(
                    mount.host_path.exists(),
                    "{} is to be mounted, and is not there",
                    mount.host_path.display()
                );
                ensure!(mount.container_path.is_absolute(), "{}", mount.container_path.display());
                if !container.mounts.contains(mount) {
                    container.mounts.push(mount.clone());
                }
            }
        }
    }
    Ok(container)
}
