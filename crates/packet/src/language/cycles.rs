//! Cycles of connections.

/// The edges that close cycles, as node and number of the edge: those which a walk, depth first, finds to lead
/// to a node that is still being walked. `next` gives where an edge leads, and `None` past the last.
pub(crate) fn closing(
    nodes: usize,
    next: impl Fn(usize, usize) -> Option<Option<usize>>,
) -> Vec<(usize, usize)> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; nodes];
    let mut found = Vec::new();
    for root in 0..nodes {
        let mut path = vec![(root, 0)];
        while let Some((node, edge)) = path.pop() {
            if edge == 0 {
                if marks[node] != Mark::New {
                    continue;
                }
                marks[node] = Mark::Open;
            }
            let Some(leads) = next(node, edge) else {
                marks[node] = Mark::Done;
                continue;
            };
            path.push((node, edge + 1));
            match leads.map(|to| (to, marks[to])) {
                Some((to, Mark::New)) => path.push((to, 0)),
                Some((_, Mark::Open)) => found.push((node, edge)),
                Some((_, Mark::Done)) | None => {}
            }
        }
    }
    found
}
