Counter -> Discard;
