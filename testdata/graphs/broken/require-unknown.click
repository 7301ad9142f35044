require(nothing known);
