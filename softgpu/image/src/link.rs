//! Linking PTX: several texts, compiled apart (`nvcc -rdc=true`), become one.
//!
//! What a text keeps for itself (a name without a linkage) gets another name where a second text uses the name
//! too. Of a `.weak` symbol the first definition stays, unless there is a strong one; declarations of what
//! another text defines go. Function prototypes come first, then variables, then functions, so that everything is
//! declared before it is used, whichever text it came from. Debug information is left out.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use rgpu_device::{Code, Error, Result};

/// Joins PTX texts into one.
///
/// # Errors
/// [`Code::InvalidPtx`] for what is not PTX, and for a name that two texts define.
pub fn link<T: AsRef<str>>(texts: &[T]) -> Result<String> {
    if let [only] = texts {
        return Ok(only.as_ref().to_owned());
    }
    let units = texts.iter().map(|text| Unit::read(text.as_ref())).collect::<Result<Vec<_>>>()?;
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
        let Kind::Function { entry: false, signature } = item.kind else { continue };
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
                scanner.skip_line();
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
                "@" | ".file" | ".loc" => scanner.skip_line(),
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
            while scanner.next().ok_or_else(unfinished)?.text != ")" {}
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    /// A name, an opcode's first word, a register.
    Name,
    /// A word that begins with a dot.
    Directive,
    /// Numbers, strings, punctuation.
    Rest,
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: TokenKind,
    text: &'a str,
}

