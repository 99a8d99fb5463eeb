//! Keeping the view up to date.

use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};
use rgpu_control::api::Event;
use rgpu_control::{Broker, ClientError};

use super::Snapshot;
use super::view::{EVENTS, View};
use crate::Failure;

/// Without events, the broker is asked so often.
const EVERY: Duration = Duration::from_secs(1);
/// However many events there are, not more often than this.
const SHORTEST: Duration = Duration::from_millis(150);
/// How long a key may wait to be heeded.
const KEYS: Duration = Duration::from_millis(50);

enum News {
    Seen(Box<Snapshot>),
    Happened(Box<Event>),
    Lost(ClientError),
}

/// Shows the cluster until somebody presses q.
pub(super) fn show(broker: &Broker, snapshot: Snapshot) -> Result<(), Failure> {
    let (tell, news) = mpsc::channel();
    let (poke, poked) = mpsc::channel();
    let start = |name: &str, body: Box<dyn FnOnce() + Send>| {
        let thread = std::thread::Builder::new().name(name.into()).spawn(body);
        thread.map(drop).map_err(|e| Failure::new(format!("No thread could be started: {e}")))
    };
    let (asker, told) = (broker.clone(), tell.clone());
    start("status", Box::new(move || watch(&asker, &told, &poked)))?;
    let asker = broker.clone();
    start("events", Box::new(move || follow(&asker, &tell, &poke)))?;

    let unusable =
        |e: std::io::Error| Failure::new(format!("The terminal cannot be used: {e}; --once prints text"));
    let mut terminal = ratatui::try_init().map_err(unusable)?;
    let mut view =
        View { broker: broker.url().to_owned(), snapshot, lost: None, events: Vec::new(), scroll: 0 };
    let shown = loop {
        if let Err(e) = terminal.draw(|frame| view.draw(frame)) {
            break Err(unusable(e));
        }
        match heed(&mut view) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => break Ok(()),
            Err(e) => break Err(unusable(e)),
        }
        while let Ok(news) = news.try_recv() {
            match news {
                News::Seen(snapshot) => {
                    view.snapshot = *snapshot;
                    view.lost = None;
                    view.scroll = view.scroll.min(view.longest());
                }
                News::Happened(event) => {
                    view.events.push(*event);
                    let more = view.events.len().saturating_sub(EVENTS);
                    view.events.drain(..more);
                }
                News::Lost(error) => view.lost = Some(error.to_string()),
            }
        }
    };
    ratatui::restore();
    shown
}

/// Waits a moment for a key, or another event of the terminal.
fn heed(view: &mut View) -> std::io::Result<ControlFlow<()>> {
    if !event::poll(KEYS)? {
        return Ok(ControlFlow::Continue(()));
    }
    let event::Event::Key(key) = event::read()? else { return Ok(ControlFlow::Continue(())) };
    if key.kind == KeyEventKind::Release {
        return Ok(ControlFlow::Continue(()));
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return Ok(ControlFlow::Break(())),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            return Ok(ControlFlow::Break(()));
        }
        KeyCode::Down | KeyCode::Char('j') => view.scroll = (view.scroll + 1).min(view.longest()),
        KeyCode::Up | KeyCode::Char('k') => view.scroll = view.scroll.saturating_sub(1),
        KeyCode::PageDown => view.scroll = (view.scroll + 10).min(view.longest()),
        KeyCode::PageUp => view.scroll = view.scroll.saturating_sub(10),
        KeyCode::Home => view.scroll = 0,
        KeyCode::End => view.scroll = view.longest(),
        _ => {}
    }
    Ok(ControlFlow::Continue(()))
}

/// Asks regularly, and when something has happened.
fn watch(broker: &Broker, tell: &Sender<News>, poked: &Receiver<()>) {
    loop {
        let asked = Instant::now();
        let news = match Snapshot::fetch(broker) {
            Ok(snapshot) => News::Seen(Box::new(snapshot)),
            Err(error) => News::Lost(error),
        };
        if tell.send(news).is_err() {
            return;
        }
        match poked.recv_timeout(EVERY) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => continue,
            // The other thread has ended: go on without it.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(EVERY),
        }
        std::thread::sleep(SHORTEST.saturating_sub(asked.elapsed()));
        while poked.try_recv().is_ok() {}
    }
}

/// Hears what happens.
fn follow(broker: &Broker, tell: &Sender<News>, poke: &Sender<()>) {
    let mut since = 0;
    loop {
        let result = broker.events(since, |event| {
            since = since.max(event.number);
            let gone = tell.send(News::Happened(Box::new(event))).is_err() || poke.send(()).is_err();
            if gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if result.is_ok() {
            return;
        }
        // That the broker is away, the other thread says.
        std::thread::sleep(EVERY);
    }
}
