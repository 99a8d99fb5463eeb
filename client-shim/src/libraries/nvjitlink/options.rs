//! Creating links: the options, of which most tune machine code.

use std::ffi::c_char;

use parking_lot::Mutex;

use super::{CStrArg, Failure, In, LINKS, Link, Out, Result, State};

/// What the options say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// The device's compute capability, such as 80.
    pub(super) architecture: u32,
    /// Whether inputs are LTO-IR, to be optimised together.
    pub(super) lto: bool,
    /// Whether the program wants PTX.
    pub(super) ptx: bool,
    /// All of them, for NVIDIA's library.
    pub(super) all: Vec<String>,
}

/// Options that mean something to code for real devices only, by themselves and with a value.
const IGNORED: [&str; 9] = [
    "-time",
    "-verbose",
    "-g",
    "-lineinfo",
    "-optimize-unused-variables",
    "-nvvm-latest",
    "-no-cache",
    "-device-stack-protector",
    "-r",
];
const IGNORED_WITH_VALUE: [&str; 13] = [
    "-maxrregcount=",
    "-O",
    "-Ofc=",
    "-ftz=",
    "-prec-div=",
    "-prec-sqrt=",
    "-fma=",
    "-kernels-used=",
    "-variables-used=",
    "-Xptxas=",
    "-Xnvvm=",
    "-split-compile",
    "-jump-table-density=",
];

impl Options {
    /// Reads options; what is wrong, and with which words.
    pub(super) fn parse(options: &[String]) -> std::result::Result<Self, (Failure, String)> {
        let mut read = Self { all: options.to_vec(), ..Self::default() };
        let mut architecture = None;
        for option in options {
            match option.as_str() {
                "-lto" => read.lto = true,
                "-ptx" => read.ptx = true,
                other => {
                    if let Some(name) = other.strip_prefix("-arch=") {
                        architecture = Some(capability(name).ok_or_else(|| {
                            (Failure::UnrecognizedArch, format!("unrecognized -arch value: {name}"))
                        })?);
                    } else if !IGNORED.contains(&other)
                        && !IGNORED_WITH_VALUE.iter().any(|start| other.starts_with(start))
                    {
                        return Err((Failure::UnrecognizedOption, format!("unrecognized option: {other}")));
                    }
                }
            }
        }
        read.architecture = architecture
            .ok_or_else(|| (Failure::MissingArch, "option -arch=sm_NN was not specified".to_owned()))?;
        Ok(read)
    }
}

/// The number in `sm_80`, `sm_90a`, `compute_80`, `lto_80`.
fn capability(name: &str) -> Option<u32> {
    let number = name.strip_prefix("sm_").or_else(|| name.strip_prefix("compute_"));
    let number = number.or_else(|| name.strip_prefix("lto_"))?;
    number.trim_end_matches(['a', 'f']).parse().ok()
}

nvjitlink! {
    /// `nvJitLinkCreate`. As from NVIDIA's library, there is a handle where an option is wrong, too: its error log says which.
    fn nvJitLinkCreate(handle: Out<usize>, count: u32, options: In<*const c_char>) {
        handle.check()?;
        // SAFETY: the program says that there are so many.
        let options = unsafe { options.list(count as usize) }?;
        let texts = options.into_iter().map(|option| {
            // SAFETY: each of them is a C string.
            unsafe { CStrArg::new(option) }.text().map(str::to_owned)
        });
        let texts = texts.collect::<Result<Vec<_>>>()?;
        let mut state = State::default();
        let result = match Options::parse(&texts) {
            Ok(options) => {
                state.options = options;
                Ok(())
            }
            Err((failure, line)) => Err(state.fail(failure, &line)),
        };
        let mut raw = 0;
        LINKS.insert(|fresh| {
            raw = fresh;
            Link { state: Mutex::new(state) }
        });
        handle.set(raw)?;
        result
    }

    /// `nvJitLinkDestroy`.
    fn nvJitLinkDestroy(handle: Out<usize>) {
        LINKS.remove(handle.get()?).map_err(|_| Failure::InvalidInput)?;
        handle.set(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> std::result::Result<Options, Failure> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words).map_err(|(failure, _)| failure)
    }

    #[test]
    fn options_are_read() {
        let read = parse("-arch=sm_90a -lto -ptx -O3 -maxrregcount=32 -g").unwrap();
        assert_eq!((read.architecture, read.lto, read.ptx, read.all.len()), (90, true, true, 6));
        assert_eq!(parse("-arch=compute_80").unwrap().architecture, 80);
        assert_eq!(parse("-O3"), Err(Failure::MissingArch));
        assert_eq!(parse("-arch=sm_80 -nonsense"), Err(Failure::UnrecognizedOption));
        assert_eq!(parse("-arch=gfx90"), Err(Failure::UnrecognizedArch));
    }
}