/// Reads no more of the grammar than where names and braces are.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_line(&mut self) {
        self.at += self.rest().find('\n').unwrap_or(self.rest().len());
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("//") {
                self.skip_line();
            } else if let Some(comment) = trimmed.strip_prefix("/*") {
                self.at += comment.find("*/").map_or(trimmed.len(), |end| end + 4);
            } else {
                return;
            }
        }
    }

    fn next(&mut self) -> Option<Token<'a>> {
        self.skip_blanks();
        let rest = self.rest();
        let first = rest.chars().next()?;
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
        let words = |from: usize| from + rest[from..].find(|c| !word(c)).unwrap_or(rest.len() - from);
        let (kind, mut len) = match first {
            '"' => (TokenKind::Rest, rest[1..].find('"').map_or(rest.len(), |end| end + 2)),
            '.' => (TokenKind::Directive, words(1)),
            '%' => (TokenKind::Name, words(1)),
            c if c.is_ascii_digit() => {
                let number = |c: char| word(c) || c == '.';
                (TokenKind::Rest, rest.find(|c| !number(c)).unwrap_or(rest.len()))
            }
            c if word(c) => (TokenKind::Name, words(0)),
            c => (TokenKind::Rest, c.len_utf8()),
        };
        // `.shared::cta` is one word.
        while kind == TokenKind::Directive && rest[len..].starts_with("::") {
            len = words(len + 2);
        }
        self.at += len;
        Some(Token { kind, text: &rest[..len] })
    }

    fn accept(&mut self, text: &str) -> bool {
        let before = self.at;
        if self.next().is_some_and(|token| token.text == text) {
            return true;
        }
        self.at = before;
        false
    }

    /// To behind the brace that closes the one just read.
    fn skip_block(&mut self) -> Result<()> {
        let mut depth = 1;
        while depth > 0 {
            match self.next().ok_or_else(unfinished)?.text {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx;

    const HEADER: &str = ".version 8.0\n.target sm_70\n.address_size 64\n";

    /// A kernel that calls into the other text, with names of its own that the other has too.
    fn first() -> String {
        format!(
            "{HEADER}.file 1 \"one.cu\"
            .extern .func (.param .b32 r) other (.param .b32 p);
            .extern .global .align 4 .b8 table[16];
            .extern .shared .align 4 .b8 dynamic[];
            .global .align 1 .b8 $str[4] = {{111, 110, 101, 0}}; // one: not a $str
            .func helper (.param .b64 p) {{ .loc 1 2 3, function_name $L__info, inlined_at 1 2 3
                ret; }}
            .weak .func twice () {{ ret; }}
            .visible .entry one () {{
                .reg .b64 %rd<2>; .reg .b32 %r<2>;
                .loc 1 5 6
                mov.u64 %rd1, $str; /* $str again */
                {{ .param .b64 p0; st.param.b64 [p0], %rd1; call helper, (p0); }}
                {{ .param .b32 q0; .param .b32 ret0; st.param.b32 [q0], 1; call (ret0), other, (q0); }}
                ld.global.u32 %r1, [table+4];
                call twice;
                ret;
            }}
            .section .debug_str {{ $L__info: .b8 1 }}"
        )
    }

    fn second() -> String {
        ".version 8.4\n.target sm_80, debug\n.address_size 64\n
            .weak .func twice ();
            .extern .shared .align 16 .b8 dynamic[];
            .global .align 1 .b8 $str[4] = {116, 119, 111, 0};
            .visible .global .align 4 .b8 table[16] = {1};
            .func helper (.param .b64 p) { ret; }
            .weak .func twice () { ret; }
            .visible .func (.param .b32 r) other (.param .b32 p) {
                .reg .b64 %rd<2>;
                mov.u64 %rd1, $str;
                { .param .b64 p0; st.param.b64 [p0], %rd1; call helper, (p0); }
                st.param.b32 [r], 1;
                ret;
            }"
        .to_owned()
    }

    #[test]
    fn texts_are_linked() {
        for texts in [[first(), second()], [second(), first()]] {
            let linked = link(&texts).unwrap();
            assert!(linked.starts_with(".version 8.4\n.target sm_80\n.address_size 64\n"), "{linked}");
            assert!(!linked.contains(".loc") && !linked.contains(".section") && !linked.contains(".file"));
            let module = ptx::parse(&linked).unwrap_or_else(|error| panic!("{error}\n{linked}"));
            let names: Vec<&str> = module.functions.iter().map(|f| f.name.as_str()).collect();
            for wanted in ["one", "other", "twice", "helper__unit0", "helper__unit1"] {
                let found = module.functions.iter().find(|f| f.name == wanted);
                assert!(found.is_some_and(|f| !f.is_declaration), "{wanted} in {names:?}\n{linked}");
            }
            let variable = |name: &str| module.variables.iter().find(|v| v.name == name).unwrap();
            assert!(variable("table").init.is_some());
            assert_eq!(variable("dynamic").align, 16);
            assert_ne!(variable("$str__unit0").init, variable("$str__unit1").init);
        }
    }

    #[test]
    fn what_two_texts_define_is_refused() {
        let text = format!("{HEADER}.visible .func f () {{ ret; }}");
        let error = link(&[&text, &text]).unwrap_err();
        assert_eq!(error.code, Code::InvalidPtx);
        assert!(error.message.contains("f is defined in two"), "{}", error.message);
    }

    #[test]
    fn a_strong_definition_replaces_a_weak_one() {
        let weak =
            format!("{HEADER}.weak .func f () {{ trap; ret; }}\n.visible .entry k () {{ call f; ret; }}");
        let strong = format!("{HEADER}.visible .func f () {{ ret; }}");
        let linked = link(&[&weak, &strong]).unwrap();
        assert!(!linked.contains("trap"), "{linked}");
        assert!(ptx::parse(&linked).is_ok(), "{linked}");
    }

    #[test]
    fn damaged_texts_are_errors() {
        let whole = first();
        let end = whole.find(".section").unwrap();
        for cut in 0..end {
            let _ = link(&[&whole[..cut], second().as_str()]);
        }
        for text in
            ["", "hello", ".version 8.0\n.func", ".version 8.0\n.func f (", ".version 8.0 .global ;", "{"]
        {
            assert_eq!(link(&[text, text]).unwrap_err().code, Code::InvalidPtx, "{text}");
        }
        assert_eq!(link(&["one text stays as it is"]).unwrap(), "one text stays as it is");
    }
}
