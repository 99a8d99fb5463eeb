//! What the service thread does: it sends a buffer that lingers, and reads when nobody else does but must.

use super::Link;
use crate::remote::service::{Found, LINGER, Pace};
use rgpu_protocol::transport::Ready;
use std::os::fd::AsRawFd;
use std::sync::Weak;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

impl Link {
    /// Has the service thread look at the buffer soon. False where there can be no such thread.
    pub(in crate::remote) fn arm_service(&self) -> bool {
        self.service.arm(|| self.service_body())
    }

    /// Starts the service thread, if it has not been started. False where that is impossible.
    pub(in crate::remote) fn start_service(&self) -> bool {
        self.service.start(|| self.service_body())
    }

    fn service_body(&self) -> impl FnOnce() + Send + 'static {
        let link = self.me.clone();
        move || run(&link)
    }
}

fn run(link: &Weak<Link>) {
    let mut pace = Pace::new();
    let mut next_look = Instant::now() + LINGER;
    // The session may be dropped only while the thread is not looking, or not at all: whoever drops it
    // has ended it, which wakes this thread.
    let Some(link) = link.upgrade() else { return };
    loop {
        let service = &link.service;
        let awake = service.awake.load(SeqCst);
        let reading = link.needs_attention() && !link.has_leader();
        let want = if reading { Ready::READ } else { Ready::default() };
        let time = awake.then(|| next_look.saturating_duration_since(Instant::now()));
        let ready = match link.transport.wait(want, Some(service.event.as_raw_fd()), time) {
            Ok(ready) => ready,
            Err(e) => {
                link.fail(&format!(
                    "waiting failed: {e} (did the program close descriptors it does not own?)"
                ));
                return;
            }
        };
        if link.is_over() {
            return;
        }
        if ready.wake {
            service.drain();
            if !awake {
                // After a pause the first call goes at once; what comes while it is being sent goes together.
                if let Some(mut out) = link.out.try_lock()
                    && !out.buffer.is_empty()
                {
                    pace.sent(out.batch);
                    let _ = link.write(&mut out, &mut []);
                }
                next_look = Instant::now() + pace.interval();
            }
        }
        // The last leader may have left frames behind that it had received already.
        if reading && (ready.read || ready.wake) && link.try_lead() {
            while link.needs_attention() && !link.has_followers() && !link.is_over() && link.has_bytes() {
                link.read_one();
            }
            link.hand_over();
        }
        if !awake || Instant::now() < next_look {
            continue;
        }
        if let Some(mut out) = link.out.try_lock() {
            match pace.look(out.batch, !out.buffer.is_empty()) {
                Found::Lingering => drop(link.write(&mut out, &mut [])),
                // Under the lock: whoever fills the buffer next wakes this thread again.
                Found::Idle => service.awake.store(false, SeqCst),
                Found::Nothing => {}
            }
        }
        next_look = Instant::now() + pace.interval();
        link.send_urgent();
    }
}
