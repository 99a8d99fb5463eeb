//! The command line of a container engine: which container it starts, and what its options say that concerns rgpu.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::Failure;

/// The engines whose options are known.
const ENGINES: [&str; 3] = ["docker", "podman", "nerdctl"];

/// Options before the engine's command that take a value, of all engines together.
const VALUED_GLOBALS: [&str; 41] = [
    "--address",
    "--cdi-spec-dirs",
    "--cgroup-manager",
    "--cni-config-dir",
    "--cni-netconfpath",
    "--cni-path",
    "--config",
    "--conmon",
    "--connection",
    "--context",
    "--data-root",
    "--events-backend",
    "--hooks-dir",
    "--host",
    "--hosts-dir",
    "--identity",
    "--imagestore",
    "--log-level",
    "--module",
    "--namespace",
    "--network-cmd-path",
    "--network-config-dir",
    "--out",
    "--root",
    "--runroot",
    "--runtime",
    "--runtime-flag",
    "--snapshotter",
    "--ssh",
    "--storage-driver",
    "--storage-opt",
    "--tlscacert",
    "--tlscert",
    "--tlskey",
    "--tmpdir",
    "--url",
    "--volumepath",
    "-H",
    "-a",
    "-l",
    "-n",
];

/// Options of `run` and `create` that take no value but after `=`. All others take one.
const PLAIN_OPTIONS: [&str; 25] = [
    "--detach",
    "--disable-content-trust",
    "--env-host",
    "--help",
    "--http-proxy",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--no-hostname",
    "--no-hosts",
    "--oom-kill-disable",
    "--passwd",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--read-only-tmpfs",
    "--replace",
    "--rm",
    "--rmi",
    "--rootfs",
    "--sig-proxy",
    "--tls-verify",
    "--tty",
    "--use-api-socket",
];
/// The short ones.
const PLAIN_LETTERS: &[u8] = b"ditqP";

/// An engine's command that starts a container, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The engine's program, as it was typed.
    pub program: OsString,
    /// Its name, such as `docker`.
    pub engine: &'static str,
    /// The options before the command, such as `--root DIR`.
    pub globals: Vec<OsString>,
    /// The command: `run`, `create`, `container run`.
    pub words: Vec<OsString>,
    /// What follows the command: options, image, and what runs in the container.
    pub rest: Vec<OsString>,
    /// The options that are looked at, in their order: long names without dashes, and values.
    options: Vec<(String, OsString)>,
    /// Where in `rest` the image is.
    image: usize,
}

impl Line {
    /// Takes a command line apart. `None` where no container engine is started.
    pub(super) fn of(command: &[OsString]) -> Result<Option<Self>, Failure> {
        let Some((program, arguments)) = command.split_first() else { return Ok(None) };
        let name = Path::new(program).file_name();
        let Some(engine) = ENGINES.into_iter().find(|engine| name == Some(OsStr::new(engine))) else {
            return Ok(None);
        };
        let mut at = 0;
        while arguments.get(at).is_some_and(|argument| argument.as_bytes().starts_with(b"-")) {
            let short_of_engine = match (engine, arguments[at].to_str()) {
                ("docker" | "podman", Some("-c")) => true,
                (_, Some(option)) => VALUED_GLOBALS.contains(&option),
                _ => false,
            };
            at += if short_of_engine { 2 } else { 1 };
        }
        let (globals, arguments) = arguments.split_at(at.min(arguments.len()));
        let nested = usize::from(arguments.first().is_some_and(|word| word == "container"));
        let word = arguments.get(nested).map_or_else(String::new, |word| word.to_string_lossy().into_owned());
        if word != "run" && word != "create" {
            return Err(Failure::with_status(refusal(engine, &word), 2));
        }
        let (words, rest) = arguments.split_at(nested + 1);
        let (options, image) = options_of(rest);
        if image >= rest.len() && !options.iter().any(|(name, _)| name == "help") {
            return Err(Failure::with_status(
                format!("`{engine} {word}` names no image: rgpu run {engine} {word} [OPTIONS] IMAGE [CMD…]"),
                2,
            ));
        }
        Ok(Some(Self {
            program: program.clone(),
            engine,
            globals: globals.to_vec(),
            words: words.to_vec(),
            rest: rest.to_vec(),
            options,
            image,
        }))
    }

