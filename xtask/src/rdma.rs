//! `cargo xtask test --rdma`: the examples and the transport's own tests over RDMA.
//!
//! Few machines have an RDMA device, and many kernels cannot even make one up. So Debian's kernel is started in a virtual
//! machine (emulated, no privileges needed), where `rdma_rxe` makes a device out of a network interface. The virtual
//! machine sees this machine's files, read-only; whatever was built here runs there.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rgpu_tests::examples::{self, Example, Linking};
use rgpu_tests::product::Product;
use rgpu_tests::toolkit::Version;

use crate::{Parts, build, cargo, compile_all, seconds, toolkit};

/// Without `crc32_generic` the device cannot be made, which no dependency says.
const MODULES: &[&str] = &[
    "crc32_generic",
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "rdma_rxe",
    "rdma_ucm",
    "veth",
    "dummy",
    "virtio_net",
];
const TOOLS: &[&str] = &["qemu-system-x86_64", "modprobe", "depmod", "cpio", "apt-get", "dpkg", "ip"];
const PACKAGES: &str = "qemu-system-x86 kmod cpio libibverbs1 ibverbs-providers iproute2";
/// The emulated machine is slow.
const TIME: Duration = Duration::from_secs(40 * 60);

/// Runs them; says whether all passed.
pub(crate) fn test(filter: &[String]) -> Result<bool> {
    for tool in TOOLS {
        let found =
            ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].iter().any(|d| Path::new(d).join(tool).exists());
        ensure!(found, "{tool} is missing; install {PACKAGES}");
    }
    let kernel = Kernel::fetch()?;
    println!("Built in {}", seconds(build(Parts::All)?));
    let product = Product::built()?;
    let (toolkit, _) = toolkit()?;
    compile_all(&toolkit)?;
    let unit_tests = unit_tests()?;

    let place = product.directory().join("rdma-vm");
    fs::create_dir_all(&place)?;
    let script = place.join("guest.sh");
    fs::write(&script, guest_script(&product, &unit_tests, filter)?)?;
    let initramfs = kernel.initramfs(&place)?;
    run(&kernel, &initramfs, &script)
}

/// The protocol's unit tests as a program.
fn unit_tests() -> Result<PathBuf> {
    let output = cargo(&["test", "-p", "rgpu-protocol", "--lib", "--no-run", "--message-format=json"])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the protocol's tests cannot be built");
    let text = String::from_utf8_lossy(&output.stdout);
    let path = text
        .lines()
        .filter(|l| l.contains("\"rgpu_protocol\""))
        .filter_map(|l| l.split_once("\"executable\":\"")?.1.split('"').next())
        .next_back()
        .context("cargo did not say where the protocol's tests are")?;
    Ok(path.into())
}

