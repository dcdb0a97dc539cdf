//! Options that take one of a few words: their values are a library's, their help is here.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Words, each with its help and its value. One without help is another name, which help does not show.
pub type ChoiceWords<T> = [(&'static str, &'static str, T)];

/// A parser of `words`.
pub fn of<T: Copy + Send + Sync + 'static>(words: &'static ChoiceWords<T>) -> impl TypedValueParser<Value = T> {
    let values = words.iter().map(|(word, help, _)| {
        let value = PossibleValue::new(*word).hide(help.is_empty());
        if help.is_empty() { value } else { value.help(*help) }
    });
    PossibleValuesParser::new(values).try_map(|given| {
        let mut known = words.iter();
        let found = known.find(|(word, ..)| *word == given);
        found.map(|(.., value)| *value).ok_or("no such word")
    })
}
