//! Where the elements of a drawing stand: in rows, so that connections lead down.
//!
//! Source: Sugiyama, Tagawa and Toda, 1981. An element is one row below the lowest element that leads to
//! it; a connection that passes rows has a bend in each, which takes room like an element; those that close
//! a cycle lead up. Rows are sorted by where their neighbors are, some times down and up, and the order with
//! the fewest crossings is kept; then places are the means of the neighbors' places, as near as the order
//! and the room allow (pool adjacent violators). Cost: rows times connections; see [`MOST_BENDS`].

use crate::language::{Configuration, closing};

/// Elements of a drawing at most: nobody looks at more.
const MOST_ELEMENTS: usize = 2000;
/// Bends of a drawing at most.
const MOST_BENDS: usize = 50_000;
/// Passes over all rows in search of a good order, and then of good places.
const PASSES: usize = 24;
/// Space between two neighbors of a row.
const GAP: f64 = 18.0;
/// Width of a bend.
const BEND: f64 = 6.0;

/// A graph that no drawing helps with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "too large to be drawn: at most {MOST_ELEMENTS} elements, {MOST_BENDS} connections and as many bends"
)]
pub struct TooLarge;

/// Something that takes room in a row: an element, or behind those a bend of a connection.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) row: usize,
    /// Middle.
    pub(super) x: f64,
    width: f64,
}

/// A drawing's places.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Elements by number, then bends.
    pub(super) spots: Vec<Spot>,
    /// Bends by connection.
    pub(super) ways: Vec<Vec<usize>>,
    /// Whether a connection closes a cycle, and leads up.
    pub(super) back: Vec<bool>,
    pub(super) rows: usize,
    /// Width of the drawing, from 0.
    pub(super) width: f64,
    order: Vec<Vec<usize>>,
    near: Vec<Vec<Near>>,
}

/// A neighbor, and how far from its middle and from one's own the connection ends.
#[derive(Clone, Copy, Debug)]
struct Near {
    spot: usize,
    there: f64,
    here: f64,
    /// Straight lines are worth more where both ends are bends.
    weight: f64,
}

/// Where a port of so many is, from the middle of an element.
pub(super) fn port_at(port: u32, ports: u32, width: f64) -> f64 {
    width * ((f64::from(port) + 0.5) / f64::from(ports.max(1)) - 0.5)
}

impl Layout {
    /// Places for elements of these widths.
    pub(super) fn new(graph: &Configuration, widths: &[f64]) -> Result<Self, TooLarge> {
        let few = graph.elements().len() <= MOST_ELEMENTS;
        if !few || graph.connections().len() > MOST_BENDS {
            return Err(TooLarge);
        }
        let back = back(graph);
        let rows_of = rows(graph, &back);
        let rows = rows_of.iter().max().map_or(0, |last| last + 1);
        let spot = |(&row, &width)| Spot { row, x: 0.0, width };
        let spots: Vec<Spot> = rows_of.iter().zip(widths).map(spot).collect();
        let near = vec![Vec::new(); spots.len()];
        let order = vec![Vec::new(); rows];
        let mut layout = Self { spots, ways: Vec::new(), back, rows, width: 0.0, order, near };
        for number in 0..graph.connections().len() {
            layout.way(graph, number)?;
        }
        for (number, spot) in layout.spots.iter().enumerate() {
            layout.order[spot.row].push(number);
        }
        layout.sort();
        layout.place();
        Ok(layout)
    }

    /// Adds the bends of a connection, and who is near whom by it.
    fn way(&mut self, graph: &Configuration, number: usize) -> Result<(), TooLarge> {
        let wire = graph.connections()[number];
        let (from, to) = (wire.from as usize, wire.to as usize);
        let (first, last) = (self.spots[from].row, self.spots[to].row);
        // One that leads up passes its own ends as well.
        let bent: Vec<usize> = match self.back[number] {
            true => (last..=first).rev().collect(),
            false => (first + 1..last).collect(),
        };
        let bends: Vec<usize> = bent.into_iter().map(|row| self.bend(row)).collect();
        if self.spots.len() > MOST_BENDS {
            return Err(TooLarge);
        }
        let ports = &graph.elements()[from];
        let leaves = port_at(wire.output, ports.outputs, self.spots[from].width);
        let ports = &graph.elements()[to];
        let arrives = port_at(wire.input, ports.inputs, self.spots[to].width);
        let mut ends = vec![(from, leaves)];
        ends.extend(bends.iter().map(|&bend| (bend, 0.0)));
        ends.push((to, arrives));
        for pair in ends.windows(2) {
            let [(one, at_one), (other, at_other)] = [pair[0], pair[1]];
            let elements = graph.elements().len();
            let weight = if one >= elements && other >= elements { 8.0 } else { 1.0 };
            self.near[one].push(Near { spot: other, there: at_other, here: at_one, weight });
            self.near[other].push(Near { spot: one, there: at_one, here: at_other, weight });
        }
        self.ways.push(bends);
        Ok(())
    }

