//! Options that take one of a few words: their meaning is a library's, their help is here.

use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A parser of `words` (each with its help), which `T` knows, too.
pub fn of<T>(words: &'static [(&'static str, &'static str)]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    let values = words
        .iter()
        .map(|(word, help)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(values).try_map(|word| word.parse::<T>())
}
