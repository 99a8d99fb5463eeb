//! Engines, which ask for leases on behalf of tenants of their own.

use super::*;

fn engine(name: &str) -> Caller {
    Caller { role: Role::Engine, name: name.into() }
}

impl World {
    /// Asks as an engine on behalf of a tenant, and says how the lease is when a round has looked at it.
    async fn ask_for(&self, by: &Caller, tenant: &str, request: LeaseRequest) -> Result<Lease, Problem> {
        let request = LeaseRequest { on_behalf_of: Some(tenant.into()), ..request };
        let lease = self.engine.request_lease(by, request).await?;
        self.engine.settle().await;
        self.engine.lease(by, lease.id, 0).await
    }
}

#[tokio::test]
async fn an_engines_lease_is_its_tenants_and_outlives_the_broker() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[2]).await;
    let slurm = engine("slurm");
    let keyed = LeaseRequest { key: Some("job 7".into()), ..world.request("m", 1, 1000, 0) };
    let lease = world.ask_for(&slurm, "physics", keyed.clone()).await.unwrap();
    assert_eq!((lease.tenant.as_str(), lease.state), ("slurm/physics", LeaseState::Active));
    assert_eq!(world.claims(&lease).tenant, "slurm/physics");
    // The tenant of that name has it, too; nobody else does.
    let tenant = tenant_named("slurm/physics");
    assert!(world.engine.lease(&tenant, lease.id, 0).await.unwrap().token.is_some());
    for other in [engine("kubernetes"), tenant_named("slurm"), tenant_named("slurm/chemistry")] {
        assert_eq!(code(world.engine.lease(&other, lease.id, 0).await), ErrorCode::Forbidden);
        assert_eq!(code(world.engine.renew(&other, lease.id).await), ErrorCode::Forbidden);
        assert_eq!(world.engine.leases(&other, true).unwrap(), []);
    }
    // One key is one lease for each tenant, as ever.
    assert_eq!(world.ask_for(&slurm, "physics", keyed.clone()).await.unwrap().id, lease.id);
    assert_ne!(world.ask_for(&slurm, "chemistry", keyed.clone()).await.unwrap().id, lease.id);
    world.restart();
    nodes[0].register(&world.engine).await.unwrap();
    let renewed = world.engine.renew(&slurm, lease.id).await.unwrap();
    assert_eq!((renewed.tenant.as_str(), renewed.token.is_some()), ("slurm/physics", true));
    world.engine.release(&slurm, lease.id).await.unwrap();
    world.check();
}

#[tokio::test]
async fn an_engine_that_was_a_tenant_keeps_its_leases() {
    let (world, _nodes) = with_nodes(Settings::default(), &[2]).await;
    let keyed = LeaseRequest { key: Some("claim".into()), ..world.request("m", 1, 1000, 0) };
    let before = world.ask("kubernetes", keyed.clone()).await.unwrap();
    let by = engine("kubernetes");
    assert!(world.engine.renew(&by, before.id).await.unwrap().token.is_some());
    assert_eq!(world.ask_for(&by, "default", keyed).await.unwrap().id, before.id);
    // What it asks for itself is the tenant's of its name.
    let own = world.engine.request_lease(&by, world.request("m", 1, 1000, 0)).await.unwrap();
    assert_eq!(own.tenant, "kubernetes");
}

#[tokio::test]
async fn only_engines_ask_on_behalf_of_others_and_decide_nothing_else() {
    let (world, _nodes) = with_nodes(Settings::default(), &[1]).await;
    let request = world.request("m", 1, 500, GIB);
    for other in [tenant_named("ann"), boss()] {
        let refused = world.ask_for(&other, "physics", request.clone()).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Forbidden);
        assert!(
            refused.message.contains("only an engine") && refused.message.contains(&other.name),
            "{refused:?}"
        );
    }
    let slurm = engine("slurm");
    for bad in ["", "a/b", "*", "a b", "a\nb", &"x".repeat(200)] {
        let refused = world.ask_for(&slurm, bad, request.clone()).await.unwrap_err();
        assert_eq!((refused.code, refused.message.contains("on_behalf_of")), (ErrorCode::BadRequest, true));
    }
    let lease = world.ask_for(&slurm, "physics", request).await.unwrap();
    let change = LeaseChange { share_milli: Some(100), memory: None };
    assert_eq!(code(world.engine.change(&slurm, lease.id, change).await), ErrorCode::Forbidden);
    assert_eq!(code(world.engine.profiles(&slurm)), ErrorCode::Forbidden);
    assert_eq!(code(world.engine.drain(&slurm, "n0", true).await), ErrorCode::Forbidden);
    assert_eq!(code(world.engine.tenants(&slurm)), ErrorCode::Forbidden);
}

#[tokio::test]
async fn limits_are_for_a_tenant_for_each_of_an_engine_and_for_all_of_them() {
    let mut settings = Settings::default();
    let milli = |most| Limits { max_gpu_milli: Some(most), ..Limits::default() };
    settings.limits = milli(300);
    settings.tenants = [("slurm", milli(1600)), ("slurm/*", milli(500)), ("slurm/physics", milli(1000))]
        .map(|(name, limits)| (name.into(), limits))
        .into();
    let (world, _nodes) = with_nodes(settings, &[4]).await;
    let (slurm, other) = (engine("slurm"), engine("kubernetes"));
    let ask = async |by: &Caller, tenant: &str, share| {
        let refused = world.ask_for(by, tenant, world.request("m", 1, share, 0)).await.err();
        refused.map_or_else(String::new, |refused| format!("{:?} {}", refused.code, refused.message))
    };
    assert!(
        ask(&other, "default", 301).await.contains("Limit the limit of tenant \"kubernetes/default\" is 300")
    );
    assert!(ask(&slurm, "chemistry", 501).await.contains("\"slurm/chemistry\" is 500"));
    assert_eq!(ask(&slurm, "chemistry", 500).await, "");
    assert!(ask(&slurm, "chemistry", 1).await.contains("\"slurm/chemistry\" is 500"));
    assert_eq!(ask(&slurm, "physics", 1000).await, "");
    // Together they have 1500 of 1600.
    assert!(ask(&slurm, "biology", 101).await.contains("\"slurm\" is 1600"));
    assert_eq!(ask(&slurm, "biology", 100).await, "");
    assert_eq!(ask(&engine("slurmy"), "a", 300).await, "");
    let tenants = world.engine.tenants(&boss()).unwrap();
    let held = |name: &str| tenants.iter().find(|tenant| tenant.name == name).map(|tenant| tenant.gpu_milli);
    assert_eq!((held("slurm"), held("slurm/physics"), held("slurmy/a")), (Some(1600), Some(1000), Some(300)));
    world.check();
}
