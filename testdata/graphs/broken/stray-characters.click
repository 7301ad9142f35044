Idle -> %%% -> Discard;
q := Queue;
