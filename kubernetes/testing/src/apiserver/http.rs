//! The requests.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures_util::stream;
use serde_json::{Value, json};

use super::objects::{Happened, Place, Refusal, merge, refuse};
use super::{Shared, lock};
use crate::{rules, schema};

const API: &str = "resource.k8s.io/v1";

pub(super) fn router(shared: Arc<Shared>) -> Router {
    let base = "/apis/resource.k8s.io/v1";
    Router::new()
        .route(&format!("{base}/{{resource}}"), any(collection))
        .route(&format!("{base}/resourceslices/{{name}}"), any(slice))
        .route(&format!("{base}/namespaces/{{namespace}}/resourceclaims"), any(claims))
        .route(&format!("{base}/namespaces/{{namespace}}/resourceclaims/{{name}}"), any(claim))
        .route(&format!("{base}/namespaces/{{namespace}}/resourceclaims/{{name}}/status"), any(status))
        .fallback(async || failed(&refuse(404, "NotFound", "this API server has no such path")))
        .with_state(shared)
}

type Parameters = Query<HashMap<String, String>>;
type Shares = State<Arc<Shared>>;

async fn collection(
    State(shared): Shares,
    Path(resource): Path<String>,
    query: Parameters,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let resource = match resource.as_str() {
        "resourceslices" => "resourceslices",
        "resourceclaims" => "resourceclaims",
        _ => return failed(&refuse(404, "NotFound", "no such resource")),
    };
    many(&shared, resource, None, &query, &method, &headers, &body).await
}

async fn claims(
    State(shared): Shares,
    Path(namespace): Path<String>,
    query: Parameters,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    many(&shared, "resourceclaims", Some(namespace), &query, &method, &headers, &body).await
}

async fn slice(
    State(shared): Shares,
    Path(name): Path<String>,
    query: Parameters,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let place = Place { resource: "resourceslices", namespace: None, name };
    one(&shared, &place, false, &query, &method, &headers, &body)
}

async fn claim(
    State(shared): Shares,
    Path((namespace, name)): Path<(String, String)>,
    query: Parameters,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let place = Place { resource: "resourceclaims", namespace: Some(namespace), name };
    one(&shared, &place, false, &query, &method, &headers, &body)
}

async fn status(
    State(shared): Shares,
    Path((namespace, name)): Path<(String, String)>,
    query: Parameters,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let place = Place { resource: "resourceclaims", namespace: Some(namespace), name };
    one(&shared, &place, true, &query, &method, &headers, &body)
}

/// Lists, watches and creates.
async fn many(
    shared: &Arc<Shared>,
    resource: &'static str,
    namespace: Option<String>,
    query: &HashMap<String, String>,
    method: &Method,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    let watching = query.get("watch").is_some_and(|value| value == "true" || value == "1");
    let verb = match (method, watching) {
        (&Method::GET, true) => "watch",
        (&Method::GET, false) => "list",
        (&Method::POST, _) => "create",
        _ => return failed(&refuse(405, "MethodNotAllowed", "not for a collection")),
    };
    if let Err(refusal) = allowed(shared, headers, verb, resource) {
        return failed(&refusal);
    }
    match verb {
        "list" => list(shared, resource, namespace.as_deref(), query),
        "watch" => watch(shared, resource, namespace, query),
        _ => answer(create(shared, resource, namespace, body)),
    }
}

fn list(
    shared: &Shared,
    resource: &str,
    namespace: Option<&str>,
    query: &HashMap<String, String>,
) -> Response {
    let objects = lock(&shared.objects);
    let mut items = objects.list(resource, namespace);
    match query.get("fieldSelector").map(|selector| selector.split_once('=')) {
        None => {}
        Some(Some(("spec.driver", driver))) if resource == "resourceslices" => {
            items.retain(|slice| slice["spec"]["driver"] == *driver);
        }
        Some(other) => return failed(&refuse(400, "BadRequest", format!("field selector {other:?}"))),
    }
    let kind = if resource == "resourceslices" { "ResourceSliceList" } else { "ResourceClaimList" };
    let metadata = json!({"resourceVersion": objects.version().to_string()});
    json_of(StatusCode::OK, &json!({"apiVersion": API, "kind": kind, "metadata": metadata, "items": items}))
}

