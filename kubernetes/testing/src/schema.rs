//! Kubernetes' published OpenAPI schemas, as the crate `k8s-openapi` carries them.

use std::collections::HashMap;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use jsonschema::Validator;
use k8s_openapi::api::{admissionregistration, apps, core, rbac, resource};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

/// The checks of a kind of object.
struct Checks {
    whole: Validator,
    part: Validator,
}

fn all() -> &'static HashMap<(&'static str, &'static str), Checks> {
    static ALL: OnceLock<HashMap<(&'static str, &'static str), Checks>> = OnceLock::new();
    ALL.get_or_init(|| {
        HashMap::from([
            (("resource.k8s.io/v1", "ResourceClaim"), checks::<resource::v1::ResourceClaim>()),
            (
                ("resource.k8s.io/v1", "ResourceClaimTemplate"),
                checks::<resource::v1::ResourceClaimTemplate>(),
            ),
            (("resource.k8s.io/v1", "ResourceSlice"), checks::<resource::v1::ResourceSlice>()),
            (("resource.k8s.io/v1", "DeviceClass"), checks::<resource::v1::DeviceClass>()),
            (("apps/v1", "Deployment"), checks::<apps::v1::Deployment>()),
            (("apps/v1", "DaemonSet"), checks::<apps::v1::DaemonSet>()),
            (("v1", "Namespace"), checks::<core::v1::Namespace>()),
            (("v1", "Pod"), checks::<core::v1::Pod>()),
            (("v1", "Secret"), checks::<core::v1::Secret>()),
            (("v1", "ConfigMap"), checks::<core::v1::ConfigMap>()),
            (("v1", "ServiceAccount"), checks::<core::v1::ServiceAccount>()),
            (("rbac.authorization.k8s.io/v1", "ClusterRole"), checks::<rbac::v1::ClusterRole>()),
            (
                ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
                checks::<rbac::v1::ClusterRoleBinding>(),
            ),
            (
                ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
                checks::<admissionregistration::v1::ValidatingAdmissionPolicy>(),
            ),
            (
                ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
                checks::<admissionregistration::v1::ValidatingAdmissionPolicyBinding>(),
            ),
        ])
    })
}

fn checks<T: JsonSchema>() -> Checks {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<T>().to_value();
    close(&mut schema);
    let whole = jsonschema::validator_for(&schema).expect("a published schema is one");
    open_requirements(&mut schema);
    let part = jsonschema::validator_for(&schema).expect("a published schema is one");
    Checks { whole, part }
}

/// Has every object with named properties refuse others.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("properties").is_some_and(Value::is_object)
                && !map.contains_key("additionalProperties")
            {
                map.insert("additionalProperties".into(), json!(false));
            }
            map.values_mut().for_each(close);
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}

/// Lets objects lack what they must have: patches are parts of objects.
fn open_requirements(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("required").is_some_and(Value::is_array) {
                map.remove("required");
            }
            map.values_mut().for_each(open_requirements);
        }
        Value::Array(list) => list.iter_mut().for_each(open_requirements),
        _ => {}
    }
}

/// Checks an object.
///
/// # Errors
/// What is wrong, and where; also a kind of object that is not among those that are checked.
pub fn check(object: &Value) -> Result<()> {
    run(object, |checks| &checks.whole)
}

/// Checks a part of an object, such as a patch that says which kind it is for.
///
/// # Errors
/// What is wrong, and where.
pub fn check_part(object: &Value) -> Result<()> {
    run(object, |checks| &checks.part)
}

fn run(object: &Value, which: impl Fn(&Checks) -> &Validator) -> Result<()> {
    let text =
        |name: &str| object[name].as_str().with_context(|| format!("the object has no {name}: {object}"));
    let (version, kind) = (text("apiVersion")?, text("kind")?);
    let checks =
        all().get(&(version, kind)).with_context(|| format!("nothing is known of {version} {kind}"))?;
    let errors: Vec<String> = which(checks)
        .iter_errors(object)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    if !errors.is_empty() {
        bail!("{kind} {}: {}", object["metadata"]["name"], errors.join("; "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_missing_and_wrong_fields_are_errors() {
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": "rgpu"}}]}}});
        check(&claim).unwrap();
        let with = |path: &str, value: Value| {
            let mut claim = claim.clone();
            *claim.pointer_mut(path).unwrap() = value;
            claim
        };
        assert!(check(&with("/spec/devices/requests/0/exactly", json!({"deviceClass": "rgpu"}))).is_err());
        assert!(check(&with("/spec/devices/requests", json!({}))).is_err());
        assert!(check(&with("/kind", json!("ResourceClaims"))).is_err());
        let missing = with("/spec/devices/requests/0", json!({"exactly": {"deviceClassName": "rgpu"}}));
        assert!(check(&missing).is_err() && check_part(&missing).is_ok());
    }
}
