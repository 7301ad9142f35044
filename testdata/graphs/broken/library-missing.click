require(library routes.click);
Idle -> Discard;
