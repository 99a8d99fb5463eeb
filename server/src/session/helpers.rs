//! Threads for calls whose answers take time, so that other calls go on meanwhile: compiling, measuring.
//!
//! There are at most [`MOST_THREADS`], however many such calls a client sends; the others wait for their turn.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// So many at a time.
const MOST_THREADS: usize = 16;
/// So many calls can wait. A thread of the program waits for the answer of each, so a program has no more than threads.
const MOST_WAITING: usize = 16 << 10;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    threads: usize,
}

/// The threads of a session.
#[derive(Clone, Default)]
pub(super) struct Helpers(Arc<Mutex<State>>);

impl Helpers {
    /// Has this done by a thread, soon.
    ///
    /// # Errors
    /// There is no thread, or too much to do.
    pub(super) fn do_soon(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.waiting.len() >= MOST_WAITING {
            return Err(io::Error::other(format!("{MOST_WAITING} calls wait for their turn already")));
        }
        state.waiting.push_back(Box::new(job));
        if state.threads >= MOST_THREADS {
            return Ok(());
        }
        let own = self.clone();
        match std::thread::Builder::new().name("helper".into()).spawn(move || own.work()) {
            Ok(_) => state.threads += 1,
            // Others do it, if there are any.
            Err(_) if state.threads > 0 => {}
            Err(e) => {
                state.waiting.pop_back();
                return Err(e);
            }
        }
        Ok(())
    }

    fn work(&self) {
        loop {
            let mut state = self.0.lock();
            let Some(job) = state.waiting.pop_front() else {
                state.threads -= 1;
                return;
            };
            drop(state);
            job();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn many_calls_have_few_threads_and_all_are_done() {
        let helpers = Helpers::default();
        let (begin, begun) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(0)));
        let held = begin.lock();
        let (done, finished) = mpsc::channel();
        for i in 0..MOST_WAITING {
            let (begin, begun, done) = (begin.clone(), begun.clone(), done.clone());
            let job = move || {
                *begun.lock() += 1;
                drop(begin.lock());
                done.send(i).unwrap();
            };
            helpers.do_soon(job).unwrap();
        }
        // Whether or not some have been taken meanwhile, there is an end.
        let refused = (0..=MOST_THREADS).any(|_| helpers.do_soon(|| {}).is_err());
        assert!(refused && helpers.0.lock().threads <= MOST_THREADS && *begun.lock() <= MOST_THREADS);
        drop(held);
        let mut all: Vec<usize> = finished.iter().take(MOST_WAITING).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..MOST_WAITING));
    }
}
