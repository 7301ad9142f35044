define($x 1, $y 2);
define($x 3);
