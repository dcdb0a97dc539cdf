//! Names by which several volumes of one server are told apart.

/// `own`, or the first of `own-2`, `own-3`, ... that is not taken; shortened so that it has `most` bytes at most.
pub fn free_name(own: &str, most: usize, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = |number: u64| {
        let number = format!("-{number}");
        cut(own, most.saturating_sub(number.len())).to_owned() + &number
    };
    let first = cut(own, most).to_owned();
    let mut names = std::iter::once(first.clone()).chain((2..).map(numbered));
    names.find(|name| !is_taken(name)).unwrap_or(first)
}

/// As many whole characters as fit.
fn cut(text: &str, most: usize) -> &str {
    let ends = (0..=most.min(text.len())).rev();
    let end = ends.into_iter().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_names_get_numbers_and_stay_short() {
        let mut taken: Vec<String> = Vec::new();
        for (own, expected) in [
            ("disk.img", "disk.img"),
            ("disk.img", "disk.img-2"),
            ("disk.img", "disk.img-3"),
            ("a-name-of-a-volume", "a-name-of-a"),
            ("a-name-of-another", "a-name-of-2"),
            ("0123456789é", "0123456789"),
        ] {
            let name = free_name(own, 11, |name| taken.iter().any(|other| other == name));
            assert_eq!(name, expected);
            taken.push(name);
        }
    }
}
