//! Linking PTX: several texts, compiled apart (`nvcc -rdc=true`), become one.
//!
//! What a text keeps for itself (a name without a linkage) gets another name where a second text uses the name
//! too. Of a `.weak` symbol the first definition stays, unless there is a strong one; declarations of what
//! another text defines go. Function prototypes come first, then variables, then functions, so that everything is
//! declared before it is used, whichever text it came from. Debug information is left out.
//!
//! NVIDIA's device runtime is left out, too; ours, [`crate::DEVICE_RUNTIME`], takes its place.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use rgpu_device::{Code, Error, Result};

mod scanner;
use scanner::{Scanner, TokenKind};

/// Joins PTX texts into one.
///
/// # Errors
/// [`Code::InvalidPtx`] for what is not PTX, and for a name that two texts define.
pub fn link<T: AsRef<str>>(texts: &[T]) -> Result<String> {
    let all = texts.len();
    let mut texts: Vec<&str> =
        texts.iter().map(AsRef::as_ref).filter(|text| !is_device_runtime(text)).collect();
    if texts.len() < all && texts.iter().any(|text| text.contains("cudaCG")) {
        texts.push(crate::DEVICE_RUNTIME);
    }
    if let [only] = texts[..] {
        return Ok(only.to_owned());
    }
    let units = texts.iter().map(|text| Unit::read(text)).collect::<Result<Vec<_>>>()?;
    let symbols = symbols(&units)?;
    let names: Vec<HashMap<&str, String>> = (0..units.len()).map(|i| own_names(&units, i)).collect();

    let mut out = header(&units);
    let mut declared: HashSet<String> = HashSet::new();
    let all = || {
        units.iter().zip(&names).enumerate().flat_map(|(i, (unit, names))| {
            unit.items.iter().enumerate().map(move |(j, item)| (ItemId(i, j), item, names))
        })
    };
    for (_, item, names) in all() {
        let Kind::Function { entry, signature } = item.kind else { continue };
        if entry && item.defines {
            continue; // nobody calls it
        }
        let name = names.get(item.name).map_or(item.name, String::as_str);
        if declared.insert(name.to_owned()) {
            let linkage = match symbols.get(item.name) {
                Some(symbol) if !names.contains_key(item.name) => symbol.linkage,
                _ => item.linkage,
            };
            let _ = writeln!(out, "{}{};", linkage.text(), renamed(signature, names));
        }
    }
    for (place, item, names) in all() {
        if item.kind == Kind::Variable && stays(&symbols, item, place) {
            let _ = writeln!(out, "{}{}", item.linkage.text(), renamed(item.text, names));
        }
    }
    for (place, item, names) in all() {
        match item.kind {
            Kind::Function { .. } if item.defines && stays(&symbols, item, place) => {
                let _ = writeln!(out, "{}{}", item.linkage.text(), renamed(item.text, names));
            }
            Kind::Other => {
                let _ = writeln!(out, "{}", renamed(item.text, names));
            }
            _ => {}
        }
    }
    Ok(out)
}

/// Whether a text is NVIDIA's device runtime (libcudadevrt), which asks a GPU's own system for what it does. What kernels call of it,
/// the software GPU has itself.
fn is_device_runtime(text: &str) -> bool {
    text.contains("__cuda_syscall_cnpv2") && text.contains("__cudaCDP2LaunchDeviceV2")
}

/// How a name is seen from other texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Linkage {
    Internal,
    Extern,
    Common,
    Weak,
    Visible,
}

impl Linkage {
    fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            ".extern" => Self::Extern,
            ".common" => Self::Common,
            ".weak" => Self::Weak,
            ".visible" => Self::Visible,
            _ => return None,
        })
    }

    fn text(self) -> &'static str {
        match self {
            Self::Internal => "",
            Self::Extern => ".extern ",
            Self::Common => ".common ",
            Self::Weak => ".weak ",
            Self::Visible => ".visible ",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind<'a> {
    /// With what a prototype repeats: all up to the end of the parameters.
    Function {
        entry: bool,
        signature: &'a str,
    },
    Variable,
    /// Directives that stay as they are.
    Other,
}

/// What stands in a text on its own: a function, a variable, a directive.
#[derive(Debug)]
struct Item<'a> {
    kind: Kind<'a>,
    name: &'a str,
    linkage: Linkage,
    defines: bool,
    /// All of it, behind its linkage.
    text: &'a str,
}

