//! Methods that the builders have in common: each sets one thing and gives the builder back.

/// Methods of a builder, each as `fn name(value: Type) { place = value }`: what is in braces follows `self.`.
macro_rules! setters {
    ($($(#[$doc:meta])* fn $name:ident($value:ident: $type:ty) { $($set:tt)+ })*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $value: $type) -> Self {
            self.$($set)+;
            self
        }
    )*};
}

/// The method of a builder that calls one of its others where there is something to call it with.
macro_rules! setter_of_options {
    () => {
        /// The same with one thing more, where it is given: `with(header, Self::header)`.
        #[must_use]
        pub fn with<T>(self, given: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
            match given {
                Some(value) => set(self, value),
                None => self,
            }
        }
    };
}

/// The methods of builders that open what exists: how it is unlocked, and what is demanded of its header.
macro_rules! setters_of_unlocking {
    () => {
        crate::setters::setters! {
            /// The LUKS header is in this file; the target has only data.
            fn header(path: impl Into<std::path::PathBuf>) { header = Some(path.into()) }

            /// Sets what opens the volume: where the key comes from.
            fn keys(keys: impl crate::keys::Keys + 'static) { given.set_keys(Ok(keys)) }

            /// Unlocks with this passphrase, of which a copy is kept in key memory.
            ///
            /// Give a reference to memory that you wipe: what is passed by value, such as a `String`, is freed as it is.
            fn passphrase(passphrase: impl AsRef<[u8]>) { given.set_keys(crate::keys::Passphrase::new(passphrase)) }

            /// Accepts this cipher, exactly as the header has it, though nothing vouches for it: without that, the volume
            /// can only be read or is refused ([`Trust`](cryptline_luks::Trust)). May be called several times. A cipher that
            /// encrypts nothing is not accepted by it.
            fn accept_cipher(spec: impl Into<String>) { given.accept_cipher(spec.into()) }

            /// Demands this of the LUKS header, unless the target itself says otherwise.
            fn header_rules(rules: crate::rules::HeaderRules) { given.add_rules(&rules) }

            /// Tries only this key slot, whatever its priority.
            fn key_slot(slot: u32) { given.slot = Some(slot) }

            /// Tries these tokens of a LUKS2 header before a key is asked for. Without this, no token is tried. What needs
            /// the passphrase itself takes the token's.
            fn tokens(tokens: crate::tokens::Tokens) { given.tokens = Some(tokens) }

            /// Limits the cost of deriving keys: a header can ask for anything.
            fn kdf_limits(limits: cryptline_luks::KdfLimits) { given.limits = limits }
        }
    };
}

pub(crate) use {setter_of_options, setters, setters_of_unlocking};
