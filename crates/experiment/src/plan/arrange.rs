//! The order of a plan's steps. Not here: which cells there are.

use super::{CANARY, CANARY_ROUNDS, Plan, PlannedCell, SAME_TARGET_PAIRS, Shape, Step};
use super::{against_itself, canary};
use crate::round::Purpose;
use std::collections::{BTreeMap, BTreeSet};

/// What is run before it is known when.
struct Block {
    cell: usize,
    round: u32,
}

/// Fills in the steps, and adds the cells of the canary and of targets against themselves.
pub(super) fn steps(plan: &mut Plan) {
    if plan.cells.is_empty() {
        return;
    }
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let shapes = by_shape(&plan.cells);
    // The canary is always the same cell on the same cluster: on the one that most cells need. That cluster comes
    // first and, with half of its cells, last.
    let most = |(_, cells): &(&Shape, &Vec<usize>)| cells.len();
    let home = shapes.iter().max_by_key(most).map(|(shape, _)| shape.clone());
    let home = home.expect("there are cells");
    let canary_at = plan.cells.len();
    plan.cells.push(canary(&plan.targets, &plan.cells[shapes[&home][0]]));
    let pairs_at = plan.cells.len();
    plan.cells.push(against_itself(&plan.targets, &plan.cells[shapes[&home][0]]));

    let mut blocks = arranged(plan, &shapes[&home], &mut random);
    let last = blocks.split_off(halfway(plan, &blocks));
    let others: Vec<Vec<Block>> = shapes
        .iter()
        .filter(|(shape, _)| **shape != home)
        .map(|(_, cells)| arranged(plan, cells, &mut random))
        .collect();

    let second_first = plan.cells.iter().map(|_| random.bool()).collect();
    let mut out = Writer { steps: Vec::new(), second_first, pairs: 0 };
    let half = SAME_TARGET_PAIRS / 2;
    out.canary(plan, canary_at, 0);
    out.with_pairs(plan, pairs_at, &blocks, 0..half);
    out.canary(plan, canary_at, 1);
    for blocks in &others {
        out.with_pairs(plan, pairs_at, blocks, 0..0);
    }
    out.with_pairs(plan, pairs_at, &last, half..SAME_TARGET_PAIRS);
    out.canary(plan, canary_at, 2);
    plan.steps = out.steps;
}

fn by_shape(cells: &[PlannedCell]) -> BTreeMap<Shape, Vec<usize>> {
    let mut shapes: BTreeMap<Shape, Vec<usize>> = BTreeMap::new();
    for (at, cell) in cells.iter().enumerate() {
        shapes.entry(cell.shape()).or_default().push(at);
    }
    shapes
}

/// The rounds of these cells: one experiment after the other, its rounds one after the other, shuffled inside.
fn arranged(plan: &Plan, cells: &[usize], random: &mut fastrand::Rng) -> Vec<Block> {
    let mut experiments: Vec<&str> = Vec::new();
    for at in cells {
        let experiment = plan.cells[*at].experiment.as_str();
        if !experiments.contains(&experiment) {
            experiments.push(experiment);
        }
    }
    let mut blocks = Vec::new();
    for experiment in experiments {
        let own = |at: &&usize| plan.cells[**at].experiment == experiment;
        let own: Vec<usize> = cells.iter().filter(own).copied().collect();
        let rounds = own.iter().map(|at| plan.cells[*at].rounds).max().unwrap_or(0);
        for round in 0..rounds {
            let in_round = own.iter().filter(|at| plan.cells[**at].rounds > round).copied();
            let shuffled = shuffled(plan, in_round.collect(), random);
            blocks.extend(shuffled.into_iter().map(|cell| Block { cell, round }));
        }
    }
    blocks
}

