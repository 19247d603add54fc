//! Which trials to run so that every two levels of every two factors meet at least once: a pairwise covering design
//! (Cohen and others 1997, "The AETG system"), built greedily.

/// Rows that are drawn for each row that is taken; the one that covers most pairs is.
const DRAWN: usize = 40;

/// Rows of level numbers: `rows[i][factor] < levels[factor]`. Every pair of levels of two factors is in a row, the
/// first row is all zeros (the base), and there are at least `least` rows, the further ones chosen so that levels
/// are used evenly. `levels` are the factors' numbers of levels, each at least 1.
pub(super) fn covering(levels: &[usize], least: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut design = Design::new(levels);
    design.take(vec![0; levels.len()]);
    while design.uncovered > 0 || design.rows.len() < least {
        let rows = (0..DRAWN).map(|_| design.draw(&mut rng));
        // Of rows that cover the same, the one whose levels were used least.
        let best = rows.max_by_key(|row| (design.gain(row), usize::MAX - design.used(row)));
        design.take(best.expect("rows are drawn"));
    }
    design.rows
}

struct Design<'a> {
    levels: &'a [usize],
    /// Whether a pair is covered: `[factor][level][other factor][other level]`, both ways round.
    covered: Vec<Vec<Vec<Vec<bool>>>>,
    uncovered: usize,
    rows: Vec<Vec<usize>>,
}

impl Design<'_> {
    fn new(levels: &[usize]) -> Design<'_> {
        let of_one: Vec<Vec<bool>> = levels.iter().map(|count| vec![false; *count]).collect();
        let pairs = |i: usize| levels[i + 1..].iter().map(|other| levels[i] * other).sum::<usize>();
        Design {
            levels,
            covered: levels.iter().map(|count| vec![of_one.clone(); *count]).collect(),
            uncovered: (0..levels.len()).map(pairs).sum(),
            rows: Vec::new(),
        }
    }

    /// A row whose factors are set in a random order, each to the level that covers most with those already set.
    fn draw(&self, rng: &mut fastrand::Rng) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.levels.len()).collect();
        rng.shuffle(&mut order);
        let mut row: Vec<Option<usize>> = vec![None; self.levels.len()];
        for factor in order {
            let gain = |level: usize| {
                let set = row.iter().enumerate().filter_map(|(other, set)| Some((other, (*set)?)));
                set.filter(|(other, set)| !self.covered[factor][level][*other][*set]).count()
            };
            let most = (0..self.levels[factor]).map(gain).max().unwrap_or(0);
            let best: Vec<usize> =
                (0..self.levels[factor]).filter(|level| gain(*level) == most).collect();
            row[factor] = rng.choice(best);
        }
        row.into_iter().map(|level| level.expect("every factor is in the order")).collect()
    }

    /// Pairs of a row that no row covers yet.
    fn gain(&self, row: &[usize]) -> usize {
        pairs(row).filter(|(i, j)| !self.covered[*i][row[*i]][*j][row[*j]]).count()
    }

    /// How often a row's levels were used.
    fn used(&self, row: &[usize]) -> usize {
        self.rows.iter().map(|taken| taken.iter().zip(row).filter(|(a, b)| a == b).count()).sum()
    }

    fn take(&mut self, row: Vec<usize>) {
        self.uncovered -= self.gain(&row);
        for (i, j) in pairs(&row) {
            self.covered[i][row[i]][j][row[j]] = true;
            self.covered[j][row[j]][i][row[i]] = true;
        }
        self.rows.push(row);
    }
}

/// Every two factors, each two once.
fn pairs(row: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let count = row.len();
    (0..count).flat_map(move |i| (i + 1..count).map(move |j| (i, j)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_pairs_meet(levels: &[usize], rows: &[Vec<usize>]) -> bool {
        pairs(levels).all(|(i, j)| {
            (0..levels[i])
                .all(|a| (0..levels[j]).all(|b| rows.iter().any(|row| row[i] == a && row[j] == b)))
        })
    }

    #[test]
    fn every_two_levels_meet_in_few_rows() {
        for (levels, at_most) in [
            (vec![3, 3, 3, 3], 12),
            (vec![4, 4, 3, 4, 3, 2, 2], 28),
            (vec![2; 10], 12),
            (vec![5, 1, 2], 10),
        ] {
            let rows = covering(&levels, 0, 1);
            assert!(all_pairs_meet(&levels, &rows), "{levels:?}");
            assert!(rows.len() <= at_most, "{} rows for {levels:?}", rows.len());
            assert!(rows[0].iter().all(|level| *level == 0));
        }
    }

    #[test]
    fn further_rows_are_given_where_they_are_asked_for() {
        assert_eq!(covering(&[2, 2], 9, 1).len(), 9);
        assert_eq!(covering(&[], 0, 1), [Vec::<usize>::new()]);
        assert_eq!(covering(&[3], 4, 1).len(), 4);
    }

    #[test]
    fn one_seed_gives_one_design() {
        assert_eq!(covering(&[4, 3, 3, 2], 0, 5), covering(&[4, 3, 3, 2], 0, 5));
    }
}
