//! The web page: static files inside the broker's binary, and the headers that bind browsers.
//!
//! The page speaks to the same REST API as everybody else, with a token that its user gives it; nothing is served here but the files,
//! so that no token is needed for them. What others may have chosen (names of programs, of devices) is only ever shown as text. Should
//! the page's code be wrong about that, the browser still executes nothing that does not come from here: [`POLICY`].

use axum::Router;
use axum::extract::Path;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use rgpu_control::api::{ErrorBody, ErrorCode, Problem};

/// Where the page is.
pub const PATH: &str = "/ui/";

/// What the page may load and do: scripts, styles and images from here, requests to here; no inline scripts or styles, no `eval`,
/// no assigning text as HTML (Trusted Types), no frames, no forms that are sent anywhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// A file of the page.
struct File {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! files {
    ($($name:literal: $kind:expr),* $(,)?) => {
        [$(File { name: $name, kind: $kind, text: include_str!($name) }),*]
    };
}

static FILES: [File; 13] = files! {
    "index.html": HTML,
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "app.js": SCRIPT,
    "api.js": SCRIPT,
    "dom.js": SCRIPT,
    "charts.js": SCRIPT,
    "overview.js": SCRIPT,
    "devices.js": SCRIPT,
    "leases.js": SCRIPT,
    "lease.js": SCRIPT,
    "queue.js": SCRIPT,
    "rounds.js": SCRIPT,
};

/// Serves the page.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let to_page = || async { Redirect::to(PATH) };
    Router::new()
        .route("/", get(to_page))
        .route("/ui", get(to_page))
        .route(PATH, get(|headers: HeaderMap| async move { serve("index.html", &headers) }))
        .route(
            "/ui/{file}",
            get(|Path(name): Path<String>, headers: HeaderMap| async move { serve(&name, &headers) }),
        )
}

fn serve(name: &str, headers: &HeaderMap) -> Response {
    let guards: [(HeaderName, &str); 6] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        // Another release has other files: the browser asks whether its own are still good.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    let Some(file) = FILES.iter().find(|file| file.name == name) else {
        let message = format!("the web page has no such file: it is at {PATH}");
        let error = Problem { code: ErrorCode::NotFound, message };
        // Text always has a JSON form.
        let text = serde_json::to_string(&ErrorBody { error }).unwrap_or_default();
        let kind = [(header::CONTENT_TYPE, "application/json")];
        return (StatusCode::NOT_FOUND, guards, kind, text).into_response();
    };
    let tag = format!("\"{}\"", &blake3::hash(file.text.as_bytes()).to_hex()[..16]);
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let about = [(header::CONTENT_TYPE, file.kind.to_owned()), (header::ETAG, tag)];
    match known {
        true => (StatusCode::NOT_MODIFIED, guards, about).into_response(),
        false => (guards, about, file.text).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/web");
        let found: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.ends_with(".rs"))
            .collect();
        let served: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(found, served);
    }

    #[test]
    fn the_page_needs_nothing_that_its_policy_forbids() {
        for file in &FILES {
            // Namespaces are names, not addresses.
            let text = file.text.replace("http://www.w3.org/2000/svg", "");
            for wrong in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "localStorage",
                "document.cookie",
                "http://",
                "https://",
                "style=\"",
                "<style",
                "onclick=",
                "@import",
            ] {
                assert!(!text.contains(wrong), "{} has {wrong}", file.name);
            }
            assert!(file.text.lines().count() <= 600, "{} is long", file.name);
        }
        let inline = FILES[0]
            .text
            .split("<script")
            .skip(1)
            .any(|rest| !rest.trim_start().starts_with("src=") && !rest.contains(" src="));
        assert!(!inline, "an inline script");
    }
}
