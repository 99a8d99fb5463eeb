//! One application in the daemon's eyes: from its hello to the end of the process that serves it.

use super::admission::{Heard, Refusal};
use super::client::Client;
use super::door::Caller;
use super::{Daemon, printable};
use crate::desk::Desk;
use crate::lease::Admission;
use crate::orders::Orders;
use crate::partition::Arrangement;
use crate::peer::{self, Channel};
use crate::store::{Tenant, TenantImages};
use rgpu_protocol::hello::{FEATURE_OBSERVE, FEATURE_PEERS, Hello, HelloExtras, MINOR};
use rgpu_protocol::sys::peer_credentials;
use rgpu_protocol::transport::{Carrier, Rdma, Tcp};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::atomic::Ordering::SeqCst;

/// A session as the log names it.
struct Named<'a> {
    peer: &'a str,
    id: u64,
    program: String,
    pid: u32,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, id, program, .. } = self;
        write!(f, "{peer}: session {id:016x} of {program}")
    }
}

impl Daemon {
    /// Serves a client until its application has gone.
    pub(super) fn client(&self, caller: Caller) {
        let Caller { socket, peer, hearing } = caller;
        let peer = &*peer;
        let heard = self.hear(socket, peer);
        drop(hearing);
        let Some(heard) = heard else { return };
        match self.take_slot(&heard) {
            Ok((slot, arranged)) => {
                let lease = heard.lease.clone();
                self.attend(heard, slot, &arranged, peer);
                self.leave(slot, lease.as_ref());
            }
            Err(refusal) => refusal.tell(&heard.client, peer),
        }
    }

    /// A slot of the ledger, and the devices that the application gets.
    fn take_slot(&self, heard: &Heard<'_>) -> Result<(usize, Arrangement), Refusal> {
        if self.stopping.load(SeqCst) {
            return Err(Refusal::Stopping);
        }
        let terms = heard.lease.as_ref().map(|lease| &lease.terms[..]);
        let looks = heard.hello.features & FEATURE_OBSERVE != 0;
        let arranged = self.partitions.arrange(&self.device, terms, looks).map_err(Refusal::Devices)?;
        let sessions = self.children().len();
        let slot = if sessions < self.max_sessions { self.ledger.take_slot() } else { None };
        let slot = slot.ok_or(Refusal::Full(sessions))?;
        if let Some(lease) = &heard.lease
            && let Err(why) = self.leases.begin(lease, slot)
        {
            self.ledger.clear_slot(slot);
            return Err(Refusal::Lease(why));
        }
        Ok((slot, arranged))
    }

    /// Starts a process for the application, and waits for its end.
    fn attend(&self, heard: Heard<'_>, slot: usize, arranged: &Arrangement, peer: &str) {
        let Heard { client, hello, more, minor, lease } = heard;
        let lease = lease.as_ref();
        let (id, pid) = (hello.session, hello.pid);
        let named = Named { peer, id, program: printable(&hello.program), pid };
        let tenant = self.tenant(&client, &hello, lease, peer);
        let images = tenant.as_ref().and_then(|tenant| self.tenant_images(tenant));
        let (peers, channel) = self.meet_peers(&client, &hello, lease).unzip();
        let encrypted = client.is_encrypted();
        let variables = arranged.environment.iter().filter(|_| encrypted);
        let orders = Orders {
            device: arranged.device.clone(),
            ceiling: arranged.ceiling,
            slot: slot as u32,
            daemon: std::process::id(),
            limits: self.limits,
            // An RDMA device is a file, and belongs to the machine's network.
            walled: hello.features & Rdma::FEATURE == 0,
            peer: peer.to_owned(),
            // The application's process has no use for the credential.
            hello: Hello { credential: Vec::new(), ..hello },
            offer: more.offer,
            minor: minor.min(MINOR),
            seat: more.seat,
            check: more.check,
            desk: tenant.is_some(),
            extras: HelloExtras {
                keeps_images: images.is_some(),
                images: images.as_ref().map(TenantImages::beginnings).unwrap_or_default(),
            },
            environment: variables.map(|(name, value)| (name.into(), value.clone())).collect(),
            peers: peers.as_ref().map(|entry| entry.identity().clone()),
        };
        let started = match client {
            Client::Here(stream) => {
                let started = self.start(stream.transport().descriptor(), channel, &orders, arranged, lease);
                // Only the child's end of it stays, so that its death closes the connection.
                started.map_err(|e| (e, Some(Client::Here(stream))))
            }
            // What is left of the process that cannot be told goes with the client.
            Client::Elsewhere(entrant) => self.admit(entrant, channel, &orders, lease).map_err(|e| (e, None)),
        };
        let (mut child, socket) = match started {
            Ok(started) => started,
            Err((e, client)) => {
                tracing::error!("{peer}: no process could be started: {e}");
                if let Some(client) = client {
                    Refusal::NoProcess(e).tell(&client, peer);
                }
                return;
            }
        };
        drop(orders);
        log_beginning(&named, encrypted, lease, arranged);
        if let (Some(tenant), Some(socket)) = (tenant, socket) {
            Desk { images, member: self.shelf.member(tenant) }.serve(&socket);
        }
        self.wait_for_end(&child, lease);
        let status = child.wait();
        drop(peers);
        self.children().retain(|c| *c != child.id());
        self.log_end(&named, slot, status);
    }

