//! What somebody meant who typed a name that there is not.

/// The name that is nearest to what was typed, if one is near; the first of several.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    // A third of what was typed may be wrong.
    let most = (typed.chars().count() / 3).max(1);
    let near = known.into_iter().map(|name| (distance(&typed, name), name));
    near.min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= most)
        .map(|(_, name)| name)
}

/// How many letters must be put in, left out or changed to get from one to the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, letter) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood_and_nonsense_is_not() {
        let known = ["ali-producer", "ali-consumer", "mif-grid", "cs6-1"];
        assert_eq!(nearest("ali-producr", known), Some("ali-producer"));
        assert_eq!(nearest("mif_grid", known), Some("mif-grid"));
        assert_eq!(nearest("Ali-Consumer", known), Some("ali-consumer"));
        assert_eq!(nearest("everything", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn distances_count_letters() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
