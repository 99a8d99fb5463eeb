//! `rgpu run docker run …`: the library, the ticket and the environment go into the container that the engine starts.
//!
//! The engine's client runs on this machine, the program does not: it has another root directory, other processes, and as a rule its own
//! network and its own users. So nothing is preloaded into the client. Options of the engine, right after its command, mount what the program
//! needs, read-only below `/opt/rgpu`, and set its environment. Options that the user gives count for more; where they would take away
//! what rgpu puts there, they are refused before anything is started.

mod image;
mod line;
mod place;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rgpu_control::LEASE_VARIABLE;
use rgpu_control::preload::{LIBRARY_PATH_VARIABLE, PRELOAD_VARIABLE, prepend, separators};
use rgpu_control::settings::{
    self, NVME_DEVICES_VARIABLE, Reader, SERVER_VARIABLE, SOFTWARE_TOOLS_VARIABLE, TOKEN_FILE_VARIABLE,
};
use rgpu_control::ticket::Ticket;
use rgpu_protocol::stats::STATS_FILE_VARIABLE;
use rgpu_protocol::transport::CA_VARIABLE;

use super::frameworks;
use super::renewal::Leased;
use crate::Failure;
use crate::encrypted::is_this_machine;
use crate::library::{self, Links};
use image::Image;
use line::Line;
use place::Place;

/// The library, in the container.
const LIBRARY: &str = "/opt/rgpu/librgpu.so";
/// The command, in the container: it stands in for tools, too.
const COMMAND: &str = "/opt/rgpu/bin/rgpu";
/// The links to the library, in the container.
const LINKS: &str = "/opt/rgpu/lib";
/// The folder with the ticket, in the container.
const LEASE: &str = "/opt/rgpu/lease";

/// Files that a variable names and that the container is to have: the variable, the place there, and whether it is written to.
const FILES: [(&str, &str, bool); 3] = [
    (TOKEN_FILE_VARIABLE, "/opt/rgpu/token", false),
    (CA_VARIABLE, "/opt/rgpu/ca.pem", false),
    (STATS_FILE_VARIABLE, "/opt/rgpu/statistics", true),
];

/// A container that is going to be started.
pub(super) struct Container {
    line: Line,
    image: Image,
    links: Links,
    library: PathBuf,
    /// Where the lease's ticket is copied to, once there is one.
    place: Option<Place>,
}

impl Container {
    /// The container that a command line starts, if it starts one. Whether it could use a lease is found out here, before one is asked for.
    pub(super) fn of(command: &[OsString], leased: bool) -> Result<Option<Self>, Failure> {
        let Some(line) = Line::of(command)? else { return Ok(None) };
        let refuse = |text: String| Err(Failure::with_status(text, 2));
        if let Some(host) = line.remote_host() {
            return refuse(format!(
                "{} starts containers on another machine ({host}), where this machine's files cannot be mounted: type this there",
                line.engine
            ));
        }
        if leased && (line.only_creates() || line.is_on(&["d", "detach"])) {
            return refuse(format!(
                "The lease lasts as long as `rgpu run` does, and a container that {} would have none: use `{} run` without --detach, \
                 in the background if need be, or name a server with --server",
                if line.only_creates() { "is started later" } else { "goes on in the background" },
                line.engine
            ));
        }
        for (name, ours) in [
            (PRELOAD_VARIABLE, format!("{LINKS}/{}", library::FILE_NAME)),
            (LIBRARY_PATH_VARIABLE, LINKS.into()),
        ] {
            let list = line.variable(name).map(|value| value.to_string_lossy().into_owned());
            if let Some(list) = list.filter(|list| !list.split([':', ' ']).any(|entry| entry == ours)) {
                return refuse(format!(
                    "--env {name}={list} would keep rgpu out: give --env {name}={ours}:{list}"
                ));
            }
        }
        if let Some(setting) = own_variables().find(|name| line.variable(name).is_some()) {
            return refuse(format!("{setting} is set in the container by rgpu: leave --env {setting} to it"));
        }
        let library = library::find()?;
        let links = Links::for_container(Path::new(LIBRARY), Path::new(COMMAND))?;
        let image = Image::look_at(&line, &library)?;
        Ok(Some(Self { line, image, links, library, place: None }))
    }

    /// What a broker knows the program by.
    pub(super) fn program(&self) -> &[OsString] {
        self.line.program_inside()
    }

    /// Whether something has to be done when the container has ended.
    pub(super) fn holds_ticket(&self) -> bool {
        self.place.is_some()
    }