/// Number of a text, and of an item in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ItemId(usize, usize);

/// One text.
struct Unit<'a> {
    version: (u32, u32),
    target: &'a str,
    address_size: &'a str,
    items: Vec<Item<'a>>,
}

/// A name that several texts know.
struct Symbol {
    linkage: Linkage,
    /// The item that stays: the definition, or else one declaration.
    place: ItemId,
    align: u32,
}

/// The names that are seen from other texts.
fn symbols<'a>(units: &[Unit<'a>]) -> Result<HashMap<&'a str, Symbol>> {
    let mut symbols: HashMap<&'a str, Symbol> = HashMap::new();
    for (i, unit) in units.iter().enumerate() {
        for (j, item) in unit.items.iter().enumerate() {
            if item.linkage == Linkage::Internal || item.kind == Kind::Other {
                continue;
            }
            // A prototype tells no more than a declaration from elsewhere.
            let linkage = if item.defines { item.linkage } else { Linkage::Extern };
            let new = Symbol { linkage, place: ItemId(i, j), align: alignment(item.text) };
            let Some(old) = symbols.get_mut(item.name) else {
                symbols.insert(item.name, new);
                continue;
            };
            let better = match (old.linkage, linkage) {
                (Linkage::Visible, Linkage::Visible) => {
                    return Err(Error::new(
                        Code::InvalidPtx,
                        format!("{} is defined in two of the texts that are to be linked", item.name),
                    ));
                }
                // Of arrays without a size, the one that asks for most.
                (Linkage::Extern, Linkage::Extern) => new.align > old.align,
                (Linkage::Extern, _) | (_, Linkage::Visible) => true,
                _ => false,
            };
            if better {
                *old = new;
            }
        }
    }
    Ok(symbols)
}

fn stays(symbols: &HashMap<&str, Symbol>, item: &Item<'_>, place: ItemId) -> bool {
    item.linkage == Linkage::Internal || symbols.get(item.name).is_none_or(|symbol| symbol.place == place)
}

/// New names for what a text keeps for itself, where another text uses the same name.
fn own_names<'a>(units: &[Unit<'a>], unit: usize) -> HashMap<&'a str, String> {
    let elsewhere: HashSet<&str> = units
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != unit)
        .flat_map(|(_, other)| other.items.iter().map(|item| item.name))
        .collect();
    let own = units[unit].items.iter().filter(|item| item.linkage == Linkage::Internal);
    own.filter(|item| elsewhere.contains(item.name))
        .map(|item| (item.name, format!("{}__unit{unit}", item.name)))
        .collect()
}

