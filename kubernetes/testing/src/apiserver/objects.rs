//! The objects, their versions, and what happened to them.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) resource: &'static str,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

/// Why a request is refused.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

pub(super) fn refuse(code: u16, reason: &'static str, message: impl Into<String>) -> Refusal {
    Refusal { code, reason, message: message.into() }
}

/// Something that happened.
#[derive(Debug, Clone)]
pub(super) struct Happened {
    pub(super) version: u64,
    pub(super) kind: &'static str,
    pub(super) place: Place,
    pub(super) object: Value,
}

#[derive(Default)]
pub(super) struct Objects {
    all: BTreeMap<Place, Value>,
    events: Vec<Happened>,
    version: u64,
    /// Versions before this one are forgotten.
    oldest: u64,
    made: u64,
    /// Which entries of a claim's `status.devices` a field manager has applied.
    applied: HashMap<(String, String), Vec<String>>,
}

impl Objects {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn get(&self, place: &Place) -> Option<&Value> {
        self.all.get(place)
    }

    pub(super) fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        let wanted = |place: &&Place| {
            place.resource == resource
                && namespace.is_none_or(|name| place.namespace.as_deref() == Some(name))
        };
        self.all.iter().filter(|(place, _)| wanted(place)).map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn compact(&mut self) {
        self.version += 1;
        self.oldest = self.version;
        self.events.clear();
    }

    /// What has happened since a version; `None` where that is forgotten.
    pub(super) fn since(&self, version: u64) -> Option<Vec<Happened>> {
        (version >= self.oldest)
            .then(|| self.events.iter().filter(|event| event.version > version).cloned().collect())
    }

    fn happened(&mut self, kind: &'static str, place: &Place, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.events.push(Happened {
            version: self.version,
            kind,
            place: place.clone(),
            object: object.clone(),
        });
        object
    }

    pub(super) fn create(&mut self, place: &Place, mut object: Value) -> Result<Value, Refusal> {
        if self.all.contains_key(place) {
            return Err(refuse(409, "AlreadyExists", format!("{} exists already", place.name)));
        }
        self.made += 1;
        object["metadata"]["uid"] = json!(format!("{:08x}-1111-4222-8333-444444444444", self.made));
        object["metadata"]["creationTimestamp"] = json!("2026-11-23T08:00:00Z");
        let object = self.happened("ADDED", place, object);
        self.all.insert(place.clone(), object.clone());
        Ok(object)
    }

    /// Puts an object in the place of what is there; one that is being deleted and has no finalizer any more goes.
    pub(super) fn put(&mut self, place: &Place, object: Value) -> Value {
        let going = !object["metadata"]["deletionTimestamp"].is_null();
        let held = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        if going && !held {
            self.all.remove(place);
            return self.happened("DELETED", place, object);
        }
        if self.all.get(place) == Some(&object) {
            return object; // nothing has changed
        }
        let object = self.happened("MODIFIED", place, object);
        self.all.insert(place.clone(), object.clone());
        object
    }

    pub(super) fn delete(&mut self, place: &Place) -> Result<Value, Refusal> {
        let missing = || refuse(404, "NotFound", format!("{} {:?} not found", place.resource, place.name));
        let mut object = self.all.get(place).cloned().ok_or_else(missing)?;
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = json!("2026-11-23T08:01:00Z");
        }
        Ok(self.put(place, object))
    }

    /// The object to change, where what is said of its version and UID still holds.
    pub(super) fn current(&self, place: &Place, metadata: &Value) -> Result<Value, Refusal> {
        let missing = || refuse(404, "NotFound", format!("{} {:?} not found", place.resource, place.name));
        let old = self.all.get(place).cloned().ok_or_else(missing)?;
        for field in ["resourceVersion", "uid"] {
            let said = &metadata[field];
            if !said.is_null() && *said != old["metadata"][field] {
                let text = format!(
                    "the object has been modified: {field} is {}, not {said}",
                    old["metadata"][field]
                );
                return Err(refuse(409, "Conflict", text));
            }
        }
        Ok(old)
    }

    /// Server-side apply of `status.devices`, a list with the keys driver, pool, device and share: entries that the manager has applied
    /// earlier and not now go, those of others stay.
    pub(super) fn apply_devices(&mut self, old: &Value, manager: &str, patch: &Value) -> Value {
        let mut new = old.clone();
        let uid = old["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let key = |entry: &Value| {
            ["driver", "pool", "device", "shareID"].map(|field| entry[field].to_string()).join(" ")
        };
        let mut list: Vec<Value> = old["status"]["devices"].as_array().cloned().unwrap_or_default();
        let mine = patch["status"]["devices"].as_array().cloned().unwrap_or_default();
        let keys: Vec<String> = mine.iter().map(key).collect();
        let earlier = self.applied.insert((uid, manager.to_owned()), keys.clone()).unwrap_or_default();
        list.retain(|entry| !keys.contains(&key(entry)) && !earlier.contains(&key(entry)));
        list.extend(mine);
        if !new["status"].is_object() {
            new["status"] = json!({});
        }
        new["status"]["devices"] = json!(list);
        new
    }
}

/// Applies a JSON merge patch.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            map.remove(name);
        } else {
            merge(map.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
