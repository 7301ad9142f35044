elementclass Pass { input -> output }
Idle -> p :: Pass -> Discard;
p [1] -> Discard;
