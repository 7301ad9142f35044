elementclass A { elementclass B { Idle } b :: B }
b :: B;
