//! Rules that an API server has beside the schemas: those of the published documentation of `resource.k8s.io/v1` that this driver could
//! break.

use anyhow::{Result, ensure};
use serde_json::Value;

/// Checks a ResourceSlice.
///
/// # Errors
/// The rule that is broken.
pub fn slice(object: &Value) -> Result<()> {
    let spec = &object["spec"];
    let places = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
    ensure!(places.iter().filter(|place| !spec[**place].is_null()).count() == 1, "exactly one of {places:?}");
    let (devices, counters) = (spec["devices"].as_array(), spec["sharedCounters"].as_array());
    ensure!(devices.is_none() || counters.is_none(), "only one of devices and sharedCounters");
    ensure!(spec["pool"]["resourceSliceCount"].as_i64().is_some_and(|n| n > 0), "a pool has slices");
    ensure!(spec["pool"]["generation"].as_i64().is_some_and(|n| n >= 0), "a pool has a generation");
    ensure!(counters.is_none_or(|list| list.len() <= 8), "8 counter sets at most");
    let list = devices.map_or(&[][..], Vec::as_slice);
    let special = |device: &Value| !device["consumesCounters"].is_null() || !device["taints"].is_null();
    let most = if list.iter().any(special) { 64 } else { 128 };
    ensure!(list.len() <= most, "{} devices: {most} at most", list.len());
    list.iter().try_for_each(device)?;
    let mut names: Vec<&str> = list.iter().filter_map(|device| device["name"].as_str()).collect();
    names.sort_unstable();
    ensure!(names.windows(2).all(|two| two[0] != two[1]), "two devices have one name");
    for name in counters.into_iter().flatten().filter_map(|set| set["name"].as_str()) {
        label(name)?;
    }
    Ok(())
}

fn device(device: &Value) -> Result<()> {
    label(device["name"].as_str().unwrap_or_default())?;
    let shared = device["allowMultipleAllocations"] == true;
    let size = |field: &str| device[field].as_object().map_or(0, serde_json::Map::len);
    ensure!(size("attributes") + size("capacity") <= 32, "32 attributes and capacities at most");
    for list in ["bindingConditions", "bindingFailureConditions"] {
        ensure!(device[list].as_array().is_none_or(|list| list.len() <= 4), "4 {list} at most");
    }
    for (name, attribute) in device["attributes"].as_object().into_iter().flatten() {
        identifier(name)?;
        let said =
            ["bool", "int", "string", "version"].iter().filter(|kind| !attribute[**kind].is_null()).count();
        ensure!(said == 1, "the attribute {name} has {said} values");
        ensure!(
            attribute["string"].as_str().is_none_or(|text| text.len() <= 64),
            "{name} is longer than 64 bytes"
        );
    }
    for (name, capacity) in device["capacity"].as_object().into_iter().flatten() {
        identifier(name)?;
        let policy = &capacity["requestPolicy"];
        ensure!(
            policy.is_null() || shared,
            "{name}: a request policy is for devices of multiple allocations"
        );
        if policy.is_null() {
            continue;
        }
        let (range, values) = (&policy["validRange"], &policy["validValues"]);
        ensure!(range.is_null() || values.is_null(), "{name}: a range or values");
        let value = quantity(&capacity["value"])?;
        let default = quantity(&policy["default"])?;
        if !range.is_null() {
            let (min, step) = (quantity(&range["min"])?, quantity(&range["step"])?);
            let max = quantity(&range["max"])?;
            ensure!(
                min <= default && default <= max && max <= value,
                "{name}: {min} ≤ {default} ≤ {max} ≤ {value}"
            );
            ensure!(
                max % step == 0.0 && default % step == 0.0 && min + step <= value,
                "{name}: not in steps of {step}"
            );
        }
        if let Some(values) = values.as_array() {
            let values = values.iter().map(quantity).collect::<Result<Vec<_>>>()?;
            ensure!(
                values.is_sorted() && values.len() <= 10 && values.contains(&default),
                "{name}: {values:?}"
            );
        }
    }
    Ok(())
}

/// A quantity in thousandths.
fn quantity(value: &Value) -> Result<f64> {
    let text = value.as_str().unwrap_or_default();
    let (number, factor) = match text.strip_suffix('m') {
        Some(number) => (number, 1.0),
        None => (text, 1000.0),
    };
    let number: f64 = number.parse().map_err(|_| anyhow::anyhow!("{value} is no plain quantity"))?;
    Ok(number * factor)
}

fn label(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = (1..=63).contains(&name.len())
        && name.chars().all(fits)
        && !name.starts_with('-')
        && !name.ends_with('-');
    ensure!(good, "{name:?} is no DNS label");
    Ok(())
}

fn identifier(name: &str) -> Result<()> {
    let good = (1..=32).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    ensure!(good, "{name:?} is no C identifier of at most 32 characters");
    Ok(())
}

/// Checks what a ResourceClaim's status says of devices.
///
/// # Errors
/// The rule that is broken.
pub fn claim(object: &Value) -> Result<()> {
    let results = object["status"]["allocation"]["devices"]["results"].as_array();
    for device in object["status"]["devices"].as_array().into_iter().flatten() {
        let same = |result: &Value| {
            ["driver", "pool", "device", "shareID"].iter().all(|field| result[*field] == device[*field])
        };
        ensure!(
            results.is_some_and(|list| list.iter().any(same)),
            "status.devices names a device that is not allocated: {device}"
        );
        let conditions = device["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        ensure!(conditions.len() <= 8, "8 conditions at most");
        for condition in conditions {
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            ensure!(["True", "False", "Unknown"].contains(&text("status")), "the status {condition}");
            let word = text("reason");
            let good = !word.is_empty()
                && word.len() <= 1024
                && word.chars().all(|c| c.is_ascii_alphanumeric() || "_,:".contains(c));
            ensure!(good, "the reason {word:?} is no word");
            ensure!(text("message").len() <= 32768, "the message is too long");
        }
        ensure!(device["data"].to_string().len() <= 10 << 10, "the data are too long");
    }
    Ok(())
}
