define($c Counter);
Idle -> $c -> Discard;
