//! `NeighborhoodTest` shows which elements packets come from and go to: the next ones, or all that are before and behind.
//!
//! Source: Click's `NeighborhoodTest`. `upstream` and `downstream` have a line with the name of each element that is found;
//! with an argument, the first elements of that class (or that have that name) on each path.

use crate::element::click::only::nearest::near;
use crate::graph::{ElementClass, Made, Passing, Setup};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("NeighborhoodTest", "-/-", "a/a", "x/x"),
    summary: "shows which elements are before it and behind it",
    configure: |setup| {
        let wanted = setup.args.optional::<String>("FILTER");
        setup.args.finish()?;
        let wanted = wanted?;
        let [before, behind] = [false, true].map(|behind| names(setup, wanted.as_deref(), behind));
        Ok(Made::new(|_| Passing)
            .handler(Handler::read("upstream", move || before.clone()))
            .handler(Handler::read("downstream", move || behind.clone())))
    },
};

/// Names of the elements that are found in one direction, a line each.
fn names(setup: &Setup<'_>, wanted: Option<&str>, behind: bool) -> String {
    let elements = setup.around.configuration.map_or(&[][..], |all| all.elements());
    let is = |number: usize| {
        let element = &elements[number];
        wanted.is_none_or(|wanted| element.class.name == wanted || *element.name == *wanted)
    };
    near(setup, behind, is).into_iter().map(|at| format!("{}\n", elements[at].name)).collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn neighbors_are_listed() {
        let text = "a :: Idle -> q :: Queue -> n :: NeighborhoodTest -> c :: Counter -> d :: Discard;
            Idle -> m :: NeighborhoodTest(Discard) -> t :: Tee -> Null -> e :: Discard; t [1] -> f :: Discard";
        let rig = Rig::new(&World::new(), text);
        assert_eq!([rig.read("n.upstream"), rig.read("n.downstream")], ["q\n", "c\n"]);
        assert_eq!([rig.read("m.upstream"), rig.read("m.downstream")], ["", "e\nf\n"]);
    }
}
