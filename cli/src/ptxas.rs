//! `rgpu ptxas`: what frameworks run where they look for NVIDIA's assembler, for software GPUs.
//!
//! Triton and XLA write PTX, run `ptxas` by its path, and give the driver what it has written. A software GPU takes PTX. So this
//! command reads the PTX, refuses it in ptxas's words where it is none, and writes it as the result, with the NUL that ends an
//! image of text. It is reached under the names `ptxas` and `ptxas-blackwell`, too, as which `rgpu run` links it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::Outcome;

/// The version of CUDA whose assembler this one stands in for: that of the driver whose calls are answered.
const RELEASE: (u32, u32) = (13, 0);
/// The newest version of PTX that it takes.
const PTX: (u32, u32) = (9, 0);
/// What ptxas exits with when it refuses.
const REFUSED: u8 = 255;

/// Check PTX, and keep it: stands in for NVIDIA's ptxas where the device is a software GPU.
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Example:\n  rgpu ptxas --gpu-name=sm_80 kernel.ptx -o kernel.cubin"
)]
pub(crate) struct Arguments {
    /// What ptxas takes: a file with PTX, -o FILE, --gpu-name sm_NN, and options for machine code, which count for nothing
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// The arguments, where this command was started under the assembler's name.
pub(crate) fn started_as() -> Option<Arguments> {
    let mut words = std::env::args_os();
    let name = words.next()?;
    let name = Path::new(&name).file_name()?;
    ["ptxas", "ptxas-blackwell"]
        .iter()
        .any(|own| name == OsStr::new(own))
        .then(|| Arguments { arguments: words.collect() })
}

/// Runs the command.
pub(crate) fn main(arguments: &Arguments) -> Outcome {
    let words: Vec<String> =
        arguments.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match assemble(&words) {
        Ok(said) => {
            print!("{said}");
            Ok(ExitCode::SUCCESS)
        }
        Err(lines) => {
            for line in lines {
                eprintln!("{line}");
            }
            Ok(ExitCode::from(REFUSED))
        }
    }
}

/// What the options say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    inputs: Vec<String>,
    output: Option<PathBuf>,
    architecture: Option<String>,
    version: bool,
    help: bool,
    verbose: bool,
}

/// Options with a value of their own word, where no `=` joins it, as ptxas documents them.
const WITH_VALUE: [&str; 36] = [
    "Ofast-compile",
    "Ofc",
    "allow-expensive-optimizations",
    "allow-expensive-opt",
    "def-load-cache",
    "dlcm",
    "def-store-cache",
    "dscm",
    "device-function-maxrregcount",
    "func-maxrregcount",
    "entry",
    "e",
    "fmad",
    "force-load-cache",
    "flcm",
    "force-store-cache",
    "fscm",
    "gpu-name",
    "arch",
    "machine",
    "m",
    "maxntid",
    "maxrregcount",
    "minnctapersm",
    "opt-level",
    "O",
    "output-file",
    "o",
    "position-independent-code",
    "pic",
    "register-usage-level",
    "regUsageLevel",
    "regAllocOptLevel",
    "split-compile",
    "device-stack-protector",
    "opt-fp-atomics",
];

impl Options {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut read = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                read.inputs.push(word.clone());
                continue;
            };
            let (name, joined) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (option, None),
            };
            let value = if joined.is_some() {
                joined
            } else if WITH_VALUE.contains(&name) {
                Some(words.next().cloned().ok_or_else(|| format!("Option '{name}' wants a value"))?)
            } else {
                None
            };
            match (name, value) {
                ("gpu-name" | "arch", Some(value)) => read.architecture = Some(value),
                ("output-file" | "o", Some(value)) => read.output = Some(value.into()),
                ("version" | "V", None) => read.version = true,
                ("help" | "h", None) => read.help = true,
                ("verbose" | "v", None) => read.verbose = true,
                // All others concern machine code.
                _ => {}
            }
        }
        Ok(read)
    }
}

/// Does what the arguments say: what is to be printed, or the lines that say why not.
fn assemble(words: &[String]) -> Result<String, Vec<String>> {
    let fatal = |text: String| vec![format!("ptxas fatal   : {text}")];
    let options = Options::parse(words).map_err(fatal)?;
    if options.version {
        return Ok(version());
    }
    if options.help {
        return Ok("Usage: ptxas --gpu-name=sm_NN INPUT.ptx -o OUTPUT\n\nChecks PTX and keeps it, for rgpu's software GPU. \
                   Options for machine code are accepted and count for nothing.\n"
            .into());
    }
    let aborted = "ptxas fatal   : Ptx assembly aborted due to errors".to_owned();
    let [input] = options.inputs.as_slice() else {
        return Err(fatal(match options.inputs.len() {
            0 => "A single input file is required".into(),
            _ => "Several input files are not supported for a software GPU: link their PTX first".into(),
        }));
    };
    let bytes = fs::read(input).map_err(|_| {
        vec![format!("ptxas fatal   : Input file '{input}' could not be opened"), aborted.clone()]
    })?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let Ok(text) = std::str::from_utf8(text) else {
        return Err(vec![format!("ptxas {input}, line 1; fatal   : The input is no text"), aborted]);
    };
    check(text, input).map_err(|line| vec![line, aborted])?;
    if let Some(name) = &options.architecture
        && !is_architecture(name)
    {
        return Err(fatal(format!("Value '{name}' is not defined for option 'gpu-name'")));
    }
    let output = options.output.unwrap_or_else(|| "elf.o".into());
    let image = [text.as_bytes(), b"\0"].concat();
    // The result of a failed write must not be taken for a good one.
    fs::write(&output, image).map_err(|error| {
        let _ = fs::remove_file(&output);
        fatal(format!("Output file '{}' could not be written: {error}", output.display()))
    })?;
    if options.verbose {
        eprintln!("ptxas info    : kept as PTX for rgpu's software GPU");
    }
    Ok(String::new())
}

