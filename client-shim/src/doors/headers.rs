//! The tables against the public headers: every function there is a row, from the version that the headers give it,
//! and every body takes and yields what the headers say.
//!
//! The headers are those of the toolkit that `cargo xtask toolkit` puts into the user's cache; without it the tests say
//! that they are skipped. The C compiler's preprocessor makes of each header what a program sees of it, with and
//! without per-thread default streams; [`Parser`] reads what is left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::table::{Row, rows_of};
use crate::abi::signature::{Kind, Signature};
use crate::{driver, libraries, nvml, runtime};

/// What a function takes and yields by its header.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Prototype {
    result: Kind,
    arguments: Vec<Kind>,
}

impl Prototype {
    /// Whether a body is called as the header says. Handles, and addresses that we only pass on, are numbers to us.
    fn is(&self, body: &Signature) -> bool {
        let same = |(header, ours): (&Kind, &Kind)| {
            header == ours || (*header == Kind::Pointer && *ours == Kind::Integer(8))
        };
        same((&self.result, &body.result))
            && self.arguments.len() == body.arguments.len()
            && self.arguments.iter().zip(body.arguments).all(same)
    }
}

/// A C type: how a value of it is passed, and its layout, where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Type {
    kind: Kind,
    layout: Option<(usize, usize)>,
    /// The function type that this is a pointer to.
    function: Option<Box<Prototype>>,
}

impl Type {
    fn scalar(kind: Kind, bytes: usize) -> Self {
        Self { kind, layout: Some((bytes, bytes)), function: None }
    }

    fn pointer() -> Self {
        Self::scalar(Kind::Pointer, 8)
    }

    fn int() -> Self {
        Self::scalar(Kind::Integer(4), 4)
    }
}

/// Reads declarations after the preprocessor: types, and prototypes of functions. What C allows beyond what the headers
/// use makes it panic.
#[derive(Default)]
struct Parser {
    tokens: Vec<String>,
    at: usize,
    typedefs: BTreeMap<String, Type>,
    /// Structures and unions by tag.
    structures: BTreeMap<String, Option<(usize, usize)>>,
    functions: BTreeMap<String, Prototype>,
}

impl Parser {
    fn parse(text: &str) -> Self {
        let mut parser = Self { tokens: tokens(text), ..Self::default() };
        while parser.at < parser.tokens.len() {
            parser.declaration();
        }
        parser
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        let token = self.peek().to_owned();
        assert!(!token.is_empty(), "the text ends inside a declaration");
        self.at += 1;
        token
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.peek() == token;
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &str) {
        let from = self.at.saturating_sub(20);
        assert!(self.eat(token), "no {token:?} after {:?}", &self.tokens[from..=self.at]);
    }

    /// Skips what stands in brackets that have just been opened.
    fn skip_brackets(&mut self) {
        let mut depth = 1;
        while depth > 0 {
            match self.next().as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
        }
    }

    fn skip_attributes(&mut self) {
        while matches!(self.peek(), "__attribute__" | "__attribute" | "__asm__" | "_Alignas") {
            self.next();
            self.expect("(");
            self.skip_brackets();
        }
        while matches!(
            self.peek(),
            "__extension__" | "__restrict" | "__restrict__" | "_Noreturn" | "const" | "volatile"
        ) {
            self.next();
        }
    }

    fn declaration(&mut self) {
        if self.eat(";") {
            return;
        }
        if self.eat("_Static_assert") {
            self.expect("(");
            self.skip_brackets();
            return;
        }
        self.eat("__extension__");
        let is_typedef = self.eat("typedef");
        while matches!(
            self.peek(),
            "extern" | "static" | "inline" | "__inline" | "__inline__" | "__extension__"
        ) {
            self.next();
        }
        let base = self.specifiers();
        loop {
            if self.eat(";") {
                return;
            }
            let (name, of_type, prototype) = self.declarator(base.clone());
            if is_typedef {
                self.typedefs.insert(name, of_type);
            } else if let Some(prototype) = prototype {
                self.functions.insert(name, prototype);
                self.skip_attributes();
                if self.eat("{") {
                    self.skip_brackets();
                    return;
                }
            } else if self.eat("=") {
                while !matches!(self.peek(), ";" | ",") {
                    if self.next() == "{" {
                        self.skip_brackets();
                    }
                }
            }
            self.skip_attributes();
            if !self.eat(",") {
                self.expect(";");
                return;
            }
        }
    }

