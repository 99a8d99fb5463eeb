//! What is free: flat vectors, quick to copy, so that a policy can try things out.

use crate::cluster::{Cluster, WHOLE};
use crate::ids::{DeviceId, DeviceKind, LinkId, NodeId, ProfileId};
use crate::job::{DeviceRequest, Task};
use crate::placement::{Grant, Placement, RegionShare, TaskPlacement};
use crate::sharing::Sharing;

/// Free and used amounts of everything in a cluster.
#[derive(Debug, PartialEq)]
pub struct Usage {
    nodes: Vec<NodeUsage>,
    /// Per NUMA region: free cores and memory. Kept only for nodes with several regions.
    regions: Vec<(u64, u64)>,
    devices: Vec<DeviceUsage>,
    /// By free thousandths: how many devices have so many.
    by_free: Vec<u32>,
    link_mbps: Vec<u64>,
    /// `[node * profiles + profile]`: how many tasks of the profile run there. Empty unless asked for.
    tasks: Vec<u16>,
    profiles: usize,
    totals: UsageTotals,
    /// The nodes of which something has changed, once it is asked for.
    changed: Option<Vec<NodeId>>,
}

/// One node's free amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Free thousandths of cores.
    pub cpu_milli: u64,
    /// Free memory in MiB.
    pub memory_mib: u64,
    /// Free thousandths of devices, by kind.
    pub device_milli: [u32; DeviceKind::COUNT],
    /// Devices of which all is free, by kind.
    pub whole: [u16; DeviceKind::COUNT],
    /// A hash of all free amounts of the node and its devices: the same amounts, the same hash.
    pub fingerprint: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DeviceUsage {
    memory_mib: u64,
    milli: u16,
    users: u16,
}

impl NodeUsage {
    fn server_hash(&self) -> u64 {
        mix(mix(self.cpu_milli) ^ self.memory_mib)
    }
}

impl DeviceUsage {
    fn hash(&self, number: u32) -> u64 {
        mix(mix(self.memory_mib << 16 | u64::from(self.milli)) ^ u64::from(number))
    }
}

fn mix(value: u64) -> u64 {
    crate::rng::Rng::new(value).next_u64()
}

/// Sums over the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Free thousandths of cores.
    pub cpu_milli: u64,
    /// Free memory in MiB.
    pub memory_mib: u64,
    /// Thousandths of devices given to jobs, by kind.
    pub granted_milli: [u64; DeviceKind::COUNT],
    /// Of these, the thousandths given to tasks in other nodes.
    pub remote_milli: [u64; DeviceKind::COUNT],
    /// Grants given, by kind.
    pub grants: [u64; DeviceKind::COUNT],
    /// Of these, the grants to tasks in other nodes.
    pub remote_grants: [u64; DeviceKind::COUNT],
    /// The sum of the traffic that grants imply, counted once per grant.
    pub remote_mbps: u64,
}

impl Clone for Usage {
    fn clone(&self) -> Usage {
        Usage {
            nodes: self.nodes.clone(),
            regions: self.regions.clone(),
            devices: self.devices.clone(),
            by_free: self.by_free.clone(),
            link_mbps: self.link_mbps.clone(),
            tasks: self.tasks.clone(),
            profiles: self.profiles,
            totals: self.totals,
            changed: None,
        }
    }

    fn clone_from(&mut self, source: &Usage) {
        self.nodes.clone_from(&source.nodes);
        self.regions.clone_from(&source.regions);
        self.devices.clone_from(&source.devices);
        self.by_free.clone_from(&source.by_free);
        self.link_mbps.clone_from(&source.link_mbps);
        self.tasks.clone_from(&source.tasks);
        self.profiles = source.profiles;
        self.totals = source.totals;
        self.changed = None;
    }
}

