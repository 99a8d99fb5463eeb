//! What lasts as long as a request does, to the end of its answer.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;

/// A body that holds something until it has been sent, or given up.
struct Lasting<T> {
    body: Body,
    _held: T,
}

impl<T: Unpin> hyper::body::Body for Lasting<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The answer, which drops `held` when it is over.
pub(super) fn until_sent<T: Send + Unpin + 'static>(answer: Response, held: T) -> Response {
    answer.map(|body| Body::new(Lasting { body, _held: held }))
}

/// How many requests each token has under way.
pub(super) struct UnderWay {
    most: usize,
    counts: Arc<Mutex<HashMap<String, usize>>>,
}

/// A request that is under way.
pub(super) struct OneOf {
    token: String,
    counts: Arc<Mutex<HashMap<String, usize>>>,
}

impl UnderWay {
    pub(super) fn new(most: usize) -> Self {
        Self { most, counts: Arc::default() }
    }

    /// Counts one more of a token, by its id, unless it has as many as may be.
    pub(super) fn begin(&self, token: &str) -> Result<OneOf, usize> {
        let mut counts = self.counts.lock();
        let count = counts.entry(token.to_owned()).or_default();
        if *count >= self.most {
            return Err(self.most);
        }
        *count += 1;
        Ok(OneOf { token: token.to_owned(), counts: self.counts.clone() })
    }
}

impl Drop for OneOf {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.token) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.token);
            }
        }
    }
}