    fn bend(&mut self, row: usize) -> usize {
        self.spots.push(Spot { row, x: 0.0, width: BEND });
        self.near.push(Vec::new());
        self.spots.len() - 1
    }

    /// Finds an order of each row.
    fn sort(&mut self) {
        (0..self.rows).for_each(|row| self.pack(row));
        let mut best = (self.crossings(), self.order.clone());
        for pass in 0..PASSES {
            let down = pass % 2 == 0;
            for row in self.turn(down) {
                let from = if down { Side::Above } else { Side::Below };
                let spots = self.order[row].iter();
                let mut sorted: Vec<(f64, usize)> =
                    spots.map(|&spot| (self.wanted(spot, from).0, spot)).collect();
                sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
                self.order[row] = sorted.into_iter().map(|(_, spot)| spot).collect();
                self.settle(row, from);
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.order.clone());
            }
        }
        self.order = best.1;
    }

    /// Finds a place for all, in this order.
    fn place(&mut self) {
        (0..self.rows).for_each(|row| self.pack(row));
        for pass in 0..PASSES {
            for row in self.turn(pass % 2 == 0) {
                self.settle(row, Side::Both);
            }
        }
        let left = |spot: &Spot| spot.x - spot.width / 2.0;
        let first = self.spots.iter().map(left).fold(f64::INFINITY, f64::min);
        for spot in &mut self.spots {
            spot.x -= first;
        }
        self.width = self.spots.iter().map(|s| s.x + s.width / 2.0).fold(0.0, f64::max);
    }

    fn turn(&self, down: bool) -> Vec<usize> {
        if down { (0..self.rows).collect() } else { (0..self.rows).rev().collect() }
    }

    /// How many pairs of connections cross between two rows.
    fn crossings(&self) -> usize {
        let mut count = 0;
        for row in 0..self.rows {
            let mut lines: Vec<(f64, f64)> = Vec::new();
            for &spot in &self.order[row] {
                let below = |near: &&Near| self.spots[near.spot].row > row;
                for near in self.near[spot].iter().filter(below) {
                    let lower = self.spots[near.spot].x + near.there;
                    lines.push((self.spots[spot].x + near.here, lower));
                }
            }
            lines.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
            let mut before: Vec<f64> = Vec::with_capacity(lines.len());
            for (_, lower) in lines {
                let at = before.partition_point(|&other| other <= lower);
                count += before.len() - at;
                before.insert(at, lower);
            }
        }
        count
    }

    /// Where a spot would be nearest to its neighbors of a side, and how much that is worth.
    fn wanted(&self, spot: usize, side: Side) -> (f64, f64) {
        let row = self.spots[spot].row;
        let (mut sum, mut weight) = (0.0, 0.0);
        for near in &self.near[spot] {
            let there = &self.spots[near.spot];
            if match side {
                Side::Above => there.row <= row,
                Side::Below => there.row >= row,
                Side::Both => true,
            } {
                sum += near.weight * (there.x + near.there - near.here);
                weight += near.weight;
            }
        }
        if weight == 0.0 { (self.spots[spot].x, 0.1) } else { (sum / weight, weight) }
    }

    /// Puts a row side by side.
    fn pack(&mut self, row: usize) {
        let mut end = 0.0;
        for &spot in &self.order[row] {
            let spot = &mut self.spots[spot];
            spot.x = end + spot.width / 2.0;
            end += spot.width + GAP;
        }
    }

    /// Moves a row to where it wants to be, as near as its order and its room allow. Neighbors that would
    /// overlap become a block, which is where its members want it in the mean.
    fn settle(&mut self, row: usize, side: Side) {
        struct Block {
            /// Sum of the members' wishes for the start of the row up to the block.
            sum: f64,
            weight: f64,
            members: usize,
        }
        let mut blocks: Vec<Block> = Vec::new();
        let mut end = 0.0;
        let mut offsets = Vec::with_capacity(self.order[row].len());
        for &spot in &self.order[row] {
            let width = self.spots[spot].width;
            let offset = end + width / 2.0;
            end += width + GAP;
            offsets.push(offset);
            let (wanted, weight) = self.wanted(spot, side);
            let mut block = Block { sum: (wanted - offset) * weight, weight, members: 1 };
            while let Some(last) =
                blocks.pop_if(|last| last.sum / last.weight >= block.sum / block.weight)
            {
                block.sum += last.sum;
                block.weight += last.weight;
                block.members += last.members;
            }
            blocks.push(block);
        }
        let mut at = 0;
        for block in blocks {
            for _ in 0..block.members {
                let spot = self.order[row][at];
                self.spots[spot].x = block.sum / block.weight + offsets[at];
                at += 1;
            }
        }
    }
}

/// Which neighbors count; those of the same row always do.
#[derive(Clone, Copy)]
enum Side {
    Above,
    Below,
    Both,
}

