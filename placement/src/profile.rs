//! How long a job takes, as a function of what it was given and of what its neighbours do.
//!
//! The model of completion times (the paper's ϕ<sub>r,l</sub>; `docs/placement.md` says where it departs from
//! the text): with ρ the share of the devices that are remote, l the load that *others* put on the most loaded
//! link to them, and i the sum of the neighbours' interference,
//!
//! ```text
//! time = scale · ((1 − ρ) · local + ρ · remote · (1 + sensitivity · l)) · (1 + i) · (1 + numa, if crossed)
//! ```
//!
//! times what the profile's [`Sharing`] says of the devices, where it has one.
//!
//! Everything here is a pure function; the simulator and the broker evaluate it anew whenever a neighbour
//! starts or stops (see [`ClusterState::completion_s`](crate::ClusterState::completion_s)).

use std::collections::HashMap;

use crate::error::Error;
use crate::ids::ProfileId;
use crate::sharing::Sharing;
use crate::spread::Spread;

/// What was measured of an application beforehand ("offline profiling").
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name, unique in its table.
    pub name: String,
    /// Seconds to completion alone in a node, with local devices.
    pub local_s: f64,
    /// Seconds to completion alone, with all devices remote over a quiet network.
    pub remote_s: f64,
    /// The sensitivity sf: by which part of `remote_s` it takes longer when others load the network to 100%.
    pub sensitivity: f64,
    /// By which part it takes longer when its cores and devices are in different NUMA regions of a node.
    pub numa_slowdown: f64,
    /// How it fares on devices that are composed, or that it shares; `None` if nothing is known of that.
    pub sharing: Option<Sharing>,
    /// What spreading over more nodes does to it, and what it needs of their caches and memory; `None` if nothing is known of
    /// that.
    pub spread: Option<Spread>,
}

impl Profile {
    /// A profile without any sensitivity, whose remote time is its local time.
    pub fn new(name: impl Into<String>, local_s: f64) -> Profile {
        Profile {
            name: name.into(),
            local_s,
            remote_s: local_s,
            sensitivity: 0.0,
            numa_slowdown: 0.0,
            sharing: None,
            spread: None,
        }
    }

    /// The sensitivity sf that follows from two measured breakdowns: the network's share of the time when the
    /// job is alone, and its share when others load the network to 100%. The rest of the time is the same in
    /// both, thus `sf = (1 − quiet) / (1 − loaded) − 1`.
    pub fn sensitivity_from_shares(quiet: f64, loaded: f64) -> f64 {
        (1.0 - quiet) / (1.0 - loaded) - 1.0
    }

    /// Seconds to completion under steady conditions (for a job whose `scale` is 1).
    pub fn completion_s(&self, conditions: &Conditions) -> f64 {
        let remote = self.remote_s * (1.0 + self.sensitivity * conditions.load);
        let base = (1.0 - conditions.remote_share) * self.local_s + conditions.remote_share * remote;
        let numa = if conditions.numa_crossed { 1.0 + self.numa_slowdown } else { 1.0 };
        base * (1.0 + conditions.interference) * (1.0 + conditions.crowding) * numa
    }

    /// The network load up to which the completion time stays within `goal_s`, all else being as in `conditions`;
    /// negative if it doesn't even without any load.
    pub fn tolerated_load(&self, conditions: &Conditions, goal_s: f64) -> f64 {
        let quiet = self.completion_s(&Conditions { load: 0.0, ..*conditions });
        let loaded = self.completion_s(&Conditions { load: 1.0, ..*conditions });
        // Rounding must not turn a goal that is just kept into a broken one.
        let slack = goal_s * (1.0 + 1e-9) - quiet;
        if slack < 0.0 {
            -1.0
        } else if loaded > quiet {
            slack / (loaded - quiet)
        } else {
            f64::INFINITY
        }
    }

    /// The shortest completion time possible: alone and with local devices (or remote, if that is faster).
    pub fn best_s(&self) -> f64 {
        self.local_s.min(self.remote_s)
    }
}