impl Usage {
    /// Everything free. Tasks are counted per node and profile if `profiles` isn't 0.
    pub fn new(cluster: &Cluster, profiles: usize) -> Usage {
        let mut nodes: Vec<NodeUsage> = cluster
            .nodes
            .iter()
            .map(|node| NodeUsage {
                cpu_milli: node.cpu_milli,
                memory_mib: node.memory_mib,
                ..NodeUsage::default()
            })
            .collect();
        for device in &cluster.devices {
            let node = &mut nodes[device.node.index()];
            node.device_milli[device.kind.index()] += u32::from(WHOLE);
            node.whole[device.kind.index()] += 1;
        }
        for node in &mut nodes {
            node.fingerprint = node.server_hash();
        }
        let devices: Vec<DeviceUsage> = cluster
            .devices
            .iter()
            .map(|device| DeviceUsage { memory_mib: device.memory_mib, milli: WHOLE, users: 0 })
            .collect();
        for (i, device) in cluster.devices.iter().enumerate() {
            let local = i as u32 - cluster.nodes[device.node.index()].devices.start;
            let node = &mut nodes[device.node.index()];
            node.fingerprint = node.fingerprint.wrapping_add(devices[i].hash(local));
        }
        let mut by_free = vec![0; usize::from(WHOLE) + 1];
        by_free[usize::from(WHOLE)] = devices.len() as u32;
        let totals = cluster.totals();
        Usage {
            tasks: vec![0; nodes.len() * profiles],
            nodes,
            regions: cluster.regions.iter().map(|region| (region.cpu_milli, region.memory_mib)).collect(),
            devices,
            by_free,
            link_mbps: vec![0; cluster.links()],
            profiles,
            totals: UsageTotals {
                cpu_milli: totals.cpu_milli,
                memory_mib: totals.memory_mib,
                ..UsageTotals::default()
            },
            changed: None,
        }
    }

    /// From now on keeps which nodes' free amounts or NIC loads change, for [`Usage::changed`].
    pub(crate) fn follow(&mut self) {
        self.changed.get_or_insert_default().clear();
    }

