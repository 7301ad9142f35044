elementclass Pass { input -> Counter -> output; } }
Idle -> Pass -> Discard;