/// What is run in the virtual machine.
fn guest_script(product: &Product, unit_tests: &Path, filter: &[String]) -> Result<String> {
    let rgpu = product.directory().join("rgpu");
    let warm = examples::all()?.into_iter().next().context("no examples")?;
    let mut script = format!(
        r#"#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin XDG_CACHE_HOME=/run/cache TMPDIR=/run HOME=/run RGPU_CONNECT_TIMEOUT=120
/bin/mkdir -p /run/cache
case "$0" in /tmp/*) ;; *) mount -t tmpfs tmp /tmp ;; esac
ip link set lo up
ip link add v0 type veth peer name v1
ip addr add 10.77.0.1/24 dev v0
ip link set v0 up
ip link set v1 up
rdma link add rxe0 type rxe netdev v0 || exit 90
ulimit -l unlimited
for i in 1 2 3 4 5 6 7 8 9 10; do
  grep -q 0a4d:0001 /sys/class/infiniband/rxe0/ports/1/gids/* && break
  sleep 0.2
done
bad=0
verdict() {{ if [ "$2" = 0 ]; then echo "=PASS= $1"; else echo "=FAIL= $1 (status $2)"; bad=1; fi; }}
{unit} rdma --include-ignored --test-threads=1
verdict 'the transport itself' $?
{rgpu} serve --listen 10.77.0.1:7070 --device software --transport rdma --insecure > /run/serve.out 2> /run/serve.log &
for i in $(seq 100); do grep -q listening /run/serve.out && break; sleep 0.1; done
# The first time everything is read from this machine's disk, which takes longer than a hello may.
timeout 300 {rgpu} run --server 10.77.0.1:7070 --transport rdma -- {warm} > /dev/null 2>&1
one() {{
  timeout -k 5 "$2" {rgpu} run --server 10.77.0.1:7070 --transport rdma -- "$3" > /run/out 2> /run/err
  status=$?
  [ $status != 0 ] || grep -q "^$1: ok" /run/out || status=no-self-check
  [ $status = 0 ] || tail -n 5 /run/out /run/err
  verdict "$1" $status
}}
"#,
        unit = unit_tests.display(),
        rgpu = rgpu.display(),
        warm = warm.program(Version::Cuda13, Linking::Static).display(),
    );
    let program = |e: &Example| e.program(Version::Cuda13, Linking::Static).display().to_string();
    for example in examples::all()? {
        if filter.is_empty() || filter.iter().any(|f| example.name.contains(f.as_str())) {
            script += &format!("one {} 600 {}\n", example.name, program(&example));
        }
    }
    let endless =
        examples::for_tests()?.into_iter().find(|e| e.name == "endless").context("no endless program")?;
    script += &format!(
        r#"
# The server's process is killed: the program gets an error, soon.
start() {{
  {rgpu} run --server 10.77.0.1:7070 --transport rdma -- {endless} > /run/out 2> /run/err &
  client=$!
  for i in $(seq 600); do grep -q running /run/err && break; sleep 0.1; done
  server=$(pgrep -f __app-server | head -n 1)
}}
start
kill -9 $server
timeout 60 tail --pid=$client -f /dev/null
wait $client
status=$?
[ $status = 3 ] && status=0 || cat /run/err
verdict 'a server that is killed' $status
# The program is killed: the server's process goes with it, its kernel or not.
start
kill -9 $client
for i in $(seq 100); do kill -0 $server 2> /dev/null || break; sleep 0.1; done
kill -0 $server 2> /dev/null
[ $? != 0 ]
verdict 'a program that is killed' $?
tail -n 3 /run/serve.log
exit $bad
"#,
        rgpu = rgpu.display(),
        endless = program(&endless),
    );
    Ok(script)
}

struct Kernel {
    root: PathBuf,
    version: String,
    busybox: PathBuf,
}

impl Kernel {
    /// Debian's kernel and a static busybox, unpacked into the cache, not installed.
    fn fetch() -> Result<Self> {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
            .context("neither XDG_CACHE_HOME nor HOME is set")?;
        let root = cache.join("rgpu").join("rdma-vm");
        if !root.join("complete").exists() {
            println!("Fetching a kernel for the virtual machine");
            fs::create_dir_all(&root)?;
            let output = Command::new("apt-cache").args(["depends", "linux-image-amd64"]).output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let package = text
                .lines()
                .filter_map(|l| l.trim().strip_prefix("Depends: "))
                .find(|p| p.starts_with("linux-image-"))
                .context("apt does not know linux-image-amd64; run apt-get update")?;
            let done = Command::new("apt-get")
                .args(["download", "busybox-static", package])
                .current_dir(&root)
                .status()?;
            ensure!(done.success(), "apt-get cannot download {package}");
            for entry in fs::read_dir(&root)?.flatten() {
                if entry.path().extension().is_some_and(|e| e == "deb") {
                    let done = Command::new("dpkg").arg("-x").args([&entry.path(), &root]).status()?;
                    ensure!(done.success(), "{} cannot be unpacked", entry.path().display());
                    fs::remove_file(entry.path())?;
                }
            }
        }
        let version = fs::read_dir(root.join("lib/modules"))?
            .flatten()
            .last()
            .context("the kernel's package has no modules")?
            .file_name()
            .to_string_lossy()
            .into_owned();
        if !root.join("complete").exists() {
            let done = Command::new("/sbin/depmod").arg("-b").arg(&root).arg(&version).status()?;
            ensure!(done.success(), "depmod failed");
            fs::write(root.join("complete"), "")?;
        }
        let busybox = root.join("bin/busybox");
        Ok(Self { root, version, busybox })
    }

    fn image(&self) -> PathBuf {
        self.root.join(format!("boot/vmlinuz-{}", self.version))
    }

    /// The files of the modules, in the order in which they must be loaded.
    fn modules(&self) -> Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        for module in MODULES {
            let output = Command::new("/sbin/modprobe")
                .arg("-d")
                .arg(&self.root)
                .args(["-S", &self.version, "--show-depends", module])
                .output()?;
            ensure!(output.status.success(), "the kernel has no module {module}");
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                if let Some(path) = line.trim().strip_prefix("insmod ") {
                    let path = PathBuf::from(path.split_whitespace().next().unwrap_or(path));
                    if !all.contains(&path) {
                        all.push(path);
                    }
                }
            }
        }
        Ok(all)
    }

    fn initramfs(&self, place: &Path) -> Result<PathBuf> {
        let tree = place.join("initramfs");
        let _ = fs::remove_dir_all(&tree);
        for folder in ["bin", "lib", "proc", "sys", "dev", "host"] {
            fs::create_dir_all(tree.join(folder))?;
        }
        fs::copy(&self.busybox, tree.join("bin/busybox"))?;
        let mut loads = String::new();
        for (i, module) in self.modules()?.iter().enumerate() {
            let name = format!("lib/{i}.ko");
            fs::copy(module, tree.join(&name)).with_context(|| module.display().to_string())?;
            loads += &format!("$b insmod /{name}\n");
        }
        let init = tree.join("init");
        fs::write(
            &init,
            format!(
                "#!/bin/busybox sh\nb=/bin/busybox\n\
                 $b mount -t proc proc /proc\n$b mount -t sysfs sysfs /sys\n$b mount -t devtmpfs dev /dev\n{loads}\
                 $b mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,ro,cache=loose host /host || $b poweroff -f\n\
                 script=$($b sed 's/.*script=\\([^ ]*\\).*/\\1/' /proc/cmdline)\n\
                 for m in dev proc sys; do $b mount --move /$m /host/$m; done\n\
                 $b mount -t tmpfs run /host/run\n\
                 /bin/busybox mkdir -p /host/dev/shm; $b mount -t tmpfs shm /host/dev/shm\n\
                 $b chroot /host /bin/sh $script\n\
                 echo \"=EXIT= $?\"\n$b poweroff -f\n"
            ),
        )?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        let archive = place.join("initramfs.cpio");
        let mut find = Command::new("find").arg(".").current_dir(&tree).stdout(Stdio::piped()).spawn()?;
        let done = Command::new("cpio")
            .args(["--quiet", "-o", "-H", "newc", "-R", "0:0"])
            .current_dir(&tree)
            .stdin(find.stdout.take().context("No pipe")?)
            .stdout(fs::File::create(&archive)?)
            .status()?;
        ensure!(find.wait()?.success() && done.success(), "the initramfs cannot be packed");
        Ok(archive)
    }
}

