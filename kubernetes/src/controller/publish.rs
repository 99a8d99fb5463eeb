//! The pool, as ResourceSlices.

use std::time::Duration;

use k8s_openapi::api::resource::v1::{ResourceSlice, ResourceSliceSpec};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};

use crate::leases::Leases;
use crate::names::{DRIVER, POOL};
use crate::pool::{DISTANCE, Pool};

/// Publishes what the broker lists, for ever. While the broker is away, what was published stays.
pub(super) async fn keep(client: Client, leases: Leases, every: Duration) {
    let api: Api<ResourceSlice> = Api::all(client);
    let mut said = String::new();
    loop {
        let done = match leases.pool().await {
            Ok(pool) => publish(&api, &pool).await.map_err(|e| format!("the API server: {e}")),
            Err(error) => Err(error.to_string()),
        };
        match done {
            Ok(Some(generation)) => tracing::info!("the pool is published, generation {generation}"),
            Ok(None) => {}
            Err(why) if why != said => {
                tracing::warn!("the pool is not compared: {why}; trying again");
                said = why;
            }
            Err(_) => {}
        }
        tokio::time::sleep(every).await;
    }
}

/// Writes what is different; `None` where nothing is.
async fn publish(api: &Api<ResourceSlice>, pool: &Pool) -> Result<Option<i64>, kube::Error> {
    let listed = api.list(&ListParams::default().fields(&format!("spec.driver={DRIVER}"))).await?.items;
    // An API server of a test, or an old one, may not know the field.
    let own: Vec<ResourceSlice> = listed
        .into_iter()
        .filter(|slice| slice.spec.driver == DRIVER && slice.spec.pool.name == POOL)
        .collect();
    let mut wanted = pool.slices();
    let generation = own.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or(0);
    wanted.iter_mut().for_each(|slice| slice.spec.pool.generation = generation);
    let published = |slice: &ResourceSlice| own.iter().find(|own| own.name_any() == slice.name_any());
    let same = |slice: &ResourceSlice| published(slice).is_some_and(|own| is_same(&own.spec, &slice.spec));
    if own.len() == wanted.len() && wanted.iter().all(same) {
        return Ok(None);
    }
    let generation = generation + 1;
    for slice in &mut wanted {
        slice.spec.pool.generation = generation;
        let name = slice.name_any();
        match published(slice) {
            Some(own) => {
                slice.metadata.resource_version = own.resource_version();
                api.replace(&name, &PostParams::default(), slice).await?;
            }
            None => {
                api.create(&PostParams::default(), slice).await?;
            }
        }
    }
    for slice in own.iter().filter(|own| !wanted.iter().any(|slice| slice.name_any() == own.name_any())) {
        match api.delete(&slice.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
    }
    Ok(Some(generation))
}

/// Whether two say the same. An API server writes quantities in a form of its own, such as `2Gi` for 2147483648; and a distance is measured
/// anew all the time, so that only what is much different counts.
fn is_same(published: &ResourceSliceSpec, wanted: &ResourceSliceSpec) -> bool {
    let mut published = published.clone();
    for device in published.devices.iter_mut().flatten() {
        let same = wanted.devices.iter().flatten().find(|other| other.name == device.name);
        let new = same.and_then(|other| other.attributes.as_ref()?.get(DISTANCE)?.int);
        let old =
            device.attributes.as_mut().and_then(|all| all.get_mut(DISTANCE)).and_then(|one| one.int.as_mut());
        if let (Some(old), Some(new)) = (old, new)
            && is_near(*old, new)
        {
            *old = new;
        }
    }
    let published = &published;
    let plain = |spec: &ResourceSliceSpec| {
        let mut value = serde_json::to_value(spec).unwrap_or_default();
        normalize(&mut value);
        value
    };
    plain(published) == plain(wanted)
}

/// Whether two times in microseconds differ by less than half a millisecond, or by less than a factor of two.
fn is_near(one: i64, other: i64) -> bool {
    let (less, more) = (one.min(other), one.max(other));
    more - less < 500 || more < less.saturating_mul(2)
}

fn normalize(value: &mut serde_json::Value) {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    match value {
        serde_json::Value::Object(map) => {
            for (name, value) in map {
                let quantity = value.as_str().map(|text| Quantity(text.into()));
                match quantity.as_ref().and_then(crate::quantity::milli) {
                    Some(milli) if ["value", "default", "min", "max", "step"].contains(&name.as_str()) => {
                        *value = milli.to_string().into();
                    }
                    _ => normalize(value),
                }
            }
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(|item| match item.as_str() {
            Some(text) => {
                if let Some(milli) = crate::quantity::milli(&Quantity(text.into())) {
                    *item = milli.to_string().into();
                }
            }
            None => normalize(item),
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
    use std::collections::BTreeMap;

    fn spec(distance_us: i64, model: &str) -> ResourceSliceSpec {
        let text = DeviceAttribute { string: Some(model.into()), ..DeviceAttribute::default() };
        let distance = DeviceAttribute { int: Some(distance_us), ..DeviceAttribute::default() };
        let attributes = BTreeMap::from([("model".into(), text), (DISTANCE.into(), distance)]);
        let device = Device { name: "d".into(), attributes: Some(attributes), ..Device::default() };
        ResourceSliceSpec { devices: Some(vec![device]), ..ResourceSliceSpec::default() }
    }

    #[test]
    fn a_distance_is_written_again_where_it_is_much_different() {
        for (old, new, same) in
            [(40, 40, true), (40, 400, true), (40, 4000, false), (4000, 7000, true), (9000, 4000, false)]
        {
            assert_eq!(is_same(&spec(old, "m"), &spec(new, "m")), same, "{old} and {new}");
        }
        assert!(!is_same(&spec(40, "m"), &spec(40, "n")));
    }
}