    /// The nodes that have changed since this was asked the last time, some of them perhaps several times.
    pub(crate) fn changed(&mut self) -> Vec<NodeId> {
        self.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Something of a node has changed that [`Usage::changed`] is to tell.
    pub(crate) fn note(&mut self, node: NodeId) {
        if let Some(changed) = &mut self.changed {
            changed.push(node);
        }
    }

    /// A node's free amounts.
    pub fn node(&self, node: NodeId) -> &NodeUsage {
        &self.nodes[node.index()]
    }

    /// All nodes' free amounts, indexed by [`NodeId`].
    pub fn nodes(&self) -> &[NodeUsage] {
        &self.nodes
    }

    /// Free thousandths of a device.
    pub fn device_milli(&self, device: DeviceId) -> u16 {
        self.devices[device.index()].milli
    }

    /// How many devices of the cluster have just so many thousandths free.
    pub(crate) fn devices_with(&self, free_milli: u16) -> u32 {
        self.by_free.get(usize::from(free_milli)).copied().unwrap_or(0)
    }

    /// Free memory of a device in MiB.
    pub fn device_memory_mib(&self, device: DeviceId) -> u64 {
        self.devices[device.index()].memory_mib
    }

    /// Grants on a device now.
    pub fn device_users(&self, device: DeviceId) -> u16 {
        self.devices[device.index()].users
    }

    /// Traffic on a link that comes of grants and tasks, in Mbit/s.
    pub fn link_mbps(&self, link: LinkId) -> u64 {
        self.link_mbps[link.index()]
    }

    /// Sums over the cluster.
    pub fn totals(&self) -> &UsageTotals {
        &self.totals
    }

    /// How many tasks of the profile run in the node (0 if they aren't counted).
    pub fn tasks(&self, node: NodeId, profile: ProfileId) -> u16 {
        self.tasks.get(node.index() * self.profiles + profile.index()).copied().unwrap_or(0)
    }

    /// Whether the node has the task's cores and memory free.
    pub fn fits_server(&self, node: NodeId, task: &Task) -> bool {
        let free = &self.nodes[node.index()];
        free.cpu_milli >= task.cpu_milli && free.memory_mib >= task.memory_mib
    }

    /// Whether the device is of the right kind and model and has enough free for one of the request.
    pub fn fits_device(&self, cluster: &Cluster, device: DeviceId, request: &DeviceRequest) -> bool {
        let free = &self.devices[device.index()];
        let spec = &cluster.devices[device.index()];
        spec.kind == request.kind
            && request.models.contains(spec.model)
            && spec.offers.has_all(request.needs)
            && request.node.is_none_or(|node| node == spec.node)
            && free.memory_mib >= request.memory_mib
            && free.milli >= if spec.partitionable { request.milli } else { WHOLE }
    }

    /// Whether a task that has these grants can have the device as well, be it free or not: some devices are used alone.
    pub fn goes_with(cluster: &Cluster, grants: &[Grant], device: DeviceId) -> bool {
        let spec = cluster.device(device);
        grants.iter().all(|grant| {
            let other = cluster.device(grant.device);
            let together = !spec.alone && !other.alone;
            together || other.node != spec.node || other.kind != spec.kind || grant.device == device
        })
    }

    /// How many of the node's devices a task could have for the request, each serving one of it.
    pub fn fitting_devices(&self, cluster: &Cluster, node: NodeId, request: &DeviceRequest) -> usize {
        // Most nodes fail here already.
        if self.nodes[node.index()].device_milli[request.kind.index()] < u32::from(request.milli) {
            return 0;
        }
        let devices = cluster.node(node).devices();
        cluster.usable_together(devices.filter(|&device| self.fits_device(cluster, device, request)))
    }

    /// Whether all links between two nodes have `mbps` free beside their load and `external` (indexed by
    /// link, may be empty), up to `limit` times their capacity. Always true within a node.
    pub fn fits_path(
        &self,
        cluster: &Cluster,
        from: NodeId,
        to: NodeId,
        mbps: u64,
        external: &[u64],
        limit: f64,
    ) -> bool {
        let mut fits = true;
        cluster.for_path(from, to, |link| {
            let used = self.link_mbps[link.index()] + external.get(link.index()).copied().unwrap_or(0);
            let capacity = cluster.capacity_mbps(link) as f64 * limit;
            fits &= capacity > 0.0 && (used + mbps) as f64 <= capacity;
        });
        fits
    }

    /// Spreads a task's cores and memory over a node's NUMA regions: the fullest region that has all, else
    /// the emptiest ones. Empty for nodes with one region. The node must have them free.
    pub fn choose_regions(&self, cluster: &Cluster, node: NodeId, task: &Task) -> Vec<RegionShare> {
        let range = cluster.node(node).regions.clone();
        if range.len() <= 1 {
            return Vec::new();
        }
        let free = &self.regions[range.start as usize..range.end as usize];
        let one = (0..free.len())
            .filter(|&i| free[i].0 >= task.cpu_milli && free[i].1 >= task.memory_mib)
            .min_by_key(|&i| (free[i].0, free[i].1, i));
        if let Some(i) = one {
            let (cpu_milli, memory_mib) = (task.cpu_milli, task.memory_mib);
            return vec![RegionShare { region: i as u8, cpu_milli, memory_mib }];
        }
        let mut order: Vec<usize> = (0..free.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(free[i].0), std::cmp::Reverse(free[i].1), i));
        let (mut cpu, mut memory) = (task.cpu_milli, task.memory_mib);
        let mut shares = Vec::new();
        for i in order {
            let share = RegionShare {
                region: i as u8,
                cpu_milli: cpu.min(free[i].0),
                memory_mib: memory.min(free[i].1),
            };
            if share.cpu_milli + share.memory_mib > 0 {
                cpu -= share.cpu_milli;
                memory -= share.memory_mib;
                shares.push(share);
            }
        }
        shares
    }

    /// What one device grants to a request of a task that runs in `from`.
    pub fn grant(
        &self,
        cluster: &Cluster,
        from: NodeId,
        device: DeviceId,
        request: &DeviceRequest,
        number: u16,
    ) -> Grant {
        let spec = cluster.device(device);
        Grant {
            device,
            milli: if spec.partitionable { request.milli } else { WHOLE },
            memory_mib: request.memory_mib,
            traffic_mbps: if spec.node == from { 0 } else { request.traffic_mbps },
            request: number,
        }
    }

