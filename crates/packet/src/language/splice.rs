//! Puts elements into the connections of a checked configuration, for interface features of the built-in router.
//!
//! An element with as many inputs as outputs is put into a set of *points*: outputs of other elements, each with the
//! number of the input that takes its packets from then on. Output `n` of the new element leads where the points of
//! input `n` led before, so that a packet that only passes takes the path that it took.

use std::sync::Arc;

use super::class::{ClassSpec, Processing};
use super::flat::{Configuration, Connection, Declared};
use super::source::Span;
use super::text::Text;

/// An output of an element, and the input of the new element that takes its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    /// Number of the element.
    pub(crate) from: u32,
    /// Number of its output.
    pub(crate) output: u32,
    /// Number of the input of the new element.
    pub(crate) input: u32,
}

impl Configuration {
    /// Adds an element without arguments and connections; returns its number.
    ///
    /// # Panics
    /// When there is an element of this name.
    pub(crate) fn add_element(&mut self, name: &str, class: ClassSpec) -> u32 {
        let number = u32::try_from(self.elements.len()).expect("elements are bounded");
        let name: Arc<str> = name.into();
        let known = self.names.insert(name.clone(), number);
        assert!(known.is_none(), "there is an element `{name}`");
        let place = Span::default();
        let config = Text::of(&self.sources, place);
        self.elements.push(Declared { name, class, config, place, inputs: 0, outputs: 0 });
        number
    }

    /// Connects an output to an input; both push.
    pub(crate) fn connect(&mut self, (from, output): (u32, u32), (to, input): (u32, u32)) {
        let (kind, place) = (Processing::Push, Span::default());
        self.connections.push(Connection { from, output, to, input, kind, place });
        let outputs = &mut self.elements[from as usize].outputs;
        *outputs = (*outputs).max(output + 1);
        let inputs = &mut self.elements[to as usize].inputs;
        *inputs = (*inputs).max(input + 1);
    }

    /// Puts an element into the connections of these points.
    ///
    /// # Panics
    /// When points of one input lead to different places.
    pub(crate) fn splice(&mut self, element: u32, points: &[Point]) {
        let mut led: Vec<(u32, (u32, u32))> = Vec::new();
        let mut taken = Vec::new();
        for connection in &mut self.connections {
            let at =
                |point: &&Point| (point.from, point.output) == (connection.from, connection.output);
            let Some(point) = points.iter().find(at) else { continue };
            let to = (connection.to, connection.input);
            match led.iter().find(|(input, _)| *input == point.input) {
                Some((_, known)) => assert_eq!(*known, to, "points of one input lead to one place"),
                None => led.push((point.input, to)),
            }
            (connection.to, connection.input) = (element, point.input);
            taken.push(point.input);
        }
        let inputs = &mut self.elements[element as usize].inputs;
        *inputs = taken.into_iter().fold(*inputs, |most, input| most.max(input + 1));
        for (input, to) in led {
            self.connect((element, input), to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ELEMENTS;
    use crate::language::{Classes, Language};

    #[test]
    fn an_element_takes_the_place_of_connections() {
        let text = "a :: Idle -> d :: Discard; b :: Idle -> [0] d; c :: Idle -> e :: Discard;";
        let mut graph = Language::new(ELEMENTS).read("x", text).unwrap();
        let number =
            |graph: &Configuration, name| u32::try_from(graph.find(name).unwrap()).unwrap();
        let class = ELEMENTS.find("Tee").unwrap();
        let points = [("a", 0), ("b", 0), ("c", 1)].map(|(name, input)| Point {
            from: number(&graph, name),
            output: 0,
            input,
        });
        let element = graph.add_element("new", class);
        graph.splice(element, &points);
        let name = |number: u32| &graph.elements()[number as usize].name;
        let port = |port: u32| if port == 0 { String::new() } else { format!(" [{port}]") };
        let lines = graph.connections().iter().map(|wire| {
            let (output, input) = (port(wire.output), port(wire.input));
            format!("{}{output} ->{input} {};", name(wire.from), name(wire.to))
        });
        let text: String = lines.collect();
        for line in ["a -> new;", "b -> new;", "c -> [1] new;", "new -> d;", "new [1] -> e;"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(graph.connections().len(), 5);
        let new = &graph.elements()[element as usize];
        assert_eq!((new.inputs, new.outputs), (2, 2));
    }
}