    /// The container's image, or its root directory with `--rootfs`.
    pub(super) fn image(&self) -> &OsStr {
        self.rest.get(self.image).map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// What runs in the container, where the line says it; else the image, by which a broker may know the program as well.
    pub(super) fn program_inside(&self) -> &[OsString] {
        match self.rest.get(self.image + 1..) {
            Some(inside) if !inside.is_empty() => inside,
            _ => self.rest.get(self.image..=self.image).unwrap_or_default(),
        }
    }

    /// Whether the container is only made, and started later.
    pub(super) fn only_creates(&self) -> bool {
        self.words.last().is_some_and(|word| word == "create")
    }

    /// The last value of an option; with several names for it.
    pub(super) fn option(&self, names: &[&str]) -> Option<&OsStr> {
        let mut found = self.options.iter().rev().filter(|(name, _)| names.contains(&name.as_str()));
        found.next().map(|(_, value)| value.as_os_str())
    }

    /// Whether an option that takes no value is on.
    pub(super) fn is_on(&self, names: &[&str]) -> bool {
        self.option(names).is_some_and(|value| value != "false")
    }

    /// The last value that the options give to an environment variable of the container.
    pub(super) fn variable(&self, name: &str) -> Option<&OsStr> {
        let mut values = self.options.iter().rev().filter(|(option, _)| option == "env" || option == "e");
        values.find_map(|(_, value)| {
            let value = value.as_bytes().strip_prefix(name.as_bytes())?;
            Some(OsStr::from_bytes(value.strip_prefix(b"=").or_else(|| value.is_empty().then_some(b""))?))
        })
    }

    /// Where the engine is, if it is said to be on another machine.
    pub(super) fn remote_host(&self) -> Option<String> {
        let mut globals = self.globals.iter();
        let mut said = None;
        while let Some(option) = globals.next() {
            let text = option.to_string_lossy();
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (text.into_owned(), None),
            };
            if matches!(name.as_str(), "-H" | "--host" | "--url") {
                said = value.or_else(|| Some(globals.next()?.to_string_lossy().into_owned()));
            }
        }
        let variable = if self.engine == "podman" { "CONTAINER_HOST" } else { "DOCKER_HOST" };
        let said = said.or_else(|| rgpu_control::settings::text(variable));
        said.filter(|host| host.starts_with("tcp://") || host.starts_with("ssh://"))
    }
}

/// Why a command of an engine is not one for `rgpu run`.
fn refusal(engine: &str, word: &str) -> String {
    match word {
        "exec" => format!(
            "`{engine} exec` cannot give a GPU to a container that runs already: what it can reach was decided when it was started. \
             In a container that `rgpu run {engine} run` started, `{engine} exec` uses the same GPU: type it without `rgpu run`"
        ),
        "" => format!("Say which container to start: rgpu run {engine} run [OPTIONS] IMAGE [CMD…]"),
        _ => format!(
            "`{engine} {word}` is not supported: rgpu puts a GPU into containers that `{engine} run` or `{engine} create` makes. \
             What needs no GPU is typed without `rgpu run`"
        ),
    }
}

