//! The linker's command line.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::Result;

/// Replaces `@file` arguments by what the files say: words, quoted with `"` or `'`, `\` escaping.
pub(crate) fn expand(arguments: Vec<OsString>) -> Result<Vec<OsString>> {
    let mut expanded = Vec::new();
    for argument in arguments {
        let Some(file) = argument.as_bytes().strip_prefix(b"@") else {
            expanded.push(argument);
            continue;
        };
        let text = fs::read(PathBuf::from(OsString::from_vec(file.to_vec())))?;
        expanded.extend(words(&text).into_iter().map(OsString::from_vec));
    }
    Ok(expanded)
}

fn words(text: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (_, b'\\') => word.get_or_insert_default().extend(bytes.next()),
            (Some(open), _) if byte == open => quote = None,
            (None, b'"' | b'\'') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None, _) if byte.is_ascii_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_in_three_ways() {
        let expected: [&[u8]; 5] = [b"-o", b"a b", b"c \"d", b"e f", b""];
        assert_eq!(words(br#"-o "a b" 'c "d' e\ f ''"#), expected);
        assert_eq!(words(b"  \n "), Vec::<Vec<u8>>::new());
    }
}
