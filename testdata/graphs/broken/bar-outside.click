$x | Idle($x);
Idle | Discard;
