//! Being told to end.

use tokio::signal::unix::{SignalKind, signal as listen};

/// Waits for SIGTERM or SIGINT.
///
/// # Errors
/// Signals cannot be listened for.
pub async fn signal() -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
