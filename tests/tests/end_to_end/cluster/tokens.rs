//! Who gets in: forged, expired, early, stolen, replayed and misdirected tokens; tickets that others can read; tenants who
//! look at each other.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rgpu_control::api::{ErrorCode, Lease, LeaseRequest};
use rgpu_control::ticket::Ticket;
use rgpu_control::token::{Claims, LeaseClaims, PrivateKey, Role, RoleClaims};
use rgpu_control::{ClientError, LEASE_VARIABLE, LeaseId, unix_time};
use rgpu_test_runner::Test;
use rgpu_tests::cluster::{Cluster, Setup};
use rgpu_tests::process::{self, Finished};
use rgpu_tests::product::clean;
use rgpu_tests::proxy::Proxy;

use super::{SOON, on_loopback};
use crate::context::{plain, product};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::servers_refuse_tokens_that_are_not_good", refused),
        Test::new("cluster::a_session_that_is_replayed_is_refused", replayed),
        Test::new("cluster::tickets_that_others_can_read_are_refused", exposed),
        Test::new("cluster::servers_of_a_broker_want_a_lease", without),
        Test::new("cluster::an_ended_leases_token_is_refused", ended),
        Test::new("cluster::tenants_do_not_see_each_other", tenants),
        Test::new("cluster::roles_are_kept_apart", roles),
    ]
}

/// A lease that was asked for without `rgpu run`, and what its holder has.
struct Held {
    lease: Lease,
    ticket: Ticket,
}

fn request(key: &PrivateKey) -> LeaseRequest {
    LeaseRequest {
        name: "by-hand".into(),
        gpus: 1,
        memory: 256 << 20,
        share_milli: 250,
        models: vec![],
        machine: "a-client".into(),
        node: None,
        holder: key.public().to_text(),
        transport: "tcp".into(),
        profile: None,
        program: None,
        input: None,
        scale: None,
        goal_s: None,
        importance: None,
        traffic_mbps: None,
        wait_s: 60,
        now_or_never: false,
        encrypt: false,
        harvest: false,
    }
}

fn held(cluster: &Cluster, tenant: &str) -> Result<Held> {
    let key = PrivateKey::generate();
    let request = request(&key);
    let lease = cluster.tenant(tenant, |broker| broker.request_lease(&request))?;
    let token = lease.token.clone().with_context(|| format!("no token: {lease:?}"))?;
    let ticket = Ticket {
        lease: lease.id,
        token,
        key: key.to_text(),
        transport: "tcp".into(),
        servers: lease.servers.clone(),
        ca: None,
    };
    Ok(Held { lease, ticket })
}

fn write(cluster: &Cluster, ticket: &Ticket) -> Result<PathBuf> {
    let path = cluster.directory().join(format!("{}.ticket", LeaseId::random()));
    ticket.write(&path)?;
    Ok(path)
}

/// vector_add with a ticket, as `rgpu run` starts programs.
fn with_file(path: &std::path::Path) -> Result<Finished> {
    let mut command = clean(&plain("vector_add")?);
    process::run(command.env("LD_PRELOAD", product()?.shim()).env(LEASE_VARIABLE, path))
}

fn with(cluster: &Cluster, ticket: &Ticket) -> Result<Finished> {
    with_file(&write(cluster, ticket)?)
}

/// The program fails, and somebody tells why.
fn is_refused(what: &str, finished: Finished, why: &str) -> Result<()> {
    let finished = finished.expect_code(1).with_context(|| format!("{what} was not refused"))?;
    ensure!(finished.stderr.contains(why), "{what}: nothing says `{why}`\n{}", finished.output());
    Ok(())
}

fn claims(cluster: &Cluster, held: &Held) -> Result<LeaseClaims> {
    Ok(cluster.key().public().verify_lease(&held.ticket.token, unix_time())?)
}