/// The highest version, the newest target, the address size.
fn header(units: &[Unit<'_>]) -> String {
    let (major, minor) = units.iter().map(|unit| unit.version).max().unwrap_or_default();
    let number = |target: &str| -> u32 {
        let digits: String = target.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    let target = units.iter().map(|unit| unit.target).max_by_key(|target| number(target)).unwrap_or_default();
    let address_size = units.iter().map(|unit| unit.address_size).find(|size| !size.is_empty());
    let mut header = format!(".version {major}.{minor}\n.target {target}\n");
    if let Some(size) = address_size {
        let _ = writeln!(header, ".address_size {size}");
    }
    header
}

/// The number behind `.align`.
fn alignment(text: &str) -> u32 {
    let mut scanner = Scanner { text, at: 0 };
    while let Some(token) = scanner.next() {
        if token.text == ".align" {
            return scanner.next().and_then(|number| number.text.parse().ok()).unwrap_or(1);
        }
        if token.kind == TokenKind::Name {
            break;
        }
    }
    1
}

/// A piece of text with names replaced, and without lines that tell a debugger where it came from.
fn renamed(text: &str, names: &HashMap<&str, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    let mut scanner = Scanner { text, at: 0 };
    while let Some(token) = scanner.next() {
        let end = scanner.at;
        let replacement = match token.kind {
            TokenKind::Directive if token.text == ".loc" => {
                scanner.skip_location();
                ""
            }
            // A word before a dot is an opcode.
            TokenKind::Name if !text[end..].starts_with('.') => match names.get(token.text) {
                Some(name) => name.as_str(),
                None => continue,
            },
            _ => continue,
        };
        out.push_str(&text[copied..end - token.text.len()]);
        out.push_str(replacement);
        copied = scanner.at;
    }
    out.push_str(&text[copied..]);
    out
}

impl<'a> Unit<'a> {
    fn read(text: &'a str) -> Result<Self> {
        let mut unit = Self { version: (0, 0), target: "", address_size: "", items: Vec::new() };
        let mut scanner = Scanner { text, at: 0 };
        while let Some(token) = scanner.next() {
            let start = scanner.at - token.text.len();
            match token.text {
                ";" => {}
                "@" => scanner.skip_line(),
                ".file" => scanner.skip_file(),
                ".loc" => scanner.skip_location(),
                ".version" => {
                    let number = scanner.next().map_or("", |number| number.text);
                    let (major, minor) = number.split_once('.').unwrap_or((number, "0"));
                    unit.version = (major.parse().unwrap_or(0), minor.parse().unwrap_or(0));
                }
                ".address_size" => unit.address_size = scanner.next().map_or("", |size| size.text),
                ".target" => {
                    unit.target = scanner.next().map_or("", |target| target.text);
                    // Its options: what is left out needs no `debug`.
                    while scanner.accept(",") {
                        scanner.next();
                    }
                }
                ".section" => {
                    while scanner.next().ok_or_else(unfinished)?.text != "{" {}
                    scanner.skip_block()?;
                }
                ".pragma" | ".alias" => {
                    while scanner.next().ok_or_else(unfinished)?.text != ";" {}
                    unit.items.push(Item {
                        kind: Kind::Other,
                        name: "",
                        linkage: Linkage::Internal,
                        defines: false,
                        text: &text[start..scanner.at],
                    });
                }
                _ if token.kind == TokenKind::Directive => {
                    scanner.at = start;
                    unit.items.push(Item::read(&mut scanner)?);
                }
                other => {
                    return Err(Error::new(Code::InvalidPtx, format!("{other} stands between functions")));
                }
            }
        }
        if unit.version == (0, 0) {
            return Err(Error::new(Code::InvalidPtx, "What is to be linked is no PTX: it has no .version"));
        }
        Ok(unit)
    }
}

impl<'a> Item<'a> {
    /// The function or variable that begins here.
    fn read(scanner: &mut Scanner<'a>) -> Result<Self> {
        let mut linkage = Linkage::Internal;
        let mut start = scanner.at;
        let mut first = scanner.next().ok_or_else(unfinished)?;
        while let Some(word) = Linkage::from_word(first.text) {
            linkage = word;
            start = scanner.at;
            first = scanner.next().ok_or_else(unfinished)?;
        }
        let entry = first.text == ".entry";
        if !entry && first.text != ".func" {
            let (name, _) = Self::name(scanner)?;
            let mut last = scanner.next().ok_or_else(unfinished)?;
            while last.text != ";" {
                last = scanner.next().ok_or_else(unfinished)?;
            }
            let text = &scanner.text[start..scanner.at];
            let defines = linkage != Linkage::Extern;
            return Ok(Self { kind: Kind::Variable, name, linkage, defines, text });
        }
        let (name, mut end) = Self::name(scanner)?;
        if scanner.accept("(") {
            // Sizes are expressions, which may have parentheses of their own.
            scanner.skip_parentheses()?;
            end = scanner.at;
        }
        let signature = &scanner.text[start..end];
        let defines = loop {
            match scanner.next().ok_or_else(unfinished)?.text {
                ";" => break false,
                "{" => {
                    scanner.skip_block()?;
                    break true;
                }
                _ => {}
            }
        };
        let text = &scanner.text[start..scanner.at];
        Ok(Self { kind: Kind::Function { entry, signature }, name, linkage, defines, text })
    }

    /// The next name outside parentheses, and where it ends.
    fn name(scanner: &mut Scanner<'a>) -> Result<(&'a str, usize)> {
        let mut depth = 0;
        loop {
            let token = scanner.next().ok_or_else(unfinished)?;
            match token.text {
                "(" => depth += 1,
                ")" => depth -= 1,
                "{" | "}" | ";" => return Err(Error::new(Code::InvalidPtx, "A declaration names nothing")),
                name if token.kind == TokenKind::Name && depth == 0 => return Ok((name, scanner.at)),
                _ => {}
            }
        }
    }
}

fn unfinished() -> Error {
    Error::new(Code::InvalidPtx, "A PTX text that is to be linked ends too early")
}

#[cfg(test)]
mod tests;
