//! The broker's web page, in Chromium: every view by mouse and by keyboard, and what it says against what the API says.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_control::api::{Lease, LeaseRequest, LeaseState};
use rgpu_control::token::{PrivateKey, Role};
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::browser::{self, Browser};
use rgpu_tests::cluster::{Cluster, Setup};
use rgpu_tests::process;
use serde_json::json;

use super::SOON;
use crate::context::product;

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("cluster::the_web_page_shows_what_there_is", page)]
}

/// A name that would be executed if it were taken for HTML.
const HOSTILE: &str = "<img src=x onerror=document.title='broken'>";

/// Where screenshots are left, if anywhere.
const SCREENSHOTS: &str = "RGPU_TEST_SCREENSHOTS";

/// The page's tabs, and what a view's heading says.
const TABS: [(&str, &str); 5] = [
    ("overview", "Overview"),
    ("devices", "Nodes and devices"),
    ("leases", "Leases"),
    ("queue", "Queue"),
    ("rounds", "Placement rounds"),
];

struct Scene {
    cluster: Cluster,
    browser: Browser,
    origin: String,
}

fn page() -> Result<()> {
    let packages = browser::chromium().map_err(|e| Skip(format!("{e:#}")))?;
    let setup = Setup::servers(2).each(&["--device", "software:2", "--memory", "2G"]);
    let cluster = Cluster::on_loopback(product()?, &setup)?;
    let browser = Browser::start(&packages)?;
    let origin = cluster.url();
    let mut scene = Scene { cluster, browser, origin };
    let leases = scene.fill()?;
    scene.enter()?;
    scene.views(&leases)?;
    scene.by_keyboard()?;
    scene.on_a_phone()?;
    scene.as_tenant()?;
    let Scene { browser, origin, .. } = &scene;
    ensure!(browser.complaints.is_empty(), "the page complains: {:#?}", browser.complaints);
    let elsewhere = browser.requested.iter().find(|url| !url.starts_with(origin) && *url != "about:blank");
    ensure!(elsewhere.is_none(), "the page loads {elsewhere:?}");
    scene.broker_away()
}

fn wish(name: &str, gpus: u16, share_milli: u16, memory: u64) -> LeaseRequest {
    let holder = PrivateKey::generate().public().to_text();
    LeaseRequest { gpus, share_milli, memory, ..LeaseRequest::new(name.into(), "a-laptop".into(), holder) }
}

impl Scene {
    /// Leases of two tenants: parts, a whole device, one on two nodes, one that has ended, and two that wait.
    fn fill(&self) -> Result<Vec<Lease>> {
        let ask = |tenant: &str, request: LeaseRequest| {
            self.cluster.tenant(tenant, move |broker| broker.request_lease(&request))
        };
        let over = ask("ann", LeaseRequest { wait_s: 30, ..wish("warm-up", 1, 1000, 0) })?;
        self.cluster.tenant("ann", |broker| broker.release(over.id))?;
        self.cluster
            .wait("the first lease has ended", SOON, |cluster| Ok(cluster.leases(false)?.is_empty()))?;
        for (tenant, request) in [
            ("ann", wish("train-resnet", 1, 600, 1 << 30)),
            ("bob", wish(HOSTILE, 1, 250, 256 << 20)),
            ("ann", wish("two-gpus", 2, 1000, 0)),
            (
                "bob",
                LeaseRequest { deadline_s: Some(30.0), estimate_s: Some(20.0), ..wish("big", 4, 1000, 0) },
            ),
            ("ann", wish("next", 2, 1000, 0)),
        ] {
            ask(tenant, request)?;
        }
        let mut seen = Vec::new();
        self.cluster.wait("three are granted, two wait, and it is known for whom", SOON, |cluster| {
            seen = cluster.leases(false)?;
            let count = |state| seen.iter().filter(|lease| lease.state == state).count();
            let known = seen.iter().all(|l| l.state != LeaseState::Waiting || l.estimate.is_some());
            Ok(count(LeaseState::Active) == 3 && count(LeaseState::Waiting) == 2 && known)
        })?;
        Ok(seen)
    }