    /// Completes the engine's command, whose environment says where the GPU is.
    pub(super) fn complete(&mut self, command: &mut Command, leased: Option<&Leased>) -> Result<(), Failure> {
        let mut options: Vec<OsString> = Vec::new();
        let own_command = std::env::current_exe()
            .map_err(|e| Failure::new(format!("Cannot find out where this command is: {e}")))?;
        mount(&mut options, &self.library, LIBRARY, false)?;
        mount(&mut options, &own_command, COMMAND, false)?;
        mount(&mut options, self.links.directory(), LINKS, false)?;
        let servers = self.show_ticket(command, &mut options, leased)?;
        self.check_network(&servers)?;
        for (variable, there, written) in FILES {
            if let Some(file) = value(command, variable) {
                mount(&mut options, Path::new(&file), there, written)?;
                set(&mut options, variable, OsStr::new(there));
                self.check_user(variable)?;
            }
        }
        for path in value(command, NVME_DEVICES_VARIABLE)
            .iter()
            .flat_map(|list| list.as_bytes().split(|b| *b == b','))
        {
            options.push("--device".into());
            options.push(OsStr::from_bytes(path).to_owned());
        }
        let placed: Vec<&str> = FILES.iter().map(|(name, ..)| *name).chain([LEASE_VARIABLE]).collect();
        for name in
            settings::all().into_iter().filter(|row| row.reader == Reader::Program).map(|row| row.name)
        {
            if !placed.contains(&name) && value(command, name).is_some() {
                // By name: the engine's client has the value, which other users of the machine could read among its arguments.
                options.push("--env".into());
                options.push(name.into());
            }
        }
        self.set_loader_paths(command, &mut options);
        command.args(&self.line.globals).args(&self.line.words).args(options).args(&self.line.rest);
        Ok(())
    }

    /// Puts the ticket, if there is one, where the container sees it. Returns the servers' addresses.
    fn show_ticket(
        &mut self,
        command: &mut Command,
        options: &mut Vec<OsString>,
        leased: Option<&Leased>,
    ) -> Result<Vec<String>, Failure> {
        let inherited = value(command, LEASE_VARIABLE).filter(|_| leased.is_none()).map(PathBuf::from);
        if leased.is_none() && inherited.is_none() {
            let servers = value(command, SERVER_VARIABLE).unwrap_or_default();
            return Ok(servers.to_string_lossy().split(',').map(|one| one.trim().to_owned()).collect());
        }
        let mut place = Place::create()?;
        let failed = |e| Failure::new(format!("The lease's ticket cannot be shown to the container: {e}"));
        match (leased, inherited) {
            (Some(leased), _) => leased.copy_ticket_to(&place.ticket()).map_err(failed)?,
            (None, Some(path)) => place.follow(path).map_err(failed)?,
            (None, None) => {}
        }
        let ticket = Ticket::read(&place.ticket()).map_err(failed)?;
        mount(options, &place.shown(), LEASE, false)?;
        set(options, LEASE_VARIABLE, OsStr::new(&format!("{LEASE}/ticket")));
        self.check_user("The lease's ticket")?;
        command.env_remove(LEASE_VARIABLE);
        self.place = Some(place);
        Ok(ticket.servers.into_iter().map(|server| server.address).collect())
    }

    /// Sets what the loader reads. What the image says itself stays behind that.
    fn set_loader_paths(&self, command: &Command, options: &mut Vec<OsString>) {
        let user_set = |name: &str| self.line.variable(name).is_some();
        let image = |name: &str| self.image.variable(name);
        if !user_set(PRELOAD_VARIABLE) {
            let ours = Path::new(LINKS).join(library::FILE_NAME);
            let list = prepend(&ours, image(PRELOAD_VARIABLE).as_deref(), separators(PRELOAD_VARIABLE));
            set(options, PRELOAD_VARIABLE, &list);
        }
        let software = value(command, SOFTWARE_TOOLS_VARIABLE).is_some_and(|value| value != "0");
        let tools = Path::new(LINKS).join(library::SOFTWARE);
        if !user_set(LIBRARY_PATH_VARIABLE) {
            let ends = separators(LIBRARY_PATH_VARIABLE);
            let mut list = prepend(Path::new(LINKS), image(LIBRARY_PATH_VARIABLE).as_deref(), ends);
            if software {
                list = prepend(&tools, Some(&list), ends);
            }
            set(options, LIBRARY_PATH_VARIABLE, &list);
        }
        if software {
            // Of the packages in the image nothing is known: `rgpu run` in the container finds out more (docs/containers.md).
            for setting in frameworks::settings(None, &tools) {
                if !user_set(setting.name) {
                    set(options, setting.name, &setting.value);
                }
            }
        }
    }

