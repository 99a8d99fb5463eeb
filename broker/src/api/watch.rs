//! What happens around every request: it is counted and logged, and a bug in a handler is an answer, not a dead connection.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use rgpu_control::api::ErrorCode;

use super::Shared;
use super::failure::Failure;

pub(super) async fn watch(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    // The query may not be for logs, and the path may be anything.
    let shown: String = request.uri().path().chars().take(200).collect();
    let response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("");
            tracing::error!("a bug: {method} {shown:?} panicked: {text}");
            shared.0.metrics.panicked();
            let message = "the broker met a bug while answering; its log has more";
            Failure::new(ErrorCode::Internal, message).into_response()
        }
    };
    let (status, time) = (response.status().as_u16(), started.elapsed());
    shared.0.metrics.answered(path.as_ref().map(MatchedPath::as_str), method.as_str(), status, time);
    tracing::debug!(%method, path = ?shown, status, us = time.as_micros() as u64, "answered");
    response
}
