//! Modules that cross the wire once: what a second run sends, and what becomes of a damaged store.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::process;
use rgpu_tests::product::{Daemon, temporary};
use rgpu_tests::proxy::{Counts, Proxy};

use crate::context::{plain, product};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("modules::sixty_of_1_mib_take_3_round_trips_the_second_time", sixty),
        Test::new("modules::a_damaged_image_is_sent_again", damaged),
        Test::new("modules::an_image_that_vanishes_during_the_session_is_asked_for", vanished),
        Test::new("modules::tenants_do_not_see_each_others_images", tenants),
    ]
}

/// A directory that is removed in the end.
struct Cache(PathBuf);

impl Cache {
    fn new() -> Self {
        Self(temporary("images"))
    }

    fn option(&self) -> [String; 2] {
        ["--image-cache".into(), self.0.display().to_string()]
    }

    /// The images of all tenants.
    fn images(&self) -> Result<Vec<PathBuf>> {
        let mut found = vec![];
        for tenant in fs::read_dir(&self.0).context("There is no cache of images")? {
            let tenant = tenant?.path();
            // Beside each tenant's images lies what was compiled of them.
            if tenant.to_string_lossy().ends_with("-code") {
                continue;
            }
            for file in fs::read_dir(tenant)? {
                found.push(file?.path());
            }
        }
        found.sort();
        Ok(found)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // may never have been made
    }
}

/// Runs the program with so many modules, and says what passed the wire.
fn run(daemon: &Daemon, modules: &str, token: Option<&Path>) -> Result<Counts> {
    let proxy = Proxy::start(daemon.address())?;
    let mut command = product()?.run(proxy.address());
    if let Some(token) = token {
        command.arg("--token-file").arg(token);
    }
    process::run(command.arg("--").arg(plain("many_modules")?).arg(modules))?.success()?;
    let counts = proxy.counts()?;
    println!("{modules} modules: {counts:?}");
    Ok(counts)
}

/// Waits until the server has stored so many images.
fn stored(cache: &Cache, images: usize) -> Result<()> {
    let there = || cache.images().is_ok_and(|found| found.iter().filter(|f| is_image(f)).count() == images);
    process::wait_until("the images are stored", Duration::from_secs(60), there).map(drop)
}

fn is_image(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.len() == 64)
}

fn sixty() -> Result<()> {
    let cache = Cache::new();
    let [option, place] = cache.option();
    {
        let daemon = Daemon::start_with(product()?, &[&option, &place])?;
        let first = run(&daemon, "60", None)?;
        ensure!(first.to_server > 60 << 20, "the first run sent {} bytes only", first.to_server);
        stored(&cache, 60)?;
    }
    // They outlive the daemon.
    let daemon = Daemon::start_with(product()?, &[&option, &place])?;
    let second = run(&daemon, "60", None)?;
    ensure!(second.round_trips <= 3, "{} round trips", second.round_trips);
    ensure!(second.to_server < 100 << 10, "{} bytes were sent", second.to_server);
    Ok(())
}

fn damaged() -> Result<()> {
    let cache = Cache::new();
    let [option, place] = cache.option();
    let daemon = Daemon::start_with(product()?, &[&option, &place])?;
    run(&daemon, "4", None)?;
    stored(&cache, 4)?;
    let images = cache.images()?;
    let sound = fs::read(&images[1])?;
    let mut bytes = sound.clone();
    bytes[500_000] ^= 1;
    fs::write(&images[1], &bytes)?;
    fs::write(&images[2], b"short")?;
    let again = run(&daemon, "4", None)?;
    let sent = 2 << 20..(2 << 20) + (100 << 10);
    ensure!(sent.contains(&again.to_server), "{} bytes were sent for two images", again.to_server);
    ensure!(again.round_trips <= 3, "{} round trips", again.round_trips);
    process::wait_until("the image is whole again", Duration::from_secs(60), || {
        fs::read(&images[1]).is_ok_and(|now| now == sound)
    })?;
    Ok(())
}

fn vanished() -> Result<()> {
    let cache = Cache::new();
    let [option, place] = cache.option();
    let daemon = Daemon::start_with(product()?, &[&option, &place])?;
    run(&daemon, "3", None)?;
    stored(&cache, 3)?;
    // The names are there when the client is told of them, and lead nowhere.
    for image in cache.images()? {
        fs::remove_file(&image)?;
        std::os::unix::fs::symlink("/nonexistent", &image)?;
    }
    let again = run(&daemon, "3", None)?;
    ensure!(again.to_server > 3 << 20, "{} bytes were sent for three images", again.to_server);
    Ok(())
}

fn tenants() -> Result<()> {
    let cache = Cache::new();
    let [option, place] = cache.option();
    let token = temporary("token");
    fs::write(&token, "one of many")?;
    let name = token.display().to_string();
    let known = Daemon::start_with(product()?, &[&option, &place, "--token-file", &name])?;
    let anybody = Daemon::start_with(product()?, &[&option, &place])?;
    run(&known, "2", Some(&token))?;
    stored(&cache, 2)?;
    let other = run(&anybody, "2", None)?;
    ensure!(other.to_server > 2 << 20, "another tenant's images were used: {other:?}");
    let own = run(&known, "2", Some(&token))?;
    ensure!(own.to_server < 100 << 10, "its own images were not used: {own:?}");
    fs::remove_file(&token)?;
    Ok(())
}