    /// Refuses a network from which the servers cannot be reached.
    fn check_network(&self, servers: &[String]) -> Result<(), Failure> {
        let network = self.line.option(&["network", "net"]).map(|value| value.to_string_lossy().into_owned());
        let network = network.as_deref().unwrap_or("");
        // A container's, a namespace's, or one that leads to this machine: the user knows.
        if ["host", "container:", "ns:", "pod:"].iter().any(|known| network.starts_with(known))
            || network.contains("host_loopback=true")
        {
            return Ok(());
        }
        let remedy = "add --network host";
        match servers
            .iter()
            .find(|server| !server.is_empty() && (network == "none" || is_this_machine(server)))
        {
            Some(server) if network == "none" => Err(Failure::with_status(
                format!("The server {server} cannot be reached from a container without a network: {remedy}"),
                2,
            )),
            Some(server) => Err(Failure::with_status(
                format!(
                    "The server {server} listens for this machine alone, and the container has a network of its own: {remedy} after \
                     `{} run`, or use a server that listens on an address which containers reach",
                    self.line.engine
                ),
                2,
            )),
            None => Ok(()),
        }
    }

    /// Refuses a user of the container who could not read a file that only this user can read.
    fn check_user(&self, what: &str) -> Result<(), Failure> {
        let said = self.line.option(&["u", "user"]).map(|user| user.to_string_lossy().into_owned());
        let Some(user) = said.or_else(|| self.image.user()) else { return Ok(()) };
        let user = user.split(':').next().unwrap_or_default();
        let own = rustix::process::geteuid().as_raw();
        let userns = self.line.option(&["userns"]).is_some();
        // Without root's rights, Podman's root in the container is this user, and all others are strangers.
        let same = user == own.to_string() && !(self.line.engine == "podman" && own != 0);
        if user.is_empty() || user == "root" || user == "0" || same || userns {
            return Ok(());
        }
        let remedy = match (self.line.engine, own) {
            ("podman", 1..) => format!("--userns keep-id --user {own}"),
            _ => format!("--user {own}"),
        };
        Err(Failure::with_status(
            format!(
                "{what} can be read by you and root alone, and the container's program runs as {user}: add {remedy} after `{} run`",
                self.line.engine
            ),
            2,
        ))
    }
}

/// What a broker knows a command's program by: what runs in the container, where the command starts one.
pub(super) fn program_of(command: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let line = Line::of(command)?;
    Ok(line.map_or_else(|| command.to_vec(), |line| line.program_inside().to_vec()))
}

/// What rgpu itself sets in the container: users who set it would be surprised by what counts.
fn own_variables() -> impl Iterator<Item = &'static str> {
    let device = [LEASE_VARIABLE, SERVER_VARIABLE, settings::IN_PROCESS_VARIABLE];
    device.into_iter().chain(FILES.map(|(name, ..)| name))
}

/// A variable as the command is going to have it.
fn value(command: &Command, name: &str) -> Option<OsString> {
    let set = command.get_envs().find(|(set, _)| *set == name).map(|(_, value)| value.map(OsStr::to_owned));
    set.unwrap_or_else(|| settings::variable(name)).filter(|value| !value.is_empty())
}

fn set(options: &mut Vec<OsString>, name: &str, value: &OsStr) {
    let mut assignment = OsString::from(name);
    assignment.push("=");
    assignment.push(value);
    options.push("--env".into());
    options.push(assignment);
}

fn mount(options: &mut Vec<OsString>, here: &Path, there: &str, written: bool) -> Result<(), Failure> {
    let here = std::path::absolute(here).unwrap_or_else(|_| here.to_owned());
    if here.as_os_str().as_bytes().iter().any(|byte| b",\"\n".contains(byte)) {
        let text = format!(
            "{} cannot be mounted in a container: its name has a comma or a quotation mark",
            here.display()
        );
        return Err(Failure::new(text));
    }
    let mut option = OsString::from("type=bind,source=");
    option.push(here);
    option.push(format!(",target={there}"));
    if !written {
        option.push(",readonly");
    }
    options.push("--mount".into());
    options.push(option);
    Ok(())
}
