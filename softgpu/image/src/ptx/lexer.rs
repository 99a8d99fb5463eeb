//! Tokens of PTX, read one at a time.

use super::ParseError;

/// A token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'a> {
    /// A name, `%` included; also a lone `_`.
    Ident(&'a str),
    /// `.name`, without the dot.
    Dot(&'a str),
    /// An integer; `true` when it has the suffix `U` or does not fit a signed number.
    Int(u64, bool),
    /// `0f…`.
    F32(u32),
    /// `0d…` or a decimal float.
    F64(u64),
    /// A string without its quotes, escapes as written.
    Str(&'a str),
    /// Punctuation of one character.
    Punct(u8),
    /// `<<`, `>>`, `<=`, `>=`, `==`, `!=`, `&&`, `||`.
    Punct2([u8; 2]),
    /// The end of the text.
    End,
}

/// A position in the text. Saved and restored to look ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    /// Where it begins, in bytes from the beginning of the text.
    pub at: usize,
    /// Line, from 1.
    pub line: u32,
    /// Offset of the line's first byte.
    line_start: usize,
}

/// Reads tokens.
pub(super) struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    /// Where the next token (after white space) is looked for.
    pub position: Position,
    /// Where the last token began.
    pub start: Position,
}

fn is_ident(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

impl<'a> Lexer<'a> {
    /// A lexer at the beginning of a text.
    pub(super) fn new(text: &'a str) -> Self {
        let position = Position { at: 0, line: 1, line_start: 0 };
        Self { text, bytes: text.as_bytes(), position, start: position }
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.bytes.get(self.position.at + ahead).copied().unwrap_or(0)
    }

    /// An error at the last token.
    pub(super) fn error(&self, message: impl Into<String>) -> ParseError {
        error_at(self.start, message)
    }

    fn newline(&mut self) {
        self.position.at += 1;
        self.position.line += 1;
        self.position.line_start = self.position.at;
    }

    /// Skips what is left of the line.
    pub(super) fn skip_line(&mut self) {
        while self.position.at < self.bytes.len() && self.byte(0) != b'\n' {
            self.position.at += 1;
        }
    }

    /// Skips white space and comments.
    fn skip_blank(&mut self) -> Result<(), ParseError> {
        loop {
            match self.byte(0) {
                b'\n' => self.newline(),
                b' ' | b'\t' | b'\r' | 0x0B | 0x0C => self.position.at += 1,
                // NULs pad the text in fat binaries.
                0 if self.position.at < self.bytes.len() => self.position.at += 1,
                b'/' if self.byte(1) == b'/' => self.skip_line(),
                b'/' if self.byte(1) == b'*' => {
                    let begin = self.position;
                    self.position.at += 2;
                    loop {
                        match self.byte(0) {
                            b'*' if self.byte(1) == b'/' => break self.position.at += 2,
                            b'\n' => self.newline(),
                            _ if self.position.at >= self.bytes.len() => {
                                return Err(error_at(begin, "This comment does not end"));
                            }
                            _ => self.position.at += 1,
                        }
                    }
                }
                b'#' => self.skip_line(),
                _ => return Ok(()),
            }
        }
    }

    fn slice(&self, from: usize) -> &'a str {
        // Tokens begin and end at ASCII characters, so this is always on a character boundary.
        self.text.get(from..self.position.at).unwrap_or("")
    }

    /// The text from one place up to another.
    pub(super) fn between(&self, from: Position, to: Position) -> &'a str {
        self.text.get(from.at..to.at).unwrap_or("")
    }

    fn skip_ident(&mut self) {
        while is_ident(self.byte(0)) {
            self.position.at += 1;
        }
    }

    /// The next token.
    pub(super) fn next(&mut self) -> Result<Token<'a>, ParseError> {
        self.skip_blank()?;
        self.start = self.position;
        let from = self.position.at;
        if from >= self.bytes.len() {
            return Ok(Token::End);
        }
        let byte = self.byte(0);
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => {
                self.skip_ident();
                Ok(Token::Ident(self.slice(from)))
            }
            b'%' if is_ident(self.byte(1)) => {
                self.position.at += 1;
                self.skip_ident();
                Ok(Token::Ident(self.slice(from)))
            }
            b'.' if is_ident(self.byte(1)) && !self.byte(1).is_ascii_digit() => {
                self.position.at += 1;
                self.skip_ident();
                while self.byte(0) == b':' && self.byte(1) == b':' {
                    self.position.at += 2;
                    self.skip_ident();
                }
                Ok(Token::Dot(self.slice(from + 1)))
            }
            b'0'..=b'9' => self.number(),
            b'.' if self.byte(1).is_ascii_digit() => self.number(),
            b'"' => {
                self.position.at += 1;
                loop {
                    match self.byte(0) {
                        b'"' => break,
                        b'\\' if self.byte(1) != b'\n' && self.position.at + 1 < self.bytes.len() => {
                            self.position.at += 2;
                        }
                        b'\n' => return Err(self.error("This string does not end")),
                        _ if self.position.at >= self.bytes.len() => {
                            return Err(self.error("This string does not end"));
                        }
                        _ => self.position.at += 1,
                    }
                }
                let text = self.text.get(from + 1..self.position.at).unwrap_or("");
                self.position.at += 1;
                Ok(Token::Str(text))
            }
            b'<' | b'>' | b'=' | b'!' | b'&' | b'|' => {
                let pair = [byte, self.byte(1)];
                if matches!(&pair, b"<<" | b">>" | b"<=" | b">=" | b"==" | b"!=" | b"&&" | b"||") {
                    self.position.at += 2;
                    return Ok(Token::Punct2(pair));
                }
                self.position.at += 1;
                Ok(Token::Punct(byte))
            }
            b',' | b';' | b'{' | b'}' | b'(' | b')' | b'[' | b']' | b'+' | b'-' | b'*' | b'/' | b'%'
            | b'^' | b'~' | b'?' | b':' | b'@' | b'.' => {
                self.position.at += 1;
                Ok(Token::Punct(byte))
            }
            _ => {
                let character = self.text.get(from..).and_then(|rest| rest.chars().next()).unwrap_or('?');
                Err(self.error(format!("Character {character:?} does not belong here")))
            }
        }
    }

    fn number(&mut self) -> Result<Token<'a>, ParseError> {
        let from = self.position.at;
        let prefix = if self.byte(0) == b'0' { self.byte(1) } else { 0 };
        match prefix {
            b'f' | b'F' => {
                self.skip_ident();
                let digits = self.slice(from + 2);
                match u32::from_str_radix(digits, 16) {
                    Ok(bits) if digits.len() == 8 => Ok(Token::F32(bits)),
                    _ => Err(self.error("A float written as 0f takes 8 hexadecimal digits")),
                }
            }
            b'd' | b'D' => {
                self.skip_ident();
                let digits = self.slice(from + 2);
                match u64::from_str_radix(digits, 16) {
                    Ok(bits) if digits.len() == 16 => Ok(Token::F64(bits)),
                    _ => Err(self.error("A double written as 0d takes 16 hexadecimal digits")),
                }
            }
            b'x' | b'X' => self.integer(from, 2, 16),
            b'b' | b'B' => self.integer(from, 2, 2),
            _ => {
                while self.byte(0).is_ascii_digit() {
                    self.position.at += 1;
                }
                let exponent =
                    |l: &Self, at: usize| l.byte(at).is_ascii_digit() || matches!(l.byte(at), b'+' | b'-');
                let is_float =
                    self.byte(0) == b'.' || (matches!(self.byte(0), b'e' | b'E') && exponent(self, 1));
                if !is_float {
                    let octal = self.bytes[from] == b'0' && self.position.at > from + 1;
                    self.position.at = from;
                    return self.integer(from, 0, if octal { 8 } else { 10 });
                }
                if self.byte(0) == b'.' {
                    self.position.at += 1;
                    while self.byte(0).is_ascii_digit() {
                        self.position.at += 1;
                    }
                }
                if matches!(self.byte(0), b'e' | b'E') && exponent(self, 1) {
                    self.position.at += 2;
                    while self.byte(0).is_ascii_digit() {
                        self.position.at += 1;
                    }
                }
                match self.slice(from).parse::<f64>() {
                    Ok(value) => Ok(Token::F64(value.to_bits())),
                    Err(_) => Err(self.error("This is not a number")),
                }
            }
        }
    }

    fn integer(&mut self, from: usize, skip: usize, radix: u32) -> Result<Token<'a>, ParseError> {
        self.position.at = from;
        self.skip_ident();
        let text = self.slice(from + skip);
        let (digits, unsigned) = match text.strip_suffix(['U', 'u']) {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        match u64::from_str_radix(digits, radix) {
            Ok(value) if !digits.starts_with('+') => {
                Ok(Token::Int(value, unsigned || value > i64::MAX as u64))
            }
            _ => Err(self.error(format!("{:?} is not a 64-bit integer", self.slice(from)))),
        }
    }

    /// The rest of an opcode whose first part has just been read as [`Token::Ident`]: everything up to a
    /// blank, `::` parts included. Returns the whole.
    pub(super) fn opcode(&mut self) -> &'a str {
        let from = self.start.at;
        loop {
            match self.byte(0) {
                b'.' if is_ident(self.byte(1)) => self.position.at += 1,
                b':' if self.byte(1) == b':' => self.position.at += 2,
                _ => break,
            }
            self.skip_ident();
        }
        self.slice(from)
    }

    /// A version such as `9.0`, which is no float.
    pub(super) fn version(&mut self) -> Result<(u32, u32), ParseError> {
        self.skip_blank()?;
        self.start = self.position;
        let from = self.position.at;
        while self.byte(0).is_ascii_digit() || self.byte(0) == b'.' {
            self.position.at += 1;
        }
        let parsed =
            self.slice(from).split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        parsed.ok_or_else(|| self.error("A version such as 8.0 is expected"))
    }
}

/// An error at a place.
pub(super) fn error_at(position: Position, message: impl Into<String>) -> ParseError {
    ParseError {
        message: message.into(),
        line: position.line,
        column: (position.at - position.line_start) as u32 + 1,
    }
}
