//! What somebody meant who typed a name that there is not.

use strsim::osa_distance;

/// The name that is nearest to what was typed, if one is near; the first of several.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    // A third of what was typed may be wrong.
    let most = (typed.chars().count() / 3).max(1);
    let near = known.into_iter().map(|name| (osa_distance(&typed, name), name));
    near.min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= most)
        .map(|(_, name)| name)
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
}