    /// Opens the page with a token: a bad one first, then one in the address.
    fn enter(&mut self) -> Result<()> {
        let token = self.cluster.token(Role::Admin, "root");
        let browser = &mut self.browser;
        browser.look(1200, 900, false)?;
        browser.go(&self.origin)?;
        browser.wait("location.pathname === '/ui/' && document.activeElement?.id === 'token'")?;
        browser.enter("rgpu1.nonsense.x")?;
        browser.press("Enter")?;
        browser.wait_for_text("The broker refuses this token")?;
        // The browser itself notes that a request was refused.
        browser.complaints.retain(|complaint| !complaint.contains("401"));
        ensure!(browser.complaints.is_empty(), "{:?}", browser.complaints);
        browser.go("about:blank")?;
        browser.go(&format!("{}/ui/#token={token}", self.origin))?;
        browser.wait_for_text("Where leases are")?;
        let address = browser.text("location.href")?;
        ensure!(address == format!("{}/ui/#/overview", self.origin), "the address is {address}");
        let history = browser.call("Page.getNavigationHistory", json!({}))?.to_string();
        ensure!(!history.contains(&token), "the token's address is in the history: {history}");
        browser.wait_for_text("root (admin)")?;
        let headers =
            browser.text("fetch('/ui/').then((answer) => answer.headers.get('content-security-policy'))")?;
        ensure!(headers.contains("default-src 'none'") && !headers.contains("unsafe"), "{headers}");
        Ok(())
    }

    /// Goes through every view by mouse.
    fn views(&mut self, leases: &[Lease]) -> Result<()> {
        let find =
            |name: &str| leases.iter().find(|lease| lease.name == name).with_context(|| name.to_owned());
        let summary = self.cluster.admin(|broker| broker.summary())?;
        let granted = f64::from(u32::try_from(summary.granted_milli)?) / 1000.0;
        for text in [
            format!("GPUs granted\n{granted}\nof {}", summary.devices),
            "Leases active\n3".into(),
            "Waiting\n2".into(),
            "is not expected to keep its deadline".into(),
            HOSTILE.into(),
        ] {
            self.browser.wait_for_text(&text)?;
        }
        self.leave("overview")?;

        self.browser.click("#tab-devices")?;
        self.browser.wait("document.querySelectorAll('article').length === 2")?;
        for device in self.cluster.devices()? {
            let part = format!("{}\u{202f}% granted", f64::from(device.granted_milli) / 10.0);
            let row = format!("article[data-key={:?}] tr[data-key=\"{}\"]", device.node, device.report.index);
            self.browser
                .wait(&format!("document.querySelector('{row}')?.innerText.includes({})", json!(part)))?;
        }
        self.leave("devices")?;

        // A device's life: the lease that has ended, and the one that is there.
        let train = find("train-resnet")?;
        let at = &train.grants[0];
        self.browser.click(&format!("a[href=\"#/device/{}/{}\"]", at.node, at.device))?;
        self.browser.wait_for_text(&format!("GPU {} of {}", at.device, at.node))?;
        self.browser.wait("document.querySelectorAll('svg.timeline a').length >= 1")?;
        let history = self.cluster.admin(|broker| broker.history(&at.node, 0))?;
        ensure!(history.interval_s == 10 && history.devices.len() == 2, "{history:?}");
        // The first interval is over after ten seconds.
        self.browser.wait("document.querySelectorAll('figure.chart').length === 3")?;
        self.browser.wait(
            r"document.querySelector('figure.chart path.line.granted').getAttribute('d').includes('M')",
        )?;
        self.leave("device")?;

        self.browser.click("#tab-leases")?;
        self.browser.wait("document.querySelectorAll('tbody tr').length === 5")?;
        for lease in leases {
            let row = format!("tr[data-key=\"{}\"]", lease.id);
            for text in [&lease.name, &lease.tenant, &lease.state.name().to_owned()] {
                self.browser
                    .wait(&format!("document.querySelector('{row}').innerText.includes({})", json!(text)))?;
            }
        }
        self.browser.click("#ended-leases")?;
        self.browser.wait("document.querySelectorAll('tbody tr').length === 6")?;
        self.browser.wait_for_text("warm-up")?;
        self.browser.click("#filter-leases")?;
        self.browser.enter("resnet")?;
        self.browser.wait("document.querySelectorAll('tbody tr').length === 1")?;
        self.leave("leases")?;

        // Why a lease waits, as `rgpu explain` says it.
        let big = find("big")?;
        self.browser.click("#tab-queue")?;
        self.browser.wait("document.querySelectorAll('tbody tr').length === 2")?;
        let estimate = big.estimate.as_ref().context("no estimate")?;
        self.browser.wait_for_text("not known")?;
        self.browser.wait_for_text("not expected to be kept")?;
        ensure!(estimate.start.is_none(), "{estimate:?}");
        self.leave("queue")?;
        self.browser.click(&format!("a[href=\"#/lease/{}\"]", big.id))?;
        self.browser.wait_for_text("In its way")?;
        let why = self.cluster.admin(|broker| broker.explain(big.id))?;
        ensure!(!why.blocked_by.is_empty(), "{why:?}");
        for blocker in &why.blocked_by {
            let place = format!("{}/{}", blocker.node, blocker.device);
            self.browser.wait_for_text(&place)?;
            self.browser.wait_for_text(blocker.name.as_deref().unwrap_or_default())?;
        }
        self.browser.wait_for_text(&why.outcome)?;
        self.leave("lease")?;

        self.browser.click("#tab-rounds")?;
        self.browser.wait("document.querySelectorAll('svg.placements').length >= 3")?;
        let rounds = self.cluster.admin(|broker| broker.rounds())?;
        let placed: usize =
            rounds.iter().flat_map(|round| &round.granted).map(|lease| lease.grants.len()).sum();
        for _ in 0..7 {
            // At most 64 are remembered, ten more are shown each time.
            self.browser.value("document.querySelector('[data-action=more-rounds]')?.click()")?;
        }
        let drawn = self.browser.value("document.querySelectorAll('svg.placements path.link').length")?;
        ensure!(drawn == placed && placed == 5, "{drawn} lines for {placed} devices");
        self.leave("rounds")?;

        // Nothing was taken for HTML.
        ensure!(
            self.browser.value("document.querySelectorAll('img[src=x]').length")? == 0,
            "a name became an image"
        );
        ensure!(!self.browser.text("document.title")?.contains("broken"), "a name was executed");
        Ok(())
    }

