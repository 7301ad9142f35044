//! Runs of one document, measured in turn: A B C, A B C. What disturbs the machine for a while then
//! disturbs all of them, and the ratios between them hold.

use std::time::Duration;

/// Something that gives one sample each time it is measured for about `for_about`.
pub type Contestant<'a> = Box<dyn FnMut(Duration) -> f64 + 'a>;

/// Measures every contestant `repeat` times, in turn; `seconds` is shared out among all of it. One
/// round before that warms up caches and clocks and is not counted. `progress` gets the rounds done and
/// to be done.
pub fn alternate(
    contestants: &mut [Contestant<'_>],
    seconds: f64,
    repeat: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Vec<Vec<f64>> {
    let mut samples = vec![Vec::with_capacity(repeat); contestants.len()];
    let turns = contestants.len().max(1) * repeat.max(1);
    let turn = Duration::from_secs_f64((seconds / turns as f64).max(0.0));
    for contestant in contestants.iter_mut() {
        contestant(turn.min(WARM_UP));
    }
    for round in 0..repeat {
        for (contestant, samples) in contestants.iter_mut().zip(&mut samples) {
            samples.push(contestant(turn));
        }
        progress(round + 1, repeat);
    }
    samples
}

/// Long enough for a processor to raise its clock.
const WARM_UP: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn turns_alternate_and_the_first_round_is_not_counted() {
        let order = RefCell::new(String::new());
        let taken = RefCell::new(Vec::new());
        let mut number = 0.0;
        let mut a = |turn| {
            order.borrow_mut().push('a');
            taken.borrow_mut().push(turn);
            number += 1.0;
            number
        };
        let mut b = |_| {
            order.borrow_mut().push('b');
            0.5
        };
        let mut rounds = Vec::new();
        let samples =
            alternate(&mut [Box::new(&mut a), Box::new(&mut b)], 12.0, 3, &mut |done, of| {
                rounds.push((done, of))
            });
        assert_eq!(samples, [vec![2.0, 3.0, 4.0], vec![0.5; 3]]);
        assert_eq!(order.into_inner(), "abababab");
        assert_eq!(rounds, [(1, 3), (2, 3), (3, 3)]);
        let two = Duration::from_secs(2);
        assert_eq!(taken.into_inner(), [WARM_UP, two, two, two]);
        assert!(alternate(&mut [], 1.0, 3, &mut |_, _| {}).is_empty());
    }
}
