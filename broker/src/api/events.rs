//! Events, as they happen.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Deserialize;

use super::Shared;
use super::auth::{Bearer, From};
use super::failure::Failure;
use super::input::Query;

/// How often something is sent where nothing happens.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How often it is looked whether the token still counts.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    since: Option<u64>,
}

/// Where to begin: as asked, or where a browser's connection broke off.
fn since(asked: Option<u64>, headers: &HeaderMap) -> Result<Option<u64>, Failure> {
    let Some(last) = headers.get("last-event-id") else { return Ok(asked) };
    // A connection that is taken up again repeats the query of its first try.
    let number = last.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| Failure::bad("the header Last-Event-ID is no event's number"))
}

pub(super) async fn events(
    State(shared): State<Shared>,
    From(caller): From,
    Extension(bearer): Extension<Bearer>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Failure> {
    let events = shared.0.engine.events(&caller, since(query.since, &headers)?)?;
    let stream = stream::unfold((events, shared, bearer), |(mut events, shared, bearer)| async move {
        // It ends with the token, also where nothing happens.
        let over = async {
            while bearer.counts(&shared.0.engine) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let event = tokio::select! {
            event = events.next() => event?,
            () = shared.stopping() => return None,
            () = over => return None,
        };
        if !bearer.counts(&shared.0.engine) {
            return None;
        }
        let data = match serde_json::to_string(&event) {
            Ok(data) => data,
            Err(e) => {
                tracing::error!("an event has no JSON form: {e}");
                return None;
            }
        };
        let event = sse::Event::default().id(event.number.to_string()).event(event.kind).data(data);
        Some((Ok(event), (events, shared, bearer)))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("")))
}