    /// What stands before a declarator: `const unsigned long long`, `struct x { … }`, a name.
    fn specifiers(&mut self) -> Type {
        let (mut words, mut named) = (Vec::new(), None);
        loop {
            self.skip_attributes();
            match self.peek() {
                "signed" | "unsigned" | "long" | "short" | "int" | "char" | "float" | "double" | "void"
                | "_Bool" | "_Float128" => {
                    let word = self.next();
                    words.push(word);
                }
                "struct" | "union" => {
                    let is_union = self.next() == "union";
                    named = Some(self.structure(is_union));
                }
                "enum" => {
                    self.next();
                    self.skip_attributes();
                    if self.peek() != "{" {
                        self.next();
                    }
                    if self.eat("{") {
                        self.skip_brackets();
                    }
                    named = Some(Type::int());
                }
                word if words.is_empty() && named.is_none() => match self.typedefs.get(word).cloned() {
                    Some(found) => {
                        self.next();
                        named = Some(found);
                    }
                    None => panic!("{word:?} is no type, before {:?}", &self.tokens[self.at..self.at + 8]),
                },
                _ => break,
            }
        }
        if let Some(named) = named {
            return named;
        }
        let count = |wanted: &str| words.iter().filter(|word| *word == wanted).count();
        match () {
            () if count("void") > 0 => Type { kind: Kind::Void, layout: None, function: None },
            () if count("float") > 0 => Type::scalar(Kind::Float(4), 4),
            () if count("double") > 0 && count("long") > 0 => Type::scalar(Kind::Float(16), 16),
            () if count("_Float128") > 0 => Type::scalar(Kind::Float(16), 16),
            () if count("double") > 0 => Type::scalar(Kind::Float(8), 8),
            () if count("char") + count("_Bool") > 0 => Type::scalar(Kind::Integer(1), 1),
            () if count("short") > 0 => Type::scalar(Kind::Integer(2), 2),
            () if count("long") > 0 => Type::scalar(Kind::Integer(8), 8),
            () => Type::int(),
        }
    }

    /// A structure or union after its keyword.
    fn structure(&mut self, is_union: bool) -> Type {
        self.skip_attributes();
        let tag = (self.peek() != "{").then(|| self.next());
        let mut layout = tag.as_ref().and_then(|tag| self.structures.get(tag).copied()).flatten();
        if self.eat("{") {
            let (mut size, mut align, mut known) = (0_usize, 1, true);
            while !self.eat("}") {
                let base = self.specifiers();
                while !self.eat(";") {
                    let member = if matches!(self.peek(), ";" | ":") {
                        base.clone()
                    } else {
                        self.declarator(base.clone()).1
                    };
                    if self.eat(":") {
                        self.next();
                        known = false;
                    }
                    self.skip_attributes();
                    let Some((bytes, to)) = member.layout else {
                        known = false;
                        continue;
                    };
                    align = align.max(to);
                    size = if is_union { size.max(bytes) } else { size.next_multiple_of(to) + bytes };
                    self.eat(",");
                }
                // An unnamed structure or union as a member has no declarator.
            }
            layout = known.then(|| (size.next_multiple_of(align), align));
            if let Some(tag) = tag {
                self.structures.insert(tag, layout);
            }
            self.skip_attributes();
        }
        let kind = Kind::Structure(layout.map_or(0, |(size, _)| size));
        Type { kind, layout, function: None }
    }

    /// A name with what is round it: pointers, arrays, arguments. Yields the name, the type, and the prototype if this
    /// is a function.
    fn declarator(&mut self, mut base: Type) -> (String, Type, Option<Prototype>) {
        self.skip_attributes();
        while self.eat("*") {
            base = Type::pointer();
            self.skip_attributes();
        }
        let is_word = |token: &str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
        // A pointer to a function: `result (*name)(arguments)`.
        if self.peek() == "(" && self.tokens.get(self.at + 1).is_some_and(|token| token == "*") {
            self.at += 1;
            while self.eat("*") {
                self.skip_attributes();
            }
            let name = if is_word(self.peek()) { self.next() } else { String::new() };
            while self.eat("[") {
                self.skip_brackets();
            }
            self.expect(")");
            self.expect("(");
            let arguments = self.arguments();
            let prototype = Prototype { result: base.kind, arguments };
            return (name, Type { function: Some(Box::new(prototype)), ..Type::pointer() }, None);
        }
        let name = if is_word(self.peek()) { self.next() } else { String::new() };
        if self.eat("(") {
            let arguments = self.arguments();
            let prototype = Prototype { result: base.kind, arguments };
            return (name, base, Some(prototype));
        }
        let mut count = Some(1);
        let mut is_array = false;
        while self.eat("[") {
            is_array = true;
            let number = self.peek().trim_end_matches(['u', 'U', 'l', 'L']).to_owned();
            let alone = self.tokens.get(self.at + 1).is_some_and(|token| token == "]");
            count = count.filter(|_| alone).zip(number.parse::<usize>().ok()).map(|(so_far, n)| so_far * n);
            self.skip_brackets();
        }
        if is_array {
            // As an argument it is a pointer; as a member it has the layout of so many.
            let layout = base.layout.zip(count).map(|((bytes, align), count)| (bytes * count, align));
            base = Type { kind: Kind::Pointer, layout, function: None };
        }
        (name, base, None)
    }

