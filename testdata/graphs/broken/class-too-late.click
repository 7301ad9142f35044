Idle -> Pass -> Discard;
elementclass Pass { input -> output }