/// What surrounds a task while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// ρ: the share of its devices that are in other nodes.
    pub remote_share: f64,
    /// l: traffic of others on the most loaded link to its remote devices, as a part of the capacity; more
    /// than 1 if they want more than there is.
    pub load: f64,
    /// i: the sum over neighbours of their [`Interference`].
    pub interference: f64,
    /// Whether its cores and its local devices are in different NUMA regions.
    pub numa_crossed: bool,
    /// By which part it takes longer on the devices that it has than on one alone (negative: that much less), as its
    /// profile's [`Sharing`] says, and on as many nodes as it has, as its [`Spread`] says.
    pub crowding: f64,
}

/// By which part one application slows another down.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interference {
    /// For each neighbouring task in the same node.
    pub node: f64,
    /// For each neighbour on the same device, more.
    pub device: f64,
}

/// The profiles of all applications, and how they disturb each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profiles {
    profiles: Vec<Profile>,
    names: HashMap<String, ProfileId>,
    /// `[victim * len + aggressor]`; empty as long as nobody disturbs anybody.
    interference: Vec<Interference>,
    any_interference: bool,
    any_sharing: bool,
}

impl Profiles {
    /// The table of `profiles`, numbered in their order, without interference.
    pub fn new(profiles: Vec<Profile>) -> Result<Profiles, Error> {
        let mut names = HashMap::new();
        for (i, profile) in profiles.iter().enumerate() {
            let range = |what, value: f64, must| Error::Range {
                what,
                of: format!("profile {:?}", profile.name),
                value: value.to_string(),
                must,
            };
            for (what, value) in [("local_s", profile.local_s), ("remote_s", profile.remote_s)] {
                if !value.is_finite() || value <= 0.0 {
                    return Err(range(what, value, "a time greater than 0"));
                }
            }
            for (what, value) in
                [("sensitivity", profile.sensitivity), ("numa_slowdown", profile.numa_slowdown)]
            {
                if !value.is_finite() || value < 0.0 {
                    return Err(range(what, value, "not negative"));
                }
            }
            if let Some(sharing) = &profile.sharing {
                sharing.check(&profile.name)?;
            }
            if names.insert(profile.name.clone(), ProfileId(i as u32)).is_some() {
                return Err(Error::Duplicate { what: "profile", name: profile.name.clone() });
            }
        }
        let any_sharing = profiles.iter().any(|profile| profile.sharing.is_some());
        Ok(Profiles { profiles, names, interference: Vec::new(), any_interference: false, any_sharing })
    }

    /// One profile, for applications of which nothing is known: a second, neutral in every respect.
    pub fn unknown() -> Profiles {
        Profiles::new(vec![Profile::new("unknown", 1.0)]).expect("the neutral profile is valid")
    }

    /// Sets by how much `aggressor` slows `victim` down; negative values (a speed-up) down to −0.01 per
    /// neighbour are accepted.
    pub fn set_interference(
        &mut self,
        victim: ProfileId,
        aggressor: ProfileId,
        interference: Interference,
    ) -> Result<(), Error> {
        let len = self.profiles.len();
        for id in [victim, aggressor] {
            if id.index() >= len {
                return Err(Error::Dangling {
                    from: "an interference".into(),
                    what: "profile",
                    name: id.0.to_string(),
                });
            }
        }
        for value in [interference.node, interference.device] {
            if !value.is_finite() || value < -0.01 {
                return Err(Error::Range {
                    what: "the interference",
                    of: format!("profile {:?}", self.profiles[aggressor.index()].name),
                    value: value.to_string(),
                    must: "at least -0.01",
                });
            }
        }
        self.interference.resize(len * len, Interference::default());
        self.interference[victim.index() * len + aggressor.index()] = interference;
        self.any_interference = self.interference.iter().any(|i| *i != Interference::default());
        Ok(())
    }