/// Whether each connection closes a cycle.
fn back(graph: &Configuration) -> Vec<bool> {
    let mut leaves: Vec<Vec<usize>> = vec![Vec::new(); graph.elements().len()];
    for (number, wire) in graph.connections().iter().enumerate() {
        leaves[wire.from as usize].push(number);
    }
    let leads = |element: usize, at: usize| {
        let wire = graph.connections()[*leaves[element].get(at)?];
        Some(Some(wire.to as usize))
    };
    let mut back = vec![false; graph.connections().len()];
    for (element, at) in closing(graph.elements().len(), leads) {
        back[leaves[element][at]] = true;
    }
    back
}

/// Longest path to each element from one without inputs.
fn rows(graph: &Configuration, back: &[bool]) -> Vec<usize> {
    let wires = || graph.connections().iter().zip(back).filter(|(_, back)| !**back);
    let mut leads: Vec<Vec<usize>> = vec![Vec::new(); graph.elements().len()];
    let mut waits = vec![0_usize; graph.elements().len()];
    for (wire, _) in wires() {
        leads[wire.from as usize].push(wire.to as usize);
        waits[wire.to as usize] += 1;
    }
    let mut rows = vec![0; waits.len()];
    let mut ready: Vec<usize> = (0..waits.len()).filter(|&element| waits[element] == 0).collect();
    while let Some(element) = ready.pop() {
        for &next in &leads[element] {
            rows[next] = rows[next].max(rows[element] + 1);
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push(next);
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::Language;
    use crate::language::testing::CLASSES;

    fn layout(text: &str) -> (Configuration, Layout) {
        let graph = Language::new(CLASSES).read("a.click", text).unwrap();
        let layout = Layout::new(&graph, &vec![100.0; graph.elements().len()]).unwrap();
        (graph, layout)
    }

    fn row(of: &(Configuration, Layout), name: &str) -> usize {
        of.1.spots[of.0.find(name).unwrap()].row
    }

    #[test]
    fn rows_are_the_longest_way_from_a_source() {
        let of = layout("i :: Idle -> c :: Counter -> d :: Discard; j :: Idle -> d; i [1] -> d");
        assert_eq!(["i", "j", "c", "d"].map(|name| row(&of, name)), [0, 0, 1, 2]);
        let bends: Vec<usize> = of.1.ways.iter().map(Vec::len).collect();
        assert_eq!(bends, [0, 0, 1, 1], "one row is passed");
        assert_eq!(of.1.back, [false; 4]);
    }

    #[test]
    fn what_closes_a_cycle_leads_up_past_both_ends() {
        let of = layout(
            "i :: Idle -> a :: Counter -> s :: Suppressor -> b :: Counter -> d :: Discard; \
             a2 :: Counter -> [1] s [1] -> a2",
        );
        assert_eq!(of.1.back.iter().filter(|back| **back).count(), 1);
        let at = of.1.back.iter().position(|back| *back).unwrap();
        let wire = of.0.connections()[at];
        let rows = [wire.from, wire.to].map(|end| of.1.spots[end as usize].row);
        assert_eq!(of.1.ways[at].len(), rows[0] - rows[1] + 1);
    }

    #[test]
    fn nothing_overlaps_and_nothing_crosses_without_need() {
        let text = "s :: Idle -> t :: Tee(4); t [0] -> a :: Counter -> e :: Discard; \
                    t [1] -> b :: Counter -> f :: Discard; t [2] -> c :: Counter -> g :: Discard; \
                    t [3] -> g";
        let (_, layout) = layout(text);
        assert_eq!(layout.crossings(), 0);
        for row in &layout.order {
            for pair in row.windows(2) {
                let [one, other] = [&layout.spots[pair[0]], &layout.spots[pair[1]]];
                let room = other.x - one.x - (one.width + other.width) / 2.0;
                assert!(room >= GAP - 0.01, "{room}");
            }
        }
        assert!(layout.width > 300.0 && layout.width < 1000.0, "{}", layout.width);
    }

    #[test]
    fn what_nobody_can_look_at_is_refused() {
        let many = "Idle -> Discard;".repeat(MOST_ELEMENTS / 2 + 1);
        let graph = Language::new(CLASSES).read("a.click", &many).unwrap();
        let widths = vec![1.0; graph.elements().len()];
        assert_eq!(Layout::new(&graph, &widths).unwrap_err(), TooLarge);
        let chain = "Idle".to_owned() + &" -> Counter".repeat(900) + " -> d :: Discard;";
        let bent: String = (0..100).map(|_| "Idle -> d;").collect();
        let graph = Language::new(CLASSES).read("a.click", &(chain + &bent)).unwrap();
        let widths = vec![1.0; graph.elements().len()];
        assert_eq!(Layout::new(&graph, &widths).unwrap_err(), TooLarge);
    }
}