    /// Takes cores and memory (not devices) of a node. The amounts must be free.
    pub fn take_server(
        &mut self,
        cluster: &Cluster,
        node: NodeId,
        regions: &[RegionShare],
        task: &Task,
        profile: ProfileId,
    ) {
        self.note(node);
        let free = &mut self.nodes[node.index()];
        let before = free.server_hash();
        free.cpu_milli -= task.cpu_milli;
        free.memory_mib -= task.memory_mib;
        free.fingerprint = free.fingerprint.wrapping_sub(before).wrapping_add(free.server_hash());
        let first = cluster.node(node).regions.start as usize;
        for share in regions {
            let region = &mut self.regions[first + usize::from(share.region)];
            region.0 -= share.cpu_milli;
            region.1 -= share.memory_mib;
        }
        self.totals.cpu_milli -= task.cpu_milli;
        self.totals.memory_mib -= task.memory_mib;
        self.link_mbps[cluster.nic(node).index()] += task.network_mbps;
        if let Some(count) = self.tasks.get_mut(node.index() * self.profiles + profile.index()) {
            *count = count.saturating_add(1);
        }
    }

    /// Gives back what [`Usage::take_server`] took.
    pub fn give_server(
        &mut self,
        cluster: &Cluster,
        node: NodeId,
        regions: &[RegionShare],
        task: &Task,
        profile: ProfileId,
    ) {
        self.note(node);
        let free = &mut self.nodes[node.index()];
        let before = free.server_hash();
        free.cpu_milli += task.cpu_milli;
        free.memory_mib += task.memory_mib;
        free.fingerprint = free.fingerprint.wrapping_sub(before).wrapping_add(free.server_hash());
        let first = cluster.node(node).regions.start as usize;
        for share in regions {
            let region = &mut self.regions[first + usize::from(share.region)];
            region.0 += share.cpu_milli;
            region.1 += share.memory_mib;
        }
        self.totals.cpu_milli += task.cpu_milli;
        self.totals.memory_mib += task.memory_mib;
        self.link_mbps[cluster.nic(node).index()] -= task.network_mbps;
        if let Some(count) = self.tasks.get_mut(node.index() * self.profiles + profile.index()) {
            *count = count.saturating_sub(1);
        }
    }

    /// Takes (`take`) or gives back a device, or a part of one, for a task in `from`. To take, it must be
    /// free.
    pub fn change_grant(&mut self, cluster: &Cluster, from: NodeId, grant: &Grant, take: bool) {
        let spec = cluster.device(grant.device);
        let kind = spec.kind.index();
        // The NICs on the way are those of both ends.
        self.note(spec.node);
        self.note(from);
        let device = &mut self.devices[grant.device.index()];
        let node = &mut self.nodes[spec.node.index()];
        let local = grant.device.0 - cluster.nodes[spec.node.index()].devices.start;
        node.fingerprint = node.fingerprint.wrapping_sub(device.hash(local));
        let milli = u64::from(grant.milli);
        let remote = spec.node != from;
        let totals = &mut self.totals;
        let sums = [(&mut totals.granted_milli[kind], milli), (&mut totals.grants[kind], 1)];
        let remotes = [(&mut totals.remote_milli[kind], milli), (&mut totals.remote_grants[kind], 1)];
        let mut all: Vec<(&mut u64, u64)> = Vec::with_capacity(5);
        all.extend(sums);
        if remote {
            all.extend(remotes);
            all.push((&mut totals.remote_mbps, grant.traffic_mbps));
        }
        let was_whole = device.milli == WHOLE;
        self.by_free[usize::from(device.milli)] -= 1;
        if take {
            device.milli -= grant.milli;
            device.memory_mib -= grant.memory_mib;
            device.users += 1;
            node.device_milli[kind] -= u32::from(grant.milli);
            all.into_iter().for_each(|(sum, by)| *sum += by);
        } else {
            device.milli += grant.milli;
            device.memory_mib += grant.memory_mib;
            device.users -= 1;
            node.device_milli[kind] += u32::from(grant.milli);
            all.into_iter().for_each(|(sum, by)| *sum -= by);
        }
        self.by_free[usize::from(device.milli)] += 1;
        // A grant of no share for good leaves the device as whole as it was.
        match (was_whole, device.milli == WHOLE) {
            (true, false) => node.whole[kind] -= 1,
            (false, true) => node.whole[kind] += 1,
            _ => {}
        }
        node.fingerprint = node.fingerprint.wrapping_add(device.hash(local));
        if remote && grant.traffic_mbps > 0 {
            let links = &mut self.link_mbps;
            cluster.for_path(from, spec.node, |link| {
                let load = &mut links[link.index()];
                *load = if take { *load + grant.traffic_mbps } else { *load - grant.traffic_mbps };
            });
        }
    }

