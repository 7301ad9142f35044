elementclass Pass { input -> cuonter -> output }
Idle -> Pass -> Pass -> Discard;
