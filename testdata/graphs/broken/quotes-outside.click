Idle -> "Counter" -> Discard;