/// Shuffled, but what offers a share of a saturation comes behind the cell that measures it: each cell draws a place
/// between 0 and 1, such a one between the other's and 1.
fn shuffled(plan: &Plan, cells: Vec<usize>, random: &mut fastrand::Rng) -> Vec<usize> {
    let places: BTreeMap<usize, f64> = cells.iter().map(|at| (*at, random.f64())).collect();
    let place = |at: usize| match plan.cells[at].saturation.and_then(|base| places.get(&base)) {
        Some(base) => base + (1.0 - base) * places[&at],
        None => places[&at],
    };
    let mut cells = cells;
    // Two equal places: a saturation is never equal to its share's unless both are 1.
    cells.sort_by(|a, b| {
        let dependent = |at: &usize| plan.cells[*at].saturation.is_some();
        place(*a).total_cmp(&place(*b)).then(dependent(a).cmp(&dependent(b)))
    });
    cells
}

/// Where the home cluster's blocks are split: between two experiments, as near to the middle as may be, so that every
/// saturation stays with its shares.
fn halfway(plan: &Plan, blocks: &[Block]) -> usize {
    let experiment = |at: usize| plan.cells[blocks[at].cell].experiment.as_str();
    let borders = (1..blocks.len()).filter(|at| experiment(*at) != experiment(at - 1));
    let middle = blocks.len() / 2;
    borders.min_by_key(|at| at.abs_diff(middle)).unwrap_or(blocks.len())
}

struct Writer {
    steps: Vec<Step>,
    /// For each cell, whether its targets begin with the last one in even rounds; in odd ones it is the other way round.
    /// So no cell's ratio holds what it is worth to come first, and no factor decides who does.
    second_first: Vec<bool>,
    /// Pairs of targets against themselves so far; each begins with the other side.
    pairs: usize,
}

impl Writer {
    fn push(&mut self, cell: usize, round: u32, purpose: Purpose, target: String) {
        let order = self.steps.len() as u32;
        self.steps.push(Step { order, cell, target, round, purpose });
    }

    /// One round of a cell on its targets: A B, in the next round B A.
    fn block(&mut self, plan: &Plan, block: &Block, purpose: Purpose) {
        let mut targets = plan.cells[block.cell].targets.clone();
        if self.second_first[block.cell] == block.round.is_multiple_of(2) {
            targets.reverse();
        }
        for target in targets {
            self.push(block.cell, block.round, purpose, target);
        }
    }

    /// The rounds of the canary at one of its places, from 0.
    fn canary(&mut self, plan: &Plan, cell: usize, place: u32) {
        let first = place * CANARY_ROUNDS;
        for round in first..first + CANARY_ROUNDS {
            self.block(plan, &Block { cell, round }, Purpose::Canary);
        }
    }

    /// Blocks, and between them, evenly, the pairs of targets against themselves.
    fn with_pairs(
        &mut self,
        plan: &Plan,
        cell: usize,
        blocks: &[Block],
        pairs: std::ops::Range<u32>,
    ) {
        let every = blocks.len() / pairs.len().max(1) + 1;
        let mut pairs = pairs;
        for (at, block) in blocks.iter().enumerate() {
            if at % every == 0 {
                self.pair(plan, cell, pairs.next());
            }
            self.block(plan, block, Purpose::Cell);
        }
        for round in pairs {
            self.pair(plan, cell, Some(round));
        }
    }

    fn pair(&mut self, plan: &Plan, cell: usize, round: Option<u32>) {
        let Some(round) = round else { return };
        let sides = if self.pairs.is_multiple_of(2) { ["a", "b"] } else { ["b", "a"] };
        self.pairs += 1;
        for target in &plan.targets {
            for side in sides {
                self.push(cell, round, Purpose::SameTarget, format!("{target}#{side}"));
            }
        }
    }
}

/// How often a cluster is started: how often the shape changes along the steps.
pub(super) fn cluster_starts(plan: &Plan) -> usize {
    let shapes = plan.steps.iter().map(|step| plan.cell(step).shape());
    let shapes: Vec<Shape> = shapes.collect();
    shapes.chunk_by(|a, b| a == b).count()
}

/// The experiments that a plan runs.
pub(super) fn experiments(plan: &Plan) -> BTreeSet<&str> {
    let ids = plan.cells.iter().map(|cell| cell.experiment.as_str());
    ids.filter(|id| *id != CANARY).collect()
}
