//! What requests bring along: bodies, queries, names in paths.

use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use http_body_util::BodyExt;
use rgpu_control::LeaseId;
use rgpu_control::api::ErrorCode;
use serde::de::DeserializeOwned;

use super::failure::Failure;
use super::{BODY_TIME, MAX_BODY};

/// How much of a body that is too long is still taken from the connection, so that the client gets to read why.
const DRAINED: usize = 16 * MAX_BODY;

/// How long the rest of a refused request may take.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Takes the rest of a request that is refused from the connection, as far as it comes soon and is not too long.
pub(super) async fn drain(mut body: Body) {
    let rest = async {
        let mut length = 0;
        while length <= MAX_BODY
            && let Some(Ok(frame)) = body.frame().await
        {
            length += frame.data_ref().map_or(0, |data| data.len());
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIME, rest).await;
}

fn too_large() -> Failure {
    Failure::new(ErrorCode::TooLarge, format!("the body is longer than {MAX_BODY} bytes"))
}

async fn read(mut body: Body) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Failure::bad(format!("the body broke off: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length <= MAX_BODY {
            bytes.extend_from_slice(&data);
        } else if length > DRAINED {
            break;
        }
    }
    if length > MAX_BODY { Err(too_large()) } else { Ok(bytes) }
}

/// A body in JSON.
pub(super) struct Input<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Input<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or("?"));
        let essence = kind.unwrap_or("").split(';').next().unwrap_or("").trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            let found = kind
                .map_or("nothing".into(), |kind| format!("{:?}", kind.chars().take(100).collect::<String>()));
            let why = format!(
                "the body must be JSON, with `Content-Type: application/json`; that header says {found}"
            );
            return Err(Failure::bad(why).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let announced = request
            .headers()
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > DRAINED as u64) {
            return Err(too_large());
        }
        let body = tokio::time::timeout(BODY_TIME, read(request.into_body())).await.map_err(|_| {
            let why = format!("the body did not arrive within {} s", BODY_TIME.as_secs());
            Failure::bad(why).with_status(StatusCode::REQUEST_TIMEOUT)
        })??;
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|e| Failure::bad(format!("the body is not what is expected here: {e}")))
    }
}

/// The query's parameters.
pub(super) struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(value)| Self(value))
            .map_err(|e| Failure::bad(format!("the query is not what is expected here: {}", e.body_text())))
    }
}

async fn text<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<String, Failure> {
    match Path::<String>::from_request_parts(parts, state).await {
        Ok(Path(text)) => Ok(text),
        Err(PathRejection::FailedToDeserializePathParams(e)) => {
            Err(Failure::bad(format!("the path is not what is expected here: {}", e.body_text())))
        }
        Err(e) => Err(Failure::new(ErrorCode::Internal, e.body_text())),
    }
}

/// The name in the path.
pub(super) struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        text(parts, state).await.map(Self)
    }
}

/// The lease's id in the path.
pub(super) struct Id(pub LeaseId);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let text = text(parts, state).await?;
        let short: String = text.chars().take(100).collect();
        text.parse()
            .map(Self)
            .map_err(|_| Failure::bad(format!("{short:?} is no lease's id: 16 hexadecimal digits")))
    }
}
