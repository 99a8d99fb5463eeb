//! Values on the wire: fixed-width, little-endian, decoded with every bound checked.

/// Why bytes could not be decoded. Always means that the peer is broken or hostile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the value needs.
    #[error("Message is truncated: {what} needs {needed} bytes, {left} are left")]
    Truncated {
        /// What was being decoded.
        what: &'static str,
        /// Bytes needed.
        needed: usize,
        /// Bytes left.
        left: usize,
    },
    /// More bytes than the value needs.
    #[error("Message is {extra} bytes longer than its contents")]
    TooLong {
        /// Bytes in excess.
        extra: usize,
    },
    /// A length that breaks a limit.
    #[error("{what} has length {length}, more than the limit of {limit}")]
    OverLimit {
        /// What was being decoded.
        what: &'static str,
        /// The length given.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// A value that does not exist.
    #[error("{what} {value} does not exist")]
    Unknown {
        /// What was being decoded.
        what: &'static str,
        /// The value given.
        value: u64,
    },
    /// A text that is not UTF-8.
    #[error("Text is not UTF-8")]
    NotUtf8,
}

/// The result of decoding.
pub type Result<T> = std::result::Result<T, DecodeError>;

/// A position in received bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8]> {
        match self.bytes.split_at_checked(n) {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(head)
            }
            None => Err(DecodeError::Truncated { what, needed: n, left: self.bytes.len() }),
        }
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Checks that nothing is left.
    pub fn finish(self) -> Result<()> {
        if self.bytes.is_empty() { Ok(()) } else { Err(DecodeError::TooLong { extra: self.bytes.len() }) }
    }
}

/// A value with a wire form.
pub trait Wire: Sized {
    /// The fewest bytes a value takes. Bounds what a list's length may make a decoder allocate: never
    /// more elements than the bytes received could hold.
    const MIN_BYTES: usize;
    /// Whether every value takes exactly [`Wire::MIN_BYTES`], so that [`Wire::put`] can be used.
    const FIXED: bool = false;
    /// Writes the wire form of a value of fixed size to the start of `out`, which has room for it; returns what is left
    /// of that. For values of other sizes this writes nothing.
    fn put<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        out
    }
    /// Appends the wire form.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads the wire form.
    fn decode(reader: &mut Reader<'_>) -> Result<Self>;
}

/// Encodes one value.
pub fn to_bytes<T: Wire>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out);
    out
}

/// Decodes one value that fills `bytes`.
pub fn from_bytes<T: Wire>(bytes: &[u8]) -> Result<T> {
    let mut reader = Reader::new(bytes);
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            const MIN_BYTES: usize = size_of::<$t>();
            const FIXED: bool = true;
            #[inline(always)]
            fn put<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
                let (here, rest) = out.split_at_mut(size_of::<$t>());
                here.copy_from_slice(&self.to_le_bytes());
                rest
            }
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn decode(reader: &mut Reader<'_>) -> Result<Self> {
                let mut bytes = [0; size_of::<$t>()];
                bytes.copy_from_slice(reader.take(size_of::<$t>(), stringify!($t))?);
                Ok(Self::from_le_bytes(bytes))
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i32, i64, f32, f64);

impl Wire for () {
    const MIN_BYTES: usize = 0;
    const FIXED: bool = true;
    fn encode(&self, _out: &mut Vec<u8>) {}
    fn decode(_reader: &mut Reader<'_>) -> Result<Self> {
        Ok(())
    }
}

/// One byte, 0 or 1.
impl Wire for bool {
    const MIN_BYTES: usize = 1;
    const FIXED: bool = true;
    #[inline(always)]
    fn put<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        u8::from(*self).put(out)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        match u8::decode(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::Unknown { what: "truth value", value: value.into() }),
        }
    }
}

/// The elements one after another.
impl<T: Wire + Copy + Default, const N: usize> Wire for [T; N] {
    const MIN_BYTES: usize = N * T::MIN_BYTES;
    const FIXED: bool = T::FIXED;
    #[inline(always)]
    fn put<'a>(&self, mut out: &'a mut [u8]) -> &'a mut [u8] {
        for value in self {
            out = value.put(out);
        }
        out
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|v| v.encode(out));
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::decode(reader)?;
        }
        Ok(values)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    const MIN_BYTES: usize = A::MIN_BYTES + B::MIN_BYTES;
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok((A::decode(reader)?, B::decode(reader)?))
    }
}

