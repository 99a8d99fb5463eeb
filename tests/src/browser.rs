//! Chromium without a window, driven by the DevTools protocol over a pair of pipes: messages are JSON, each ended by a zero byte.
//!
//! Nothing but the test can reach the browser (it opens no port), and its files are in a directory of its own.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::debian::Packages;
use crate::product;

/// How long anything may take; only something that hangs takes that long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A key, by its name, the code that old pages know it by, and the text that it types.
const KEYS: [(&str, u32, &str); 7] = [
    ("Tab", 9, ""),
    ("Enter", 13, "\r"),
    ("ArrowLeft", 37, ""),
    ("ArrowRight", 39, ""),
    ("Home", 36, ""),
    ("End", 35, ""),
    (" ", 32, " "),
];

/// A browser with one page; it ends when this is dropped.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: Receiver<Value>,
    directory: PathBuf,
    session: String,
    calls: u64,
    /// Whatever the page has logged as an error or a warning, and exceptions that nobody caught.
    pub complaints: Vec<String>,
    /// What the page has requested.
    pub requested: BTreeSet<String>,
}

/// Where Chromium is.
///
/// # Errors
/// It is neither installed nor to be had: a reason to skip a test.
pub fn chromium() -> Result<Packages> {
    Packages::find(&["chromium", "fonts-dejavu-core"], "chromium")
}

impl Browser {
    /// Starts one with an empty page.
    pub fn start(packages: &Packages) -> Result<Self> {
        let directory = product::temporary("browser");
        fs::create_dir_all(&directory)?;
        // The package's start script knows only its place in the system.
        let program = match packages.root() == Path::new("/") {
            true => packages.program("chromium")?,
            false => packages.file("usr/lib/chromium/chromium"),
        };
        // The protocol is spoken through descriptors 3 and 4.
        let script = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(program).args([
            "--remote-debugging-pipe",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
        ]);
        command.arg(format!("--user-data-dir={}", directory.join("profile").display())).arg("about:blank");
        command.env("HOME", &directory).envs(packages.environment()?);
        let log = File::create(directory.join("log"))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut child = command.spawn().context("Starting Chromium")?;
        let (input, stdout) =
            (child.stdin.take().context("No pipe")?, child.stdout.take().context("No pipe")?);
        let (message, output) = channel();
        std::thread::spawn(move || {
            for bytes in BufReader::new(stdout).split(0).map_while(Result::ok) {
                if serde_json::from_slice(&bytes).is_ok_and(|value| message.send(value).is_err()) {
                    break;
                }
            }
        });
        let mut browser = Self {
            child,
            input,
            output,
            directory,
            session: String::new(),
            calls: 0,
            complaints: Vec::new(),
            requested: BTreeSet::new(),
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach)?;
        browser.session = attached["sessionId"].as_str().context("no session")?.to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method of the protocol, and takes note of what happens until the answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.input.write_all(&bytes).with_context(|| format!("{method}: {}", self.log()))?;
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(mut answer) = self.output.recv_timeout(left) else {
                bail!("Chromium did not answer {method}: {}", self.log());
            };
            if answer["id"] != self.calls {
                self.note(&answer);
                continue;
            }
            ensure!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
            return Ok(answer["result"].take());
        }
    }

    fn note(&mut self, event: &Value) {
        let about = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.complaints.push(about["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" if about["type"] == "error" || about["type"] == "warning" => {
                self.complaints.push(about["args"].to_string());
            }
            "Log.entryAdded"
                if about["entry"]["level"] == "error" || about["entry"]["level"] == "warning" =>
            {
                let entry = &about["entry"];
                self.complaints.push(format!("{} {}", entry["text"], entry["url"]));
            }
            "Network.requestWillBeSent" => {
                self.requested.insert(about["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            _ => {}
        }
    }

    fn log(&self) -> String {
        let text = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        text.lines().rev().take(10).collect::<Vec<_>>().join("\n")
    }

    /// Goes to an address.
    pub fn go(&mut self, url: &str) -> Result<()> {
        let gone = self.call("Page.navigate", json!({"url": url}))?;
        ensure!(gone.get("errorText").is_none(), "{url}: {}", gone["errorText"]);
        Ok(())
    }

    /// The value of a JavaScript expression in the page.
    pub fn value(&mut self, expression: &str) -> Result<Value> {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut answer = self.call("Runtime.evaluate", parameters)?;
        ensure!(answer.get("exceptionDetails").is_none(), "{expression}: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].take())
    }

    /// The same as text.
    pub fn text(&mut self, expression: &str) -> Result<String> {
        let value = self.value(expression)?;
        Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, expression: &str) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        // While a page loads there may be nothing to evaluate in.
        while self.value(expression).ok() != Some(Value::Bool(true)) {
            if Instant::now() > until {
                let shown = self.text("document.body.innerText").unwrap_or_default();
                bail!("not within {PATIENCE:?}: {expression}\n{shown}\n{:?}", self.complaints);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Waits until the page shows a text.
    pub fn wait_for_text(&mut self, text: &str) -> Result<()> {
        self.wait(&format!("document.body.innerText.includes({})", json!(text)))
    }

    /// Clicks with the mouse on the middle of the first element that a CSS selector finds.
    pub fn click(&mut self, selector: &str) -> Result<()> {
        let quoted = json!(selector);
        self.wait(&format!("document.querySelector({quoted}) !== null"))?;
        let place = self.value(&format!(
            "(() => {{ const it = document.querySelector({quoted}); it.scrollIntoView({{block: 'center'}});\
             const box = it.getClientRects()[0]; return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ))?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// Presses and releases a key.
    pub fn press(&mut self, name: &str) -> Result<()> {
        let (_, code, text) =
            KEYS.iter().find(|key| key.0 == name).with_context(|| format!("key {name:?}"))?;
        for kind in ["keyDown", "keyUp"] {
            let typed = if kind == "keyDown" { *text } else { "" };
            let event = json!({"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code, "text": typed});
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// Types text.
    pub fn enter(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({"text": text})).map(drop)
    }

    /// Gives the page a size in CSS pixels, and a dark or a light system.
    pub fn look(&mut self, width: u32, height: u32, dark: bool) -> Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", media).map(drop)
    }

    /// What is to be seen, as a PNG.
    pub fn screenshot(&mut self) -> Result<Vec<u8>> {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}))?;
        Ok(STANDARD.decode(shot["data"].as_str().context("no picture")?)?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // SAFETY: kill takes no pointers. The group was made by us and is named after our own child, which has not been waited for.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory); // only tidiness
    }
}
