//! Constant expressions.

use super::ParseError;
use super::lexer::{Lexer, Token};

/// The value of a constant expression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    /// 64 bits; `true` for unsigned.
    Int(u64, bool),
    /// A float's bits.
    F32(u32),
    /// A double's bits.
    F64(u64),
}

/// How deep expressions may nest.
const MAX_DEPTH: u32 = 100;

/// Evaluates the expression at the lexer's place, and stops before the first token that does not belong
/// to it. Operators below `min_level` (see [`level`]) do not belong to it.
pub(super) fn evaluate(lexer: &mut Lexer<'_>, min_level: u32) -> Result<Value, ParseError> {
    binary(lexer, min_level, 0)
}

/// The level of `*`: reads one term of a sum.
pub(super) const TERM: u32 = 10;

/// How tightly a binary operator binds; 0 is the conditional `?`.
fn level(token: Token<'_>) -> Option<u32> {
    Some(match token {
        Token::Punct2(pair) => match &pair {
            b"||" => 1,
            b"&&" => 2,
            b"==" | b"!=" => 6,
            b"<=" | b">=" => 7,
            b"<<" | b">>" => 8,
            _ => return None,
        },
        Token::Punct(byte) => match byte {
            b'?' => 0,
            b'|' => 3,
            b'^' => 4,
            b'&' => 5,
            b'<' | b'>' => 7,
            b'+' | b'-' => 9,
            b'*' | b'/' | b'%' => 10,
            _ => return None,
        },
        _ => return None,
    })
}

fn binary(lexer: &mut Lexer<'_>, min_level: u32, depth: u32) -> Result<Value, ParseError> {
    if depth > MAX_DEPTH {
        return Err(lexer.error("This expression is nested too deeply"));
    }
    let mut left = unary(lexer, depth)?;
    loop {
        let saved = (lexer.position, lexer.start);
        let token = lexer.next()?;
        let Some(level) = level(token).filter(|l| *l >= min_level) else {
            (lexer.position, lexer.start) = saved;
            return Ok(left);
        };
        if level == 0 {
            let (condition, _) = integer(lexer, left)?;
            let yes = binary(lexer, 0, depth + 1)?;
            if lexer.next()? != Token::Punct(b':') {
                return Err(lexer.error("':' is expected"));
            }
            let no = binary(lexer, 0, depth + 1)?;
            left = if condition != 0 { yes } else { no };
            continue;
        }
        let right = binary(lexer, level + 1, depth + 1)?;
        left = combine(lexer, token, left, right)?;
    }
}

fn integer(lexer: &Lexer<'_>, value: Value) -> Result<(u64, bool), ParseError> {
    match value {
        Value::Int(value, unsigned) => Ok((value, unsigned)),
        _ => Err(lexer.error("An integer is expected here")),
    }
}

fn combine(lexer: &Lexer<'_>, operator: Token<'_>, left: Value, right: Value) -> Result<Value, ParseError> {
    let (a, a_unsigned) = integer(lexer, left)?;
    let (b, b_unsigned) = integer(lexer, right)?;
    let unsigned = a_unsigned || b_unsigned;
    let (sa, sb) = (a as i64, b as i64);
    let flag = |condition: bool| Ok(Value::Int(u64::from(condition), false));
    let value = match operator {
        Token::Punct(b'+') => a.wrapping_add(b),
        Token::Punct(b'-') => a.wrapping_sub(b),
        Token::Punct(b'*') => a.wrapping_mul(b),
        Token::Punct(b'/' | b'%') if b == 0 => return Err(lexer.error("Division by zero")),
        Token::Punct(b'/') if unsigned => a / b,
        Token::Punct(b'/') => sa.wrapping_div(sb) as u64,
        Token::Punct(b'%') if unsigned => a % b,
        Token::Punct(b'%') => sa.wrapping_rem(sb) as u64,
        Token::Punct(b'&') => a & b,
        Token::Punct(b'|') => a | b,
        Token::Punct(b'^') => a ^ b,
        Token::Punct(b'<') => return flag(if unsigned { a < b } else { sa < sb }),
        Token::Punct(b'>') => return flag(if unsigned { a > b } else { sa > sb }),
        Token::Punct2(pair) => match &pair {
            b"||" => return flag(a != 0 || b != 0),
            b"&&" => return flag(a != 0 && b != 0),
            b"==" => return flag(a == b),
            b"!=" => return flag(a != b),
            b"<=" => return flag(if unsigned { a <= b } else { sa <= sb }),
            b">=" => return flag(if unsigned { a >= b } else { sa >= sb }),
            // A shift has the signedness of its left operand.
            b"<<" => return Ok(Value::Int(if b < 64 { a << b } else { 0 }, a_unsigned)),
            _ if a_unsigned => return Ok(Value::Int(if b < 64 { a >> b } else { 0 }, true)),
            _ => return Ok(Value::Int((sa >> b.min(63)) as u64, false)),
        },
        _ => return Err(lexer.error("This is no operator")),
    };
    Ok(Value::Int(value, unsigned))
}

fn unary(lexer: &mut Lexer<'_>, depth: u32) -> Result<Value, ParseError> {
    if depth > MAX_DEPTH {
        return Err(lexer.error("This expression is nested too deeply"));
    }
    match lexer.next()? {
        Token::Int(value, unsigned) => Ok(Value::Int(value, unsigned)),
        Token::F32(bits) => Ok(Value::F32(bits)),
        Token::F64(bits) => Ok(Value::F64(bits)),
        Token::Ident("WARP_SZ") => Ok(Value::Int(32, false)),
        Token::Punct(b'-') => Ok(match unary(lexer, depth + 1)? {
            Value::Int(value, unsigned) => Value::Int(value.wrapping_neg(), unsigned && value != 1 << 63),
            Value::F32(bits) => Value::F32(bits ^ 1 << 31),
            Value::F64(bits) => Value::F64(bits ^ 1 << 63),
        }),
        Token::Punct(b'+') => unary(lexer, depth + 1),
        Token::Punct(b'~') => {
            let value = unary(lexer, depth + 1)?;
            integer(lexer, value).map(|(v, unsigned)| Value::Int(!v, unsigned))
        }
        Token::Punct(b'!') => {
            let value = unary(lexer, depth + 1)?;
            integer(lexer, value).map(|(v, _)| Value::Int(u64::from(v == 0), false))
        }
        Token::Punct(b'(') => {
            let saved = (lexer.position, lexer.start);
            let cast = match lexer.next()? {
                Token::Dot("s64") => Some(false),
                Token::Dot("u64") => Some(true),
                _ => None,
            };
            match cast {
                Some(unsigned) => {
                    close(lexer)?;
                    let value = unary(lexer, depth + 1)?;
                    integer(lexer, value).map(|(v, _)| Value::Int(v, unsigned))
                }
                None => {
                    (lexer.position, lexer.start) = saved;
                    let value = binary(lexer, 0, depth + 1)?;
                    close(lexer)?;
                    Ok(value)
                }
            }
        }
        _ => Err(lexer.error("A number is expected")),
    }
}

fn close(lexer: &mut Lexer<'_>) -> Result<(), ParseError> {
    match lexer.next()? {
        Token::Punct(b')') => Ok(()),
        _ => Err(lexer.error("')' is expected")),
    }
}