/// `sm_80`, `sm_90a`, `sm_100f`.
fn is_architecture(name: &str) -> bool {
    let number = name.strip_prefix("sm_").map(|number| number.trim_end_matches(['a', 'f']));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Refuses what is no PTX, in ptxas's words, which frameworks look for.
fn check(text: &str, input: &str) -> Result<(), String> {
    if let Some((line, version)) = declared_version(text)
        && version > PTX
    {
        // XLA learns the newest version from this refusal.
        return Err(format!(
            "ptxas {input}, line {line}; fatal   : Unsupported .version {}.{}; current version is '{}.{}'",
            version.0, version.1, PTX.0, PTX.1
        ));
    }
    match rgpu_image::ptx::parse(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("ptxas {input}, line {}; error   : {}", error.line, error.message)),
    }
}

/// The version that a text says it is of, and in which line.
fn declared_version(text: &str) -> Option<(usize, (u32, u32))> {
    let (line, rest) = text
        .lines()
        .enumerate()
        .find_map(|(at, line)| Some((at + 1, line.trim_start().strip_prefix(".version")?)))?;
    let (major, minor) = rest.split_whitespace().next()?.split_once('.')?;
    Some((line, (major.parse().ok()?, minor.parse().ok()?)))
}

/// What `--version` prints. Frameworks read the release.
fn version() -> String {
    let (major, minor) = RELEASE;
    format!(
        "ptxas: rgpu {}, which keeps PTX for software GPUs, as the PTX assembler\n\
         Cuda compilation tools, release {major}.{minor}, V{major}.{minor}.0\n\
         Build rgpu_{major}.{minor}\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n  ret;\n}\n";

    fn run(line: &str) -> Result<String, Vec<String>> {
        assemble(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("rgpu-ptxas-{name}-{}", std::process::id()))
    }

    #[test]
    fn the_command_lines_of_triton_and_xla_are_understood() {
        let (input, output) = (scratch("in.ptx"), scratch("out.o"));
        fs::write(&input, GOOD).unwrap();
        let (given, made) = (input.display(), output.display());
        for line in [
            format!("-lineinfo -v --regAllocOptLevel=2 --gpu-name=sm_80 {given} -o {made}"),
            format!("-lineinfo --fmad=false -v --opt-level 0 --gpu-name=sm_90a {given} -o {made}"),
            format!("{given} -o {made} -arch=sm_80 --warn-on-spills -v -O3"),
        ] {
            let _ = fs::remove_file(&output);
            assert_eq!(run(&line), Ok(String::new()), "{line}");
            assert_eq!(fs::read(&output).unwrap(), [GOOD.as_bytes(), b"\0"].concat(), "{line}");
        }
        assert!(run(&format!("--gpu-name=gfx90 {given} -o {made}")).unwrap_err()[0].contains("gfx90"));
        fs::remove_file(input).unwrap();
        fs::remove_file(output).unwrap();
    }

    #[test]
    fn errors_are_said_as_ptxas_says_them() {
        let (input, output) = (scratch("bad.ptx"), scratch("bad.o"));
        let (given, made) = (input.display().to_string(), output.display());
        let assemble = |text: &str| {
            fs::write(&input, text).unwrap();
            run(&format!("{given} -o {made} --gpu-name=sm_80")).unwrap_err()
        };
        let newer = assemble(".version 99.99\n.target sm_50\n.address_size 64\n");
        assert_eq!(
            newer[0],
            format!("ptxas {given}, line 1; fatal   : Unsupported .version 99.99; current version is '9.0'")
        );
        let broken = assemble(&GOOD.replace("ret;", "ret"));
        assert!(broken[0].starts_with(&format!("ptxas {given}, line ")), "{broken:?}");
        assert!(broken[0].contains("; error   : "), "{broken:?}");
        assert_eq!(broken[1], "ptxas fatal   : Ptx assembly aborted due to errors");
        assert!(!output.exists());
        fs::remove_file(&input).unwrap();
        let missing = run(&format!("{given} -o {made}")).unwrap_err();
        assert_eq!(missing[0], format!("ptxas fatal   : Input file '{given}' could not be opened"));
        assert!(run("-o").is_err() && run("").is_err());
    }

    #[test]
    fn the_release_is_where_frameworks_look_for_it() {
        let text = run("--version").unwrap();
        assert!(text.contains("release 13.0, V13.0"), "{text}");
    }
}