fn watch(
    shared: &Arc<Shared>,
    resource: &'static str,
    namespace: Option<String>,
    query: &HashMap<String, String>,
) -> Response {
    let Some(from) = query.get("resourceVersion").and_then(|version| version.parse::<u64>().ok()) else {
        return failed(&refuse(400, "BadRequest", "this API server watches from a version only"));
    };
    if lock(&shared.objects).since(from).is_none() {
        return failed(&gone(from));
    }
    struct Watching {
        shared: Arc<Shared>,
        changed: tokio::sync::watch::Receiver<u64>,
        from: u64,
        over: bool,
    }
    let begin = Watching { shared: shared.clone(), changed: shared.changed.subscribe(), from, over: false };
    let wanted = move |event: &Happened| {
        event.place.resource == resource
            && namespace.as_ref().is_none_or(|name| event.place.namespace.as_ref() == Some(name))
    };
    let lines = stream::unfold(begin, move |mut watching| {
        let wanted = wanted.clone();
        async move {
            loop {
                if watching.over {
                    return None;
                }
                watching.changed.mark_unchanged();
                let (happened, now) = {
                    let objects = lock(&watching.shared.objects);
                    (objects.since(watching.from), objects.version())
                };
                let mut text = String::new();
                match happened {
                    None => {
                        let status = body_of(&gone(watching.from));
                        text += &format!("{}\n", json!({"type": "ERROR", "object": status}));
                        watching.over = true;
                    }
                    Some(events) => {
                        for event in events.iter().filter(|event| wanted(event)) {
                            text += &format!("{}\n", json!({"type": event.kind, "object": event.object}));
                        }
                        watching.from = now;
                    }
                }
                if !text.is_empty() {
                    return Some((Ok::<_, Infallible>(text), watching));
                }
                if watching.changed.changed().await.is_err() {
                    return None;
                }
            }
        }
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(lines)).into_response()
}

fn gone(version: u64) -> Refusal {
    refuse(410, "Expired", format!("too old resource version: {version}"))
}

fn create(
    shared: &Shared,
    resource: &'static str,
    namespace: Option<String>,
    body: &[u8],
) -> Result<(StatusCode, Value), Refusal> {
    let mut object = parse(body)?;
    if let Some(fields) = object.as_object_mut() {
        // A status is not for who creates an object.
        fields.remove("status");
    }
    good(shared, &object)?;
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(refuse(422, "Invalid", "metadata.name is missing"));
    }
    let place = Place { resource, namespace, name };
    contended(shared)?;
    shared.change(|objects| objects.create(&place, object)).map(|object| (StatusCode::CREATED, object))
}

/// Gets, replaces, patches and deletes one object, or its status.
fn one(
    shared: &Shared,
    place: &Place,
    status: bool,
    query: &HashMap<String, String>,
    method: &Method,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    let resource = if status { format!("{}/status", place.resource) } else { place.resource.to_owned() };
    let verb = match *method {
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return failed(&refuse(405, "MethodNotAllowed", "not for an object")),
    };
    let mut done = allowed(shared, headers, verb, &resource);
    if status && done.is_ok() && verb != "get" {
        // Kubernetes 1.36 asks for this beside the right to the status.
        done = allowed(shared, headers, &format!("arbitrary-node:{verb}"), "resourceclaims/driver");
    }
    if let Err(refusal) = done {
        return failed(&refusal);
    }
    let done = match verb {
        "get" => {
            let missing =
                || refuse(404, "NotFound", format!("{} {:?} not found", place.resource, place.name));
            lock(&shared.objects).get(place).cloned().ok_or_else(missing)
        }
        "delete" => contended(shared).and_then(|()| shared.change(|objects| objects.delete(place))),
        "update" => replace(shared, place, status, body),
        _ => patch(shared, place, status, query, headers, body),
    };
    answer(done.map(|object| (StatusCode::OK, object)))
}

fn replace(shared: &Shared, place: &Place, status: bool, body: &[u8]) -> Result<Value, Refusal> {
    let object = parse(body)?;
    good(shared, &object)?;
    contended(shared)?;
    shared.change(|objects| {
        let old = objects.current(place, &object["metadata"])?;
        let mut new = if status { old.clone() } else { object.clone() };
        new["status"] = if status { object["status"].clone() } else { old["status"].clone() };
        finish(shared, &old, new, |new| objects.put(place, new))
    })
}

