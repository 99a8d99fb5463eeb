//! A way between two processes that can be cut: what is sent then arrives later, or never, and nobody is told.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Result;

#[derive(Debug)]
struct State {
    target: SocketAddr,
    cut: AtomicBool,
    closing: AtomicBool,
}

/// A listening address that leads to another one.
#[derive(Debug)]
pub struct Way {
    address: SocketAddr,
    state: Arc<State>,
}

impl Way {
    /// Listens on a free port of the loopback interface, and leads to `target`.
    ///
    /// # Errors
    /// There is no port.
    pub fn to(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::new(State { target, cut: AtomicBool::new(false), closing: AtomicBool::new(false) });
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.closing.load(SeqCst) {
                    break;
                }
                let state = shared.clone();
                std::thread::spawn(move || state.join(client));
            }
        });
        Ok(Self { address, state })
    }

    /// Where to connect, for HTTP.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts it, or joins it again.
    pub fn cut(&self, cut: bool) {
        self.state.cut.store(cut, SeqCst);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.state.closing.store(true, SeqCst);
        self.state.cut.store(false, SeqCst);
        let _ = TcpStream::connect(self.address); // wakes the accepting thread
    }
}

impl State {
    fn wait_while_cut(&self) {
        while self.cut.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn join(self: Arc<Self>, client: TcpStream) {
        self.wait_while_cut();
        let Ok(server) = TcpStream::connect(self.target) else {
            let _ = client.shutdown(Shutdown::Both); // nobody is there
            return;
        };
        let (Ok(client2), Ok(server2)) = (client.try_clone(), server.try_clone()) else { return };
        let up = self.clone();
        std::thread::spawn(move || up.pump(client, server));
        self.pump(server2, client2);
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 16 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            self.wait_while_cut();
            if to.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both); // may have ended already
        let _ = to.shutdown(Shutdown::Both);
    }
}