    /// Goes through every view by keyboard alone.
    fn by_keyboard(&mut self) -> Result<()> {
        let browser = &mut self.browser;
        browser.click("#tab-overview")?;
        browser.wait("document.activeElement.id === 'tab-overview'")?;
        for (tab, heading) in TABS {
            browser.wait(&format!("document.activeElement.id === 'tab-{tab}'"))?;
            browser
                .wait(&format!("document.querySelector('#view h2').textContent === {}", json!(heading)))?;
            browser.wait(&format!("document.querySelector('#tab-{tab}').ariaSelected === 'true'"))?;
            browser.press("ArrowRight")?;
        }
        browser.wait("document.activeElement.id === 'tab-overview'")?;
        browser.press("End")?;
        browser.wait("document.activeElement.id === 'tab-rounds'")?;
        browser.press("Home")?;
        browser.press("ArrowRight")?;
        browser.wait("document.activeElement.id === 'tab-devices'")?;
        // From the tabs into the view, to the first device, and there: the focus goes along, and is to be seen.
        browser.wait("document.querySelector('article a') !== null")?;
        for _ in 0..5 {
            if browser.value("document.activeElement.matches('article a')")? == true {
                break;
            }
            browser.press("Tab")?;
        }
        browser.wait("document.activeElement.matches('article a')")?;
        let outline = browser.text("getComputedStyle(document.activeElement).outlineStyle")?;
        ensure!(outline == "solid", "the focus is not to be seen: {outline}");
        // What is shown anew each second leaves it where it is.
        std::thread::sleep(Duration::from_millis(2500));
        ensure!(browser.value("document.activeElement.matches('article a')")? == true, "the focus was lost");
        browser.press("Enter")?;
        browser.wait("document.activeElement.tagName === 'H2' && location.hash.startsWith('#/device/')")?;
        // Over the skip link at the beginning.
        browser.value("document.activeElement.blur()")?;
        browser.value("document.querySelector('#skip').focus()")?;
        browser.press("Enter")?;
        browser.wait("document.activeElement.id === 'view'")?;
        // Everything that can be used has a name, and no heading is left out.
        let nameless = browser.value(
            "[...document.querySelectorAll('a, button, input, select')].filter((it) => !it.hidden && it.checkVisibility() && \
             !(it.textContent.trim() || it.ariaLabel || it.labels?.length)).map((it) => it.outerHTML)",
        )?;
        ensure!(nameless == json!([]), "without a name: {nameless}");
        Ok(())
    }