fn refused() -> Result<()> {
    let mut cluster = on_loopback(&Setup::servers(2))?;
    let held = held(&cluster, "ann")?;
    with(&cluster, &held.ticket)?.success().context("the good token")?;
    let good = claims(&cluster, &held)?;
    let signed = |claims: &LeaseClaims, by: &PrivateKey| Ticket {
        token: by.sign(&Claims::Lease(claims.clone())),
        ..held.ticket.clone()
    };
    let key = cluster.key().clone();
    let now = unix_time();

    is_refused("a forged token", with(&cluster, &signed(&good, &PrivateKey::generate()))?, "forged")?;
    let expired = LeaseClaims { not_before: now - 900, expires: now - 300, ..good.clone() };
    is_refused("an expired token", with(&cluster, &signed(&expired, &key))?, "expired")?;
    let early = LeaseClaims { not_before: now + 300, expires: now + 900, ..good.clone() };
    is_refused("a token from a clock that is ahead", with(&cluster, &signed(&early, &key))?, "clocks")?;

    // A clock that is wrong by less than what is allowed for does no harm.
    let skewed = LeaseClaims { not_before: now + 20, expires: now + 900, ..good.clone() };
    with(&cluster, &signed(&skewed, &key))?.success().context("a clock that is 20 s ahead")?;

    // Somebody else who has seen the token, but not the key that belongs to it.
    let stolen = Ticket { key: PrivateKey::generate().to_text(), ..held.ticket.clone() };
    is_refused("a stolen token", with(&cluster, &stolen)?, "proof")?;

    // The token of one server's devices at another server.
    let own = held.ticket.servers[0].node.clone();
    let other = cluster.nodes.iter().position(|n| n.name != own).context("no other node")?;
    let name = cluster.nodes[other].name.clone();
    let address = cluster.nodes[other].service()?.address().to_owned();
    let mut elsewhere = held.ticket.clone();
    elsewhere.servers[0].address = address;
    is_refused("a proof for another server", with(&cluster, &elsewhere)?, "proof")?;
    elsewhere.servers[0].node = name;
    is_refused(
        "a lease of another server's devices",
        with(&cluster, &elsewhere)?,
        "no device of this server",
    )?;

    // A role token is no lease, and half a token is none.
    let role = Ticket { token: cluster.token(Role::Admin, "root"), ..held.ticket.clone() };
    is_refused("an administrator's token", with(&cluster, &role)?, "administrator")?;
    let half = held.ticket.token[..held.ticket.token.len() / 2].to_owned();
    is_refused("half a token", with(&cluster, &Ticket { token: half, ..held.ticket.clone() })?, "token")?;

    with(&cluster, &held.ticket)?.success().context("the good token, after all that")?;
    let id = held.lease.id;
    cluster.tenant("ann", move |broker| broker.release(id))?;
    cluster.wait_idle(SOON)
}

fn replayed() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let held = held(&cluster, "ann")?;
    let server = held.ticket.servers[0].address.parse()?;
    let proxy = Proxy::start(server)?;
    let mut through = held.ticket.clone();
    through.servers[0].address = proxy.address().to_string();
    with(&cluster, &through)?.success()?;
    let recorded = proxy.recorded();
    ensure!(recorded.len() > 100, "only {} bytes passed", recorded.len());
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(SOON))?;
    let _ = stream.write_all(&recorded); // it may be cut off in the middle
    let mut answer = vec![];
    let _ = stream.read_to_end(&mut answer); // what came before the end counts
    let text = String::from_utf8_lossy(&answer);
    ensure!(text.contains("replayed"), "the recorded session was answered with {text:?}");
    Ok(())
}

fn exposed() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let held = held(&cluster, "ann")?;
    let path = write(&cluster, &held.ticket)?;
    with_file(&path)?.success()?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;
    is_refused("a ticket that others can read", with_file(&path)?, "readable by others")?;
    is_refused("a ticket that isn't there", with_file(&cluster.directory().join("none"))?, "none")?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    std::fs::write(&path, b"{\"lease\":")?;
    is_refused("a damaged ticket", with_file(&path)?, "lease")
}

fn without() -> Result<()> {
    let mut cluster = on_loopback(&Setup::servers(1))?;
    let address = cluster.nodes[0].service()?.address().parse()?;
    let finished = process::run(product()?.run(address).arg("--").arg(plain("vector_add")?))?;
    is_refused("a program without a lease", finished, "lease")
}

fn ended() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let held = held(&cluster, "ann")?;
    with(&cluster, &held.ticket)?.success()?;
    let id = held.lease.id;
    cluster.tenant("ann", move |broker| broker.release(id))?;
    cluster.wait_idle(SOON)?;
    // It hasn't expired, but what it gave may be somebody else's.
    is_refused("an ended lease's token", with(&cluster, &held.ticket)?, "ended")?;
    // Giving it back again is no error.
    cluster.tenant("ann", move |broker| broker.release(id))
}

