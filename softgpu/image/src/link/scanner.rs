//! Reads no more of PTX than the linker has to know.

use super::unfinished;
use rgpu_device::Result;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A name, an opcode's first word, a register.
    Name,
    /// A word that begins with a dot.
    Directive,
    /// Numbers, strings, punctuation.
    Rest,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
}

/// Reads no more of the grammar than where names and braces are.
pub(super) struct Scanner<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn skip_line(&mut self) {
        self.at += self.rest().find('\n').unwrap_or(self.rest().len());
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            // As the parser does: NULs pad the texts in fat binaries.
            let trimmed = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\0');
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("//") || trimmed.starts_with('#') {
                self.skip_line();
            } else if let Some(comment) = trimmed.strip_prefix("/*") {
                self.at += comment.find("*/").map_or(trimmed.len(), |end| end + 4);
            } else {
                return;
            }
        }
    }

    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        self.skip_blanks();
        let rest = self.rest();
        let first = rest.chars().next()?;
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
        let words = |from: usize| from + rest[from..].find(|c| !word(c)).unwrap_or(rest.len() - from);
        let (kind, mut len) = match first {
            '"' => (TokenKind::Rest, string(rest)),
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

    pub(super) fn accept(&mut self, text: &str) -> bool {
        let before = self.at;
        if self.next().is_some_and(|token| token.text == text) {
            return true;
        }
        self.at = before;
        false
    }

    fn skip_numbers(&mut self, count: usize) {
        for _ in 0..count {
            let before = self.at;
            if !self.next().is_some_and(|token| token.text.starts_with(|c: char| c.is_ascii_digit())) {
                self.at = before;
                return;
            }
        }
    }

    /// To behind a `.loc` that was just read, as the parser reads it: what follows on its line is no part of it.
    pub(super) fn skip_location(&mut self) {
        self.skip_numbers(3);
        loop {
            let before = self.at;
            match self.accept(",").then(|| self.next()).flatten().map_or("", |token| token.text) {
                "function_name" => {
                    self.next();
                    if self.accept("+") {
                        self.skip_numbers(1);
                    }
                }
                "inlined_at" => self.skip_numbers(3),
                _ => {
                    self.at = before;
                    return;
                }
            }
        }
    }

    /// To behind a `.file` that was just read.
    pub(super) fn skip_file(&mut self) {
        self.skip_numbers(1);
        self.next();
        while self.accept(",") {
            self.skip_numbers(1);
        }
    }

    /// To behind the brace that closes the one just read.
    pub(super) fn skip_block(&mut self) -> Result<()> {
        self.skip_nested("{", "}")
    }

    /// To behind the parenthesis that closes the one just read.
    pub(super) fn skip_parentheses(&mut self) -> Result<()> {
        self.skip_nested("(", ")")
    }

    fn skip_nested(&mut self, open: &str, close: &str) -> Result<()> {
        let mut depth = 1;
        while depth > 0 {
            let text = self.next().ok_or_else(unfinished)?.text;
            depth += usize::from(text == open);
            depth -= usize::from(text == close);
        }
        Ok(())
    }
}

/// How long the string is that a text begins with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !escaped => return at + 1,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}
