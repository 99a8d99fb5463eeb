//! The pool, as ResourceSlices.

use std::time::Duration;

use k8s_openapi::api::resource::v1::{ResourceSlice, ResourceSliceSpec};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};

use crate::leases::Leases;
use crate::names::{DRIVER, POOL};
use crate::pool::Pool;

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

/// Whether two say the same. An API server writes quantities in a form of its own, such as `2Gi` for 2147483648.
fn is_same(published: &ResourceSliceSpec, wanted: &ResourceSliceSpec) -> bool {
    let plain = |spec: &ResourceSliceSpec| {
        let mut value = serde_json::to_value(spec).unwrap_or_default();
        normalize(&mut value);
        value
    };
    plain(published) == plain(wanted)
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
