//! The registers of a TPM in which the state of a machine is measured.

use std::fmt;
use std::str::FromStr;

/// Registers that every TPM has.
const COUNT: u32 = 24;

/// Which registers (PCRs) must have the values that they have when a token is made: any of 0 to 23.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pcrs(u32);

impl Default for Pcrs {
    /// 7: whether the firmware checks what it boots, and by whose keys. As systemd does.
    fn default() -> Self {
        Self(1 << 7)
    }
}

impl Pcrs {
    /// Whatever runs may open it.
    pub const NONE: Self = Self(0);

    /// This one as well; `None` where there is no such register.
    #[must_use]
    pub fn with(self, pcr: u32) -> Option<Self> {
        (pcr < COUNT).then(|| Self(self.0 | 1 << pcr))
    }

    /// Their numbers.
    pub fn numbers(self) -> impl Iterator<Item = u32> {
        (0..COUNT).filter(move |pcr| self.0 >> pcr & 1 == 1)
    }

    /// One bit each.
    pub(super) fn mask(self) -> u32 {
        self.0
    }

    /// Those of them that this mask leaves out.
    pub(super) fn without(self, mask: u32) -> Self {
        Self(self.0 & !mask)
    }
}

impl fmt::Display for Pcrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.numbers().map(|pcr| pcr.to_string()).collect();
        f.write_str(&numbers.join("+"))
    }
}

/// Numbers with `+` or `,` between them; none where there is nothing.
impl FromStr for Pcrs {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self::NONE);
        }
        let numbers = text.split(['+', ',']).map(|number| {
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            number.parse().ok().filter(|_| is_number)
        });
        let mut numbers = numbers;
        let all = numbers.try_fold(Self::NONE, |pcrs, number| pcrs.with(number?));
        all.ok_or("use numbers from 0 to 23 with + between them, such as 7+11")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_numbers_from_0_to_23() {
        for (text, shown) in [("7", "7"), ("11+7", "7+11"), ("0,23,0", "0+23"), ("", "")] {
            assert_eq!(text.parse::<Pcrs>().unwrap().to_string(), shown, "{text}");
        }
        for text in ["24", "7+", "-1", "+7", "a", "7 8"] {
            assert!(text.parse::<Pcrs>().is_err(), "{text}");
        }
        assert_eq!(Pcrs::default().to_string(), "7");
    }
}
