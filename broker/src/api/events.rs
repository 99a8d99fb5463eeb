//! Events, as they happen.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Deserialize;

use super::Shared;
use super::auth::From;
use super::failure::Failure;
use super::input::Query;

/// How often something is sent where nothing happens.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

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
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Failure> {
    let events = shared.0.engine.events(&caller, since(query.since, &headers)?)?;
    let stream = stream::unfold((events, shared), |(mut events, shared)| async move {
        let event = tokio::select! {
            event = events.next() => event?,
            () = shared.stopping() => return None,
        };
        let data = match serde_json::to_string(&event) {
            Ok(data) => data,
            Err(e) => {
                tracing::error!("an event has no JSON form: {e}");
                return None;
            }
        };
        let event = sse::Event::default().id(event.number.to_string()).event(event.kind).data(data);
        Some((Ok(event), (events, shared)))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("")))
}
