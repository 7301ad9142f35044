define($open "(" );
define($quote ');
Idle -> Print($quote) -> Discard;