/// A byte (0 or 1), then the value or zeros in its place: the same length either way.
impl<T: Wire + Default> Wire for Option<T> {
    const MIN_BYTES: usize = 1 + T::MIN_BYTES;
    const FIXED: bool = T::FIXED;
    #[inline(always)]
    fn put<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        let out = self.is_some().put(out);
        match self {
            Some(v) => v.put(out),
            None => T::default().put(out),
        }
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        match self {
            Some(v) => v.encode(out),
            None => T::default().encode(out),
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let some = bool::decode(reader)?;
        let value = T::decode(reader)?;
        Ok(some.then_some(value))
    }
}

/// A u32 count, then the elements.
impl<T: Wire> Wire for Vec<T> {
    const MIN_BYTES: usize = 4;
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        self.iter().for_each(|v| v.encode(out));
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        const { assert!(T::MIN_BYTES > 0) };
        let count = u32::decode(reader)? as usize;
        if count > reader.left() / T::MIN_BYTES {
            let needed = count.saturating_mul(T::MIN_BYTES);
            return Err(DecodeError::Truncated { what: "list", needed, left: reader.left() });
        }
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(T::decode(reader)?);
        }
        Ok(values)
    }
}

/// A u32 length in bytes, then UTF-8.
impl Wire for String {
    const MIN_BYTES: usize = 4;
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let length = u32::decode(reader)? as usize;
        let bytes = reader.take(length, "text")?;
        Ok(std::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8)?.to_owned())
    }
}

/// Defines records: structs whose wire form is their fields in order.
#[macro_export]
macro_rules! records {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }

        impl $crate::Wire for $name {
            const MIN_BYTES: usize = 0 $(+ <$type as $crate::Wire>::MIN_BYTES)*;
            const FIXED: bool = true $(&& <$type as $crate::Wire>::FIXED)*;
            #[inline(always)]
            fn put<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
                $(let out = $crate::Wire::put(&self.$field, out);)*
                out
            }
            fn encode(&self, _out: &mut Vec<u8>) {
                $($crate::Wire::encode(&self.$field, _out);)*
            }
            fn decode(_reader: &mut $crate::Reader<'_>) -> $crate::Result<Self> {
                Ok(Self { $($field: $crate::Wire::decode(_reader)?,)* })
            }
        }
    )*};
}
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_count_allocates_nothing() {
        let bytes = u32::MAX.to_le_bytes();
        assert!(matches!(from_bytes::<Vec<u64>>(&bytes), Err(DecodeError::Truncated { .. })));
        assert!(matches!(from_bytes::<String>(&bytes), Err(DecodeError::Truncated { .. })));
    }

    proptest! {
        #[test]
        fn values_come_back(a: u64, b: i32, c: f32, d: bool, e: Option<u64>, f: Vec<(u32, i32)>, g: String) {
            let mut out = Vec::new();
            (a, b).encode(&mut out);
            (c.to_bits(), d).encode(&mut out);
            e.encode(&mut out);
            f.encode(&mut out);
            g.encode(&mut out);
            let mut r = Reader::new(&out);
            prop_assert_eq!(<(u64, i32)>::decode(&mut r).unwrap(), (a, b));
            prop_assert_eq!(<(u32, bool)>::decode(&mut r).unwrap(), (c.to_bits(), d));
            prop_assert_eq!(Option::<u64>::decode(&mut r).unwrap(), e);
            prop_assert_eq!(Vec::<(u32, i32)>::decode(&mut r).unwrap(), f);
            prop_assert_eq!(String::decode(&mut r).unwrap(), g);
            prop_assert_eq!(r.finish(), Ok(()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = from_bytes::<Vec<(u32, i32)>>(&bytes);
            let _ = from_bytes::<Vec<String>>(&bytes);
            let _ = from_bytes::<Option<[u32; 3]>>(&bytes);
        }
    }
}
