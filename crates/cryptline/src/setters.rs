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

pub(crate) use {setter_of_options, setters};
