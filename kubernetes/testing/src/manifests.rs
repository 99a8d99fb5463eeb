//! The manifests in `packaging/kubernetes`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

/// The folder of the manifests.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes")
}

/// The objects in one of them.
///
/// # Errors
/// The file cannot be read, or is no YAML.
pub fn read(name: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(folder().join(name)).with_context(|| name.to_owned())?;
    serde_saphyr::from_multiple(&text).map_err(|e| anyhow::anyhow!("{name}: {e}"))
}

/// The rights that `rbac.yaml` gives to a name.
///
/// # Errors
/// There is no such ClusterRole.
pub fn role(name: &str) -> Result<Value> {
    let objects = read("rbac.yaml")?;
    let found = objects.into_iter().find(|o| o["kind"] == "ClusterRole" && o["metadata"]["name"] == name);
    found.with_context(|| format!("rbac.yaml has no ClusterRole {name}"))
}
