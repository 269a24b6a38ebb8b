//! Which bits to cut at.

use super::columns::Ternary;
use super::layout::Bits;

/// The weight of a rule that is in one cell.
const WEIGHT: u32 = 1 << 12;

/// Bits that are weighed at all: those that part the rules best by themselves.
const CANDIDATES: usize = 40;

/// What a cut may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bits at most.
    pub(super) bits: u32,
    /// Cells hold so many rules where they need no further cut.
    pub(super) enough: u32,
    /// Rules, with their copies in several cells, at most.
    pub(super) copies: usize,
}

/// A rule in a cell.
#[derive(Debug, Clone, Copy)]
struct Copy {
    rule: u32,
    cell: u32,
    weight: u32,
}

/// Rules of a cell, and their weights.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    rules: u32,
    weight: u32,
}

impl Load {
    fn add(&mut self, weight: u32) {
        self.rules += 1;
        self.weight += weight;
    }

    /// What is compared, weighed by how often one comes here.
    fn cost(self) -> u64 {
        u64::from(self.rules) * u64::from(self.weight)
    }
}

/// One bit of 128.
fn bit(at: u32) -> Bits {
    if at < 64 { [1 << at, 0] } else { [0, 1 << (at - 64)] }
}

/// `None` where a rule does not care for the bit, else its value there.
fn state(rule: &Ternary, bit: &Bits) -> Option<bool> {
    let is_set = |of: &Bits| (of[0] & bit[0]) | (of[1] & bit[1]) != 0;
    is_set(&rule.care).then(|| is_set(&rule.value))
}

/// The bits that part rules best within limits; none where no bit does.
pub(super) fn choose(rules: &[Ternary], limits: Limits) -> Bits {
    let mut chosen = [0, 0];
    if rules.len() <= limits.enough as usize {
        return chosen;
    }
    let mut left = candidates(rules);
    let mut copies: Vec<Copy> =
        (0..rules.len() as u32).map(|rule| Copy { rule, cell: 0, weight: WEIGHT }).collect();
    let mut cost = rules.len() as u64 * rules.len() as u64 * u64::from(WEIGHT);
    let mut loads = Vec::new();
    for step in 0..limits.bits {
        let cells = 1 << step;
        let weighed = left.iter().enumerate().filter_map(|(at, bit)| {
            let (cost, count) = weigh(rules, &copies, bit, cells, &mut loads);
            (count <= limits.copies).then_some((cost, at))
        });
        let Some((best, at)) = weighed.min() else { break };
        // A bit must be worth its doubling of the cells.
        if best * 16 > cost * 15 {
            break;
        }
        cost = best;
        let bit = left.swap_remove(at);
        chosen = [chosen[0] | bit[0], chosen[1] | bit[1]];
        let largest = split(rules, &mut copies, &bit, cells as u32);
        if largest <= limits.enough {
            break;
        }
    }
    chosen
}

/// The bits that are worth a look.
fn candidates(rules: &[Ternary]) -> Vec<Bits> {
    let mut counts = [[0_u32; 2]; 128];
    for rule in rules {
        for half in 0..2 {
            let mut care = rule.care[half];
            while care != 0 {
                let at = care.trailing_zeros();
                counts[half * 64 + at as usize][(rule.value[half] >> at & 1) as usize] += 1;
                care &= care - 1;
            }
        }
    }
    let parts = |at: &u32| counts[*at as usize].iter().copied().min().unwrap_or(0);
    let mut bits: Vec<u32> = (0..128).filter(|at| parts(at) > 0).collect();
    bits.sort_by_key(|at| std::cmp::Reverse(parts(at)));
    bits.truncate(CANDIDATES);
    bits.into_iter().map(bit).collect()
}

/// What a further bit would cost, and how many copies there would be.
fn weigh(
    rules: &[Ternary],
    copies: &[Copy],
    bit: &Bits,
    cells: usize,
    loads: &mut Vec<[Load; 2]>,
) -> (u64, usize) {
    loads.clear();
    loads.resize(cells, [Load::default(); 2]);
    let mut count = copies.len();
    for copy in copies {
        let sides = &mut loads[copy.cell as usize];
        match state(&rules[copy.rule as usize], bit) {
            Some(side) => sides[usize::from(side)].add(copy.weight),
            None => {
                sides.iter_mut().for_each(|side| side.add(copy.weight / 2));
                count += 1;
            }
        }
    }
    (loads.iter().flatten().map(|load| load.cost()).sum(), count)
}

/// Takes a bit; the rules of the largest cell.
fn split(rules: &[Ternary], copies: &mut Vec<Copy>, bit: &Bits, cells: u32) -> u32 {
    let mut sizes = vec![0_u32; 2 * cells as usize];
    for at in 0..copies.len() {
        let Copy { rule, cell, weight } = copies[at];
        let upper = cell + cells;
        match state(&rules[rule as usize], bit) {
            Some(side) => copies[at].cell = if side { upper } else { cell },
            None => {
                copies[at].weight = weight / 2;
                copies.push(Copy { rule, cell: upper, weight: weight / 2 });
                sizes[upper as usize] += 1;
            }
        }
        sizes[copies[at].cell as usize] += 1;
    }
    sizes.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bits: 8, enough: 1, copies: 64 };

    fn exact(value: u64) -> Ternary {
        Ternary { value: [value << 32, 0], care: [0xff << 32, 0] }
    }

    #[test]
    fn bits_that_all_rules_care_for_part_them() {
        // Values 0, 5, 10, 15 differ in four bits, of which two tell them apart.
        let rules = [0, 5, 10, 15].map(exact);
        let bits = choose(&rules, LIMITS);
        assert_eq!(bits[0].count_ones(), 2);
        assert_eq!(bits[1], 0);
        // Those of one value have no bit to part them.
        assert_eq!(choose(&[exact(7); 5], LIMITS), [0, 0]);
    }

    #[test]
    fn copies_have_a_bound() {
        // A quarter of the rules leaves the first bits open.
        let any = Ternary { value: [1 << 40, 0], care: [1 << 40, 0] };
        let mut rules: Vec<Ternary> = (0..12).map(exact).collect();
        rules.extend([any; 4]);
        let bits = choose(&rules, Limits { copies: 24, ..LIMITS });
        let copies: u32 = rules.iter().map(|rule| 1 << rule.open(&bits)).sum();
        assert!(bits[0] != 0 && copies <= 24, "{copies}");
    }
}