/// Starts the virtual machine, and learns from its console how it went.
fn run(kernel: &Kernel, initramfs: &Path, script: &Path) -> Result<bool> {
    let start = Instant::now();
    println!("Starting a virtual machine (emulated, hence slow)");
    let mut machine = Command::new("timeout")
        .args(["-k", "10", &TIME.as_secs().to_string(), "qemu-system-x86_64"])
        .args(["-accel", "tcg", "-cpu", "max", "-m", "1024", "-smp", "2", "-nodefaults", "-no-reboot"])
        .args(["-display", "none", "-serial", "stdio", "-monitor", "none"])
        .arg("-kernel")
        .arg(kernel.image())
        .arg("-initrd")
        .arg(initramfs)
        .arg("-append")
        .arg(format!("console=ttyS0 quiet panic=-1 mitigations=off nokaslr script={}", script.display()))
        .args(["-fsdev", "local,id=h,path=/,security_model=none,readonly=on,multidevs=remap"])
        .args(["-device", "virtio-9p-pci,fsdev=h,mount_tag=host"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("qemu cannot be started")?;
    let (mut passed, mut failed, mut exit) = (0, Vec::new(), None);
    for line in BufReader::new(machine.stdout.take().context("No pipe")?).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).trim_end().to_owned();
        if let Some(name) = line.strip_prefix("=PASS= ") {
            println!("  ok      {name} ({})", seconds(start.elapsed()));
            passed += 1;
        } else if let Some(name) = line.strip_prefix("=FAIL= ") {
            println!("  FAILED  {name}");
            failed.push(name.to_owned());
        } else if let Some(status) = line.strip_prefix("=EXIT= ") {
            exit = status.trim().parse::<i32>().ok();
        } else {
            println!("    | {line}");
        }
    }
    machine.wait()?;
    println!("\n{passed} passed, {} failed over RDMA, in {}", failed.len(), seconds(start.elapsed()));
    match exit {
        None => bail!("the virtual machine did not come to its end"),
        Some(90) => bail!("the virtual machine could not make an RDMA device"),
        Some(status) => Ok(status == 0 && failed.is_empty() && passed > 0),
    }
}