    /// At 360 pixels nothing is wider than the screen, and no text has too little contrast, light and dark.
    fn on_a_phone(&mut self) -> Result<()> {
        for dark in [false, true] {
            self.browser.look(360, 740, dark)?;
            for (tab, heading) in TABS {
                self.browser.click(&format!("#tab-{tab}"))?;
                self.browser.wait(&format!(
                    "document.querySelector('#view h2').textContent === {}",
                    json!(heading)
                ))?;
                self.browser.wait("!document.body.innerText.includes('Asking the broker')")?;
                let wide = self.browser.value("document.documentElement.scrollWidth")?;
                ensure!(wide.as_u64().is_some_and(|wide| wide <= 360), "{tab} is {wide} pixels wide");
                let faint = self.browser.value(CONTRAST)?;
                ensure!(faint == json!([]), "{tab}, dark {dark}: too little contrast: {faint}");
                self.leave(&format!("phone-{tab}-{}", if dark { "dark" } else { "light" }))?;
            }
        }
        self.browser.look(1200, 900, true)?;
        self.browser.click("#tab-overview")?;
        self.browser.wait_for_text("Where leases are")?;
        self.leave("overview-dark")?;
        self.browser.look(1200, 900, false)
    }

    /// A tenant sees its own leases, and no trace of others' names.
    fn as_tenant(&mut self) -> Result<()> {
        let link = process::run(&mut self.cluster.client("ann", &["ui"])?)?.success()?.stdout;
        let address =
            process::run(&mut self.cluster.client("ann", &["ui", "--without-token"])?)?.success()?.stdout;
        ensure!(address.trim() == format!("{}/ui/", self.origin), "{address}");
        let browser = &mut self.browser;
        browser.click("#forget")?;
        browser.wait("document.querySelector('#door').checkVisibility() && sessionStorage.length === 0")?;
        let shown = browser.text("document.body.innerText")?;
        ensure!(!shown.contains("train-resnet"), "what the token showed is still there: {shown}");
        browser.go(link.trim())?;
        browser.wait_for_text("ann (tenant)")?;
        for (tab, _) in TABS {
            browser.click(&format!("#tab-{tab}"))?;
            browser.wait("!document.body.innerText.includes('Asking the broker')")?;
            let text = browser.text("document.body.innerText")?;
            ensure!(
                !text.contains("onerror") && !text.contains("bob"),
                "{tab} shows another tenant's: {text}"
            );
        }
        browser.click("#tab-queue")?;
        browser.wait_for_text("1 request of other tenants wait")?;
        browser.wait_for_text("next")
    }

    /// While the broker is away the page says so, and goes on when it is back.
    fn broker_away(&mut self) -> Result<()> {
        self.browser.click("#tab-overview")?;
        self.browser.wait_for_text("Where leases are")?;
        self.cluster.broker()?.kill(false);
        self.browser.wait("!document.querySelector('#banner').hidden")?;
        self.browser.wait_for_text("No answer since")?;
        self.leave("away")?;
        self.cluster.start_broker()?;
        self.cluster.wait_ready()?;
        self.browser.wait("document.querySelector('#banner').hidden")?;
        self.browser.wait_for_text("the broker has started")
    }

    /// Takes a picture of what is shown: it is one, and is kept where somebody wants it.
    fn leave(&mut self, name: &str) -> Result<()> {
        let picture = self.browser.screenshot()?;
        ensure!(picture.starts_with(b"\x89PNG") && picture.len() > 4000, "{name}: no picture");
        if let Some(folder) = std::env::var_os(SCREENSHOTS) {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(Path::new(&folder).join(format!("{name}.png")), picture)?;
        }
        Ok(())
    }
}

/// The texts of the page whose contrast with what is behind them is below 4.5 (Web Content Accessibility Guidelines 2.2, 1.4.3).
const CONTRAST: &str = r#"(() => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const rgb = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => {
        const part = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    };
    const behind = (element) => {
        for (let it = element; it; it = it.parentElement) {
            const color = rgb(getComputedStyle(it).backgroundColor);
            if (color[3] === 255) return color;
        }
        return [255, 255, 255, 255];
    };
    const faint = [];
    const all = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = all.nextNode(); text; text = all.nextNode()) {
        const it = text.parentElement;
        if (!text.nodeValue.trim() || !it.checkVisibility() || it.closest("svg, noscript, .skip")) continue;
        const [a, b] = [light(rgb(getComputedStyle(it).color)), light(behind(it))].sort((x, y) => y - x);
        const contrast = (a + 0.05) / (b + 0.05);
        if (contrast < 4.5) faint.push(`${contrast.toFixed(2)}: ${text.nodeValue.slice(0, 40)}`);
    }
    return faint;
})()"#;