/// The options before the image, and where the image is.
fn options_of(rest: &[OsString]) -> (Vec<(String, OsString)>, usize) {
    let mut options = Vec::new();
    let mut at = 0;
    while let Some(argument) = rest.get(at) {
        let bytes = argument.as_bytes();
        if bytes == b"--" {
            return (options, at + 1);
        }
        if !bytes.starts_with(b"-") || bytes.len() == 1 {
            break;
        }
        at += 1;
        let mut next = || {
            let value = rest.get(at).cloned().unwrap_or_default();
            at += 1;
            value
        };
        if let Some(long) = bytes.strip_prefix(b"--") {
            let equals = long.iter().position(|&byte| byte == b'=');
            let name = String::from_utf8_lossy(&long[..equals.unwrap_or(long.len())]).into_owned();
            let value = match equals {
                Some(equals) => OsString::from_vec(long[equals + 1..].to_vec()),
                None if PLAIN_OPTIONS.contains(&format!("--{name}").as_str()) => "true".into(),
                None => next(),
            };
            options.push((name, value));
            continue;
        }
        // Several letters, of which the last may have a value: -it, -itv /a:/b, -eA=b.
        for (index, letter) in bytes.iter().enumerate().skip(1) {
            let name = char::from(*letter).to_string();
            if PLAIN_LETTERS.contains(letter) {
                options.push((name, "true".into()));
                continue;
            }
            let value = bytes[index + 1..].strip_prefix(b"=").unwrap_or(&bytes[index + 1..]);
            let value = if value.is_empty() { next() } else { OsString::from_vec(value.to_vec()) };
            options.push((name, value));
            break;
        }
    }
    (options, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn line(text: &str) -> Line {
        Line::of(&words(text)).unwrap_or_else(|e| panic!("{text}: {}", e.message)).expect("an engine")
    }

    #[test]
    fn the_image_is_found_among_the_options() {
        for text in [
            "docker run image app --flag",
            "/usr/bin/podman --root /r --log-level=debug run --rm -it -v /a:/b image app --flag",
            "podman --runtime runc container run -ite A=1 --name x image app --flag",
            "nerdctl -n k8s.io run --gpus all --rm -u=1:1 image app --flag",
            "docker -H unix:///x -D run --env-file f --read-only -p80:80 -- image app --flag",
            "docker -c default create -eA=1 --network host image app --flag",
        ] {
            let line = line(text);
            assert_eq!(
                (line.image(), line.program_inside()),
                (OsStr::new("image"), &words("app --flag")[..]),
                "{text}"
            );
            let whole = [&[line.program.clone()][..], &line.globals, &line.words, &line.rest].concat();
            assert_eq!(whole, words(text), "nothing is lost");
        }
        assert_eq!(line("docker run -d image").program_inside(), words("image"));
        assert!(line("docker create image").only_creates() && !line("docker run image").only_creates());
    }

    #[test]
    fn options_are_read_in_every_form() {
        let line = line(
            "podman run -itd --network=host -e A=1 -eA=2 --env LD_PRELOAD=/x --env B -u 5 --rm=false image -e A=3",
        );
        assert!(line.is_on(&["d", "detach"]) && line.is_on(&["t", "tty"]) && !line.is_on(&["rm"]));
        assert_eq!(line.option(&["network", "net"]).unwrap(), "host");
        assert_eq!(line.option(&["u", "user"]).unwrap(), "5");
        assert_eq!(line.variable("A").unwrap(), "2");
        assert_eq!(line.variable("B").unwrap(), "");
        assert_eq!(line.variable("LD_PRELOAD").unwrap(), "/x");
        assert!(line.variable("LD_PRELOA").is_none() && line.option(&["userns"]).is_none());
    }

    #[test]
    fn what_starts_no_container_is_refused_or_is_no_engine() {
        for (text, word) in [
            ("docker exec c app", "without `rgpu run`"),
            ("docker compose up", "not supported"),
            ("podman --root /r ps", "`podman ps`"),
            ("docker", "Say which container"),
            ("docker run", "names no image"),
            ("docker run --rm -e A=1", "names no image"),
        ] {
            let failure = Line::of(&words(text)).unwrap_err();
            assert!(failure.message.contains(word) && failure.status == 2, "{text}: {}", failure.message);
        }
        for text in ["", "./app docker run x", "/bin/dockerd run x"] {
            assert_eq!(Line::of(&words(text)).map_err(|e| e.message), Ok(None), "{text}");
        }
        assert_eq!(line("docker -H tcp://a:1 run i").remote_host().as_deref(), Some("tcp://a:1"));
        assert_eq!(line("podman --url=ssh://a run i").remote_host().as_deref(), Some("ssh://a"));
        assert_eq!(line("docker --host unix:///x run i").remote_host(), None);
    }
}
