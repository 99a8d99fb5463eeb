//! Answers that are no success: always an `ErrorBody`.

use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use rgpu_control::api::{ErrorBody, ErrorCode, Problem};
use serde::Serialize;

/// The status that goes with a code.
pub(super) fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::BadRequest => StatusCode::BAD_REQUEST,
        ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        ErrorCode::Conflict => StatusCode::CONFLICT,
        ErrorCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::Impossible => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::Limit => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Why a request fails.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    problem: Problem,
}

impl Failure {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Problem { code, message: message.into() }.into()
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    /// The same with a status that says it more exactly.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self { status: status(problem.code), problem }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        if self.problem.code == ErrorCode::Internal {
            tracing::error!("a request failed: {}", self.problem.message);
        }
        let code = self.problem.code;
        let mut response = (self.status, Json(ErrorBody { error: self.problem })).into_response();
        let headers = response.headers_mut();
        if code == ErrorCode::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"rgpu\""));
        }
        if matches!(code, ErrorCode::Unavailable | ErrorCode::Limit) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// A body in JSON. What it says may be secret.
pub(super) struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => {
                let headers = [
                    (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
                    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
                ];
                (headers, bytes).into_response()
            }
            // Not with the API's types.
            Err(e) => {
                tracing::error!("an answer has no JSON form: {e}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

pub(super) async fn no_such_path(uri: Uri) -> Failure {
    let path: String = uri.path().chars().take(200).collect();
    Failure::new(ErrorCode::NotFound, format!("there is no {path:?} here; /openapi.json says what there is"))
}

pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Failure {
    let message = format!("{method} is not for {}; the header Allow says what is", uri.path());
    Failure::new(ErrorCode::MethodNotAllowed, message)
}
