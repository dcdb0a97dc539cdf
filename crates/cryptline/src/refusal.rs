//! Why a token yields no passphrase.

/// Why a token was passed over.
pub(crate) enum TokenRefusal {
    /// Nothing is wrong: it is for another user, machine or program.
    NotUsed(String),
    /// Should have worked.
    Failed(String),
    /// The same, and a TPM counts how often that happens.
    Counted(String),
}

impl TokenRefusal {
    pub fn why(self) -> String {
        let (Self::NotUsed(why) | Self::Failed(why) | Self::Counted(why)) = self;
        why
    }
}

impl From<String> for TokenRefusal {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<&str> for TokenRefusal {
    fn from(why: &str) -> Self {
        Self::Failed(why.to_owned())
    }
}

impl From<std::io::Error> for TokenRefusal {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}