fn patch(
    shared: &Shared,
    place: &Place,
    status: bool,
    query: &HashMap<String, String>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Value, Refusal> {
    let patch = parse(body)?;
    let kind =
        headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
    let mut described = patch.clone();
    match kind.as_str() {
        "application/apply-patch+yaml" if status => {}
        "application/merge-patch+json" => {
            // A merge patch need not say what it is for; a null takes something away.
            described["apiVersion"] = json!(API);
            described["kind"] =
                json!(if place.resource == "resourceslices" { "ResourceSlice" } else { "ResourceClaim" });
        }
        other => {
            return Err(complain(
                shared,
                refuse(415, "UnsupportedMediaType", format!("the patch {other:?}")),
            ));
        }
    }
    schema::check_part(&described).map_err(|e| complain(shared, refuse(422, "Invalid", e.to_string())))?;
    contended(shared)?;
    shared.change(|objects| {
        let old = objects.current(place, &patch["metadata"])?;
        let mut new = old.clone();
        if kind == "application/apply-patch+yaml" {
            let Some(manager) = query.get("fieldManager") else {
                return Err(complain(
                    shared,
                    refuse(422, "Invalid", "an apply patch names its field manager"),
                ));
            };
            new = objects.apply_devices(&old, manager, &patch);
        } else {
            let mut part = patch.clone();
            if let Some(fields) = part.as_object_mut() {
                fields.retain(|name, _| name == "metadata" || (name == "status") == status);
            }
            merge(&mut new, &part);
        }
        finish(shared, &old, new, |new| objects.put(place, new))
    })
}

/// Checks what comes of a change, and stores it.
fn finish(
    shared: &Shared,
    old: &Value,
    mut new: Value,
    put: impl FnOnce(Value) -> Value,
) -> Result<Value, Refusal> {
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "resourceVersion"] {
        new["metadata"][field] = old["metadata"][field].clone();
        if new["metadata"][field].is_null() {
            new["metadata"].as_object_mut().map(|fields| fields.remove(field));
        }
    }
    if new["status"].is_null() {
        new.as_object_mut().map(|fields| fields.remove("status"));
    }
    let finalizers =
        |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let before = finalizers(old);
    if !old["metadata"]["deletionTimestamp"].is_null()
        && finalizers(&new).iter().any(|one| !before.contains(one))
    {
        return Err(complain(
            shared,
            refuse(422, "Invalid", "no finalizers are added while an object is being deleted"),
        ));
    }
    for field in ["driver", "nodeName"] {
        if old["kind"] == "ResourceSlice" && old["spec"][field] != new["spec"][field] {
            return Err(complain(shared, refuse(422, "Invalid", format!("spec.{field} is immutable"))));
        }
    }
    if old["kind"] == "ResourceClaim" && old["spec"] != new["spec"] {
        return Err(complain(shared, refuse(422, "Invalid", "a claim's spec is immutable")));
    }
    good(shared, &new)?;
    Ok(put(new))
}

fn good(shared: &Shared, object: &Value) -> Result<(), Refusal> {
    let checked = schema::check(object).and_then(|()| match object["kind"].as_str() {
        Some("ResourceSlice") => rules::slice(object),
        _ => rules::claim(object),
    });
    checked.map_err(|e| complain(shared, refuse(422, "Invalid", e.to_string())))
}

fn complain(shared: &Shared, refusal: Refusal) -> Refusal {
    lock(&shared.complaints).push(refusal.message.clone());
    refusal
}

/// A conflict, where the test wants one.
fn contended(shared: &Shared) -> Result<(), Refusal> {
    let mut left = lock(&shared.conflicts);
    if *left == 0 {
        return Ok(());
    }
    *left -= 1;
    Err(refuse(
        409,
        "Conflict",
        "the object has been modified; please apply your changes to the latest version",
    ))
}

/// Whether the rules of whoever asks allow it. Without rules for the token, everything is allowed.
fn allowed(shared: &Shared, headers: &HeaderMap, verb: &str, resource: &str) -> Result<(), Refusal> {
    let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let token = token.strip_prefix("Bearer ").unwrap_or_default();
    lock(&shared.requests).push(format!("{verb} {resource}"));
    let rights = lock(&shared.rights);
    let Some(rules) = rights.get(token) else { return Ok(()) };
    let has = |rule: &Value, field: &str, wanted: &str| {
        rule[field].as_array().is_some_and(|list| list.iter().any(|one| one == wanted))
    };
    let fits = |rule: &Value| {
        let names = rule["resourceNames"].as_array();
        let named = names
            .is_none_or(|names| resource == "resourceclaims/driver" && names.contains(&json!("rgpu.dev")));
        has(rule, "apiGroups", "resource.k8s.io")
            && has(rule, "resources", resource)
            && has(rule, "verbs", verb)
            && named
    };
    if rules.iter().any(fits) {
        return Ok(());
    }
    drop(rights);
    Err(complain(shared, refuse(403, "Forbidden", format!("{token:?} may not {verb} {resource}"))))
}

fn parse(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body).map_err(|e| refuse(400, "BadRequest", format!("the body is no JSON: {e}")))
}

fn body_of(refusal: &Refusal) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {}, "code": refusal.code,
           "reason": refusal.reason, "message": refusal.message})
}

fn json_of(code: StatusCode, body: &Value) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn failed(refusal: &Refusal) -> Response {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_of(code, &body_of(refusal))
}

fn answer(done: Result<(StatusCode, Value), Refusal>) -> Response {
    match done {
        Ok((code, object)) => json_of(code, &object),
        Err(refusal) => failed(&refusal),
    }
}
