//! Drawings of a configuration in Graphviz's language.

use std::fmt::Write;

use super::class::Processing;
use super::flat::Configuration;

impl Configuration {
    /// It in the language of Graphviz; pull connections are dashed.
    pub fn dot(&self) -> String {
        let mut text = String::from(
            "digraph {\n  node [shape=record, fontname=\"monospace\", fontsize=10];\n  \
             edge [fontsize=8];\n",
        );
        for (number, element) in self.elements().iter().enumerate() {
            let ports = |letter, count| {
                let port = |port| format!("<{letter}{port}> {port}");
                let ports: Vec<String> = (0..count).map(port).collect();
                ports.join(" | ")
            };
            let (inputs, outputs) = (ports('i', element.inputs), ports('o', element.outputs));
            let side = |ports: &str| match ports {
                "" => String::new(),
                ports => format!("{{ {ports} }}"),
            };
            let words = format!("{} :: {}", element.name, element.class.name);
            let parts = [side(&inputs), escaped_record(&words), side(&outputs)];
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            let _ = writeln!(text, "  n{number} [label=\"{{ {} }}\"];", parts.join(" | "));
        }
        for wire in self.connections() {
            let style = if wire.kind == Processing::Pull { " [style=dashed]" } else { "" };
            let (from, to) = (wire.from, wire.to);
            let (output, input) = (wire.output, wire.input);
            let _ = writeln!(text, "  n{from}:o{output}:s -> n{to}:i{input}:n{style};");
        }
        text + "}\n"
    }
}

/// Text of a label of a record.
fn escaped_record(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '{' | '}' | '|' | '<' | '>' | '"' | '\\' | ' ') {
            done.push('\\');
        }
        done.push(c);
    }
    done
}

#[cfg(test)]
mod tests {
    use crate::language::testing::CLASSES;
    use crate::language::{Configuration, Language};

    fn graph(text: &str) -> Configuration {
        Language::new(CLASSES).read("a.click", text).unwrap()
    }

    #[test]
    fn graphviz_gets_ports_and_kinds() {
        assert_eq!(
            graph("i :: Idle -> q :: Queue -> Unqueue -> d :: Discard").dot(),
            "digraph {\n  node [shape=record, fontname=\"monospace\", fontsize=10];\n  \
             edge [fontsize=8];\n  \
             n0 [label=\"{ i\\ ::\\ Idle | { <o0> 0 } }\"];\n  \
             n1 [label=\"{ { <i0> 0 } | q\\ ::\\ Queue | { <o0> 0 } }\"];\n  \
             n2 [label=\"{ { <i0> 0 } | Unqueue@3\\ ::\\ Unqueue | { <o0> 0 } }\"];\n  \
             n3 [label=\"{ { <i0> 0 } | d\\ ::\\ Discard }\"];\n  \
             n0:o0:s -> n1:i0:n;\n  n1:o0:s -> n2:i0:n [style=dashed];\n  n2:o0:s -> n3:i0:n;\n}\n"
        );
    }

    #[test]
    fn a_graph_without_anything_is_a_drawing_too() {
        assert!(graph("").dot().ends_with("}\n"));
    }
}
