elementclass A { input -> Counter -> Counter -> output }
elementclass B { input -> A -> A -> A -> A -> A -> A -> A -> A -> output }
elementclass C { input -> B -> B -> B -> B -> B -> B -> B -> B -> output }
elementclass D { input -> C -> C -> C -> C -> C -> C -> C -> C -> output }
elementclass E { input -> D -> D -> D -> D -> D -> D -> D -> D -> output }
elementclass F { input -> E -> E -> E -> E -> E -> E -> E -> E -> output }
elementclass G { input -> F -> F -> F -> F -> F -> F -> F -> F -> output }
Idle -> G -> Discard;