    /// Waits until a process has ended, and leaves it to be waited for: until then its number is its own, and what it has used is
    /// known.
    fn wait_for_end(&self, child: &Child, lease: Option<&Admission>) {
        let (Some(applications), Some(lease)) = (&self.applications, lease) else { return };
        let process = WaitId::Pid(Pid::from_child(child));
        let mut waited = waitid(process.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        while waited.as_ref().is_err_and(|e| *e == rustix::io::Errno::INTR) {
            waited = waitid(process.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        }
        applications.ended(lease.lease, child.id());
    }

    fn log_end(&self, named: &Named<'_>, slot: usize, status: io::Result<ExitStatus>) {
        let died = match status {
            Ok(s) if s.success() => None,
            Ok(s) => Some(match s.signal() {
                Some(signal) => format!("its server process was killed by signal {signal}"),
                None => format!("its server process failed with status {}", s.code().unwrap_or(-1)),
            }),
            Err(e) => Some(format!("its server process is lost: {e}")),
        };
        let s = self.ledger.slot(slot);
        let reason = died.or_else(|| s.reason()).unwrap_or_else(|| "for a reason unknown".into());
        tracing::info!(
            launches = s.launches.load(SeqCst),
            bytes_in = s.bytes_in.load(SeqCst),
            bytes_out = s.bytes_out.load(SeqCst),
            peak_memory = s.peak_memory.load(SeqCst),
            "{named} ends: {}",
            printable(&reason)
        );
    }

    /// A session has ended.
    fn leave(&self, slot: usize, lease: Option<&Admission>) {
        match lease {
            None => self.ledger.clear_slot(slot),
            Some(lease) => self.leases.end(lease.lease, slot),
        }
    }

    /// A place among other servers, for an application that has several and whose data may travel between them in the clear.
    fn meet_peers(
        &self,
        client: &Client<'_>,
        hello: &Hello,
        lease: Option<&Admission>,
    ) -> Option<(peer::Registration, Channel)> {
        let wanted = hello.features & FEATURE_PEERS != 0 && self.transport.allows(Tcp::KIND);
        if !wanted || client.is_encrypted() || lease.is_some_and(Admission::is_encrypted) {
            return None;
        }
        let opened = self.peers.open(lease.map(|lease| lease.lease));
        opened.map_err(|e| tracing::warn!("no copies go straight to other servers: {e}")).ok()
    }

    /// Where a tenant's modules are kept, if they are.
    fn tenant_images(&self, tenant: &Tenant) -> Option<TenantImages> {
        let image_cache = self.image_cache.as_ref()?;
        image_cache.of_tenant(tenant).map_err(|e| tracing::warn!("modules are not kept: {e}")).ok()
    }

    /// Whose an application is, if that can be told.
    fn tenant(
        &self,
        client: &Client<'_>,
        hello: &Hello,
        lease: Option<&Admission>,
        peer: &str,
    ) -> Option<Tenant> {
        if let Some(lease) = lease {
            Some(Tenant::of_broker(&lease.tenant))
        } else if self.admits.token.is_some() {
            Some(Tenant::of_token(&hello.credential))
        } else if client.carrier() == Carrier::Local {
            let user = peer_credentials(&client.stream()?.transport().descriptor()).ok()?.user;
            Some(Tenant::of_user(user))
        } else {
            Tenant::of_loopback(self.address, peer.parse().ok()?)
        }
    }
}

fn log_beginning(named: &Named<'_>, encrypted: bool, lease: Option<&Admission>, arranged: &Arrangement) {
    let pid = named.pid;
    let encrypted = if encrypted { ", encrypted," } else { "" };
    match lease {
        None => tracing::info!("{named} (process {pid}){encrypted} begins"),
        Some(lease) => tracing::info!(
            lease = %lease.lease,
            tenant = printable(&lease.tenant),
            held_by = arranged.describe(),
            "{named} (process {pid}){encrypted} begins"
        ),
    }
}