    /// A function's arguments after the bracket.
    fn arguments(&mut self) -> Vec<Kind> {
        let mut arguments = Vec::new();
        while !self.eat(")") {
            if self.eat(".") {
                self.expect(".");
                self.expect(".");
                continue;
            }
            let base = self.specifiers();
            if base.kind == Kind::Void && self.peek() == ")" {
                continue;
            }
            let (_, of_type, function) = self.declarator(base);
            self.skip_attributes();
            arguments.push(if function.is_some() { Kind::Pointer } else { of_type.kind });
            self.eat(",");
        }
        arguments
    }
}

/// Words, numbers and signs; texts are left out.
fn tokens(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        if !matches!(first, '"' | '#') {
            tokens.push(rest[..end].to_owned());
        }
        rest = rest[end..].trim_start();
    }
    tokens
}

/// The newest toolkit in the user's cache.
fn toolkit() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let found = std::fs::read_dir(cache.join("rgpu")).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    found.filter(|path| path.join("cu13/bin/nvcc").exists()).max()
}

/// What a program sees of a header of CUDA `major`; `None` where there is no such header.
fn header(major: u32, name: &str, definitions: &[&str]) -> Option<Parser> {
    let include = toolkit().map(|toolkit| toolkit.join(format!("cu{major}/include")));
    let Some(include) = include.filter(|include| include.join(name).exists()) else {
        eprintln!("SKIPPED: {name} of CUDA {major} is not in the cache (`cargo xtask toolkit` fetches it)");
        return None;
    };
    let mut command = Command::new("cc");
    command.args(["-E", "-P", "-x", "c"]).args(definitions).arg("-I").arg(&include).arg(include.join(name));
    let output = output_of(&mut command, &include);
    Some(Parser::parse(&output))
}