/// The broker's code for what it refused.
fn code<T: Send>(
    cluster: &Cluster,
    token: &str,
    what: impl FnOnce(&rgpu_control::Broker) -> Result<T, ClientError> + Send,
) -> Result<Option<ErrorCode>> {
    cluster.ask(token, |broker| match what(broker) {
        Ok(_) => Ok(None),
        Err(e) => match e.code() {
            Some(code) => Ok(Some(code)),
            None => Err(e),
        },
    })
}

fn tenants() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let held = held(&cluster, "ann")?;
    let id = held.lease.id;
    let bob = cluster.token(Role::Tenant, "bob");
    let seen = cluster.ask(&bob, |broker| broker.leases(true))?;
    ensure!(seen.is_empty(), "bob sees {seen:?}");
    let unseen = |code: Option<ErrorCode>| matches!(code, Some(ErrorCode::NotFound | ErrorCode::Forbidden));
    ensure!(unseen(code(&cluster, &bob, |b| b.lease(id, 0))?), "bob can look at ann's lease");
    ensure!(unseen(code(&cluster, &bob, |b| b.renew(id))?), "bob can renew ann's lease");
    ensure!(unseen(code(&cluster, &bob, |b| b.explain(id))?), "bob can have ann's lease explained");
    let change = rgpu_control::api::LeaseChange { memory: None, share_milli: Some(1) };
    ensure!(unseen(code(&cluster, &bob, |b| b.change_lease(id, &change))?), "bob can change ann's lease");
    ensure!(code(&cluster, &bob, |b| b.release(id))?.is_some(), "bob can release ann's lease");
    let own = cluster.tenant("ann", |broker| broker.leases(false))?;
    ensure!(own.len() == 1 && own[0].id == id, "ann sees {own:?}");
    // Not even an administrator gets the token; ann does.
    ensure!(cluster.lease(id)?.token.is_none(), "an administrator gets a tenant's token");
    let mine = cluster.tenant("ann", |broker| broker.lease(id, 0))?;
    ensure!(mine.token.is_some(), "ann does not get her own token");
    // Devices may show that something is leased, but not to whom.
    let devices = cluster.ask(&bob, |broker| broker.devices())?;
    ensure!(
        devices.iter().all(|d| !d.leases.contains(&id)),
        "bob sees which lease has a device: {devices:?}"
    );
    Ok(())
}

fn roles() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let (now, key) = (unix_time(), cluster.key().clone());
    let lease = request(&PrivateKey::generate());
    let asks = |token: &str| code(&cluster, token, |broker| broker.request_lease(&lease));
    let tenant = |name: &str, not_before, expires, by: &PrivateKey| {
        by.sign(&Claims::Role(RoleClaims { role: Role::Tenant, name: name.into(), not_before, expires }))
    };
    let unauthorized = Some(ErrorCode::Unauthorized);
    ensure!(asks("")? == unauthorized, "nobody may ask for a lease");
    ensure!(asks("nonsense")? == unauthorized, "nonsense is a token");
    let forged = tenant("ann", now - 10, now + 600, &PrivateKey::generate());
    ensure!(asks(&forged)? == unauthorized, "a forged token is good");
    ensure!(asks(&tenant("ann", now - 900, now - 300, &key))? == unauthorized, "an expired token is good");
    ensure!(
        asks(&tenant("ann", now + 300, now + 900, &key))? == unauthorized,
        "a token of the future is good"
    );
    let node = cluster.token(Role::Node, "s0");
    ensure!(asks(&node)? == Some(ErrorCode::Forbidden), "a node may ask for leases");
    let ann = cluster.token(Role::Tenant, "ann");
    let drained = code(&cluster, &ann, |broker| broker.drain("s0", true))?;
    ensure!(drained == Some(ErrorCode::Forbidden), "a tenant may drain nodes: {drained:?}");
    let spied = code(&cluster, &ann, |broker| broker.orders("s0", 0, 0))?;
    ensure!(spied == Some(ErrorCode::Forbidden), "a tenant may read a node's orders: {spied:?}");
    let other = cluster.token(Role::Node, "s1");
    let spied = code(&cluster, &other, |broker| broker.orders("s0", 0, 0))?;
    ensure!(spied == Some(ErrorCode::Forbidden), "a node may read another's orders: {spied:?}");
    Ok(())
}
