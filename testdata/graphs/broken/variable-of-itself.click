define($a $b, $b $a);
Idle($a);