fn output_of(command: &mut Command, place: &Path) -> String {
    let output =
        command.output().expect("the C compiler, which links this library, preprocesses headers too");
    assert!(output.status.success(), "{}: {}", place.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Compares all of a header's functions that begin with `prefix`. `row` finds the row of a name. Yields how many bodies
/// were compared.
fn compare(parser: &Parser, prefix: &str, row: impl Fn(&str) -> Option<&'static Row>) -> usize {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (name, prototype) in parser.functions.iter().filter(|(name, _)| name.starts_with(prefix)) {
        match row(name) {
            None => wrong.push(format!("{name} is no row")),
            Some(row) => {
                let Some(signature) = &row.signature else { continue };
                compared += 1;
                if !prototype.is(signature) {
                    wrong.push(format!("{name}: the header says {prototype:?}, the body {signature:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    compared
}

/// The row that exports a symbol, itself or for its twin.
fn exporting(table: &'static [Row], symbol: &str) -> Option<&'static Row> {
    table.iter().find(|row| row.symbol == symbol || row.twin.is_some_and(|twin| twin.symbol == symbol))
}

const PER_THREAD: &str = "-DCUDA_API_PER_THREAD_DEFAULT_STREAM";

#[test]
fn the_runtime_is_that_of_its_header() {
    for (major, version) in [(12, 12090), (13, 13000)] {
        for definitions in [&[][..], &[PER_THREAD]] {
            let Some(parser) = header(major, "cuda_runtime_api.h", definitions) else { return };
            let compared = compare(&parser, "cuda", |name| {
                let in_version =
                    |name| rows_of(runtime::table::TABLE, name).iter().find(|row| row.is_in(version));
                let twin = || {
                    let (plain, _) = name.rsplit_once('_')?;
                    in_version(plain)
                        .filter(|row| row.twin.is_some_and(|twin| name[plain.len()..] == *twin.suffix))
                };
                in_version(name).or_else(twin)
            });
            assert!(compared > 200, "{compared}");
        }
    }
}

#[test]
fn the_driver_is_that_of_its_header() {
    for major in [12, 13] {
        for definitions in [&[][..], &[PER_THREAD], &["-D__CUDA_API_VERSION_INTERNAL"]] {
            let Some(parser) = header(major, "cuda.h", definitions) else { return };
            let compared = compare(&parser, "cu", |name| exporting(driver::table::TABLE, name));
            assert!(compared > 200, "{compared}");
        }
    }
}

#[test]
fn the_driver_has_each_interface_from_the_version_of_its_header() {
    for major in [12, 13] {
        let Some(parser) = header(major, "cudaTypedefs.h", &[]) else { return };
        let mut wrong = Vec::new();
        let mut compared = 0;
        for (name, of_type) in &parser.typedefs {
            // `PFN_cuMemcpyHtoD_v7000_ptds`
            let Some((name, rest)) = name.strip_prefix("PFN_").and_then(|name| name.rsplit_once("_v")) else {
                continue;
            };
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (Ok(version), suffix) = (rest[..digits].parse::<u32>(), &rest[digits..]) else { continue };
            let rows = rows_of(driver::table::TABLE, name).iter();
            let found = match suffix {
                "" => rows.clone().find(|row| row.since == version),
                _ => rows
                    .clone()
                    .find(|row| row.twin.is_some_and(|twin| twin.suffix == suffix && twin.since == version)),
            };
            let Some(row) = found else {
                wrong.push(format!("{name} {version}{suffix} is no row"));
                continue;
            };
            let Some(signature) = &row.signature else { continue };
            compared += 1;
            let prototype = of_type.function.as_ref().unwrap();
            if !prototype.is(signature) {
                wrong
                    .push(format!("{name} {version}: the header says {prototype:?}, the body {signature:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(compared > 250, "{compared}");
    }
}

#[test]
fn nvml_is_that_of_its_header() {
    for definitions in [&[][..], &["-DNVML_NO_UNVERSIONED_FUNC_DEFS"]] {
        let Some(parser) = header(13, "nvml.h", definitions) else { return };
        let compared = compare(&parser, "nvml", |name| exporting(nvml::table::TABLE, name));
        assert!(compared > 100, "{compared}");
    }
}

/// The toolkit in the cache has no headers of libraries; where a program's developer has put them there, they are compared.
#[test]
fn libraries_are_those_of_their_headers() {
    let headers = [
        ("cublas", "cublas_api.h", "cublas", 450),
        ("cublaslt", "cublasLt.h", "cublasLt", 35),
        ("cufft", "cufftXt.h", "cufft", 35),
        ("curand", "curand.h", "curand", 20),
        ("cusolver", "cusolverDn.h", "cusolver", 120),
        ("cusparse", "cusparse.h", "cusparse", 70),
        ("cudnn", "cudnn.h", "cudnn", 150),
    ];
    for (door, name, prefix, least) in headers {
        let door = libraries::DOORS.iter().find(|found| found.name == door).unwrap();
        for (major, version) in [(12, 12000), (13, 13000)] {
            let definitions = ["-DCUBLASAPI=", "-D__builtin_va_list=char*"];
            let Some(mut parser) = header(major, name, &definitions) else { continue };
            // These are defined in the header, in terms of others.
            parser.functions.retain(|name, _| !name.ends_with("Init") || name.ends_with("AlgoInit"));
            let compared = compare(&parser, prefix, |name| {
                rows_of(door.table, name).iter().find(|row| row.is_in(version))
            });
            assert!(compared > least, "{compared}");
        }
    }
}

#[test]
fn prototypes_are_read() {
    let text = "
        typedef unsigned long long u64; typedef struct place_st { u64 addr; char tag[3]; } place;
        typedef enum kind_enum { A = 0, B = (1 << 4) } kind; struct stream_st; typedef struct stream_st *stream;
        union u { int i; double d; };
        extern kind first(place by_value, const place *p, kind k, stream s, const char names[], float f) __attribute__((x));
        static inline void second(void) { if (1) { } }
        typedef kind (*PFN_third_v1)(void (*callback)(int, void *), union u v, unsigned char c, short, _Bool);
        int variable = 5, *other;";
    let parser = Parser::parse(text);
    let prototype = |result, arguments: &[Kind]| Prototype { result, arguments: arguments.to_vec() };
    let (int, pointer) = (Kind::Integer(4), Kind::Pointer);
    let first = prototype(int, &[Kind::Structure(16), pointer, int, pointer, pointer, Kind::Float(4)]);
    assert_eq!(parser.functions["first"], first);
    assert_eq!(parser.functions["second"], prototype(Kind::Void, &[]));
    let third =
        prototype(int, &[pointer, Kind::Structure(8), Kind::Integer(1), Kind::Integer(2), Kind::Integer(1)]);
    assert_eq!(parser.typedefs["PFN_third_v1"].function.as_deref(), Some(&third));
    assert_eq!(parser.functions.len(), 2);

    let body = |arguments| Signature { result: int, arguments };
    let header = prototype(int, &[pointer, Kind::Integer(8)]);
    assert!(header.is(&body(&[Kind::Pointer, Kind::Integer(8)])));
    assert!(header.is(&body(&[Kind::Integer(8), Kind::Integer(8)])));
    for wrong in
        [&[Kind::Pointer][..], &[Kind::Pointer, Kind::Pointer], &[Kind::Integer(4), Kind::Integer(8)]]
    {
        assert!(!header.is(&body(wrong)), "{wrong:?}");
    }
}