    /// Takes everything that one task got.
    pub fn take_task(
        &mut self,
        cluster: &Cluster,
        placement: &TaskPlacement,
        task: &Task,
        profile: ProfileId,
    ) {
        self.take_server(cluster, placement.node, &placement.regions, task, profile);
        for grant in &placement.grants {
            self.change_grant(cluster, placement.node, grant, true);
        }
    }

    /// Gives back everything that one task got.
    pub fn give_task(
        &mut self,
        cluster: &Cluster,
        placement: &TaskPlacement,
        task: &Task,
        profile: ProfileId,
    ) {
        self.give_server(cluster, placement.node, &placement.regions, task, profile);
        for grant in &placement.grants {
            self.change_grant(cluster, placement.node, grant, false);
        }
    }

    /// Why a placement of a job's tasks doesn't fit what is free, or isn't what was asked for; `Ok` if it is
    /// right. Nothing is changed. With `sharing`, the model of the job's performance, a request for one device may have been
    /// answered by a composition, as far as the model knows.
    pub fn check(
        &self,
        cluster: &Cluster,
        tasks: &[Task],
        placement: &Placement,
        sharing: Option<&Sharing>,
    ) -> Result<(), String> {
        if placement.tasks.len() != tasks.len() {
            return Err(format!("{} tasks are placed of {}", placement.tasks.len(), tasks.len()));
        }
        let mut trial: Vec<(NodeId, u64, u64)> = Vec::new();
        let mut granted: Vec<(DeviceId, u32, u64)> = Vec::new();
        let mut shares: Vec<(usize, u64, u64)> = Vec::new();
        for (task, at) in tasks.iter().zip(&placement.tasks) {
            let node = cluster.nodes.get(at.node.index()).ok_or("there is no such node")?;
            if !task.allows(at.node) {
                return Err(format!("the task must not run in node {:?}", node.name));
            }
            trial.push((at.node, task.cpu_milli, task.memory_mib));
            if node.regions.len() > 1 {
                let sums = at.regions.iter().fold((0, 0), |s, r| (s.0 + r.cpu_milli, s.1 + r.memory_mib));
                if sums != (task.cpu_milli, task.memory_mib) {
                    return Err("the shares of the NUMA regions do not sum up to the task".into());
                }
            } else if !at.regions.is_empty() {
                return Err("a node with one NUMA region is given by regions".into());
            }
            for share in &at.regions {
                if usize::from(share.region) >= node.regions.len() {
                    return Err("there is no such NUMA region".into());
                }
                let region = node.regions.start as usize + usize::from(share.region);
                shares.push((region, share.cpu_milli, share.memory_mib));
            }
            let elastic = |request: &DeviceRequest| {
                sharing.filter(|s| s.kind == request.kind && request.count == 1 && s.is_elastic())
            };
            let most = |request: &DeviceRequest| {
                elastic(request).map_or(request.count, |sharing| sharing.most_composed() as u16)
            };
            let mut wanted: Vec<u16> = task.devices.iter().map(most).collect();
            let mut seen: Vec<(u16, DeviceId)> = Vec::new();
            for (number, grant) in at.grants.iter().enumerate() {
                let request =
                    task.devices.get(usize::from(grant.request)).ok_or("a grant answers no request")?;
                let left = &mut wanted[usize::from(grant.request)];
                *left = left.checked_sub(1).ok_or("more devices than asked for")?;
                let device = cluster.devices.get(grant.device.index()).ok_or("there is no such device")?;
                if device.kind != request.kind || !request.models.contains(device.model) {
                    return Err(format!("device {} is not what was asked for", grant.device.0));
                }
                if let Some(what) = cluster.lacking(device.node, request.needs) {
                    let name = &cluster.node(device.node).name;
                    return Err(format!("node {name:?} does not offer {what}, which is needed"));
                }
                if !Usage::goes_with(cluster, &at.grants[..number], grant.device) {
                    return Err(format!(
                        "device {} is granted beside one that is used alone",
                        grant.device.0
                    ));
                }
                if seen.contains(&(grant.request, grant.device)) {
                    return Err(format!("device {} is granted twice for one request", grant.device.0));
                }
                seen.push((grant.request, grant.device));
                let right = self.grant(cluster, at.node, grant.device, request, grant.request);
                let good = match elastic(request) {
                    Some(_) => composed_grant(grant, &right, device.partitionable),
                    None => right == *grant,
                };
                if !good {
                    return Err(format!("a grant of device {} is not as asked for", grant.device.0));
                }
                granted.push((grant.device, u32::from(grant.milli), grant.memory_mib));
            }
            for (number, (request, left)) in task.devices.iter().zip(wanted).enumerate() {
                let Some(sharing) = elastic(request) else {
                    match left {
                        0 => continue,
                        _ => return Err("fewer devices than asked for".into()),
                    }
                };
                let given = at.grants.iter().filter(|grant| usize::from(grant.request) == number);
                let sums = given.fold((0u32, 0), |s, g| (s.0 + u32::from(g.milli), s.1 + g.memory_mib));
                let enough = if sharing.reserves { u32::from(request.milli) } else { 1 };
                if sums.0 < enough || sums.1 < request.memory_mib {
                    return Err("less of composed devices than asked for".into());
                }
            }
        }
        trial.sort_unstable();
        for same in trial.chunk_by(|a, b| a.0 == b.0) {
            let (cpu, memory) = same.iter().fold((0, 0), |sum, t| (sum.0 + t.1, sum.1 + t.2));
            let free = self.node(same[0].0);
            if cpu > free.cpu_milli || memory > free.memory_mib {
                return Err(format!(
                    "node {:?} has {} milli-cores and {} MiB free, {cpu} and {memory} are wanted",
                    cluster.node(same[0].0).name,
                    free.cpu_milli,
                    free.memory_mib
                ));
            }
        }
        shares.sort_unstable();
        for same in shares.chunk_by(|a, b| a.0 == b.0) {
            let (cpu, memory) = same.iter().fold((0, 0), |sum, t| (sum.0 + t.1, sum.1 + t.2));
            let free = self.regions[same[0].0];
            if cpu > free.0 || memory > free.1 {
                return Err("a NUMA region has less free than is wanted".into());
            }
        }
        granted.sort_unstable();
        for same in granted.chunk_by(|a, b| a.0 == b.0) {
            let (milli, memory) = same.iter().fold((0, 0), |sum, g| (sum.0 + g.1, sum.1 + g.2));
            let free = &self.devices[same[0].0.index()];
            if milli > u32::from(free.milli) || memory > free.memory_mib {
                return Err(format!(
                    "device {} has {}/1000 and {} MiB free, {milli} and {memory} are wanted",
                    same[0].0.0, free.milli, free.memory_mib
                ));
            }
        }
        Ok(())
    }
}

/// Whether a grant can be a part of a composition, where `right` would answer the request alone.
fn composed_grant(grant: &Grant, right: &Grant, partitionable: bool) -> bool {
    let milli = if partitionable { 1..=WHOLE } else { WHOLE..=WHOLE };
    milli.contains(&grant.milli)
        && grant.memory_mib <= right.memory_mib
        && grant.traffic_mbps <= right.traffic_mbps
}
