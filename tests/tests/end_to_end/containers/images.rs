//! Images of rgpu itself, built by the recipe of `packaging/container`, of packages that are made of the product. Debian's image is made
//! of Debian's packages, as no registry can be asked for it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Skip;
use rgpu_tests::container::{Engine, Kind};
use rgpu_tests::debian::essential_root;
use rgpu_tests::examples::repository;
use rgpu_tests::packages::Contents;
use rgpu_tests::packages::debian::{self, Effort};
use rgpu_tests::process::{self, wait_until};
use rgpu_tests::product::temporary;

use super::{LIMIT, engine};
use crate::context::{plain, product};
use crate::kubernetes::driver;

/// What the recipe begins with.
const BASE: &str = "docker.io/library/debian:bookworm-slim";

/// A folder that goes when the test has ended.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server in a container; it goes when the test has ended.
struct Server<'a>(&'a Engine);

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = process::run(self.0.command().args(["rm", "--force", "server"]));
    }
}

impl Server<'_> {
    fn log(&self) -> Result<String> {
        Ok(process::run(self.0.command().args(["logs", "server"]))?.output())
    }
}

/// The folder with the packages, which is the build's context.
fn packages(folder: &Folder) -> Result<PathBuf> {
    let context = folder.0.join("packages");
    let driver = driver()?;
    let folders = [product()?.directory(), driver.parent().context("the driver is in a folder")?];
    let contents = Contents::collect(&folders, &folder.0.join("contents"))?;
    debian::make(&contents, &folder.0, &context, Effort::Little)?;
    Ok(context)
}

fn build(engine: &Engine, target: &str, context: &Path) -> Result<()> {
    let recipe = repository().join("packaging/container/Containerfile");
    let mut command = engine.command();
    let name = format!("rgpu-{target}");
    command.args(["build", "--network", "none", "--target", target, "--tag", &name, "--file"]);
    process::run(command.arg(recipe).arg(context))?.success().map(drop)
}

pub(super) fn serve_each_other(kind: Kind) -> Result<()> {
    let program = plain("vector_add")?;
    driver()?;
    let guard = engine(kind)?;
    let engine = guard.engine()?;
    let base = essential_root("bookworm")
        .map_err(|e| Skip(format!("it needs a root directory of Debian packages: {e:#}")))?;
    let folder = Folder(temporary("images"));
    fs::create_dir_all(&folder.0)?;
    let context = packages(&folder)?;
    engine.import(&base, BASE)?;
    for target in ["client", "server", "kubernetes"] {
        build(engine, target, &context).with_context(|| format!("building {target}"))?;
    }

    let server = Server(engine);
    let mut start = engine.command();
    start.args(["run", "--detach", "--name", "server", "--network", "host", "rgpu-server"]);
    start.args(["--listen", "127.0.0.1:0", "--device", "software", "--memory", "1G", "--insecure"]);
    process::run(&mut start)?.success()?;
    let mut address = None;
    wait_until("the server listens", LIMIT, || {
        let log = server.log().unwrap_or_default();
        let said =
            log.lines().find_map(|line| line.split_once("listening on ")).map(|(_, at)| at.trim().to_owned());
        address = said;
        address.is_some()
    })
    .with_context(|| server.log().unwrap_or_default())?;
    let address = address.context("no address")?;

    // The program is mounted, and knows nothing of rgpu.
    let mut client = engine.command();
    client.args(["run", "--rm", "--network", "host", "--volume"]);
    client.arg(format!("{}:/vector_add:ro", program.display()));
    client.args(["rgpu-client", "run", "--server", &address, "--", "/vector_add"]);
    let used = process::run(&mut client)?.success()?;
    ensure!(used.stdout.contains("vector_add: ok"), "{}", used.output());
    wait_until("the server tells of the session", LIMIT, || {
        server.log().is_ok_and(|log| log.contains("of vector_add ends: the application has finished"))
    })
    .with_context(|| server.log().unwrap_or_default())?;

    // The images' user is not root, and has a place for files.
    let once = |words: &[&str]| -> Result<String> {
        let mut command = engine.command();
        command.args(["run", "--rm", "--network", "none"]).args(words);
        Ok(process::run(&mut command)?.success()?.stdout)
    };
    let script = "rgpu broker init $HOME/broker >&2 && stat -c %U $HOME/broker";
    let owner = once(&["--entrypoint", "sh", "rgpu-server", "-c", script])?;
    ensure!(owner.trim() == "rgpu", "{owner:?}");
    let version = once(&["rgpu-kubernetes", "--version"])?;
    ensure!(version.starts_with("rgpu-kubernetes "), "{version:?}");
    ensure!(once(&["--entrypoint", "rgpu", "rgpu-kubernetes", "--version"])?.starts_with("rgpu "));
    Ok(())
}
