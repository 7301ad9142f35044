Idle -> ( Counter -> Print ) -> Discard;
