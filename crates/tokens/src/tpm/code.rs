//! Response codes, in words for what somebody can do about them (TPM 2.0 Library, part 2, 6.6).

use std::fmt;

/// Set in codes that say which parameter, handle or session was wrong.
const FORMAT_ONE: u32 = 0x80;
const AUTH_FAIL: u32 = 0x8e;
const BAD_AUTH: u32 = 0xa2;
const INTEGRITY: u32 = 0x9f;
const HANDLE: u32 = 0x8b;
const INITIALIZE: u32 = 0x100;
const POLICY_FAIL: u32 = 0x9d;
const PCR_CHANGED: u32 = 0x128;
const OBJECT_MEMORY: u32 = 0x902;
const SESSION_MEMORY: u32 = 0x903;
const MEMORY: u32 = 0x904;
const SESSION_HANDLES: u32 = 0x905;
const LOCKOUT: u32 = 0x921;
const YIELDED: u32 = 0x908;
const TESTING: u32 = 0x90a;
const RETRY: u32 = 0x922;

/// Answer of a TPM that did not do what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    /// Without the number of what was wrong.
    fn error(self) -> u32 {
        if self.0 & FORMAT_ONE == 0 { self.0 } else { self.0 & 0xbf }
    }

    /// Tells if what was loaded was not made by this TPM.
    pub fn is_foreign(self) -> bool {
        [INTEGRITY, HANDLE].contains(&self.error())
    }

    /// The same command may do later. Linux waits by itself, but not everything is Linux's device.
    pub fn is_later(self) -> bool {
        [YIELDED, TESTING, RETRY].contains(&self.0)
    }

    /// A register has changed since the session read it.
    pub fn is_pcr_changed(self) -> bool {
        self.0 == PCR_CHANGED
    }

    pub fn is_wrong_auth(self) -> bool {
        [AUTH_FAIL, BAD_AUTH].contains(&self.error())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(code) = self;
        let words = match self.error() {
            LOCKOUT => {
                "it is locked after too many wrong PINs; wait until it takes them again, or unlock it with `tpm2_dictionarylockout --clear-lockout`"
            }
            AUTH_FAIL | BAD_AUTH => {
                "the owner hierarchy or a key of it has a password; only one without can be used here"
            }
            INITIALIZE => "it has not been started; firmware or `tpm2_startup --clear` does that",
            OBJECT_MEMORY | SESSION_MEMORY | MEMORY | SESSION_HANDLES => {
                "it is full of what other programs have left there; use a device with a resource manager, or `tpm2_flushcontext`"
            }
            POLICY_FAIL => "what was asked for is not allowed by the policy of the token",
            _ => return write!(f, "it answers with the error {code:#x}"),
        };
        write!(f, "{words} ({code:#x})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_known_whatever_they_are_about() {
        // Session 1, handle 1, parameter 1.
        for code in [0x98e, 0x18e, 0x1ce, 0x9a2] {
            assert!(Code(code).is_wrong_auth(), "{code:#x}");
        }
        assert!(Code(0x1df).is_foreign());
        assert!(Code(0x128).is_pcr_changed());
        assert!(Code(0x922).is_later());
        assert!(Code(0x921).to_string().contains("locked"));
        assert!(Code(0x902).to_string().contains("full"));
        assert!(!Code(0x902).is_wrong_auth() && !Code(0x902).is_foreign());
        assert!(Code(0xffff_ffff).to_string().contains("0xffffffff"));
    }
}