    /// How many profiles there are.
    pub fn len(&self) -> usize {
        self.profiles.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.profiles.is_empty()
    }

    /// The profile with that number. Panics if there is none.
    pub fn get(&self, id: ProfileId) -> &Profile {
        &self.profiles[id.index()]
    }

    /// All profiles in order.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.profiles.iter()
    }

    /// The profile of that name.
    pub fn find(&self, name: &str) -> Option<ProfileId> {
        self.names.get(name).copied()
    }

    /// How much `aggressor` slows `victim` down.
    pub fn interference(&self, victim: ProfileId, aggressor: ProfileId) -> Interference {
        let at = victim.index() * self.profiles.len() + aggressor.index();
        self.interference.get(at).copied().unwrap_or_default()
    }

    /// Whether of any application it is known how it fares on shared devices.
    pub fn any_sharing(&self) -> bool {
        self.any_sharing
    }

    /// Whether any application disturbs any other.
    pub fn any_interference(&self) -> bool {
        self.any_interference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_time_by_hand() {
        let profile = Profile {
            local_s: 100.0,
            remote_s: 120.0,
            sensitivity: 0.5,
            numa_slowdown: 0.1,
            ..Profile::new("nw", 1.0)
        };
        let at = |remote_share, load, interference, numa_crossed| {
            let crowding = 0.0;
            profile.completion_s(&Conditions { remote_share, load, interference, numa_crossed, crowding })
        };
        assert_eq!(at(0.0, 0.9, 0.0, false), 100.0); // local devices do not feel the network
        assert_eq!(at(1.0, 0.0, 0.0, false), 120.0);
        assert_eq!(at(1.0, 0.4, 0.0, false), 144.0); // 120 · 1.2
        assert_eq!(at(0.5, 0.4, 0.0, false), 122.0); // 50 + 72
        assert_eq!(at(0.5, 0.4, 0.25, false), 152.5);
        assert!((at(0.0, 0.0, 0.0, true) - 110.0).abs() < 1e-9);
    }

    #[test]
    fn tolerated_load_by_hand() {
        let profile = Profile { remote_s: 120.0, sensitivity: 0.5, ..Profile::new("nw", 100.0) };
        let remote = Conditions { remote_share: 1.0, load: 0.7, ..Conditions::default() };
        // 120 · (1 + 0.5 · l) = 150 at l = 0.5.
        assert!((profile.tolerated_load(&remote, 150.0) - 0.5).abs() < 1e-6);
        assert!(profile.tolerated_load(&remote, 110.0) < 0.0);
        assert_eq!(profile.tolerated_load(&Conditions::default(), 100.0), f64::INFINITY);
    }

    #[test]
    fn sensitivity_of_the_papers_examples() {
        // NW: 17% to 49%; HotSpot: 0.2% to 1%.
        assert!((Profile::sensitivity_from_shares(0.17, 0.49) - 0.627_45).abs() < 1e-4);
        assert!((Profile::sensitivity_from_shares(0.002, 0.01) - 0.008_08).abs() < 1e-4);
    }

    #[test]
    fn refuses_nonsense() {
        let bad = |profile| Profiles::new(vec![profile]).unwrap_err();
        assert!(matches!(bad(Profile::new("a", f64::NAN)), Error::Range { .. }));
        assert!(matches!(bad(Profile::new("a", 0.0)), Error::Range { .. }));
        assert!(matches!(
            bad(Profile { sensitivity: -1.0, ..Profile::new("a", 1.0) }),
            Error::Range { what: "sensitivity", .. }
        ));
        let twice = Profiles::new(vec![Profile::new("a", 1.0), Profile::new("a", 1.0)]);
        assert!(matches!(twice, Err(Error::Duplicate { .. })));
        let mut one = Profiles::unknown();
        let dangling = one.set_interference(ProfileId(0), ProfileId(7), Interference::default());
        assert!(matches!(dangling, Err(Error::Dangling { .. })));
    }
}
