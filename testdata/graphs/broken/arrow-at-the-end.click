Idle -> Counter -> ;
