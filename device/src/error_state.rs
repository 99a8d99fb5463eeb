//! Which errors stick: the one place that all devices ask.

use crate::{Error, Result};

/// What has gone wrong on a device ordinal and is still to be told. After an error for which
/// [`Code::is_sticky`](crate::Code::is_sticky) holds, everything fails with it until the ordinal is reset, and no work is
/// carried out. Any other error of work that nobody waited for is told once, to whoever asks next.
#[derive(Debug, Clone, Default)]
pub struct ErrorState {
    sticky: Option<Error>,
    pending: Option<Error>,
}

impl ErrorState {
    /// Keeps an error that nobody was told of. Of several, the first one counts.
    pub fn keep(&mut self, error: Error) {
        let kept = if error.code.is_sticky() { &mut self.sticky } else { &mut self.pending };
        kept.get_or_insert(error);
    }

    /// Takes note of an error that some caller is told of right now: it is kept only if it sticks. True if it does.
    pub fn note(&mut self, error: &Error) -> bool {
        let sticks = error.code.is_sticky();
        if sticks {
            self.sticky.get_or_insert_with(|| error.clone());
        }
        sticks
    }

    /// Makes an error stick, whatever its code: the ordinal cannot be used any more.
    pub fn fail(&mut self, error: Error) {
        self.sticky.get_or_insert(error);
    }

    /// The error that sticks.
    #[inline]
    pub fn sticky(&self) -> Option<&Error> {
        self.sticky.as_ref()
    }

    /// Takes the error that is told once.
    pub fn take_pending(&mut self) -> Option<Error> {
        self.pending.take()
    }

    /// Whether there is nothing to tell.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.sticky.is_none() && self.pending.is_none()
    }

    /// Fails with the error that sticks.
    ///
    /// # Errors
    /// See above.
    #[inline]
    pub fn check_sticky(&self) -> Result<()> {
        self.sticky.clone().map_or(Ok(()), Err)
    }

    /// Fails with the error that sticks, or with the one that is told once, which is taken.
    ///
    /// # Errors
    /// See above.
    #[inline]
    pub fn check(&mut self) -> Result<()> {
        self.check_sticky()?;
        self.pending.take().map_or(Ok(()), Err)
    }

    /// The ordinal was reset: nothing is left to be told.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    fn error(code: Code, text: &str) -> Error {
        Error::new(code, text)
    }

    #[test]
    fn what_sticks_is_told_until_the_reset() {
        let mut state = ErrorState::default();
        state.keep(error(Code::InvalidValue, "pending"));
        state.keep(error(Code::IllegalAddress, "first"));
        state.keep(error(Code::Assert, "second"));
        for _ in 0..3 {
            assert_eq!(state.check().unwrap_err().message, "first");
        }
        assert!(!state.is_clear());
        state.reset();
        assert_eq!((state.check(), state.is_clear()), (Ok(()), true));
    }

    #[test]
    fn what_does_not_stick_is_told_once() {
        let mut state = ErrorState::default();
        state.keep(error(Code::LaunchOutOfResources, "first"));
        state.keep(error(Code::InvalidValue, "second"));
        assert_eq!(state.sticky(), None);
        assert_eq!(state.check().unwrap_err().message, "first");
        assert_eq!(state.check(), Ok(()));
    }

    #[test]
    fn what_the_caller_was_told_is_kept_only_if_it_sticks() {
        let mut state = ErrorState::default();
        assert!(!state.note(&error(Code::OutOfMemory, "told")));
        assert!(state.is_clear());
        assert!(state.note(&error(Code::LaunchFailed, "told")));
        assert_eq!(state.check().unwrap_err().code, Code::LaunchFailed);
        let mut broken = ErrorState::default();
        broken.fail(error(Code::OperatingSystem, "no threads"));
        assert_eq!(broken.check().and(broken.check()).unwrap_err().code, Code::OperatingSystem);
    }
}
